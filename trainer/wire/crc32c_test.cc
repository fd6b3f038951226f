#include "trainer/wire/crc32c.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::wire {
namespace {

using Implementation = std::uint32_t (*)(absl::Span<const std::uint8_t>, std::uint32_t);

std::vector<Implementation> Implementations() {
  std::vector<Implementation> all = {Crc32c, Crc32cPortable};
  if (HasAcceleratedCrc32c()) all.push_back(Crc32cAccelerated);
  return all;
}

// The definition, a bit at a time.
std::uint32_t Reference(absl::Span<const std::uint8_t> bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

std::vector<std::uint8_t> RandomBytes(std::mt19937& random, std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

// RFC 3720, B.4, and the usual check value.
TEST(Crc32cTest, KnownVectors) {
  const std::vector<std::uint8_t> zeros(32, 0x00);
  const std::vector<std::uint8_t> ones(32, 0xFF);
  std::vector<std::uint8_t> up(32);
  std::vector<std::uint8_t> down(32);
  for (std::size_t i = 0; i < 32; ++i) {
    up[i] = static_cast<std::uint8_t>(i);
    down[i] = static_cast<std::uint8_t>(31 - i);
  }
  const std::string_view digits = "123456789";
  const std::vector<std::uint8_t> check(digits.begin(), digits.end());
  for (const Implementation crc : Implementations()) {
    EXPECT_EQ(crc({}, 0), 0u);
    EXPECT_EQ(crc(zeros, 0), 0x8A9136AAu);
    EXPECT_EQ(crc(ones, 0), 0x62A8AB43u);
    EXPECT_EQ(crc(up, 0), 0x46DD794Eu);
    EXPECT_EQ(crc(down, 0), 0x113FDB5Cu);
    EXPECT_EQ(crc(check, 0), 0xE3069283u);
  }
}

TEST(Crc32cTest, ImplementationsAgreeAtEverySizeAndOffset) {
  std::mt19937 random(1);
  const auto bytes = RandomBytes(random, 1100);
  for (std::size_t size = 0; size <= 1024; ++size) {
    const auto part = absl::MakeConstSpan(bytes).subspan(size % 17, size);
    const std::uint32_t expected = Reference(part);
    for (const Implementation crc : Implementations()) ASSERT_EQ(crc(part, 0), expected) << "size " << size;
  }
}

TEST(Crc32cTest, AnySegmentationGivesTheSameChecksum) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto bytes = RandomBytes(random, random() % (seed % 8 == 0 ? 500'000 : 40'000));
    const std::uint32_t expected = Reference(bytes);
    for (const Implementation crc : Implementations()) {
      std::uint32_t value = 0;
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t size =
            std::min<std::size_t>(bytes.size() - at, 1 + random() % (seed % 8 == 0 ? 300'000 : 9'000));
        value = crc(absl::MakeConstSpan(bytes).subspan(at, size), value);
        at += size;
      }
      ASSERT_EQ(value, expected) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace downpour::wire
