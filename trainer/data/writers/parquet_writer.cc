#include "trainer/data/writers/parquet_writer.h"

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/data/transforms/numbers.h"

namespace downpour::data {
namespace {

constexpr std::size_t kRowGroupBytes = std::size_t{4} << 20U;

absl::Status ToAbslStatus(const arrow::Status& status) {
  return status.ok() ? absl::OkStatus() : absl::InternalError(absl::StrCat("Parquet: ", status.ToString()));
}

// A new file of ours as Arrow wants it. For one thread.
class ArrowOutput final : public arrow::io::OutputStream {
 public:
  explicit ArrowOutput(std::unique_ptr<AppendedFile> file) : file_(std::move(file)) {}

  // The first error of the file.
  const absl::Status& error() const { return error_; }
  absl::Status Commit() { return error_.ok() ? file_->Commit() : error_; }

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<std::int64_t> Tell() const override { return position_; }
  using arrow::io::OutputStream::Write;
  arrow::Status Write(const void* bytes, std::int64_t count) override {
    const absl::Status status = file_->Append(bytes, static_cast<std::size_t>(count));
    if (!status.ok()) {
      if (error_.ok()) error_ = status;
      return arrow::Status::IOError(std::string(status.message()));
    }
    position_ += count;
    return arrow::Status::OK();
  }

 private:
  const std::unique_ptr<AppendedFile> file_;
  absl::Status error_ = absl::OkStatus();
  std::int64_t position_ = 0;
  bool closed_ = false;
};

std::shared_ptr<arrow::DataType> NumberType(ElementType type) {
  switch (type) {
    case ElementType::kU8:
      return arrow::uint8();
    case ElementType::kI32:
      return arrow::int32();
    case ElementType::kI64:
      return arrow::int64();
    case ElementType::kF32:
      break;
  }
  return arrow::float32();
}

// Whether an element may be absent has to be the same in the type and in the lists that are made of it.
std::shared_ptr<arrow::DataType> ListType(const std::shared_ptr<arrow::DataType>& element, std::int64_t extent) {
  return arrow::fixed_size_list(arrow::field("element", element, /*nullable=*/false),
                                static_cast<std::int32_t>(extent));
}

std::shared_ptr<arrow::DataType> TypeOf(const Column& column) {
  if (column.text) return arrow::utf8();
  std::shared_ptr<arrow::DataType> type = NumberType(column.type);
  for (auto extent = column.shape.rbegin(); extent != column.shape.rend(); ++extent) type = ListType(type, *extent);
  return type;
}

// The values of a column in a row group.
struct Values {
  std::string bytes;
  std::vector<std::int32_t> ends;  // of texts
};

std::shared_ptr<arrow::Array> ToArray(const Column& column, Values values, std::int64_t rows) {
  std::shared_ptr<arrow::Buffer> bytes = arrow::Buffer::FromString(std::move(values.bytes));
  if (column.text) {
    std::vector<std::int32_t> offsets = {0};
    offsets.insert(offsets.end(), values.ends.begin(), values.ends.end());
    return std::make_shared<arrow::StringArray>(rows, arrow::Buffer::FromVector(std::move(offsets)), std::move(bytes));
  }
  std::shared_ptr<arrow::DataType> type = NumberType(column.type);
  const auto numbers = bytes->size() / static_cast<std::int64_t>(BytesOf(column.type));
  std::shared_ptr<arrow::Array> array =
      arrow::MakeArray(arrow::ArrayData::Make(type, numbers, {nullptr, std::move(bytes)}));
  for (auto extent = column.shape.rbegin(); extent != column.shape.rend(); ++extent) {
    type = ListType(type, *extent);
    array = std::make_shared<arrow::FixedSizeListArray>(type, array->length() / *extent, array);
  }
  return array;
}

class ParquetWriter final : public SampleWriter {
 public:
  ParquetWriter(std::vector<Column> columns, std::shared_ptr<arrow::Schema> schema, std::shared_ptr<ArrowOutput> output,
                std::unique_ptr<parquet::arrow::FileWriter> writer)
      : columns_(std::move(columns)),
        schema_(std::move(schema)),
        output_(std::move(output)),
        writer_(std::move(writer)),
        values_(columns_.size()) {}

  absl::Status Add(const Sample& sample) override {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      Values& values = values_[i];
      const std::vector<std::byte>& bytes = sample[i].bytes;
      values.bytes.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      if (columns_[i].text) values.ends.push_back(static_cast<std::int32_t>(values.bytes.size()));
      bytes_ += bytes.size();
    }
    ++rows_;
    return bytes_ < kRowGroupBytes ? absl::OkStatus() : WriteRowGroup();
  }

  absl::Status Finish() override {
    if (rows_ > 0) {
      if (absl::Status status = WriteRowGroup(); !status.ok()) return status;
    }
    try {
      if (absl::Status status = ToAbslStatus(writer_->Close()); !status.ok()) return Cause(status);
    } catch (const std::exception& error) {
      return absl::InternalError(absl::StrCat("Parquet: ", error.what()));
    }
    return output_->Commit();
  }

 private:
  // What Arrow says of an error of the file is less than what the file said.
  absl::Status Cause(const absl::Status& status) const { return output_->error().ok() ? status : output_->error(); }

  absl::Status WriteRowGroup() {
    std::vector<std::shared_ptr<arrow::Array>> arrays;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      arrays.push_back(ToArray(columns_[i], std::exchange(values_[i], Values()), rows_));
    }
    const std::int64_t rows = std::exchange(rows_, 0);
    bytes_ = 0;
    try {
      return Cause(ToAbslStatus(writer_->WriteTable(*arrow::Table::Make(schema_, arrays, rows), rows)));
    } catch (const std::exception& error) {
      return absl::InternalError(absl::StrCat("Parquet: ", error.what()));
    }
  }

  const std::vector<Column> columns_;
  const std::shared_ptr<arrow::Schema> schema_;
  const std::shared_ptr<ArrowOutput> output_;
  const std::unique_ptr<parquet::arrow::FileWriter> writer_;
  std::vector<Values> values_;
  std::int64_t rows_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleWriter>> MakeParquetWriter(const WriterOptions& options) {
  arrow::FieldVector fields;
  for (const Column& column : options.columns) {
    const bool ragged = std::any_of(column.shape.begin(), column.shape.end(), [](auto extent) { return extent < 1; });
    if (ragged && !column.text) {
      return absl::InvalidArgumentError(absl::StrCat("Parquet: column \"", column.name, "\" is ",
                                                     ShapeText(column.shape), ", expected values of one shape"));
    }
    fields.push_back(arrow::field(column.name, TypeOf(column), /*nullable=*/false));
  }
  absl::StatusOr<std::unique_ptr<AppendedFile>> file = AppendedFile::Create(options.directory + "/data.parquet");
  if (!file.ok()) return file.status();
  auto output = std::make_shared<ArrowOutput>(*std::move(file));
  std::shared_ptr<arrow::Schema> schema = arrow::schema(std::move(fields));
  // Parquet itself does not say that lists are of one size.
  const auto properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  try {
    arrow::Result<std::unique_ptr<parquet::arrow::FileWriter>> writer = parquet::arrow::FileWriter::Open(
        *schema, arrow::default_memory_pool(), output, parquet::default_writer_properties(), properties);
    if (!writer.ok()) return ToAbslStatus(writer.status());
    return std::make_unique<ParquetWriter>(options.columns, std::move(schema), std::move(output), *std::move(writer));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("Parquet: ", error.what()));
  }
}

}  // namespace downpour::data
