// NPY and safetensors: a file, or a part of one, for each column, which has one shape.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "trainer/data/transforms/transform.h"
#include "trainer/data/writers/writer.h"

namespace downpour::data {
namespace {

absl::Status CheckArrays(const std::vector<Column>& columns, const char* format) {
  for (const Column& column : columns) {
    const bool varies = std::find(column.shape.begin(), column.shape.end(), kAnyExtent) != column.shape.end();
    if (!varies) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(format, " holds arrays of one shape, not \"", column.name, "\", ", TypeText(column)));
  }
  return absl::OkStatus();
}

std::uint64_t BytesOfSample(const Column& column) {
  std::uint64_t bytes = BytesOf(column.type);
  for (const std::int64_t extent : column.shape) bytes *= static_cast<std::uint64_t>(extent);
  return bytes;
}

// NumPy's format 1.0: the header and its length are a multiple of 64 bytes.
std::string NpyHeader(const Column& column, std::int64_t samples) {
  const char* type = column.type == ElementType::kU8    ? "|u1"
                     : column.type == ElementType::kI32 ? "<i4"
                     : column.type == ElementType::kI64 ? "<i8"
                                                        : "<f4";
  std::string shape = absl::StrCat(samples, ",");
  for (const std::int64_t extent : column.shape) absl::StrAppend(&shape, " ", extent, ",");
  if (!column.shape.empty()) shape.pop_back();
  std::string text = absl::StrCat("{'descr': '", type, "', 'fortran_order': False, 'shape': (", shape, "), }");
  constexpr std::size_t kBefore = 10;
  text.append(64 - (kBefore + text.size() + 1) % 64, ' ');
  text += '\n';
  const auto length = static_cast<std::uint16_t>(text.size());
  return absl::StrCat("\x93NUMPY", std::string("\x01\x00", 2),
                      std::string{static_cast<char>(length & 0xff), static_cast<char>(length >> 8)}, text);
}

class NpyWriter final : public SampleWriter {
 public:
  static absl::StatusOr<std::unique_ptr<SampleWriter>> Create(const WriterOptions& options) {
    auto writer = std::make_unique<NpyWriter>();
    for (const Column& column : options.columns) {
      absl::StatusOr<std::unique_ptr<AppendedFile>> file =
          AppendedFile::Create(absl::StrCat(options.directory, "/", column.name, ".npy"));
      if (!file.ok()) return file.status();
      if (absl::Status status = (*file)->Append(NpyHeader(column, options.samples)); !status.ok()) return status;
      writer->files_.push_back(*std::move(file));
    }
    return writer;
  }

  absl::Status Add(const Sample& sample) override {
    for (std::size_t i = 0; i < sample.size(); ++i) {
      if (absl::Status status = files_[i]->Append(sample[i].bytes.data(), sample[i].bytes.size()); !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    for (const std::unique_ptr<AppendedFile>& file : files_) {
      if (absl::Status status = file->Commit(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::unique_ptr<AppendedFile>> files_;
};

class SafetensorsWriter final : public SampleWriter {
 public:
  static absl::StatusOr<std::unique_ptr<SampleWriter>> Create(const WriterOptions& options) {
    absl::StatusOr<std::unique_ptr<NewFile>> file = NewFile::Create(options.directory + "/data.safetensors");
    if (!file.ok()) return file.status();
    auto writer = std::make_unique<SafetensorsWriter>();
    writer->file_ = *std::move(file);
    nlohmann::json header;
    std::uint64_t end = 0;
    for (const Column& column : options.columns) {
      const char* type = column.type == ElementType::kU8    ? "U8"
                         : column.type == ElementType::kI32 ? "I32"
                         : column.type == ElementType::kI64 ? "I64"
                                                            : "F32";
      std::vector<std::int64_t> shape = column.shape;
      shape.insert(shape.begin(), options.samples);
      const std::uint64_t begin = end;
      end += BytesOfSample(column) * static_cast<std::uint64_t>(options.samples);
      header[column.name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {begin, end}}};
      writer->next_.push_back(begin);
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    const std::uint64_t length = text.size();
    for (std::uint64_t& next : writer->next_) next += sizeof(length) + length;
    const absl::Status first = writer->Write(0, &length, sizeof(length));
    if (!first.ok()) return first;
    const absl::Status second = writer->Write(sizeof(length), text.data(), text.size());
    if (!second.ok()) return second;
    return writer;
  }

  absl::Status Add(const Sample& sample) override {
    for (std::size_t i = 0; i < sample.size(); ++i) {
      const std::vector<std::byte>& bytes = sample[i].bytes;
      if (absl::Status status = Write(next_[i], bytes.data(), bytes.size()); !status.ok()) return status;
      next_[i] += bytes.size();
    }
    return absl::OkStatus();
  }

  absl::Status Finish() override { return file_->Commit(); }

 private:
  absl::Status Write(std::uint64_t offset, const void* bytes, std::size_t count) {
    return file_->WriteAt(offset, {static_cast<const std::uint8_t*>(bytes), count});
  }

  std::unique_ptr<NewFile> file_;
  std::vector<std::uint64_t> next_;  // where the next sample of each column is written
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleWriter>> MakeNpyWriter(const WriterOptions& options) {
  if (absl::Status status = CheckArrays(options.columns, "NPY"); !status.ok()) return status;
  return NpyWriter::Create(options);
}

absl::StatusOr<std::unique_ptr<SampleWriter>> MakeSafetensorsWriter(const WriterOptions& options) {
  if (absl::Status status = CheckArrays(options.columns, "SafeTensors"); !status.ok()) return status;
  return SafetensorsWriter::Create(options);
}

}  // namespace downpour::data
