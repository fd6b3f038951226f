#ifndef DOWNPOUR_TRAINER_CORE_REPLICA_COPY_H_
#define DOWNPOUR_TRAINER_CORE_REPLICA_COPY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/frame.h"
#include "trainer/core/layout.h"
#include "trainer/core/slice_snapshot.h"

// The whole state of a slice, in parts small enough for a message each; specified in docs/formats.md.
namespace downpour::core {

// A value of the slice that a worker's session got and may compute with.
struct PulledValue {
  std::uint64_t version = 0;  // of the slice then
  std::shared_ptr<const std::vector<float>> value;
};
// By session, oldest first.
using PulledValues = std::map<std::uint64_t, std::vector<PulledValue>>;

// Everything of a slice at one moment, for another replica of it.
struct ReplicaCopy {
  SliceSnapshot snapshot;
  PulledValues pulled;
  std::uint64_t sequence = 0;    // of the last record that it has
  std::uint32_t step_width = 0;  // updates a step that it was in, 0: each is one
  std::vector<double> sums;      // see SliceSums, of the newest command
  std::uint32_t cut = 0;         // the newest that a push to its ps had; travels in the headers
};

inline constexpr std::size_t kMostCopyParts = 1u << 16;

// Cuts a copy into frames of kind kCopy: first a description (ReplicaDescription), then one for each vector, whose
// memory they share. Of values with the same bits that sessions got there is one part: two copies of the same state
// have the same vectors in the same parts. A part has its number in `version` and the number of parts in `clock`;
// `slice` and `sequence` are set, all else is for whoever sends them. kInvalidArgument: a vector is not there or not of
// the slice's size, the description has more than kSliceBytes, or there are more than kMostCopyParts.
absl::StatusOr<std::vector<Frame>> CutCopy(const ReplicaCopy& copy);

// Puts it together again, in whatever order its parts come and however often; parts of a copy with a higher sequence
// take the place of all before. Trusts no field of a frame, and keeps none of the payloads. Not thread-safe.
class CopyAssembly {
 public:
  // Of a slice with so many elements.
  CopyAssembly(std::uint32_t number, const Slice& slice) : number_(number), slice_(slice) {}

  // kInvalidArgument: it is no part of a copy of this slice; then it changes nothing. A part that is there already, or
  // of an older copy, is OK.
  absl::Status Add(const Frame& part);
  // Once all are there, once: the copy. nullopt: some are missing, or it was taken. kInvalidArgument: they do not fit
  // together; it begins anew then.
  absl::StatusOr<std::optional<ReplicaCopy>> Take();

 private:
  using Vector = std::shared_ptr<const std::vector<float>>;

  // What is wrong with it by itself; empty: nothing. Reads a description into `description`.
  std::string Problem(const Frame& part, v1::ReplicaDescription* description) const;
  void BeginAnew();

  std::uint32_t number_;
  Slice slice_;
  std::uint64_t sequence_ = 0;
  std::size_t parts_ = 0;  // of the copy; 0: none has come
  bool taken_ = false;
  std::optional<v1::ReplicaDescription> description_;
  std::map<std::size_t, Vector> vectors_;  // by number
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_REPLICA_COPY_H_
