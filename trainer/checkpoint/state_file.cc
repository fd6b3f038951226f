#include "trainer/checkpoint/state_file.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/checkpoint/block.h"

namespace downpour::checkpoint {
namespace {

constexpr absl::string_view kFileMagic = "DPCS";
constexpr absl::string_view kRecordMagic = "DPCR";
constexpr absl::string_view kEndMagic = "DPCE";
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 48;
constexpr std::size_t kRecordBytes = 48;
constexpr std::size_t kEndBytes = 24;

using Header = Block<kHeaderBytes>;
using Record = Block<kRecordBytes>;
using End = Block<kEndBytes>;

// Small reads near one another in one: each may be a question to a server.
class Window {
 public:
  explicit Window(StoreReader& file) : file_(file) {}

  absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) {
    if (offset < begin_ || offset + bytes.size() > begin_ + bytes_.size()) {
      bytes_.resize(std::min<std::uint64_t>(std::max<std::uint64_t>(kBytes, bytes.size()), file_.size() - offset));
      begin_ = offset;
      if (absl::Status read = file_.ReadAt(offset, absl::MakeSpan(bytes_)); !read.ok()) return read;
    }
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset - begin_), bytes.size(), bytes.begin());
    return absl::OkStatus();
  }

 private:
  static constexpr std::uint64_t kBytes = 65536;

  StoreReader& file_;
  std::uint64_t begin_ = 0;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace

absl::Status StateFileWriter::Write(absl::Span<const std::uint8_t> bytes) {
  bytes_ += bytes.size();
  return file_.Append(bytes);
}

absl::Status StateFileWriter::Begin(const StateFileHeader& header) {
  Header block;
  block.PutMagic(kFileMagic);
  block.Put<std::uint16_t>(4, kVersion);
  block.Put<std::uint16_t>(6, kHeaderBytes);
  block.Put(8, header.job_uid);
  block.Put(24, header.generation);
  block.Put(32, header.incarnation);
  block.Put(36, header.cut);
  block.Put(40, header.ps);
  block.Seal();
  headers_checksum_ = wire::Crc32c(block.bytes(), headers_checksum_);
  return Write(block.bytes());
}

absl::Status StateFileWriter::Append(const core::SliceSnapshot& snapshot, std::uint64_t value_begin) {
  v1::SliceState state;
  state.set_slice(snapshot.number);
  state.set_optimizer(snapshot.optimizer.type);
  std::uint64_t bulk_bytes = 0;
  std::uint32_t bulk_checksum = 0;
  for (const core::StateVector& vector : snapshot.optimizer.vectors) {
    if (vector.values->size() != snapshot.slice.elements) {
      return absl::InvalidArgumentError(absl::StrFormat("slice %d: the optimizer's %s has %d elements, expected %d",
                                                        snapshot.number, vector.name, vector.values->size(),
                                                        snapshot.slice.elements));
    }
    v1::StateVector* const described = state.add_vectors();
    described->set_name(vector.name);
    described->set_elements(vector.values->size());
    const absl::Span<const std::uint8_t> bytes = BytesOf(*vector.values);
    bulk_bytes += bytes.size();
    bulk_checksum = wire::Crc32c(bytes, bulk_checksum);
  }
  for (const core::StateScalar& scalar : snapshot.optimizer.scalars) {
    v1::StateScalar* const described = state.add_scalars();
    described->set_name(scalar.name);
    described->set_value(scalar.value);
  }
  *state.mutable_table() = snapshot.table;
  const std::string message = state.SerializeAsString();
  if (message.empty() && state.ByteSizeLong() != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("slice %d: its state cannot be written", snapshot.number));
  }

  Record block;
  block.PutMagic(kRecordMagic);
  block.Put(4, snapshot.number);
  block.Put(8, static_cast<std::uint32_t>(message.size()));
  block.Put(12, wire::Crc32c(BytesOf(message)));
  block.Put(16, bulk_bytes);
  block.Put(24, bulk_checksum);
  block.Put(28, snapshot.slice.elements);
  block.Put(32, value_begin);
  block.Put(40, wire::Crc32c(BytesOf(*snapshot.value)));
  block.Seal();
  headers_checksum_ = wire::Crc32c(block.bytes(), headers_checksum_);
  ++records_;
  absl::Status status = Write(block.bytes());
  if (status.ok()) status = Write(BytesOf(message));
  for (const core::StateVector& vector : snapshot.optimizer.vectors) {
    if (status.ok()) status = Write(BytesOf(*vector.values));
  }
  return status;
}

absl::Status StateFileWriter::Finish() {
  End block;
  block.PutMagic(kEndMagic);
  block.Put(4, records_);
  block.Put(8, bytes_ + kEndBytes);
  block.Put(16, headers_checksum_);
  block.Seal();
  return Write(block.bytes());
}

absl::StatusOr<std::unique_ptr<StateFileReader>> StateFileReader::Open(std::unique_ptr<StoreReader> file,
                                                                       std::string name) {
  std::unique_ptr<StateFileReader> reader(new StateFileReader(std::move(file), std::move(name)));
  if (absl::Status read = reader->ReadHeaders(); !read.ok()) return read;
  return reader;
}

absl::Status StateFileReader::ReadHeaders() {
  const auto wrong = [this](const auto&... parts) { return absl::DataLossError(absl::StrCat(name_, ": ", parts...)); };
  const std::uint64_t size = file_->size();
  if (size < kHeaderBytes + kEndBytes) return wrong(size, " bytes, too short for a state file");
  Window window(*file_);
  Header header;
  if (absl::Status read = window.ReadAt(0, header.mutable_bytes()); !read.ok()) return read;
  if (!header.HasMagic(kFileMagic)) return wrong("no state file");
  if (const auto version = header.Get<std::uint16_t>(4); version != kVersion) {
    return wrong("format version ", version, ", expected ", kVersion);
  }
  if (const auto length = header.Get<std::uint16_t>(6); length != kHeaderBytes) {
    return wrong("header length ", length, ", expected ", kHeaderBytes);
  }
  if (!header.IsWhole()) return wrong("the checksum of the header is wrong");
  header_.job_uid = header.Get<core::JobUid>(8);
  header_.generation = header.Get<std::uint64_t>(24);
  header_.incarnation = header.Get<std::uint32_t>(32);
  header_.cut = header.Get<std::uint32_t>(36);
  header_.ps = header.Get<std::uint32_t>(40);
  std::uint32_t checksum = wire::Crc32c(header.bytes());

  const std::uint64_t end_begin = size - kEndBytes;
  std::uint64_t position = kHeaderBytes;
  while (position < end_begin) {
    if (end_begin - position < kRecordBytes) return wrong("a record at ", position, " is cut off");
    Record block;
    if (absl::Status read = window.ReadAt(position, block.mutable_bytes()); !read.ok()) return read;
    if (!block.HasMagic(kRecordMagic)) return wrong("no record at ", position);
    if (!block.IsWhole()) return wrong("the checksum of the record header at ", position, " is wrong");
    checksum = wire::Crc32c(block.bytes(), checksum);
    position += kRecordBytes;
    StateRecord record;
    record.slice = block.Get<std::uint32_t>(4);
    record.message_bytes = block.Get<std::uint32_t>(8);
    record.message_checksum = block.Get<std::uint32_t>(12);
    record.bulk_bytes = block.Get<std::uint64_t>(16);
    record.bulk_checksum = block.Get<std::uint32_t>(24);
    record.elements = block.Get<std::uint32_t>(28);
    record.value_begin = block.Get<std::uint64_t>(32);
    record.value_checksum = block.Get<std::uint32_t>(40);
    record.message_begin = position;
    if (record.message_bytes > end_begin - position ||
        record.bulk_bytes > end_begin - position - record.message_bytes) {
      return wrong("slice ", record.slice, ": ", record.message_bytes, " and ", record.bulk_bytes, " bytes at ",
                   position, " do not fit a file of ", size);
    }
    if (!records_.empty() && records_.back().slice >= record.slice) {
      return wrong("slice ", record.slice, " comes after slice ", records_.back().slice);
    }
    position += record.message_bytes + record.bulk_bytes;
    records_.push_back(record);
  }

  End end;
  if (absl::Status read = window.ReadAt(end_begin, end.mutable_bytes()); !read.ok()) return read;
  if (!end.HasMagic(kEndMagic) || !end.IsWhole()) return wrong("no end record: the file is cut off");
  if (const auto count = end.Get<std::uint32_t>(4); count != records_.size()) {
    return wrong(records_.size(), " slices, expected ", count);
  }
  if (const auto bytes = end.Get<std::uint64_t>(8); bytes != size) return wrong(size, " bytes, expected ", bytes);
  if (end.Get<std::uint32_t>(16) != checksum) return wrong("the checksum of the headers is wrong");
  return absl::OkStatus();
}

absl::StatusOr<StateFileReader::Contents> StateFileReader::Read(const StateRecord& record) {
  const auto wrong = [&](const auto&... parts) {
    return absl::DataLossError(absl::StrCat(name_, ": slice ", record.slice, ": ", parts...));
  };
  std::string message(record.message_bytes, '\0');
  absl::Status read =
      file_->ReadAt(record.message_begin, {reinterpret_cast<std::uint8_t*>(message.data()), message.size()});
  if (!read.ok()) return read;
  if (const std::uint32_t found = wire::Crc32c(BytesOf(message)); found != record.message_checksum) {
    return wrong(absl::StrFormat("its state has checksum %08x, expected %08x", found, record.message_checksum));
  }
  Contents contents;
  if (!contents.state.ParseFromString(message)) return wrong("its state is no SliceState");
  if (contents.state.slice() != record.slice) return wrong("its state is of slice ", contents.state.slice());
  const std::uint64_t bytes = std::uint64_t{record.elements} * sizeof(float);
  // As the message says; nothing is made room for before it has been compared with the file.
  const auto vectors = static_cast<std::uint64_t>(contents.state.vectors_size());
  if (bytes == 0 ? record.bulk_bytes != 0 : record.bulk_bytes % bytes != 0 || record.bulk_bytes / bytes != vectors) {
    return wrong(record.bulk_bytes, " bytes of bulk, expected ", vectors, " vectors of ", bytes);
  }
  std::uint64_t position = record.message_begin + record.message_bytes;
  std::uint32_t checksum = 0;
  for (const v1::StateVector& described : contents.state.vectors()) {
    if (described.elements() != record.elements) {
      return wrong("the optimizer's ", described.name(), " has ", described.elements(), " elements, expected ",
                   record.elements);
    }
    auto values = std::make_shared<std::vector<float>>(record.elements);
    if (read = file_->ReadAt(position, MutableBytesOf(absl::MakeSpan(*values))); !read.ok()) return read;
    checksum = wire::Crc32c(BytesOf(*values), checksum);
    position += bytes;
    contents.vectors.push_back({described.name(), std::move(values)});
  }
  if (checksum != record.bulk_checksum) {
    return wrong(
        absl::StrFormat("the optimizer's vectors have checksum %08x, expected %08x", checksum, record.bulk_checksum));
  }
  return contents;
}

}  // namespace downpour::checkpoint
