// Data sets as the packages of Python write them, read as these packages read them. On demand: DOWNPOUR_DATA_PYTHON is
// a Python with pillow and numpy, and with webdataset and tensorflow if these are to take part.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "trainer/data/encoding.h"
#include "trainer/data/files/files.h"
#include "trainer/data/formats/image_folder.h"
#include "trainer/data/formats/tf_record.h"
#include "trainer/data/formats/web_dataset.h"

namespace downpour::data {
namespace {

using Opened = absl::StatusOr<std::unique_ptr<SampleSource>>;

// Decoders may round differently.
constexpr int kMostDifference = 2;

std::size_t ColumnOf(const SampleSource& source, absl::string_view name) {
  std::size_t column = 0;
  while (source.columns().at(column).name != name) ++column;
  return column;
}

// `expected`: of each sample height, width and label, i64, the red, green and blue pixels, the length of the text, i64,
// and the text.
void ExpectSamples(const Opened& source, const std::string& expected) {
  ASSERT_TRUE(source.ok()) << source.status();
  const std::size_t image_column = ColumnOf(**source, "image");
  const std::size_t label_column = ColumnOf(**source, "label");
  Decoder decoder(expected);
  for (std::int64_t i = 0; i < (*source)->size(); ++i) {
    const auto sample = (*source)->Read(i);
    ASSERT_TRUE(sample.ok()) << sample.status();
    std::int64_t height = 0;
    std::int64_t width = 0;
    std::int64_t label = 0;
    std::int64_t length = 0;
    absl::string_view pixels;
    absl::string_view text;
    ASSERT_TRUE(decoder.Take(&height) && decoder.Take(&width) && decoder.Take(&label) &&
                decoder.TakeBytes(static_cast<std::uint64_t>(3 * height * width), &pixels) && decoder.Take(&length) &&
                decoder.TakeBytes(static_cast<std::uint64_t>(length), &text));
    const Value& image = (*sample)[image_column];
    ASSERT_EQ(image.shape, (std::vector<std::int64_t>{3, height, width})) << "sample " << i;
    int largest = 0;
    for (std::size_t at = 0; at < pixels.size(); ++at) {
      const int difference = std::to_integer<int>(image.bytes[at]) - static_cast<std::uint8_t>(pixels[at]);
      largest = std::max(largest, std::abs(difference));
    }
    EXPECT_LE(largest, kMostDifference) << "sample " << i;
    EXPECT_EQ(AsBytes({reinterpret_cast<const char*>((*sample)[label_column].bytes.data()), 8}),
              AsBytes({reinterpret_cast<const char*>(&label), 8}))
        << "sample " << i;
    if (length == 0) continue;
    const Value& found = (*sample)[ColumnOf(**source, "text")];
    EXPECT_EQ(absl::string_view(reinterpret_cast<const char*>(found.bytes.data()), found.bytes.size()), text);
  }
  EXPECT_TRUE(decoder.done()) << "there are as many samples";
}

TEST(ImagesPythonTest, SamplesAreThoseThatPythonReads) {
  const char* const python = std::getenv("DOWNPOUR_DATA_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "DOWNPOUR_DATA_PYTHON is not set";
  std::string folder = ::testing::TempDir() + "/references-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string command = absl::StrCat("'", python, "' tests/data/write_images.py '", folder, "'");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const Files& files = LocalFiles();
  const auto check = [&](const std::string& name, const std::function<Opened(const std::string& path)>& open) {
    SCOPED_TRACE(name);
    std::ifstream expected(absl::StrCat(folder, "/", name, ".expected"), std::ios::binary);
    if (!expected.is_open()) return;  // Python lacks the package, and has said so
    ExpectSamples(open(absl::StrCat(folder, "/", name)), std::string(std::istreambuf_iterator<char>(expected), {}));
  };
  check("image_folder", [&](const std::string& path) { return OpenImageFolder(files, path, {}); });
  for (const char* name : {"tar_ustar", "tar_gnu", "tar_pax", "webdataset"}) {
    check(name, [&](const std::string& path) { return OpenWebDataset(files, path, {}); });
  }
  check("tfrecord", [&](const std::string& path) { return OpenTfRecord(files, path, {}); });
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace downpour::data
