#include "trainer/data/formats/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/testing/read_values.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;

std::string Png(int colour) { return AsFile(*EncodePng(PlainImage(1, 2, 3, colour))); }

class ImageFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    files_.Put("set/cat/2.png", Png(2));
    files_.Put("set/cat/1.PNG", Png(1));
    files_.Put("set/cat/notes.txt", "");
    files_.Put("set/cat-big/deep/below/3.png", Png(3));
    files_.Put("set/dog/4.JpEg", AsFile(*EncodeJpeg(PlainImage(3, 5, 4, 128), 95)));
    files_.Put("set/readme", "");
  }

  std::string MessageOfOpen(const std::string& path, const ImageFolderOptions& options = {}) {
    const auto source = OpenImageFolder(files_, path, options);
    EXPECT_FALSE(source.ok());
    return std::string(source.status().message());
  }

  MemoryFiles files_;
};

TEST_F(ImageFolderTest, AFolderIsAClass) {
  for (const char* path : {"set", "set/"}) {
    const auto source = OpenImageFolder(files_, path, {.image = {.channels = 1}});
    ASSERT_TRUE(source.ok()) << source.status();
    ASSERT_EQ((*source)->size(), 4);
    ASSERT_EQ((*source)->columns().size(), 2U);
    EXPECT_EQ((*source)->columns()[0].shape, (std::vector<std::int64_t>{1, kAnyExtent, kAnyExtent}));
    EXPECT_EQ((*source)->columns()[1].classes, 3);
    EXPECT_THAT((*source)->columns()[1].class_names, ElementsAre("cat", "cat-big", "dog"));
    const std::vector<std::int64_t> labels = {0, 0, 1, 2};
    for (std::int64_t i = 0; i < 4; ++i) {
      const auto sample = (*source)->Read(i);
      ASSERT_TRUE(sample.ok()) << sample.status();
      EXPECT_EQ(Integer((*sample)[1]), labels[i]);
      if (i < 3) {
        EXPECT_EQ((*sample)[0].shape, (std::vector<std::int64_t>{1, 2, 3}));
        EXPECT_EQ((*sample)[0].bytes[5], static_cast<std::byte>(i + 1));
      } else {
        EXPECT_EQ((*sample)[0].shape, (std::vector<std::int64_t>{1, 5, 4}));
      }
    }
  }
}

TEST_F(ImageFolderTest, ClassesThatAreGivenKeepTheirNumbers) {
  const auto source = OpenImageFolder(files_, "set", {.class_names = {"dog", "bird", "cat", "cat-big"}});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->columns()[1].classes, 4);
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < (*source)->size(); ++i) labels.push_back(Integer((*(*source)->Read(i))[1]));
  EXPECT_THAT(labels, ElementsAre(0, 2, 2, 3));
  EXPECT_EQ(MessageOfOpen("set", {.class_names = {"cat", "dog"}}),
            "set/cat-big: is none of the 2 classes, of which the first is \"cat\"");
  EXPECT_EQ(MessageOfOpen("set", {.class_names = {"cat", "cat"}}), "set: a name of the classes is given twice");
}

TEST_F(ImageFolderTest, ErrorsSayWhatIsThereInstead) {
  EXPECT_EQ(MessageOfOpen("none"), "none: cannot be looked at: No such file or directory");
  files_.Put("hidden/.a/1.png", Png(1));
  EXPECT_EQ(MessageOfOpen("hidden"), "hidden: has no file, expected .jpg, .jpeg or .png files");
  files_.Put("gif/cat/a.gif", "");
  files_.Put("gif/dog/b.gif", "");
  EXPECT_EQ(MessageOfOpen("gif"), "gif: of 2 files, as dog/b.gif, none is a .jpg, .jpeg or .png");
  files_.Put("set/fish/a.webp", "");
  EXPECT_EQ(MessageOfOpen("set"), "set/fish: of 1 files, as fish/a.webp, none is a .jpg, .jpeg or .png");
  files_.Remove("set/fish/a.webp");
  files_.Put("set/cover.png", Png(1));
  EXPECT_EQ(MessageOfOpen("set"), "set/cover.png: is in no folder of a class, expected CLASS/NAME");
  EXPECT_EQ(MessageOfOpen("set/cover.png"), "set/cover.png: is a file, expected a folder with one a class");
  EXPECT_EQ(MessageOfOpen("set", {.image = {.channels = 2}}), "channels of images: 2, expected 1 or 3");
}

TEST_F(ImageFolderTest, ABrokenImageLeavesTheOthers) {
  files_.Put("set/cat/2.png", "GIF89a");
  files_.Put("set/cat-big/deep/below/3.png", Png(3).substr(0, 60));
  const auto source = OpenImageFolder(files_, "set", {.image = {.channels = 1, .most_pixels = 10}});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE((*source)->Read(0).ok());
  EXPECT_EQ((*source)->Read(1).status(),
            absl::DataLossError("set/cat/2.png: begins with the bytes 47494638, expected a JPEG (ffd8ff) or PNG "
                                "(89504e47) image"));
  EXPECT_EQ((*source)->Read(2).status(),
            absl::DataLossError("set/cat-big/deep/below/3.png: is a PNG image that cannot "
                                "be read, expected a sound one: ends before its last chunk does"));
  EXPECT_EQ((*source)->Read(3).status(),
            absl::DataLossError("set/dog/4.JpEg: is a JPEG image of 4 x 5 pixels (width x height), expected 10 at "
                                "most"));
  files_.FailReads(1, absl::UnavailableError("the store is down"));
  EXPECT_TRUE(absl::IsUnavailable((*source)->Read(0).status()));
  files_.Remove("set/cat/1.PNG");
  EXPECT_TRUE(absl::IsNotFound((*source)->Read(0).status()));
}

TEST_F(ImageFolderTest, IsReadByManyThreads) {
  const auto source = OpenImageFolder(files_, "set", {});
  ASSERT_TRUE(source.ok()) << source.status();
  const auto expected = (*source)->Read(3);
  ASSERT_TRUE(expected.ok());
  std::atomic<int> equal = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        const auto sample = (*source)->Read(3);
        if (sample.ok() && (*sample)[0].bytes == (*expected)[0].bytes) ++equal;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, 200);
}

}  // namespace
}  // namespace downpour::data
