#ifndef DOWNPOUR_TRAINER_WIRE_SHARED_REGION_H_
#define DOWNPOUR_TRAINER_WIRE_SHARED_REGION_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/wire/descriptor.h"
#include "trainer/wire/region_space.h"

// Memory that one process writes and another one reads. Its descriptor goes to the reader, who gets nothing that he
// could write with: the seals say so, and that no part of the memory goes away.
namespace downpour::wire {

inline constexpr std::uint64_t kLeastRegionBytes = 4096;
inline constexpr std::uint64_t kMostRegionBytes = 1ULL << 30;

// The writer's side. Thread-compatible, but for the bytes of parts that are taken.
class OwnRegion {
 public:
  // `bytes` is rounded up to whole pages. Memory is used as far as it is ever taken. kUnavailable: the system does not
  // give it, or cannot seal it.
  static absl::StatusOr<std::unique_ptr<OwnRegion>> Create(std::uint64_t bytes);
  ~OwnRegion();
  OwnRegion(const OwnRegion&) = delete;
  OwnRegion& operator=(const OwnRegion&) = delete;

  int descriptor() const { return descriptor_.get(); }
  std::uint64_t bytes() const { return bytes_; }

  // nullopt: no space, or no memory behind it.
  std::optional<std::uint64_t> Take(std::uint64_t bytes);
  void GiveBack(std::uint64_t offset) { space_.GiveBack(offset); }
  std::uint8_t* At(std::uint64_t offset) const { return memory_ + offset; }
  std::uint64_t free_bytes() const { return space_.free_bytes(); }

 private:
  OwnRegion(Descriptor descriptor, std::uint8_t* memory, std::uint64_t bytes);

  const Descriptor descriptor_;
  std::uint8_t* const memory_;
  const std::uint64_t bytes_;
  RegionSpace space_;
  std::uint64_t backed_ = 0;  // bytes from the beginning that have memory
};

// The reader's side. Trusts nothing that the peer says. Thread-compatible.
class PeerRegion {
 public:
  // kDataLoss: it is not sealed, or not of so many bytes. kUnavailable: it cannot be mapped.
  static absl::StatusOr<std::shared_ptr<PeerRegion>> Map(Descriptor descriptor, std::uint64_t bytes);
  ~PeerRegion();
  PeerRegion(const PeerRegion&) = delete;
  PeerRegion& operator=(const PeerRegion&) = delete;

  // Valid as long as the region; what is in them may change under a peer that does not keep the rules. kDataLoss: they
  // do not lie inside. kUnavailable: there is no memory behind them.
  absl::StatusOr<absl::Span<const std::uint8_t>> Bytes(std::uint64_t offset, std::uint64_t length);

 private:
  PeerRegion(Descriptor descriptor, const std::uint8_t* memory, std::uint64_t bytes);

  const Descriptor descriptor_;
  const std::uint8_t* const memory_;
  const std::uint64_t bytes_;
  std::uint64_t backed_ = 0;
};

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_SHARED_REGION_H_
