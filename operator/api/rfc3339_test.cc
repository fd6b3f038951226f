#include "operator/api/rfc3339.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>

namespace downpour::api {
namespace {

TEST(Rfc3339Test, KnownTexts) {
  EXPECT_EQ(FormatTime(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(FormatTime(1'709'164'799.9), "2024-02-28T23:59:59Z");
  EXPECT_EQ(FormatMicroTime(1'709'251'199.25), "2024-02-29T23:59:59.250000Z");
  EXPECT_EQ(FormatMicroTime(-0.5), "1969-12-31T23:59:59.500000Z");
  EXPECT_EQ(ParseTime("2024-02-29T23:59:59.25Z"), 1'709'251'199.25);
  EXPECT_EQ(ParseTime("2024-02-29T23:59:59+01:30"), 1'709'251'199.0 - 5400);
  EXPECT_EQ(ParseTime("1970-01-01T00:00:00-00:01"), 60.0);
  EXPECT_EQ(FormatMicroTime(1'767'323'045.9999996), "2026-01-02T03:04:06.000000Z");
  EXPECT_EQ(FormatTime(1e300), "9999-12-31T23:59:59Z");
  EXPECT_EQ(FormatMicroTime(1e300), "9999-12-31T23:59:59.000000Z");
  EXPECT_EQ(FormatTime(std::nan("")), "1970-01-01T00:00:00Z");
}

TEST(Rfc3339Test, WhatIsWrittenReadsBack) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    const auto micros = std::uniform_int_distribution<std::int64_t>(-62'135'596'800, 253'402'300'799)(random);
    const double seconds = static_cast<double>(micros) + std::uniform_int_distribution<int>(0, 999'999)(random) / 1e6;
    const auto read = ParseTime(FormatMicroTime(seconds));
    ASSERT_TRUE(read.has_value()) << FormatMicroTime(seconds);
    ASSERT_NEAR(*read, seconds, 1e-4) << FormatMicroTime(seconds);
    ASSERT_EQ(ParseTime(FormatTime(seconds)), std::floor(seconds)) << FormatTime(seconds);
  }
}

TEST(Rfc3339Test, RefusesEverythingElse) {
  for (const char* text : {"",
                           "now",
                           "infinite-future",
                           "2024-02-29",
                           "2024-02-29T23:59:59",
                           "2024-02-30T00:00:00Z",
                           "2023-02-29T00:00:00Z",
                           "2024-13-01T00:00:00Z",
                           "2024-00-01T00:00:00Z",
                           "2024-01-01T24:00:00Z",
                           "2024-01-01T00:60:00Z",
                           "2024-01-01T00:00:60Z",
                           "2024-01-01t00:00:00z",
                           "2024-01-01 00:00:00Z",
                           "2024-01-01T00:00:00.Z",
                           "2024-01-01T00:00:00,5Z",
                           "2024-01-01T00:00:00Z ",
                           " 2024-01-01T00:00:00Z",
                           "2024-1-01T00:00:00Z",
                           "2024-01-01T00:00:00+24:00",
                           "2024-01-01T00:00:00+01:60",
                           "2024-01-01T00:00:00+0100",
                           "+024-01-01T00:00:00Z",
                           "2024-01-01T00:00:00ZZ",
                           "20240-01-01T00:00:00Z",
                           "2024-01-01T-1:00:00Z"}) {
    EXPECT_EQ(ParseTime(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace downpour::api
