#ifndef DOWNPOUR_TRAINER_WIRE_REGION_SPACE_H_
#define DOWNPOUR_TRAINER_WIRE_REGION_SPACE_H_

#include <cstdint>
#include <map>
#include <optional>

namespace downpour::wire {

// Which parts of a region are taken. Thread-compatible, and kept in memory of its own: what a peer writes cannot harm
// it. The lowest part that is large enough is given out, so that little of a region is ever touched.
class RegionSpace {
 public:
  static constexpr std::uint64_t kAlignment = 64;  // a cache line: two messages share none

  explicit RegionSpace(std::uint64_t bytes);

  // Where `bytes` bytes, more than none, may be written; nullopt: nowhere.
  std::optional<std::uint64_t> Take(std::uint64_t bytes);
  // What Take returned, once.
  void GiveBack(std::uint64_t offset);

  std::uint64_t free_bytes() const { return free_bytes_; }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;   // offset to length; no two touch
  std::map<std::uint64_t, std::uint64_t> taken_;  // likewise, as given out
  std::uint64_t free_bytes_;
};

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_REGION_SPACE_H_
