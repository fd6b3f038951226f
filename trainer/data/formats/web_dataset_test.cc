#include "trainer/data/formats/web_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/testing/read_values.h"
#include "trainer/data/formats/testing/tar_builder.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;

std::string Png(int colour) { return AsFile(*EncodePng(PlainImage(1, 2, 3, colour))); }

std::vector<std::string> Names(const SampleSource& source) {
  std::vector<std::string> names;
  for (const Column& column : source.columns()) names.push_back(column.name);
  return names;
}

class WebDatasetTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<SampleSource>> Open(const TarBuilder& tar, const WebDatasetOptions& options = {}) {
    files_.Put("a.tar", tar.End());
    return OpenWebDataset(files_, "a.tar", options);
  }
  std::string MessageOfOpen(const TarBuilder& tar, const WebDatasetOptions& options = {}) {
    const auto source = Open(tar, options);
    EXPECT_FALSE(source.ok());
    return std::string(source.status().message());
  }
  // Of its only sample.
  std::string MessageOfRead(const TarBuilder& tar, const WebDatasetOptions& options = {}) {
    const auto source = Open(tar, options);
    EXPECT_TRUE(source.ok()) << source.status();
    if (!source.ok()) return "";
    const auto sample = (*source)->Read(0);
    EXPECT_TRUE(absl::IsDataLoss(sample.status())) << sample.status();
    return std::string(sample.status().message());
  }

  MemoryFiles files_;
};

TEST_F(WebDatasetTest, ASampleIsARunOfNames) {
  files_.Put("set/train-0000.tar", TarBuilder()
                                       .Entry('5', "./", "")
                                       .File("./a/001.txt", "first")
                                       .File("./a/001.png", Png(1))
                                       .File("./a/001.cls", " 7\n")
                                       .File("./b/001.cls", "8")
                                       .File("./b/001.PNG", Png(2))
                                       .File("./b/001.txt", "")
                                       .End());
  files_.Put("set/train-0001.tar", TarBuilder()
                                       .File("a.b/c.jpeg", AsFile(*EncodeJpeg(PlainImage(3, 4, 5, 90), 95)))
                                       .File("a.b/c.cls", "-1")
                                       .File("a.b/c.txt", "caf\xc3\xa9")
                                       .End());
  files_.Put("set/readme", "");
  for (const char* path : {"set", "set/train-{0000..0001}.tar"}) {
    const auto source = OpenWebDataset(files_, path, {.image = {.channels = 1}});
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_THAT(Names(**source), ElementsAre("image", "label", "text"));
    EXPECT_EQ((*source)->columns()[0].shape, (std::vector<std::int64_t>{1, kAnyExtent, kAnyExtent}));
    EXPECT_EQ((*source)->columns()[1].type, ElementType::kI64);
    EXPECT_TRUE((*source)->columns()[2].text);
    ASSERT_EQ((*source)->size(), 3);
    const auto last = (*source)->Read(2);
    ASSERT_TRUE(last.ok()) << last.status();
    EXPECT_EQ((*last)[0].shape, (std::vector<std::int64_t>{1, 4, 5}));
    EXPECT_EQ(Integer((*last)[1]), -1);
    EXPECT_EQ(Text((*last)[2]), "caf\xc3\xa9");
    const auto first = (*source)->Read(0);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ((*first)[0].bytes[0], std::byte{1});
    EXPECT_EQ(Integer((*first)[1]), 7);
    EXPECT_EQ(Text((*first)[2]), "first");
    const auto second = (*source)->Read(1);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ((*second)[0].bytes[0], std::byte{2});
    EXPECT_EQ(Integer((*second)[1]), 8);
    EXPECT_EQ(Text((*second)[2]), "");
  }
}

TEST_F(WebDatasetTest, ANameThatComesAgainLaterIsAnotherSample) {
  const auto source = Open(TarBuilder().File("a.cls", "1").File("b.cls", "2").File("a.cls", "3"));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->size(), 3);
  EXPECT_EQ(Integer((*(*source)->Read(2))[0]), 3);
}

TEST_F(WebDatasetTest, OtherExtensionsAreIgnoredWhereItIsSaidWhichAreRead) {
  const TarBuilder tar = TarBuilder()
                             .File("LICENSE", "")
                             .File("a.json", "{}")
                             .File("a.cls", "1")
                             .File("a.seg.png", "")
                             .File("a.txt", "x")
                             .File(".hidden", "")
                             .File("b.txt", "y")
                             .File("b.cls", "2");
  const auto source = Open(tar, {.extensions = {"cls", "txt"}});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT(Names(**source), ElementsAre("label", "text"));
  ASSERT_EQ((*source)->size(), 2);
  EXPECT_EQ(Text((*(*source)->Read(0))[1]), "x");
  EXPECT_EQ(Integer((*(*source)->Read(1))[0]), 2);
  EXPECT_EQ(MessageOfOpen(tar, {.extensions = {"npy"}}),
            "a.tar: extension \"npy\" cannot be read, expected jpg, jpeg, png, cls or txt");
}

TEST_F(WebDatasetTest, ASampleIsOneRead) {
  TarBuilder tar;
  for (int i = 0; i < 100; ++i) tar.File(absl::StrCat(i, ".cls"), "1").File(absl::StrCat(i, ".txt"), "text");
  const auto source = Open(tar);
  ASSERT_TRUE(source.ok()) << source.status();
  const std::int64_t reads = files_.reads();
  const std::uint64_t bytes = files_.bytes_read();
  ASSERT_TRUE((*source)->Read(57).ok());
  EXPECT_EQ(files_.reads() - reads, 1);
  EXPECT_EQ(files_.bytes_read() - bytes, 2048U);
}

TEST_F(WebDatasetTest, TheIndexIsKept) {
  std::string folder = ::testing::TempDir() + "/web_dataset-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const WebDatasetOptions options = {.cache_directory = folder};
  TarBuilder tar;
  for (int i = 0; i < 2000; ++i) tar.File(absl::StrCat(i, ".cls"), absl::StrCat(i));
  ASSERT_TRUE(Open(tar, options).ok());
  const std::uint64_t bytes = files_.bytes_read();
  const auto source = OpenWebDataset(files_, "a.tar", options);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_LT(files_.bytes_read() - bytes, tar.bytes().size() / 4) << "it is not gone through again";
  EXPECT_THAT(Names(**source), ElementsAre("label"));
  EXPECT_EQ(Integer((*(*source)->Read(1234))[0]), 1234);
  std::filesystem::remove_all(folder);
}

TEST_F(WebDatasetTest, ErrorsOfTheArchiveSayWhereAndWhat) {
  EXPECT_EQ(MessageOfOpen(TarBuilder().File("a.cls", "1").File("a.npy", "")),
            "a.tar: byte 1024: entry \"a.npy\" cannot be read, expected NAME.jpg, .jpeg, .png, .cls or .txt, or that "
            "the data set says which extensions are read");
  EXPECT_EQ(MessageOfOpen(TarBuilder().File("x/LICENSE", "")).substr(0, 52),
            "a.tar: byte 0: entry \"x/LICENSE\" cannot be read, exp");
  EXPECT_EQ(MessageOfOpen(TarBuilder().File("x/.cls", "1")).substr(0, 46),
            "a.tar: byte 0: entry \"x/.cls\" cannot be read, ");
  EXPECT_EQ(MessageOfOpen(TarBuilder().File("a.jpg", "").File("a.png", "")),
            "a.tar: byte 512: entry \"a.png\" is another image of a sample that has \"a.jpg\", expected one");
  EXPECT_EQ(MessageOfOpen(TarBuilder().File("a.cls", "1").File("a.txt", "").File("b.cls", "1").File("c.cls", "")),
            "a.tar: byte 1536: sample \"b\" has label, expected label, text, as the first one has");
  EXPECT_EQ(MessageOfOpen(TarBuilder().File("a.cls", "1").File("../b.cls", "1")),
            "a.tar: byte 1024: entry \"../b.cls\" has \"..\" in its name, expected one that stays in its folder");
  EXPECT_EQ(MessageOfOpen(TarBuilder().Header('0', "a.cls", "00000100000")),
            "a.tar: byte 0: entry \"a.cls\" has 32768 bytes, but the file ends after 1024");
  EXPECT_EQ(MessageOfOpen(TarBuilder().Entry('2', "a.cls", "")),
            "a.tar: byte 0: entry \"a.cls\" is a symbolic link, expected a regular file");
  EXPECT_EQ(MessageOfOpen(TarBuilder()), "a.tar: 1 archives without a sample, expected one at least");
  EXPECT_EQ(MessageOfOpen(TarBuilder(), {.classes = -1}), "a.tar: -1 classes, expected 0 or more");
  EXPECT_EQ(OpenWebDataset(files_, "b-{0..1}.tar", {}).status().message(),
            "b-0.tar: cannot be opened: No such file or directory");
}

TEST_F(WebDatasetTest, ErrorsOfASampleSayWhereAndWhat) {
  EXPECT_EQ(MessageOfRead(TarBuilder().File("a.cls", "cat")),
            "a.tar: byte 0: entry \"a.cls\" holds \"cat\", expected a decimal number");
  EXPECT_EQ(MessageOfRead(TarBuilder().File("a.cls", "")),
            "a.tar: byte 0: entry \"a.cls\" holds \"\", expected a decimal number");
  EXPECT_EQ(MessageOfRead(TarBuilder().File("a.txt", "").File("a.cls", "10"), {.classes = 10}),
            "a.tar: byte 512: entry \"a.cls\" holds 10, expected 0 to 9");
  EXPECT_EQ(MessageOfRead(TarBuilder().File("a.txt", "\xff")),
            "a.tar: byte 0: entry \"a.txt\" at its byte 0: found the byte 0xff, expected UTF-8");
  EXPECT_EQ(MessageOfRead(TarBuilder().File("a.png", Png(1).substr(0, 60))),
            "a.tar: byte 0: entry \"a.png\" is a PNG image that cannot be read, expected a sound one: ends before its "
            "last chunk does");
  EXPECT_EQ(MessageOfRead(TarBuilder().File("a.jpg", "")),
            "a.tar: byte 0: entry \"a.jpg\" is empty, expected a JPEG or PNG image");
  EXPECT_EQ(MessageOfRead(TarBuilder().File("a.png", Png(1)), {.image = {.most_pixels = 5}}),
            "a.tar: byte 0: entry \"a.png\" is a PNG image of 3 x 2 pixels (width x height), expected 5 at most");
}

TEST_F(WebDatasetTest, ABrokenSampleLeavesTheOthers) {
  const auto source = Open(TarBuilder().File("a.cls", "1").File("b.cls", "x").File("c.cls", "3"));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_FALSE((*source)->Read(1).ok());
  EXPECT_EQ(Integer((*(*source)->Read(2))[0]), 3);
  files_.FailReads(1, absl::UnavailableError("the store is down"));
  EXPECT_TRUE(absl::IsUnavailable((*source)->Read(0).status()));
  files_.Cut("a.tar", 1000);
  EXPECT_TRUE(absl::IsDataLoss((*source)->Read(2).status()));
}

}  // namespace
}  // namespace downpour::data
