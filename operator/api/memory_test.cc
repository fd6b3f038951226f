#include "operator/api/memory.h"

#include <gtest/gtest.h>

#include <limits>

namespace downpour::api {
namespace {

TEST(MemoryTest, ReadsWhatKubernetesWrites) {
  EXPECT_EQ(ParseMemory("1"), 1u);
  EXPECT_EQ(ParseMemory("1500"), 1500u);
  EXPECT_EQ(ParseMemory("2k"), 2000u);
  EXPECT_EQ(ParseMemory("2Ki"), 2048u);
  EXPECT_EQ(ParseMemory("512Mi"), 512u << 20);
  EXPECT_EQ(ParseMemory("3G"), 3000000000u);
  EXPECT_EQ(ParseMemory("1Ei"), std::uint64_t{1} << 60);
  EXPECT_EQ(ParseMemory("999999999999999E"), std::uint64_t{std::numeric_limits<std::int64_t>::max()});
}

TEST(MemoryTest, RefusesTheRest) {
  for (const char* text : {"", "0", "01", "-1", "+1", "1.5Gi", "Mi", "1K", "1ki", "1 Mi", "1Mi ", "1m", "1MB", "1Mii",
                           "1i", "1e3", "1000000000000000"}) {
    EXPECT_EQ(ParseMemory(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace downpour::api
