#include "trainer/data/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "trainer/data/encoding.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/text_source.h"
#include "trainer/wire/crc32c.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<Vocabulary> Build(const std::string& lines, const std::vector<std::int64_t>& indices, std::size_t most) {
  MemoryFiles files;
  files.Put("data", lines);
  const auto source = OpenText(files, "data", {});
  if (!source.ok()) return source.status();
  return Vocabulary::Build(**source, "text", indices, most);
}

TEST(VocabularyTest, SplitsWords) {
  EXPECT_THAT(SplitWords("It's 2 o'Clock,  \xc3\x84RGER\n"), ElementsAre("it", "s", "2", "o", "clock", "\xc3\x84rger"));
  EXPECT_THAT(SplitWords(" -- "), ElementsAre());
}

TEST(VocabularyTest, FrequentWordsComeFirstAndThenTheAlphabet) {
  const std::string lines = "b a c\nC b B\nd zz zz zz zz\n";
  const auto all = Build(lines, {0, 1}, 100);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->words(), ElementsAre("b", "c", "a"));
  EXPECT_EQ(all->size(), 5);
  EXPECT_THAT(all->Ids("A b, unheard! C"), ElementsAre(4, 2, Vocabulary::kUnknown, 3));
  EXPECT_THAT(Build(lines, {0, 1, 2}, 2)->words(), ElementsAre("zz", "b"));
  EXPECT_THAT(Build(lines, {}, 2)->words(), ElementsAre());
}

TEST(VocabularyTest, IsTheSameInWhateverOrder) {
  std::mt19937_64 random(1);
  std::string lines;
  for (int i = 0; i < 300; ++i) {
    for (int j = 0; j < 10; ++j) absl::StrAppend(&lines, "w", random() % 200 * (random() % 4), " ");
    lines += "\n";
  }
  std::vector<std::int64_t> indices(300);
  std::iota(indices.begin(), indices.end(), 0);
  const auto expected = Build(lines, indices, 50);
  ASSERT_EQ(expected->words().size(), 50U);
  for (int i = 0; i < 5; ++i) {
    std::shuffle(indices.begin(), indices.end(), random);
    EXPECT_EQ(Build(lines, indices, 50).value(), expected.value());
  }
}

TEST(VocabularyTest, WhatCannotBeBuiltIsRefused) {
  EXPECT_EQ(Build("a", {0}, 0).status(),
            absl::InvalidArgumentError("a vocabulary of at most 0 words, expected 1 to 16777216"));
  EXPECT_EQ(Build("a\n\xff\n", {0, 1}, 5).status(),
            absl::DataLossError("data: line 2: found the byte 0xff, expected UTF-8"));
  EXPECT_TRUE(Build("a\n\xff\n", {0}, 5).ok());
  MemoryFiles files;
  files.Put("data", "x\ty\n");
  TextOptions options;
  options.layout = TextLayout::kLabelledLines;
  const auto source = OpenText(files, "data", options);
  EXPECT_EQ(Vocabulary::Build(**source, "label", {}, 5).status(),
            absl::InvalidArgumentError("vocabulary: column \"label\": is no text, expected a column of text"));
  EXPECT_EQ(Vocabulary::Build(**source, "words", {}, 5).status(),
            absl::InvalidArgumentError("vocabulary: column \"words\": there is none, expected a column of text"));
}

TEST(VocabularyTest, SomeBrokenTextsMayBeLeftOut) {
  MemoryFiles files;
  files.Put("data", "a\n\xff\n\xfe\nb\n");
  const auto source = OpenText(files, "data", {});
  const std::vector<std::int64_t> all = {0, 1, 2, 3};
  EXPECT_THAT(Vocabulary::Build(**source, "text", all, 5, 2)->words(), ElementsAre("a", "b"));
  EXPECT_EQ(Vocabulary::Build(**source, "text", all, 5, 1).status(),
            absl::DataLossError("data: line 3: found the byte 0xfe, expected UTF-8"));
}

class KeptVocabularyTest : public ::testing::Test {
 protected:
  KeptVocabularyTest() {
    std::string pattern = ::testing::TempDir() + "/vocabulary-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    cache_ = folder_ + "/cache";
    files_.Put("data", "a");
  }
  ~KeptVocabularyTest() override { std::filesystem::remove_all(folder_); }

  // How often it was built meanwhile; `lines` says what would be found.
  int Builds(const std::string& lines, const std::string& expected_first, const std::string& settings = "some") {
    int builds = 0;
    const auto vocabulary =
        OpenOrBuildVocabulary(files_, *files_.List("data"), settings, cache_, [&]() -> absl::StatusOr<Vocabulary> {
          ++builds;
          return Build(lines, {0}, 10);
        });
    EXPECT_TRUE(vocabulary.ok()) << vocabulary.status();
    EXPECT_EQ(vocabulary.ok() ? vocabulary->words().front() : "", expected_first);
    return builds;
  }

  MemoryFiles files_;
  std::string folder_;
  std::string cache_;
};

TEST_F(KeptVocabularyTest, IsBuiltOnceForFilesAndSettings) {
  EXPECT_EQ(Builds("old", "old"), 1);
  EXPECT_EQ(Builds("new", "old"), 0);
  EXPECT_EQ(Builds("other", "other", "others"), 1);
  EXPECT_EQ(Builds("new", "old"), 0);
  files_.Put("data", "a", 2);
  EXPECT_EQ(Builds("new", "new"), 1) << "it was changed at another time";
  files_.Put("data", "b", 2);
  EXPECT_EQ(Builds("newer", "newer"), 1) << "its bytes are others";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(cache_), {}), 2) << "in place of the old one";
  cache_.clear();
  EXPECT_EQ(Builds("mine", "mine"), 1);
  EXPECT_EQ(Builds("mine", "mine"), 1) << "nothing is kept";
}

TEST_F(KeptVocabularyTest, OneThatIsDamagedIsBuiltAnew) {
  Builds("old", "old");
  const std::string path = std::filesystem::directory_iterator(cache_)->path();
  std::string bytes;
  {
    std::ifstream file(path);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  for (std::size_t i = 0; i < bytes.size(); i += 7) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
    std::ofstream(path, std::ios::trunc) << damaged;
    EXPECT_EQ(Builds("new", "new"), 1) << i;
  }
  EXPECT_EQ(Builds("newer", "new"), 0);
}

TEST_F(KeptVocabularyTest, OfManyFilesOnlyTheirListIsCompared) {
  for (int i = 0; i < 200; ++i) files_.Put(absl::StrCat("data/", i), "a");
  files_.Remove("data");
  EXPECT_EQ(Builds("old", "old"), 1);
  EXPECT_EQ(Builds("new", "old"), 0);
  EXPECT_EQ(files_.reads(), 0);
  files_.Put("data/17", "b", 2);
  EXPECT_EQ(Builds("new", "new"), 1);
}

TEST_F(KeptVocabularyTest, WhatCannotBeBuiltIsNotKept) {
  const auto fail = [] { return absl::StatusOr<Vocabulary>(absl::DataLossError("row")); };
  EXPECT_EQ(OpenOrBuildVocabulary(files_, *files_.List("data"), "some", cache_, fail).status(),
            absl::DataLossError("row"));
  EXPECT_EQ(Builds("new", "new"), 1);
}

// docs/formats.md.
TEST(VocabularyTest, LayoutIsAsDocumented) {
  const std::string bytes = Build("to be to", {0}, 10)->Encode();
  const std::string words("\x02\0\0\0to\x02\0\0\0be", 12);
  std::string header("DPVC\x01\0\x20\0\x2c\0\0\0\0\0\0\0\x02\0\0\0", 20);
  const auto word = [](std::uint32_t number) { return std::string(reinterpret_cast<const char*>(&number), 4); };
  header += word(wire::Crc32c(AsBytes(words))) + word(0);
  header += word(wire::Crc32c(AsBytes(header)));
  EXPECT_EQ(bytes, header + words);
}

TEST(VocabularyTest, WhatIsBrokenIsRefused) {
  const auto vocabulary = Build("a b c", {0}, 10);
  const std::string whole = vocabulary->Encode();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x10);
    const absl::Status status = Vocabulary::Decode(AsBytes(flipped)).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << i;
    EXPECT_THAT(std::string(status.message()), HasSubstr("found")) << i;
    EXPECT_FALSE(Vocabulary::Decode(AsBytes(whole.substr(0, i))).ok()) << i;
  }
  EXPECT_EQ(Vocabulary::Decode(AsBytes(whole + "x")).status(), absl::DataLossError("found 48 bytes, expected 47"));
  EXPECT_EQ(Vocabulary::Decode(AsBytes("DPIX")).status(),
            absl::DataLossError("found 4 bytes that do not begin with DPVC, expected a vocabulary"));
}

}  // namespace
}  // namespace downpour::data
