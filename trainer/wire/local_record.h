#ifndef DOWNPOUR_TRAINER_WIRE_LOCAL_RECORD_H_
#define DOWNPOUR_TRAINER_WIRE_LOCAL_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

// What the two ends of a link over shared memory say to each other, one record a packet of their socket; the layout is
// specified in docs/formats.md. Thread-safe.
namespace downpour::wire {

enum class RecordPurpose : std::uint8_t {
  kHello = 1,     // client: whom it wants, and its region
  kWelcome = 2,   // server: its region
  kRequest = 3,   // a message
  kReply = 4,     // likewise
  kGiveBack = 5,  // the message of that exchange has been read: its place is the sender's again
  kError = 6,     // instead of a reply, or of a welcome
};

struct LocalRecord {
  RecordPurpose purpose = RecordPurpose::kError;
  absl::StatusCode code = absl::StatusCode::kOk;  // of an error
  std::uint64_t exchange = 0;                     // counted from 1 on by the client
  std::uint64_t offset = 0;                       // of a message in the region; hello, welcome: the size of the region
  std::uint32_t length = 0;                       // of a message
  // Hello: whom. Error: why. Request and reply: a message that lies here, and not in the region.
  std::vector<std::uint8_t> body;

  bool has_message() const { return purpose == RecordPurpose::kRequest || purpose == RecordPurpose::kReply; }
  bool in_region() const { return has_message() && body.size() != length; }
  absl::string_view text() const { return {reinterpret_cast<const char*>(body.data()), body.size()}; }
};

inline constexpr std::size_t kRecordHeaderBytes = 32;
inline constexpr std::size_t kMostBodyBytes = 4096;
inline constexpr std::size_t kMostRecordBytes = kRecordHeaderBytes + kMostBodyBytes;

// A body of more than kMostBodyBytes is cut.
std::vector<std::uint8_t> EncodeRecord(const LocalRecord& record);
// Trusts nothing. kDataLoss says what was found and what was expected.
absl::StatusOr<LocalRecord> DecodeRecord(absl::Span<const std::uint8_t> bytes);

LocalRecord TextRecord(RecordPurpose purpose, absl::string_view text);
LocalRecord ErrorRecord(std::uint64_t exchange, const absl::Status& status);
absl::Status StatusOf(const LocalRecord& error);

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_LOCAL_RECORD_H_
