#include "trainer/data/formats/text_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/text_value.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;

std::string TextOf(const Value& value) {
  EXPECT_THAT(value.shape, ElementsAre(static_cast<std::int64_t>(value.bytes.size())));
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

// "text|" of each sample, and with labels "text=label|".
std::string All(const SampleSource& source) {
  std::string all;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const auto sample = source.Read(i);
    EXPECT_TRUE(sample.ok()) << sample.status();
    if (!sample.ok()) continue;
    all += TextOf((*sample)[0]);
    if (sample->size() == 2) {
      std::int64_t label = 0;
      std::memcpy(&label, (*sample)[1].bytes.data(), sizeof(label));
      absl::StrAppend(&all, "=", source.columns()[1].class_names[static_cast<std::size_t>(label)]);
    }
    all += "|";
  }
  return all;
}

TextOptions Labelled() {
  TextOptions options;
  options.layout = TextLayout::kLabelledLines;
  return options;
}

TextOptions Folders() {
  TextOptions options;
  options.layout = TextLayout::kFolders;
  return options;
}

absl::StatusOr<std::unique_ptr<SampleSource>> Open(MemoryFiles* files, const std::string& content,
                                                   const TextOptions& options = {}) {
  files->Put("data", content);
  return OpenText(*files, "data", options);
}

TEST(TextSourceTest, ALineIsASample) {
  MemoryFiles files;
  const auto source = Open(&files, "\xef\xbb\xbfone\r\n\ntwo, \xc3\xa4\rthree");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(All(**source), "one||two, \xc3\xa4\rthree|");
  EXPECT_EQ((*source)->columns().size(), 1U);
  EXPECT_TRUE((*source)->columns()[0].text);
  EXPECT_EQ(All(**Open(&files, "")), "");
  EXPECT_EQ(All(**Open(&files, "\n")), "|");
  EXPECT_EQ(All(**Open(&files, "a\nb\n")), "a|b|");
}

TEST(TextSourceTest, FilesOfADirectoryFollowOneAnother) {
  MemoryFiles files;
  files.Put("data/b.txt", "3\n");
  files.Put("data/a.txt", "1\n2");
  files.Put("data/c", "not this one");
  EXPECT_EQ(All(**OpenText(files, "data", {})), "1|2|3|");
}

TEST(TextSourceTest, LabelsAreBeforeTheTab) {
  MemoryFiles files;
  const auto source = Open(&files, "spam\tbuy\tnow\nham\t\n", Labelled());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT((*source)->columns()[1].class_names, ElementsAre("ham", "spam"));
  EXPECT_EQ((*source)->columns()[1].classes, 2);
  EXPECT_EQ(All(**source), "buy\tnow=spam|=ham|");
  EXPECT_THAT((*Open(&files, "10\ta\n9\tb\n", Labelled()))->columns()[1].class_names, ElementsAre("9", "10"));
}

TEST(TextSourceTest, FoldersAreClasses) {
  MemoryFiles files;
  files.Put("data/pos/1.txt", "good");
  files.Put("data/pos/deeper/2.txt", "better\n");
  files.Put("data/neg/1.txt",
            "\xef\xbb\xbf"
            "bad");
  files.Put("data/neg/1.html", "x");
  files.Put("data/none/1.html", "x");
  files.Put("data/README.txt", "x");
  const auto source = OpenText(files, "data", Folders());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT((*source)->columns()[1].class_names, ElementsAre("neg", "pos"));
  EXPECT_EQ(All(**source), "bad=neg|good=pos|better\n=pos|");
  EXPECT_EQ(All(**OpenText(files, "data/", Folders())), "bad=neg|good=pos|better\n=pos|");
  TextOptions options = Folders();
  options.class_names = {"pos", "neg", "neutral"};
  EXPECT_EQ((*OpenText(files, "data", options))->columns()[1].classes, 3);
}

TEST(TextSourceTest, WhatIsBrokenIsRefused) {
  MemoryFiles files;
  EXPECT_EQ(Open(&files, "a\tb\n\nc\td\n", Labelled()).status(),
            absl::DataLossError("data: line 2: found \"\" without a tab, expected LABEL<TAB>TEXT"));
  EXPECT_EQ(Open(&files, "a\tb\nno label", Labelled()).status(),
            absl::DataLossError("data: line 2: found \"no label\" without a tab, expected LABEL<TAB>TEXT"));
  EXPECT_EQ(Open(&files, "first\n" + std::string((std::size_t{64} << 20) + 1, 'x')).status(),
            absl::DataLossError("data: line 2: found a line of more than 67108864 bytes, expected shorter ones"));
  files.Remove("data");
  files.Put("data/a.log", "");
  EXPECT_EQ(OpenText(files, "data", {}).status(),
            absl::NotFoundError("data: found no file whose name ends in \".txt\", expected one or more"));
  EXPECT_EQ(
      OpenText(files, "data", Folders()).status(),
      absl::NotFoundError("data: found no file whose name ends in \".txt\" in a folder, expected a folder for each "
                          "class"));
  files.Put("data/other/a.txt", "");
  TextOptions options = Folders();
  options.class_names = {"pos", "neg"};
  EXPECT_EQ(OpenText(files, "data", options).status(),
            absl::InvalidArgumentError("data: found the folder \"other\", expected those of the classes \"pos, neg\""));
  files.Put("data/\xff/a.txt", "");
  EXPECT_EQ(OpenText(files, "data", Folders()).status(),
            absl::DataLossError("data: the name of a folder, \"\\xff\": found the byte 0xff, expected UTF-8"));
  options.class_names = {"pos", "pos"};
  EXPECT_EQ(OpenText(files, "data", options).status(),
            absl::InvalidArgumentError("data: found the name of a class twice, expected names that differ"));
  options.layout = TextLayout::kLines;
  options.class_names = {"pos"};
  EXPECT_EQ(OpenText(files, "data", options).status(),
            absl::InvalidArgumentError("data: found names of classes, but lines without labels"));
  EXPECT_TRUE(absl::IsNotFound(OpenText(files, "nowhere", {}).status()));
}

TEST(TextSourceTest, WhatIsWrongWithATextIsAnErrorOfTheSample) {
  MemoryFiles files;
  const auto lines = Open(&files, std::string("good\nb\0d\n\xe4\nfine\n", 16));
  EXPECT_EQ((*lines)->Read(1).status(), absl::DataLossError("data: line 2: found a NUL byte, expected text"));
  EXPECT_EQ((*lines)->Read(2).status(), absl::DataLossError("data: line 3: found the byte 0xe4, expected UTF-8"));
  EXPECT_EQ(TextOf((*lines)->Read(3).value()[0]), "fine");

  const auto bad_label = Open(&files, "a\tb\n\xff\tc\n", Labelled());
  EXPECT_EQ((*bad_label)->columns()[1].classes, 1);
  EXPECT_EQ((*bad_label)->Read(1).status(), absl::DataLossError("data: line 2: found the byte 0xff, expected UTF-8"));
  TextOptions options = Labelled();
  options.class_names = {"b"};
  EXPECT_EQ((*Open(&files, "a\tb\n", options))->Read(0).status(),
            absl::DataLossError("data: line 1: found the label \"a\", expected one of the 1 classes"));

  files.Remove("data");
  files.Put("data/x/a.txt", "ab\xff");
  files.Put("data/x/b.txt", std::string((std::size_t{64} << 20) + 1, 'x'));
  const auto folders = OpenText(files, "data", Folders());
  EXPECT_EQ((*folders)->Read(0).status(),
            absl::DataLossError("data/x/a.txt: byte 2: found the byte 0xff, expected UTF-8"));
  EXPECT_EQ((*folders)->Read(1).status(),
            absl::DataLossError("data/x/b.txt: found 67108865 bytes, expected no more than 67108864"));
  files.Remove("data/x/a.txt");
  EXPECT_TRUE(absl::IsDataLoss((*folders)->Read(0).status())) << "still open";
}

TEST(TextSourceTest, LinesAcrossBlocksAreWhole) {
  std::string content;
  std::string expected;
  for (int i = 0; i < 6; ++i) {
    const std::string line(600'000 + static_cast<std::size_t>(i), static_cast<char>('a' + i));
    absl::StrAppend(&content, line, "\r\n");
    absl::StrAppend(&expected, line, "|");
  }
  MemoryFiles files;
  EXPECT_EQ(All(**Open(&files, content)), expected);
}

TEST(TextSourceTest, ErrorsOfTheFilesArePassedOn) {
  MemoryFiles files;
  files.Put("data", "a\nb\n");
  for (const std::int64_t read : {1, 2}) {
    files.FailReads(read, absl::UnavailableError("gone"));
    EXPECT_EQ(OpenText(files, "data", {}).status(), absl::UnavailableError("data: gone")) << read;
  }
  const auto source = OpenText(files, "data", {});
  files.Cut("data", 2);
  EXPECT_EQ((*source)->Read(1).status(), absl::DataLossError("data: ends at byte 2, expected 1 more"));
  EXPECT_TRUE((*source)->Read(0).ok());
}

TEST(FindBadTextTest, KnowsUtf8) {
  for (const char* const good : {"", "a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                                 "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(FindBadText(good), absl::string_view::npos) << good;
  }
  for (const char* const bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x9f\xbf", "\xed\xa0\x80",
                                "\xe4\xb8", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(FindBadText(absl::StrCat("ab", bad)), 2U) << bad;
  }
  EXPECT_EQ(FindBadText(absl::string_view("a\0b", 3)), 1U);
}

}  // namespace
}  // namespace downpour::data
