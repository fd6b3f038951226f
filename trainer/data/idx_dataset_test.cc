#include "trainer/data/idx_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#define ZLIB_CONST  // input pointers are const
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "trainer/data/idx.h"

namespace downpour::data {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

Bytes Idx(std::uint32_t magic, const std::vector<std::uint32_t>& shape, const Bytes& values) {
  Bytes bytes;
  const auto append = [&bytes](std::uint32_t word) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(word >> shift));
  };
  append(magic);
  for (std::uint32_t extent : shape) append(extent);
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

Bytes Gzip(const Bytes& plain) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  Bytes packed(deflateBound(&stream, plain.size()) + 64);
  stream.next_in = plain.data();
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

Bytes Random(std::mt19937_64& random, std::size_t count, int bound) {
  Bytes bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random() % static_cast<std::uint64_t>(bound));
  return bytes;
}

class IdxDatasetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) /
                 (std::string("idx_dataset_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return (directory_ / name).string(); }
  void Write(const std::string& name, const Bytes& bytes) const {
    std::ofstream(directory_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  absl::Status Open() const { return OpenIdxDataset(directory_.string(), Split::kTrain).status(); }

  std::filesystem::path directory_;
};

TEST_F(IdxDatasetTest, ReadsWhatWasWritten) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    const std::uint32_t count = 1 + static_cast<std::uint32_t>(random() % 50);
    const std::uint32_t rows = 1 + static_cast<std::uint32_t>(random() % 9);
    const std::uint32_t columns = 1 + static_cast<std::uint32_t>(random() % 9);
    const std::size_t pixels = std::size_t{rows} * columns;
    const Bytes images = Random(random, count * pixels, 256);
    const Bytes labels = Random(random, count, 10);
    const bool zip_images = random() % 2 == 0;
    const bool zip_labels = random() % 2 == 0;
    const Bytes image_file = Idx(0x803, {count, rows, columns}, images);
    const Bytes label_file = Idx(0x801, {count}, labels);
    SetUp();
    Write(zip_images ? "t10k-images-idx3-ubyte.gz" : "t10k-images-idx3-ubyte",
          zip_images ? Gzip(image_file) : image_file);
    Write(zip_labels ? "t10k-labels-idx1-ubyte.gz" : "t10k-labels-idx1-ubyte",
          zip_labels ? Gzip(label_file) : label_file);

    const auto dataset = OpenIdxDataset(directory_.string(), Split::kTest);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->size(), count);
    const SampleFields expected{{{"image", ElementType::kU8, {1, rows, columns}}},
                                {{"label", ElementType::kI64, {}, 10}}};
    EXPECT_EQ((*dataset)->fields(), expected);

    std::vector<std::int64_t> indices(1 + random() % 20);
    for (std::int64_t& index : indices) index = static_cast<std::int64_t>(random() % count);
    const Batch batch = *(*dataset)->Read(indices, std::nullopt);
    EXPECT_EQ(batch.size(), static_cast<std::int64_t>(indices.size()));
    const absl::Span<const std::uint8_t> samples = batch.inputs.at(0).values<std::uint8_t>();
    const absl::Span<const std::int64_t> read_labels = batch.targets.at(0).values<std::int64_t>();
    ASSERT_EQ(samples.size(), indices.size() * pixels);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      EXPECT_EQ(read_labels[i], labels[indices[i]]);
      for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
        ASSERT_EQ(samples[i * pixels + pixel], images[indices[i] * pixels + pixel]);
      }
    }
  }
}

TEST_F(IdxDatasetTest, TheFieldsAreInTheHeader) {
  EXPECT_EQ(ReadIdxFields(directory_.string()).status().code(), absl::StatusCode::kNotFound);
  const Bytes header = Idx(0x00000803, {2, 5, 7}, {});  // nobody looks behind it
  for (const bool zipped : {false, true}) {
    if (zipped) {
      std::filesystem::remove(Path("train-images-idx3-ubyte"));
      Write("train-images-idx3-ubyte.gz", Gzip(header));
    } else {
      Write("train-images-idx3-ubyte", header);
    }
    const absl::StatusOr<SampleFields> fields = ReadIdxFields(directory_.string());
    ASSERT_TRUE(fields.ok()) << fields.status();
    EXPECT_EQ(ToString(*fields), "inputs {image: u8 [1, 5, 7]}, targets {label: i64 [] below 10}");
  }
  for (const Bytes& broken : {Bytes(header.begin(), header.begin() + 15), Idx(0x00000801, {2, 5, 7}, {}),
                              Idx(0x00000803, {2, 0, 7}, {}), Bytes()}) {
    Write("train-images-idx3-ubyte.gz", broken);
    const absl::Status status = ReadIdxFields(directory_.string()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr("train-images-idx3-ubyte.gz: is no idx file of images"));
  }
}

TEST_F(IdxDatasetTest, EveryBrokenFormIsNamed) {
  const Bytes pixels(3 * 4, 7);
  const Bytes labels{1, 2, 3};
  const Bytes good_images = Idx(0x803, {3, 2, 2}, pixels);
  const Bytes good_labels = Idx(0x801, {3}, labels);
  const auto cut = [](Bytes bytes, std::size_t size) {
    bytes.resize(size);
    return bytes;
  };
  const auto with = [](Bytes bytes, std::size_t at, std::uint8_t value) {
    bytes[at] = value;
    return bytes;
  };
  const Bytes zipped = Gzip(good_images);
  Bytes longer = good_images;
  longer.push_back(0);
  Bytes zipped_and_garbage = zipped;
  zipped_and_garbage.insert(zipped_and_garbage.end(), {'j', 'u', 'n', 'k'});

  struct Case {
    Bytes images;
    Bytes labels;
    std::string message;  // after the directory
  };
  const std::string image_path = Path("train-images-idx3-ubyte");
  const std::string label_path = Path("train-labels-idx1-ubyte");
  const std::vector<Case> cases = {
      {Idx(0x801, {3, 2, 2}, pixels), good_labels,
       image_path + ": bad magic 0x00000801, expected 0x00000803 (idx, unsigned bytes, 3 dimensions)"},
      {good_images, Idx(0x803, {3}, labels),
       label_path + ": bad magic 0x00000803, expected 0x00000801 (idx, unsigned bytes, 1 dimension)"},
      {{}, good_labels, image_path + ": truncated: 0 bytes, expected a header of 16"},
      {cut(good_images, 15), good_labels, image_path + ": truncated: 15 bytes, expected a header of 16"},
      {cut(good_images, 27), good_labels, image_path + ": truncated: 11 values, expected 12 (3x2x2)"},
      {longer, good_labels, image_path + ": trailing bytes after the 12 expected values (3x2x2)"},
      {Idx(0x803, {0, 2, 2}, {}), good_labels,
       image_path + ": the header announces no values (0x2x2), expected one or more"},
      {Idx(0x803, {0xffffffff, 0xffffffff, 0xffffffff}, pixels), good_labels,
       image_path +
           ": the header announces 4294967295x4294967295x4294967295 values, more than the limit of 2147483648"},
      {Idx(0x803, {2000, 1000, 1000}, pixels), good_labels,
       image_path + ": truncated: 12 values, expected 2000000000 (2000x1000x1000)"},
      {good_images, Idx(0x801, {2}, {1, 2}), label_path + ": 2 labels, but " + image_path + " has 3 images"},
      {good_images, Idx(0x801, {3}, {1, 10, 2}), label_path + ": label 10 at index 1, expected 0 to 9"},
      {cut(zipped, zipped.size() - 1), good_labels, image_path + ": truncated gzip stream, expected its end"},
      {cut(zipped, 12), good_labels, image_path + ": truncated gzip stream, expected its end"},
      {with(zipped, zipped.size() - 8, static_cast<std::uint8_t>(zipped[zipped.size() - 8] ^ 1)), good_labels,
       image_path + ": bad gzip data, expected sound ones: incorrect data check"},
      {with(zipped, 2, 99), good_labels,
       image_path + ": bad gzip data, expected sound ones: unknown compression method"},
      {zipped_and_garbage, good_labels, image_path + ": bad gzip data, expected sound ones: incorrect header check"},
      {Gzip(longer), good_labels, image_path + ": trailing bytes after the 12 expected values (3x2x2)"},
  };
  for (const Case& c : cases) {
    Write("train-images-idx3-ubyte", c.images);
    Write("train-labels-idx1-ubyte", c.labels);
    const absl::Status status = Open();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << c.message;
    EXPECT_EQ(status.message(), c.message);
  }
}

TEST_F(IdxDatasetTest, MissingFiles) {
  absl::Status status = OpenIdxDataset(Path("absent"), Split::kTrain).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), Path("absent") + ": no such directory");
  status = Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            Path("train-images-idx3-ubyte.gz") + ": no such file, nor train-images-idx3-ubyte without .gz");
  Write("train-images-idx3-ubyte", Idx(0x803, {1, 1, 1}, {5}));
  status = Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("train-labels-idx1-ubyte.gz: no such file"));
}

TEST(Idx, ConcatenatedGzipMembersAreOneFile) {
  const Bytes plain = Idx(0x801, {4}, {1, 2, 3, 4});
  Bytes packed = Gzip({plain.begin(), plain.begin() + 6});
  const Bytes second = Gzip({plain.begin() + 6, plain.end()});
  packed.insert(packed.end(), second.begin(), second.end());
  const auto array = ParseIdx(packed, 1);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->values, (Bytes{1, 2, 3, 4}));
}

// Whatever the bytes: an answer, and values exactly as many as the shape says.
TEST(Idx, RandomDamageIsRefusedOrConsistent) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 random(seed);
    const std::uint32_t count = 1 + static_cast<std::uint32_t>(random() % 20);
    Bytes file = Idx(0x803, {count, 3, 2}, Random(random, count * 6, 256));
    if (random() % 2 == 0) file = Gzip(file);
    for (std::uint64_t damage = 1 + random() % 4; damage > 0 && !file.empty(); --damage) {
      if (random() % 4 == 0) {
        file.resize(random() % (file.size() + 8));
      } else {
        file[random() % file.size()] ^= static_cast<std::uint8_t>(1 + random() % 255);
      }
    }
    const auto array = ParseIdx(file, 3);
    if (!array.ok()) continue;
    ASSERT_EQ(array->shape.size(), 3U);
    EXPECT_EQ(static_cast<std::int64_t>(array->values.size()), array->shape[0] * array->shape[1] * array->shape[2])
        << "seed " << seed;
  }
}

TEST(FashionMnist, OpensWhereItIsInstalled) {
  const std::string directory = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(directory)) FAIL() << directory << " is not installed";
  for (const auto& [split, count] : {std::pair(Split::kTrain, 60000), std::pair(Split::kTest, 10000)}) {
    const auto dataset = OpenIdxDataset(directory, split);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->size(), count);
    EXPECT_EQ((*dataset)->fields().inputs.at(0).shape, (std::vector<std::int64_t>{1, 28, 28}));
    std::vector<std::int64_t> per_class(10), indices(count);
    for (std::int64_t i = 0; i < count; ++i) indices[i] = i;
    const Batch batch = *(*dataset)->Read(indices, std::nullopt);
    const absl::Span<const std::uint8_t> samples = batch.inputs.at(0).values<std::uint8_t>();
    for (const std::int64_t label : batch.targets.at(0).values<std::int64_t>()) ++per_class[label];
    EXPECT_THAT(per_class, ::testing::Each(count / 10));  // the set is balanced
    double sum = 0;
    for (const std::uint8_t value : samples) sum += value / 255.0;
    EXPECT_NEAR(sum / static_cast<double>(samples.size()), 0.286, 0.002);  // the well-known mean pixel
  }
}

}  // namespace
}  // namespace downpour::data
