#ifndef DOWNPOUR_TRAINER_CORE_REPLICA_COPY_H_
#define DOWNPOUR_TRAINER_CORE_REPLICA_COPY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/core/frame.h"
#include "trainer/core/slice_snapshot.h"

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
};

// Cuts a copy into frames of kind kCopy: first a description (ReplicaDescription), then one for each vector, whose
// memory they share. A part has its number in `version` and the number of parts in `clock`; `slice` and `sequence` are
// set, all else is for whoever sends them.
std::vector<Frame> CutCopy(const ReplicaCopy& copy);

// Puts it together again, in whatever order its parts come and however often; parts of a copy with a higher sequence
// take the place of all before. Trusts no field of a frame. Not thread-safe.
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
  std::uint32_t number_;
  Slice slice_;
  std::uint64_t sequence_ = 0;
  std::vector<std::optional<Frame>> parts_;
  std::size_t missing_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_REPLICA_COPY_H_
