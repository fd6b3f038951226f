#ifndef DOWNPOUR_TRAINER_CHECKPOINT_STATE_FILE_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_STATE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "downpour/v1/checkpoint.pb.h"
#include "trainer/checkpoint/store.h"
#include "trainer/core/frame.h"
#include "trainer/core/slice_snapshot.h"

// The state file of one ps in a checkpoint (docs/formats.md): of each slice everything but its value, and where in the
// weights file the value is and what its checksum is.
namespace downpour::checkpoint {

// What the file is of.
struct StateFileHeader {
  core::JobUid job_uid{};
  std::uint64_t generation = 0;
  std::uint32_t incarnation = 0;
  std::uint32_t cut = 0;
  std::uint32_t ps = 0;
  friend bool operator==(const StateFileHeader&, const StateFileHeader&) = default;
};

// The header of a slice's record, and where in the state file the rest of it lies.
struct StateRecord {
  std::uint32_t slice = 0;
  std::uint32_t message_bytes = 0;
  std::uint32_t message_checksum = 0;
  std::uint32_t elements = 0;
  std::uint64_t bulk_bytes = 0;
  std::uint32_t bulk_checksum = 0;
  std::uint32_t value_checksum = 0;
  std::uint64_t value_begin = 0;  // in the weights file, in bytes
  std::uint64_t message_begin = 0;
};

// Begin, Append for each slice, Finish; the file is the caller's to commit. `file` must outlive the writer.
class StateFileWriter {
 public:
  explicit StateFileWriter(StoreWriter& file) : file_(file) {}
  absl::Status Begin(const StateFileHeader& header);
  // kInvalidArgument: a vector that has not as many elements as the slice.
  absl::Status Append(const core::SliceSnapshot& snapshot, std::uint64_t value_begin);
  absl::Status Finish();
  std::uint64_t bytes() const { return bytes_; }

 private:
  absl::Status Write(absl::Span<const std::uint8_t> bytes);

  StoreWriter& file_;
  std::uint64_t bytes_ = 0;
  std::uint32_t records_ = 0;
  std::uint32_t headers_checksum_ = 0;
};

// Trusts no length and no content: everything is under a checksum. Errors begin with `name`, except those of the store.
// Not thread-safe.
class StateFileReader {
 public:
  // Reads all but the messages and the bulk. kDataLoss: the file is not whole, or none.
  static absl::StatusOr<std::unique_ptr<StateFileReader>> Open(std::unique_ptr<StoreReader> file, std::string name);

  const StateFileHeader& header() const { return header_; }
  const std::vector<StateRecord>& records() const { return records_; }  // by slice, ascending

  struct Contents {
    v1::SliceState state;
    std::vector<core::StateVector> vectors;
  };
  absl::StatusOr<Contents> Read(const StateRecord& record);

 private:
  StateFileReader(std::unique_ptr<StoreReader> file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}
  absl::Status ReadHeaders();

  const std::unique_ptr<StoreReader> file_;
  const std::string name_;
  StateFileHeader header_;
  std::vector<StateRecord> records_;
};

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_STATE_FILE_H_
