#include "cli/render/format.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

TEST(FormatTest, Durations) {
  EXPECT_EQ(FormatDuration(0.843), "0.84 s");
  EXPECT_EQ(FormatDuration(9.999), "10 s");
  EXPECT_EQ(FormatDuration(59.6), "1 m 00 s");
  EXPECT_EQ(FormatDuration(187), "3 m 07 s");
  EXPECT_EQ(FormatDuration(7500), "2 h 05 m");
  EXPECT_EQ(FormatDuration(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_EQ(FormatDuration(std::numeric_limits<double>::infinity()), "-");
}

TEST(FormatTest, AgesHaveTwoUnitsAtMost) {
  EXPECT_EQ(FormatAge(-1), "0s");
  EXPECT_EQ(FormatAge(59.9), "59s");
  EXPECT_EQ(FormatAge(185), "3m5s");
  EXPECT_EQ(FormatAge(7800), "2h10m");
  EXPECT_EQ(FormatAge(4 * 86400 + 3 * 3600), "4d3h");
}

TEST(FormatTest, CountsHaveThreeDigits) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(7.25), "7.2");
  EXPECT_EQ(FormatCount(950), "950");
  EXPECT_EQ(FormatBytes(4050000), "4.05MB");
  EXPECT_EQ(FormatCount(999.7), "1.00k");
  EXPECT_EQ(FormatCount(12345), "12.3k");
  EXPECT_EQ(FormatCount(4.05e6), "4.05M");
  EXPECT_EQ(FormatCount(std::numeric_limits<double>::infinity()), "-");
}

TEST(FormatTest, CleanTextIsPrintableUtf8AndIdempotent) {
  for (int seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::string text;
    for (int i = std::uniform_int_distribution<int>(0, 60)(random); i > 0; --i) {
      text.push_back(static_cast<char>(std::uniform_int_distribution<int>(0, 255)(random)));
    }
    const std::string clean = CleanText(text);
    for (const char c : clean) {
      EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << seed;
    }
    EXPECT_EQ(CleanText(clean), clean) << seed;
    EXPECT_LE(Columns(clean), text.size()) << seed;
  }
  EXPECT_EQ(CleanText("größer → x"), "größer → x");
  EXPECT_EQ(CleanText("a\x1b[31mb\nc"), "a [31mb c");
  EXPECT_EQ(CleanText("\xe6\xbc\xa2\xff\xc2\x9b\xc0\x80"), "?? ??");
}

TEST(FormatTest, FittedTextIsAsWideAsItMayBe) {
  const std::string text = "größer";
  for (std::size_t width = 0; width < 10; ++width) {
    EXPECT_EQ(Columns(FitColumns(text, width)), std::min<std::size_t>(width, 6)) << width;
  }
  EXPECT_EQ(FitColumns(text, 4), "grö…");
  EXPECT_EQ(FitColumns(text, 6), text);
}

TEST(FormatTest, WrappedTextKeepsItsWordsInOrderAndItsBounds) {
  EXPECT_THAT(WrapColumns("one two  three four", 9, 9), ::testing::ElementsAre("one two", "three", "four"));
  EXPECT_THAT(WrapColumns("one two three four", 9, 2), ::testing::ElementsAre("one two", "three…"));
  EXPECT_THAT(WrapColumns("", 9, 2), ::testing::IsEmpty());
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (auto length = random() % 200; length > 0; --length) text += random() % 5 == 0 ? ' ' : 'x';
    const std::size_t columns = 5 + random() % 40;
    const std::size_t most = 1 + random() % 6;
    const std::vector<std::string> lines = WrapColumns(text, columns, most);
    EXPECT_LE(lines.size(), most);
    for (const std::string& line : lines) EXPECT_LE(Columns(line), columns) << text;
  }
}

TEST(FormatTest, BarsAreAsWideAsAskedAndGrow) {
  std::size_t filled_before = 0;
  for (int i = -10; i <= 110; ++i) {
    const std::string bar = Bar(i / 100.0, 20);
    EXPECT_EQ(Columns(bar), 20u);
    std::size_t filled = 0;
    for (std::size_t at = bar.find("█"); at != std::string::npos; at = bar.find("█", at + 1)) ++filled;
    EXPECT_GE(filled, filled_before);
    filled_before = filled;
  }
  EXPECT_EQ(filled_before, 20u);
  EXPECT_EQ(Bar(std::numeric_limits<double>::quiet_NaN(), 3), "░░░");
}

TEST(FormatTest, SparklinesShowTheCourse) {
  EXPECT_EQ(Sparkline(std::vector<double>{}, 5), "");
  EXPECT_EQ(Sparkline(std::vector<double>{1, 1, 1}, 5), "▁▁▁");
  EXPECT_EQ(Sparkline(std::vector<double>{0, std::numeric_limits<double>::quiet_NaN(), 7, 3}, 5), "▁█▄");
  std::vector<double> falling(1000);
  for (std::size_t i = 0; i < falling.size(); ++i) falling[i] = -static_cast<double>(i);
  EXPECT_EQ(Sparkline(falling, 8), "█▇▆▅▄▃▂▁");
}

TEST(FormatTest, CleanLinesKeepTheirEnds) {
  EXPECT_EQ(CleanLines("one\ntwo\x1b[2J\n"), "one\ntwo [2J\n");
  EXPECT_EQ(CleanLines(""), "");
  EXPECT_EQ(CleanLines("a\tb\xff"), "a b?");
  EXPECT_EQ(CleanLines("\xe6\x95\xb0"), "\xe6\x95\xb0") << "two columns, which do no harm";
}

}  // namespace
}  // namespace downpour::cli
