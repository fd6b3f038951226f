#include "trainer/data/formats/parquet_source.h"

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/chunked_array.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/util/byte_size.h>
#include <arrow/util/float16.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace downpour::data {
namespace {

constexpr std::size_t kMessageBytes = 500;
constexpr char kExpected[] =
    "expected bool, an integer, a float, a string, or a fixed_size_list of bools, integers or floats";

// A file of ours as Arrow wants it. For one thread.
class ArrowFile final : public arrow::io::RandomAccessFile {
 public:
  // `file` must outlive it.
  explicit ArrowFile(const data::RandomAccessFile& file) : file_(file) {}

  // The first error of the file: what Parquet makes of it is no longer of interest then.
  const absl::Status& error() const { return error_; }

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<std::int64_t> Tell() const override { return position_; }
  arrow::Status Seek(std::int64_t position) override {
    if (position < 0) return arrow::Status::IOError("a position below 0");
    position_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<std::int64_t> GetSize() override { return static_cast<std::int64_t>(file_.info().bytes); }

  using arrow::io::RandomAccessFile::ReadAt;
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t count, void* out) override {
    ARROW_ASSIGN_OR_RAISE(count, CountFrom(position, count));
    const absl::Status status = file_.ReadAt(static_cast<std::uint64_t>(position),
                                             {static_cast<std::uint8_t*>(out), static_cast<std::size_t>(count)});
    if (status.ok()) return count;
    if (error_.ok()) error_ = status;
    return arrow::Status::IOError(std::string(status.message()));
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position, std::int64_t count) override {
    // What a broken file asks for is not allocated before it is known to be there.
    ARROW_ASSIGN_OR_RAISE(count, CountFrom(position, count));
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateBuffer(count));
    ARROW_RETURN_NOT_OK(ReadAt(position, count, buffer->mutable_data()));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }
  arrow::Result<std::int64_t> Read(std::int64_t count, void* out) override {
    ARROW_ASSIGN_OR_RAISE(count, ReadAt(position_, count, out));
    position_ += count;
    return count;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, count));
    position_ += buffer->size();
    return buffer;
  }

 private:
  // How many of `count` bytes there are.
  arrow::Result<std::int64_t> CountFrom(std::int64_t position, std::int64_t count) const {
    const auto size = static_cast<std::int64_t>(file_.info().bytes);
    if (position < 0 || count < 0 || position > size) {
      return arrow::Status::IOError("bytes ", position, " to ", position + count, " of a file of ", size);
    }
    return std::min(count, size - position);
  }

  const data::RandomAccessFile& file_;  // not Arrow's
  std::int64_t position_ = 0;
  bool closed_ = false;
  absl::Status error_;
};

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(absl::Utf8SafeCHexEscape(text.substr(0, kMessageBytes)), {{"\\'", "'"}, {"\\\"", "\""}});
}

// The column's type and shape, or false: it is none that is read. `inside`: of a list.
bool TakeType(const arrow::DataType& type, const ParquetOptions& options, bool inside, Column* column) {
  switch (type.id()) {
    case arrow::Type::BOOL:
      column->type = ElementType::kU8;
      column->classes = 2;
      return true;
    case arrow::Type::UINT8:
      column->type = ElementType::kU8;
      return true;
    case arrow::Type::INT8:
    case arrow::Type::INT16:
    case arrow::Type::UINT16:
    case arrow::Type::INT32:
      column->type = ElementType::kI32;
      return true;
    case arrow::Type::UINT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT64:
      column->type = ElementType::kI64;
      return true;
    case arrow::Type::HALF_FLOAT:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
      column->type = ElementType::kF32;
      return true;
    case arrow::Type::FIXED_SIZE_LIST: {
      const auto& list = static_cast<const arrow::FixedSizeListType&>(type);
      if (list.list_size() < 1) return false;
      column->shape.push_back(list.list_size());
      return TakeType(*list.value_type(), options, true, column);
    }
    case arrow::Type::DICTIONARY: {
      const arrow::Type::type id = static_cast<const arrow::DictionaryType&>(type).value_type()->id();
      if (id != arrow::Type::STRING && id != arrow::Type::LARGE_STRING) return false;
      return TakeType(*static_cast<const arrow::DictionaryType&>(type).value_type(), options, inside, column);
    }
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
      column->text = true;
      break;
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
      if (!options.binary) return false;
      break;
    default:
      return false;
  }
  column->type = ElementType::kU8;
  column->shape.push_back(kAnyExtent);
  return !inside;
}

std::string Describe(const Column& column) {
  return column.text ? "text" : absl::StrCat(Name(column.type), " ", ShapeText(column.shape));
}

std::string Names(const std::vector<Column>& columns) {
  return absl::StrJoin(columns, ", ", [](std::string* out, const Column& column) {
    absl::StrAppend(out, "'", Escaped(column.name), "'");
  });
}

// A file that is open, for one thread.
struct Reader {
  std::unique_ptr<RandomAccessFile> file;
  std::shared_ptr<ArrowFile> adapter;
  std::unique_ptr<parquet::arrow::FileReader> parquet;
  std::vector<Column> columns;
  std::vector<int> leaves;  // of each column, as Parquet counts them

  // What `problem` of Parquet is due to.
  absl::Status Blame(absl::string_view where, absl::string_view problem) const {
    if (!adapter->error().ok()) return adapter->error();
    return absl::DataLossError(absl::StrCat(file->info().path, ": ", where, Escaped(problem)));
  }
};

// What `call` answers, exceptions of libparquet included.
template <typename Call>
arrow::Status Guarded(const Call& call) {
  try {
    return call();
  } catch (const std::exception& exception) {
    return arrow::Status::IOError(exception.what());
  }
}

absl::Status TakeColumns(const ParquetOptions& options, Reader* reader) {
  const std::string& path = reader->file->info().path;
  std::shared_ptr<arrow::Schema> schema;
  const arrow::Status status = Guarded([&] { return reader->parquet->GetSchema(&schema); });
  if (!status.ok()) return reader->Blame("its schema: ", status.message());
  std::vector<std::string> names = options.columns;
  if (names.empty()) names = schema->field_names();
  for (const std::string& name : names) {
    const std::vector<int> places = schema->GetAllFieldIndices(name);
    if (places.empty()) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: no column '%s', expected one of %s", path, Escaped(name),
                                                        Escaped(absl::StrJoin(schema->field_names(), ", "))));
    }
    if (places.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %d columns '%s', expected one", path, places.size(), Escaped(name)));
    }
    const arrow::DataType& type = *schema->field(places.front())->type();
    Column column;
    column.name = name;
    if (!TakeType(type, options, false, &column)) {
      const bool bytes = type.id() == arrow::Type::BINARY || type.id() == arrow::Type::LARGE_BINARY;
      return absl::InvalidArgumentError(absl::StrFormat("%s: column '%s' is %s, %s%s", path, Escaped(name),
                                                        Escaped(type.ToString()), kExpected,
                                                        bytes ? "; bytes are read where images are expected" : ""));
    }
    // Types that are read have one leaf.
    const parquet::arrow::SchemaField* field =
        &reader->parquet->manifest().schema_fields[static_cast<std::size_t>(places.front())];
    while (!field->children.empty()) field = &field->children.front();
    reader->columns.push_back(std::move(column));
    reader->leaves.push_back(field->column_index);
  }
  if (reader->columns.empty())
    return absl::DataLossError(absl::StrCat(path, ": found no columns, expected one or more"));
  return absl::OkStatus();
}

absl::StatusOr<Reader> OpenReader(const Files& files, const std::string& path, const ParquetOptions& options) {
  Reader reader;
  auto file = files.Open(path);
  if (!file.ok()) return file.status();
  reader.file = *std::move(file);
  reader.adapter = std::make_shared<ArrowFile>(*reader.file);
  const arrow::Status status = Guarded([&]() -> arrow::Status {
    parquet::ReaderProperties properties;
    properties.set_page_checksum_verification(true);
    // Reads are not gathered, nor are threads started: blocks are kept by the files, threads are the caller's.
    parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
    arrow_properties.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(reader.adapter, properties));
    builder.properties(arrow_properties);
    ARROW_ASSIGN_OR_RAISE(reader.parquet, builder.Build());
    return arrow::Status::OK();
  });
  if (!status.ok()) return reader.Blame("is no Parquet file, expected one: ", status.message());
  if (absl::Status taken = TakeColumns(options, &reader); !taken.ok()) return taken;
  return reader;
}

template <typename T>
void Append(T value, std::vector<std::byte>* bytes) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&value);
  bytes->insert(bytes->end(), begin, begin + sizeof(value));
}

// As it is stored -> as it is given; or what is wrong with it.
template <typename Out, typename In>
absl::Status AppendNumber(In stored, std::vector<std::byte>* bytes) {
  if constexpr (std::is_same_v<In, std::uint64_t>) {
    if (stored > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return absl::DataLossError(
          absl::StrFormat("is %d, expected at most %d", stored, std::numeric_limits<std::int64_t>::max()));
    }
  }
  if constexpr (std::is_same_v<In, double>) {
    if (std::isfinite(stored) && !std::isfinite(static_cast<float>(stored))) {
      return absl::DataLossError(absl::StrFormat("is %g, expected at most %g", stored,
                                                 static_cast<double>(std::numeric_limits<float>::max())));
    }
  }
  Append(static_cast<Out>(stored), bytes);
  return absl::OkStatus();
}

absl::Status NullError() { return absl::DataLossError("is null, expected a value"); }

// The values `begin` to `end` of an array of numbers.
template <typename Out, typename Array>
absl::Status AppendNumbers(const arrow::Array& array, std::int64_t begin, std::int64_t end, Value* value) {
  const auto& numbers = static_cast<const Array&>(array);
  const bool nulls = numbers.null_count() > 0;
  for (std::int64_t i = begin; i < end; ++i) {
    if (nulls && numbers.IsNull(i)) return NullError();
    absl::Status status;
    if constexpr (std::is_same_v<Array, arrow::HalfFloatArray>) {
      status = AppendNumber<Out>(arrow::util::Float16::FromBits(numbers.Value(i)).ToFloat(), &value->bytes);
    } else {
      status = AppendNumber<Out>(numbers.Value(i), &value->bytes);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

template <typename Array>
absl::Status AppendBytes(const arrow::Array& array, std::int64_t row, bool text, Value* value) {
  const std::string_view bytes = static_cast<const Array&>(array).GetView(row);
  if (text && !simdjson::validate_utf8(bytes.data(), bytes.size()))
    return absl::DataLossError("has bytes that are not UTF-8, expected text");
  const auto* const begin = reinterpret_cast<const std::byte*>(bytes.data());
  value->bytes.assign(begin, begin + bytes.size());
  value->shape = {static_cast<std::int64_t>(bytes.size())};
  return absl::OkStatus();
}

// The values `begin` to `end`: one of a column, or those of a list.
absl::Status AppendValues(const arrow::Array& array, std::int64_t begin, std::int64_t end, Value* value) {
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      return AppendNumbers<std::uint8_t, arrow::BooleanArray>(array, begin, end, value);
    case arrow::Type::UINT8:
      return AppendNumbers<std::uint8_t, arrow::UInt8Array>(array, begin, end, value);
    case arrow::Type::INT8:
      return AppendNumbers<std::int32_t, arrow::Int8Array>(array, begin, end, value);
    case arrow::Type::INT16:
      return AppendNumbers<std::int32_t, arrow::Int16Array>(array, begin, end, value);
    case arrow::Type::UINT16:
      return AppendNumbers<std::int32_t, arrow::UInt16Array>(array, begin, end, value);
    case arrow::Type::INT32:
      return AppendNumbers<std::int32_t, arrow::Int32Array>(array, begin, end, value);
    case arrow::Type::UINT32:
      return AppendNumbers<std::int64_t, arrow::UInt32Array>(array, begin, end, value);
    case arrow::Type::INT64:
      return AppendNumbers<std::int64_t, arrow::Int64Array>(array, begin, end, value);
    case arrow::Type::UINT64:
      return AppendNumbers<std::int64_t, arrow::UInt64Array>(array, begin, end, value);
    case arrow::Type::HALF_FLOAT:
      return AppendNumbers<float, arrow::HalfFloatArray>(array, begin, end, value);
    case arrow::Type::FLOAT:
      return AppendNumbers<float, arrow::FloatArray>(array, begin, end, value);
    case arrow::Type::DOUBLE:
      return AppendNumbers<float, arrow::DoubleArray>(array, begin, end, value);
    case arrow::Type::FIXED_SIZE_LIST: {
      const auto& list = static_cast<const arrow::FixedSizeListArray&>(array);
      for (std::int64_t i = begin; list.null_count() > 0 && i < end; ++i) {
        if (list.IsNull(i)) return NullError();
      }
      if (list.value_offset(end) > list.values()->length())
        return absl::DataLossError("is a list that is cut off, expected all of it");
      return AppendValues(*list.values(), list.value_offset(begin), list.value_offset(end), value);
    }
    default:
      break;
  }
  // The rest is not in lists: it is one value.
  if (array.IsNull(begin)) return NullError();
  switch (array.type_id()) {
    case arrow::Type::DICTIONARY: {
      const auto& indices = static_cast<const arrow::DictionaryArray&>(array);
      const std::int64_t index = indices.GetValueIndex(begin);
      if (index < 0 || index >= indices.dictionary()->length()) {
        return absl::DataLossError(
            absl::StrFormat("is entry %d of a dictionary of %d", index, indices.dictionary()->length()));
      }
      return AppendValues(*indices.dictionary(), index, index + 1, value);
    }
    case arrow::Type::STRING:
      return AppendBytes<arrow::StringArray>(array, begin, true, value);
    case arrow::Type::LARGE_STRING:
      return AppendBytes<arrow::LargeStringArray>(array, begin, true, value);
    case arrow::Type::BINARY:
      return AppendBytes<arrow::BinaryArray>(array, begin, false, value);
    case arrow::Type::LARGE_BINARY:
      return AppendBytes<arrow::LargeBinaryArray>(array, begin, false, value);
    default:
      return absl::InternalError(absl::StrCat("is ", array.type()->ToString(), ", ", kExpected));
  }
}

// A row group in memory.
struct Decoded {
  std::vector<std::shared_ptr<arrow::ChunkedArray>> columns;  // in the order of the source
  std::uint64_t bytes = 0;
};

class ParquetSource final : public SampleSource {
 public:
  ParquetSource(const Files& files, ParquetOptions options) : files_(files), options_(std::move(options)) {}

  absl::Status Open(const std::string& path) {
    auto listed = files_.List(path);
    if (!listed.ok()) return listed.status();
    for (FileInfo& info : *listed) {
      const absl::string_view name = absl::string_view(info.path).substr(info.path.rfind('/') + 1);
      const bool itself = info.path == path;
      if (itself || (absl::EndsWith(name, ".parquet") && !absl::StartsWith(name, "_"))) {
        infos_.push_back(std::move(info));
      }
    }
    if (infos_.empty()) {
      return absl::NotFoundError(absl::StrCat(path, ": found no file, expected one whose name ends with .parquet"));
    }
    for (std::size_t file = 0; file < infos_.size(); ++file) {
      if (absl::Status status = AddFile(file); !status.ok()) return status;
    }
    if (size_ == 0) return absl::DataLossError(absl::StrCat(path, ": found no rows, expected one or more"));
    return absl::OkStatus();
  }

  std::int64_t size() const override { return size_; }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::StatusOr<Sample> Read(std::int64_t index) const override {
    const auto group = std::prev(std::upper_bound(
        groups_.begin(), groups_.end(), index, [](std::int64_t row, const Group& next) { return row < next.first; }));
    auto decoded = Get(static_cast<std::size_t>(group - groups_.begin()));
    if (!decoded.ok()) return decoded.status();
    Sample sample(columns_.size());
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      Value& value = sample[i];
      value.shape = columns_[i].shape;
      std::int64_t row = index - group->first;
      const arrow::Array* array = nullptr;
      for (const auto& chunk : (*decoded)->columns[i]->chunks()) {
        array = chunk.get();
        if (row < chunk->length()) break;
        row -= chunk->length();
      }
      if (absl::Status status = AppendValues(*array, row, row + 1, &value); !status.ok()) {
        return absl::Status(status.code(), absl::StrFormat("%s: row %d: column '%s' %s", infos_[group->file].path,
                                                           group->first_in_file + index - group->first,
                                                           Escaped(columns_[i].name), status.message()));
      }
    }
    return sample;
  }

 private:
  struct Group {
    std::int64_t first;  // sample
    std::int64_t first_in_file;
    std::int64_t rows;
    std::uint32_t file;
    int index;  // in the file
  };
  // A row group that was asked for. One thread decodes it, and holds `mutex` meanwhile.
  struct Slot {
    std::mutex mutex;
    std::shared_ptr<const Decoded> decoded;  // null: not yet, or it failed
  };
  struct Kept {
    std::shared_ptr<Slot> slot;
    std::uint64_t bytes = 0;
    std::list<std::size_t>::iterator place;
  };

  absl::Status AddFile(std::size_t file) {
    auto reader = OpenReader(files_, infos_[file].path, options_);
    if (!reader.ok()) return reader.status();
    const std::string& path = infos_[file].path;
    infos_[file] = reader->file->info();
    if (file == 0) columns_ = reader->columns;
    if (absl::Status same = CheckColumns(*reader); !same.ok()) return same;

    const std::shared_ptr<parquet::FileMetaData> metadata = reader->parquet->parquet_reader()->metadata();
    std::int64_t first_in_file = 0;
    for (int i = 0; i < metadata->num_row_groups(); ++i) {
      std::int64_t rows = 0;
      std::uint64_t bytes = 0;
      const arrow::Status status = Guarded([&] {
        const auto group = metadata->RowGroup(i);
        rows = group->num_rows();
        for (const int leaf : reader->leaves) {
          bytes += static_cast<std::uint64_t>(
              std::max<std::int64_t>(0, group->ColumnChunk(leaf)->total_uncompressed_size()));
        }
        return arrow::Status::OK();
      });
      if (!status.ok()) return reader->Blame(absl::StrFormat("row group %d: ", i), status.message());
      if (rows < 0 || rows > std::numeric_limits<std::int64_t>::max() - size_) {
        return absl::DataLossError(absl::StrFormat("%s: row group %d has %d rows", path, i, rows));
      }
      if (bytes > options_.memory_bytes) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "%s: row group %d has %d bytes, expected at most %d: write the file with smaller row groups, or read fewer "
            "columns",
            path, i, bytes, options_.memory_bytes));
      }
      if (rows == 0) continue;
      groups_.push_back({size_, first_in_file, rows, static_cast<std::uint32_t>(file), i});
      size_ += rows;
      first_in_file += rows;
    }
    return absl::OkStatus();
  }

  absl::Status CheckColumns(const Reader& reader) const {
    const std::string& path = reader.file->info().path;
    const auto same_name = [](const Column& a, const Column& b) { return a.name == b.name; };
    if (!std::equal(columns_.begin(), columns_.end(), reader.columns.begin(), reader.columns.end(), same_name)) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: columns %s, expected %s as in %s", path,
                                                        Names(reader.columns), Names(columns_), infos_[0].path));
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i] == reader.columns[i]) continue;
      return absl::InvalidArgumentError(absl::StrFormat("%s: column '%s' is %s, expected %s as in %s", path,
                                                        Escaped(columns_[i].name), Describe(reader.columns[i]),
                                                        Describe(columns_[i]), infos_[0].path));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Decoded>> Get(std::size_t group) const {
    std::shared_ptr<Slot> slot;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto [kept, is_new] = kept_.try_emplace(group);
      if (is_new) {
        kept->second.slot = std::make_shared<Slot>();
        order_.push_front(group);
        kept->second.place = order_.begin();
      } else {
        order_.splice(order_.begin(), order_, kept->second.place);
      }
      slot = kept->second.slot;
    }
    const std::lock_guard<std::mutex> lock(slot->mutex);
    if (slot->decoded != nullptr) return slot->decoded;
    auto decoded = Decode(groups_[group]);
    if (!decoded.ok()) return decoded.status();
    slot->decoded = *std::move(decoded);
    Count(group, slot);
    return slot->decoded;
  }

  // After a row group was decoded: the ones that were used longest ago make room for it.
  void Count(std::size_t group, const std::shared_ptr<Slot>& slot) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto kept = kept_.find(group);
    if (kept == kept_.end() || kept->second.slot != slot) return;  // it made room itself meanwhile
    kept->second.bytes = slot->decoded->bytes;
    used_ += kept->second.bytes;
    while (used_ > options_.memory_bytes && order_.size() > 1) {
      const auto oldest = kept_.find(order_.back());
      used_ -= oldest->second.bytes;
      order_.pop_back();
      kept_.erase(oldest);
    }
  }

  absl::StatusOr<std::shared_ptr<const Decoded>> Decode(const Group& group) const {
    const FileInfo& info = infos_[group.file];
    auto reader = OpenReader(files_, info.path, options_);
    if (!reader.ok()) return reader.status();
    if (reader->file->info() != info || reader->columns != columns_) {
      return absl::DataLossError(absl::StrCat(info.path, ": is another file than it was when it was opened first"));
    }
    std::shared_ptr<arrow::Table> table;
    auto decoded = std::make_shared<Decoded>();
    const arrow::Status status = Guarded([&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(table, reader->parquet->ReadRowGroup(group.index, reader->leaves));
      ARROW_RETURN_NOT_OK(table->Validate());
      for (const Column& column : columns_) {
        std::shared_ptr<arrow::ChunkedArray> values = table->GetColumnByName(column.name);
        if (values == nullptr) return arrow::Status::Invalid("no column '", column.name, "'");
        if (values->length() != group.rows) {
          return arrow::Status::Invalid("column '", column.name, "' has ", values->length(), " rows, expected ",
                                        group.rows);
        }
        decoded->columns.push_back(std::move(values));
      }
      decoded->bytes = static_cast<std::uint64_t>(arrow::util::TotalBufferSize(*table));
      return arrow::Status::OK();
    });
    if (!status.ok()) {
      return reader->Blame(absl::StrFormat("rows %d to %d cannot be read, expected sound ones: ", group.first_in_file,
                                           group.first_in_file + group.rows - 1),
                           status.message());
    }
    return decoded;
  }

  const Files& files_;
  const ParquetOptions options_;
  std::vector<FileInfo> infos_;
  std::vector<Column> columns_;
  std::vector<Group> groups_;
  std::int64_t size_ = 0;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  mutable std::map<std::size_t, Kept> kept_;  // by place in groups_
  mutable std::list<std::size_t> order_;      // keys of kept_, the newest use first
  mutable std::uint64_t used_ = 0;            // bytes of kept_
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleSource>> OpenParquet(const Files& files, const std::string& path,
                                                          const ParquetOptions& options) {
  auto source = std::make_unique<ParquetSource>(files, options);
  if (absl::Status status = source->Open(path); !status.ok()) return status;
  return source;
}

}  // namespace downpour::data
