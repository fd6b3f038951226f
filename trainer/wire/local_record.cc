#include "trainer/wire/local_record.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace downpour::wire {
namespace {

constexpr std::uint32_t kMagic = 0x4d535044;  // "DPSM"
constexpr std::uint16_t kVersion = 1;

// Offsets of the fields, as in docs/formats.md.
enum Offset : std::size_t {
  kMagicAt = 0,
  kVersionAt = 4,
  kPurposeAt = 6,
  kCodeAt = 7,
  kExchangeAt = 8,
  kOffsetAt = 16,
  kLengthAt = 24,
  kReservedAt = 28,
};

template <typename T>
void Put(std::uint8_t* out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out[i] = static_cast<std::uint8_t>(std::uint64_t{value} >> (8 * i));
}

template <typename T>
T Get(const std::uint8_t* bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::uint64_t{bytes[i]} << (8 * i);
  return static_cast<T>(value);
}

template <typename T>
absl::Status Unexpected(absl::string_view field, T found, absl::string_view expected) {
  return absl::DataLossError(absl::StrCat("record: ", field, ": found ", found, ", expected ", expected));
}

}  // namespace

std::vector<std::uint8_t> EncodeRecord(const LocalRecord& record) {
  const std::size_t body = std::min(record.body.size(), kMostBodyBytes);
  std::vector<std::uint8_t> bytes(kRecordHeaderBytes + body);
  Put<std::uint32_t>(&bytes[kMagicAt], kMagic);
  Put<std::uint16_t>(&bytes[kVersionAt], kVersion);
  bytes[kPurposeAt] = static_cast<std::uint8_t>(record.purpose);
  bytes[kCodeAt] = static_cast<std::uint8_t>(record.code);
  Put<std::uint64_t>(&bytes[kExchangeAt], record.exchange);
  Put<std::uint64_t>(&bytes[kOffsetAt], record.offset);
  Put<std::uint32_t>(&bytes[kLengthAt], record.length);
  std::copy_n(record.body.begin(), body, bytes.begin() + kRecordHeaderBytes);
  return bytes;
}

absl::StatusOr<LocalRecord> DecodeRecord(absl::Span<const std::uint8_t> bytes) {
  if (bytes.size() < kRecordHeaderBytes || bytes.size() > kMostRecordBytes) {
    return Unexpected("size", bytes.size(), absl::StrCat(kRecordHeaderBytes, " to ", kMostRecordBytes));
  }
  if (Get<std::uint32_t>(&bytes[kMagicAt]) != kMagic) {
    return Unexpected("magic", Get<std::uint32_t>(&bytes[kMagicAt]), absl::StrCat(kMagic));
  }
  if (Get<std::uint16_t>(&bytes[kVersionAt]) != kVersion) {
    return Unexpected("version", Get<std::uint16_t>(&bytes[kVersionAt]), absl::StrCat(kVersion));
  }
  const std::uint8_t purpose = bytes[kPurposeAt];
  if (purpose < static_cast<std::uint8_t>(RecordPurpose::kHello) ||
      purpose > static_cast<std::uint8_t>(RecordPurpose::kError)) {
    return Unexpected("purpose", purpose, "1 to 6");
  }
  if (Get<std::uint32_t>(&bytes[kReservedAt]) != 0) return Unexpected("reserved bytes", "some set", "zeros");
  LocalRecord record;
  record.purpose = static_cast<RecordPurpose>(purpose);
  record.code = static_cast<absl::StatusCode>(bytes[kCodeAt]);
  record.exchange = Get<std::uint64_t>(&bytes[kExchangeAt]);
  record.offset = Get<std::uint64_t>(&bytes[kOffsetAt]);
  record.length = Get<std::uint32_t>(&bytes[kLengthAt]);
  record.body.assign(bytes.begin() + kRecordHeaderBytes, bytes.end());
  if ((record.purpose == RecordPurpose::kError) != (record.code != absl::StatusCode::kOk) ||
      record.code > absl::StatusCode::kUnauthenticated) {
    return Unexpected("code", bytes[kCodeAt], "1 to 16 in an error and 0 in any other record");
  }
  if (!record.has_message() && record.length != 0) return Unexpected("length", record.length, "0");
  const bool sized = record.purpose == RecordPurpose::kHello || record.purpose == RecordPurpose::kWelcome;
  if (record.offset != 0 && !sized && !record.in_region()) return Unexpected("offset", record.offset, "0");
  const bool must_be_empty =
      record.in_region() || record.purpose == RecordPurpose::kWelcome || record.purpose == RecordPurpose::kGiveBack;
  if (must_be_empty && !record.body.empty()) {
    return Unexpected("body", record.body.size(), absl::StrCat("0 bytes, or those of the message, ", record.length));
  }
  return record;
}

LocalRecord TextRecord(RecordPurpose purpose, absl::string_view text) {
  LocalRecord record;
  record.purpose = purpose;
  record.body.assign(text.begin(), text.end());
  return record;
}

LocalRecord ErrorRecord(std::uint64_t exchange, const absl::Status& status) {
  LocalRecord record = TextRecord(RecordPurpose::kError, status.message());
  record.code = status.code();
  record.exchange = exchange;
  return record;
}

absl::Status StatusOf(const LocalRecord& error) { return absl::Status(error.code, error.text()); }

}  // namespace downpour::wire
