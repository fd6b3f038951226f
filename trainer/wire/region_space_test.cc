#include "trainer/wire/region_space.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <random>

#include "gtest/gtest.h"

namespace downpour::wire {
namespace {

TEST(RegionSpaceTest, PartsLieInsideAndShareNoLineWhateverIsGivenBack) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::uint64_t bytes = 64 * (1 + random() % 200) + random() % 64;
    const std::uint64_t usable = bytes / 64 * 64;
    RegionSpace space(bytes);
    std::map<std::uint64_t, std::uint64_t> taken;
    std::uint64_t in_use = 0;
    for (int step = 0; step < 500; ++step) {
      if (random() % 2 == 0 && !taken.empty()) {
        const auto part = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
        in_use -= part->second;
        space.GiveBack(part->first);
        taken.erase(part);
      } else {
        const std::uint64_t asked = 1 + random() % (bytes / 3 + 1);
        const auto offset = space.Take(asked);
        const std::uint64_t length = (asked + 63) / 64 * 64;
        if (!offset.has_value()) {
          // There is no gap of that size.
          std::uint64_t end = 0;
          for (const auto& [at, size] : taken) {
            EXPECT_LT(at - end, length);
            end = at + size;
          }
          EXPECT_LT(usable - end, length);
          continue;
        }
        EXPECT_EQ(*offset % 64, 0u);
        EXPECT_LE(*offset + length, usable);
        const auto next = taken.lower_bound(*offset);
        if (next != taken.end()) {
          EXPECT_LE(*offset + length, next->first);
        }
        if (next != taken.begin()) {
          EXPECT_LE(std::prev(next)->first + std::prev(next)->second, *offset);
        }
        taken.emplace(*offset, length);
        in_use += length;
      }
      ASSERT_EQ(space.free_bytes(), usable - in_use);
    }
    for (const auto& [offset, length] : taken) space.GiveBack(offset);
    EXPECT_EQ(space.Take(usable), 0u) << "all of it in one piece again";
  }
}

TEST(RegionSpaceTest, TheLowestPartIsGivenOutFirst) {
  RegionSpace space(1024);
  const auto first = space.Take(100);
  EXPECT_EQ(first, 0u);
  EXPECT_EQ(space.Take(1), 128u);
  space.GiveBack(*first);
  EXPECT_EQ(space.Take(200), 192u);
  EXPECT_EQ(space.Take(128), 0u);
}

TEST(RegionSpaceTest, NothingAndTooMuchAreNotGivenOut) {
  RegionSpace space(128);
  EXPECT_FALSE(space.Take(0).has_value());
  EXPECT_FALSE(space.Take(129).has_value());
  EXPECT_FALSE(space.Take(~std::uint64_t{0}).has_value());
  EXPECT_TRUE(space.Take(128).has_value());
  EXPECT_FALSE(space.Take(1).has_value());
}

}  // namespace
}  // namespace downpour::wire
