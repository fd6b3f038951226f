#include "trainer/data/formats/stored_type.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace downpour::data {
namespace {

template <typename Stored, typename Given>
absl::StatusOr<Given> ConvertOne(StoredType type, Stored stored, bool big_endian = false) {
  std::vector<std::uint8_t> from(sizeof(stored));
  std::memcpy(from.data(), &stored, sizeof(stored));
  if (big_endian) std::reverse(from.begin(), from.end());
  EXPECT_EQ(BytesOf(type), sizeof(Stored));
  EXPECT_EQ(BytesOf(ElementTypeOf(type)), sizeof(Given));
  std::vector<std::byte> to(sizeof(Given));
  if (absl::Status status = Convert(type, big_endian, from, absl::MakeSpan(to)); !status.ok()) return status;
  Given given{};
  std::memcpy(&given, to.data(), sizeof(given));
  return given;
}

TEST(StoredTypeTest, IntegersAreWidened) {
  for (const bool big_endian : {false, true}) {
    EXPECT_EQ((*ConvertOne<std::int8_t, std::int32_t>(StoredType::kI8, -128, big_endian)), -128);
    EXPECT_EQ((*ConvertOne<std::int16_t, std::int32_t>(StoredType::kI16, -32768, big_endian)), -32768);
    EXPECT_EQ((*ConvertOne<std::uint16_t, std::int32_t>(StoredType::kU16, 65535, big_endian)), 65535);
    EXPECT_EQ((*ConvertOne<std::int32_t, std::int32_t>(StoredType::kI32, -5, big_endian)), -5);
    EXPECT_EQ((*ConvertOne<std::uint32_t, std::int64_t>(StoredType::kU32, 4294967295, big_endian)), 4294967295);
    EXPECT_EQ((*ConvertOne<std::int64_t, std::int64_t>(StoredType::kI64, -6, big_endian)), -6);
    EXPECT_EQ((*ConvertOne<std::uint64_t, std::int64_t>(StoredType::kU64, 7, big_endian)), 7);
    EXPECT_EQ((*ConvertOne<float, float>(StoredType::kF32, 0.1F, big_endian)), 0.1F);
    EXPECT_EQ((*ConvertOne<double, float>(StoredType::kF64, 0.1, big_endian)), 0.1F);
    EXPECT_EQ((*ConvertOne<std::uint16_t, float>(StoredType::kBF16, 0x3fc0, big_endian)), 1.5F);
  }
  EXPECT_EQ((*ConvertOne<std::uint8_t, std::uint8_t>(StoredType::kU8, 255)), 255);
  EXPECT_EQ((*ConvertOne<std::uint8_t, std::uint8_t>(StoredType::kBool, 1)), 1);
}

// Every finite half is the sum that IEEE 754 says it is.
TEST(StoredTypeTest, HalvesAreExact) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = *ConvertOne<std::uint16_t, float>(StoredType::kF16, static_cast<std::uint16_t>(bits));
    const std::uint32_t exponent = (bits >> 10) & 0x1f;
    const std::uint32_t fraction = bits & 0x3ff;
    ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    if (exponent == 0x1f) {
      ASSERT_EQ(std::isnan(value), fraction != 0) << bits;
      ASSERT_EQ(std::isinf(value), fraction == 0) << bits;
      continue;
    }
    const double expected = exponent == 0 ? fraction * std::pow(2.0, -24)
                                          : (1024.0 + fraction) * std::pow(2.0, static_cast<double>(exponent) - 25);
    ASSERT_EQ(std::abs(value), expected) << bits;
  }
}

TEST(StoredTypeTest, DoublesAreRoundedUpToTheLargestFloat) {
  const double largest = std::numeric_limits<float>::max();
  EXPECT_EQ((*ConvertOne<double, float>(StoredType::kF64, std::nextafter(0x1.ffffffp127, 0))), largest);
  EXPECT_EQ((*ConvertOne<double, float>(StoredType::kF64, 1e-300)), 0);
  EXPECT_TRUE(std::isinf(*ConvertOne<double, float>(StoredType::kF64, std::numeric_limits<double>::infinity())));
  EXPECT_TRUE(std::isnan(*ConvertOne<double, float>(StoredType::kF64, std::nan(""))));
  EXPECT_EQ((ConvertOne<double, float>(StoredType::kF64, -0x1.ffffffp127).status()),
            absl::DataLossError("element 0: found -3.40282e+38, expected what a 32 bit float can hold"));
}

TEST(StoredTypeTest, WhatHasNoPlaceIsRefused) {
  EXPECT_EQ((ConvertOne<std::uint64_t, std::int64_t>(StoredType::kU64, std::uint64_t{1} << 63).status()),
            absl::DataLossError("element 0: found 9223372036854775808, expected no more than 9223372036854775807"));
  EXPECT_EQ((ConvertOne<std::uint8_t, std::uint8_t>(StoredType::kBool, 2).status()),
            absl::DataLossError("element 0: found the byte 2, expected 0 or 1 of a bool"));
}

}  // namespace
}  // namespace downpour::data
