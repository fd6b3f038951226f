#include "trainer/data/formats/npy_source.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "trainer/data/encoding.h"
#include "trainer/data/formats/array_source.h"
#include "trainer/data/formats/npy.h"
#include "trainer/data/formats/zip.h"

namespace downpour::data {
namespace {

constexpr absl::string_view kSuffix = ".npy";

// What was inflated.
class BytesFile final : public RandomAccessFile {
 public:
  BytesFile(std::string path, std::vector<std::uint8_t> bytes)
      : info_{std::move(path), bytes.size(), 0}, bytes_(std::move(bytes)) {}

  const FileInfo& info() const override { return info_; }
  absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> to) const override {
    if (offset > bytes_.size() || to.size() > bytes_.size() - offset) {
      return absl::DataLossError(absl::StrFormat("%s: ends at byte %d", info_.path, bytes_.size()));
    }
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
    return absl::OkStatus();
  }

 private:
  const FileInfo info_;
  const std::vector<std::uint8_t> bytes_;
};

// The array in the `bytes` bytes from `begin` on.
absl::Status Add(std::string name, std::string origin, std::shared_ptr<const RandomAccessFile> file,
                 std::uint64_t begin, std::uint64_t bytes, std::vector<StoredArray>* arrays) {
  absl::StatusOr<NpyHeader> header = ReadNpyHeader(*file, begin, bytes);
  if (!header.ok()) {
    // Those of the file name it already.
    const absl::string_view message = header.status().message();
    return absl::StartsWith(message, absl::StrCat(file->info().path, ": "))
               ? header.status()
               : absl::Status(header.status().code(), absl::StrCat(origin, ": ", message));
  }
  arrays->push_back({std::move(name), std::move(origin), header->type, header->big_endian, std::move(header->shape),
                     std::move(file), begin + header->data_begin});
  return absl::OkStatus();
}

absl::Status AddArchive(const std::shared_ptr<const RandomAccessFile>& file, const NpyOptions& options,
                        std::vector<StoredArray>* arrays) {
  const std::string& path = file->info().path;
  const absl::StatusOr<std::vector<ZipEntry>> entries = ReadZipDirectory(*file);
  if (!entries.ok()) return entries.status();
  std::uint64_t inflated = 0;
  for (const ZipEntry& entry : *entries) {
    if (!absl::EndsWith(entry.name, kSuffix)) {
      return absl::DataLossError(absl::StrFormat("%s: found \"%s\", expected arrays alone, whose names end in .npy",
                                                 path, absl::CHexEscape(entry.name)));
    }
    if (!entry.deflated) continue;
    if (entry.bytes > options.most_inflated_bytes - inflated) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%s: with \"%s\", the deflated arrays have more than %d bytes, which is as much as may be held in memory: "
          "save them with numpy.savez instead of numpy.savez_compressed",
          path, absl::CHexEscape(entry.name), options.most_inflated_bytes));
    }
    inflated += entry.bytes;
  }
  for (const ZipEntry& entry : *entries) {
    const std::string origin = absl::StrCat(path, ": ", absl::CHexEscape(entry.name));
    std::shared_ptr<const RandomAccessFile> source = file;
    std::uint64_t begin = entry.data_begin;
    if (entry.deflated) {
      absl::StatusOr<std::vector<std::uint8_t>> bytes = InflateZipEntry(*file, entry);
      if (!bytes.ok()) return bytes.status();
      source = std::make_shared<BytesFile>(origin, *std::move(bytes));
      begin = 0;
    }
    const absl::string_view name = absl::StripSuffix(entry.name, kSuffix);
    if (absl::Status added = Add(std::string(name), origin, std::move(source), begin, entry.bytes, arrays);
        !added.ok()) {
      return added;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleSource>> OpenNpy(const Files& files, const std::string& path,
                                                      const NpyOptions& options) {
  const absl::StatusOr<std::vector<FileInfo>> found = files.List(path);
  if (!found.ok()) return found.status();
  const bool one = found->size() == 1 && found->front().path == path;
  std::vector<StoredArray> arrays;
  for (const FileInfo& info : *found) {
    if (!one && !absl::EndsWith(info.path, kSuffix)) continue;
    absl::StatusOr<std::shared_ptr<const RandomAccessFile>> file = files.Open(info.path);
    if (!file.ok()) return file.status();
    const std::uint64_t bytes = (*file)->info().bytes;
    if (one) {
      std::vector<std::uint8_t> start(std::min<std::uint64_t>(bytes, 2));
      if (absl::Status read = (*file)->ReadAt(0, absl::MakeSpan(start)); !read.ok()) return read;
      if (AsText(start) == "PK") {
        if (absl::Status added = AddArchive(*file, options, &arrays); !added.ok()) return added;
        break;
      }
    }
    absl::string_view name = absl::StripSuffix(info.path, kSuffix);
    if (!one) {
      name = absl::StripPrefix(absl::StripPrefix(name, path), "/");
    } else if (!options.column.empty()) {
      name = options.column;
    } else {
      name = name.substr(name.rfind('/') + 1);
    }
    if (absl::Status added = Add(std::string(name), info.path, *std::move(file), 0, bytes, &arrays); !added.ok()) {
      return added;
    }
  }
  return MakeArraySource(path, std::move(arrays));
}

}  // namespace downpour::data
