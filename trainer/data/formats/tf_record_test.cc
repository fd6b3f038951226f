#include "trainer/data/formats/tf_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tensorflow_example.pb.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/testing/read_values.h"
#include "trainer/data/formats/testing/record_builder.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;
using Kind = TfRecordFeature::Kind;

// An Example, feature by feature.
class ExampleBuilder {
 public:
  ExampleBuilder& Integers(const std::string& name, const std::vector<std::int64_t>& values) {
    for (const std::int64_t value : values) Feature(name).mutable_int64_list()->add_value(value);
    return *this;
  }
  ExampleBuilder& Floats(const std::string& name, const std::vector<float>& values) {
    for (const float value : values) Feature(name).mutable_float_list()->add_value(value);
    return *this;
  }
  ExampleBuilder& Bytes(const std::string& name, const std::vector<std::string>& values) {
    for (const std::string& value : values) Feature(name).mutable_bytes_list()->add_value(value);
    return *this;
  }
  tensorflow::Feature& Feature(const std::string& name) {
    return (*example_.mutable_features()->mutable_feature())[name];
  }
  std::string Record() const { return data::Record(example_.SerializeAsString()); }

 private:
  tensorflow::Example example_;
};

std::string Png(int colour) { return AsFile(*EncodePng(PlainImage(3, 2, 3, colour))); }

class TfRecordTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<SampleSource>> Open(const std::string& records, const TfRecordOptions& options = {}) {
    files_.Put("a", records);
    return OpenTfRecord(files_, "a", options);
  }
  std::string MessageOfOpen(const std::string& records, const TfRecordOptions& options = {}) {
    const auto source = Open(records, options);
    EXPECT_FALSE(source.ok());
    return std::string(source.status().message());
  }
  // Of the sample `index`.
  std::string MessageOfRead(const std::string& records, std::int64_t index, const TfRecordOptions& options = {}) {
    const auto source = Open(records, options);
    EXPECT_TRUE(source.ok()) << source.status();
    if (!source.ok()) return "";
    const auto sample = (*source)->Read(index);
    EXPECT_TRUE(absl::IsDataLoss(sample.status())) << sample.status();
    return std::string(sample.status().message());
  }

  MemoryFiles files_;
};

// {"label": [7]}.
TEST_F(TfRecordTest, ReadsWhatTensorFlowWrites) {
  const std::string data = absl::HexStringToBytes("0a100a0e0a056c6162656c12051a030a0107");
  EXPECT_EQ(Record(data).substr(0, 8), std::string("\x12\0\0\0\0\0\0\0", 8));
  const auto source = Open(Record(data));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->columns()[0].name, "label");
  EXPECT_EQ(Integer((*(*source)->Read(0))[0]), 7);
}

TEST_F(TfRecordTest, FeaturesAreLearntFromTheFirstRecord) {
  const auto record = [](std::int64_t number) {
    return ExampleBuilder()
        .Integers("label", {number})
        .Integers("box", {1, 2, number})
        .Floats("weight", {0.5F})
        .Bytes("text", {absl::StrCat("text ", number)})
        .Bytes("image", {Png(static_cast<int>(number))})
        .Record();
  };
  files_.Put("set/train.tfrecord-00000-of-00002", record(0) + record(1));
  files_.Put("set/train.tfrecord-00001-of-00002", record(2));
  files_.Put("set/readme", "");
  for (const char* path : {"set", "set/train.tfrecord-{00000..00001}-of-00002"}) {
    const auto source = OpenTfRecord(files_, path, {});
    ASSERT_TRUE(source.ok()) << source.status();
    const std::vector<Column>& columns = (*source)->columns();
    ASSERT_EQ(columns.size(), 5U);
    EXPECT_EQ(columns[0].name, "box");
    EXPECT_EQ(columns[0].type, ElementType::kI64);
    EXPECT_THAT(columns[0].shape, ElementsAre(3));
    EXPECT_EQ(columns[1].name, "image");
    EXPECT_THAT(columns[1].shape, ElementsAre(3, kAnyExtent, kAnyExtent));
    EXPECT_EQ(columns[2].name, "label");
    EXPECT_TRUE(columns[2].shape.empty());
    EXPECT_EQ(columns[3].name, "text");
    EXPECT_TRUE(columns[3].text);
    EXPECT_EQ(columns[4].name, "weight");
    EXPECT_EQ(columns[4].type, ElementType::kF32);
    ASSERT_EQ((*source)->size(), 3);
    for (const std::int64_t i : {2, 0, 1}) {
      const auto sample = (*source)->Read(i);
      ASSERT_TRUE(sample.ok()) << sample.status();
      EXPECT_THAT(Numbers<std::int64_t>((*sample)[0]), ElementsAre(1, 2, i));
      EXPECT_EQ((*sample)[1].bytes, PlainImage(3, 2, 3, static_cast<int>(i)).bytes);
      EXPECT_EQ(Integer((*sample)[2]), i);
      EXPECT_EQ(Text((*sample)[3]), absl::StrCat("text ", i));
      EXPECT_THAT(Numbers<float>((*sample)[4]), ElementsAre(0.5F));
    }
  }
}

TEST_F(TfRecordTest, FeaturesThatAreGivenAreReadInTheirShapes) {
  const std::string records = ExampleBuilder()
                                  .Floats("matrix", {1, 2, 3, 4, 5, 6})
                                  .Bytes("raw", {std::string("\0\xff\x01\x02", 4)})
                                  .Integers("words", {4, 5})
                                  .Floats("not asked for", {1})
                                  .Record() +
                              ExampleBuilder()
                                  .Floats("matrix", {6, 5, 4, 3, 2, 1})
                                  .Bytes("raw", {"abcd"})
                                  .Integers("words", {})
                                  .Integers("words", {1, 2, 3})
                                  .Record();
  const auto source = Open(records, {.features = {{"words", Kind::kIntegers, {kAnyExtent}, 6},
                                                  {"raw", Kind::kBytes, {2, 2}},
                                                  {"matrix", Kind::kFloats, {kAnyExtent, 2}}}});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->columns()[0].classes, 6);
  const auto first = (*source)->Read(0);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT((*first)[0].shape, ElementsAre(2));
  EXPECT_THAT((*first)[1].shape, ElementsAre(2, 2));
  EXPECT_THAT(Numbers<std::uint8_t>((*first)[1]), ElementsAre(0, 255, 1, 2));
  EXPECT_THAT((*first)[2].shape, ElementsAre(3, 2));
  EXPECT_THAT(Numbers<float>((*first)[2]), ElementsAre(1, 2, 3, 4, 5, 6));
  const auto second = (*source)->Read(1);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(Numbers<std::int64_t>((*second)[0]), ElementsAre(1, 2, 3));
}

TEST_F(TfRecordTest, TheIndexIsKeptAndASampleIsOneRead) {
  std::string folder = ::testing::TempDir() + "/tf_record-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const TfRecordOptions options = {.cache_directory = folder};
  std::string records;
  for (std::int64_t i = 0; i < 20'000; ++i) records += ExampleBuilder().Integers("label", {i}).Record();
  ASSERT_TRUE(Open(records, options).ok());
  std::uint64_t bytes = files_.bytes_read();
  const auto source = OpenTfRecord(files_, "a", options);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_LT(files_.bytes_read() - bytes, records.size() / 3) << "it is not gone through again";
  bytes = files_.bytes_read();
  const std::int64_t reads = files_.reads();
  EXPECT_EQ(Integer((*(*source)->Read(12'345))[0]), 12'345);
  EXPECT_EQ(files_.reads() - reads, 1);
  EXPECT_LT(files_.bytes_read() - bytes, 64U);
  std::filesystem::remove_all(folder);
}

TEST_F(TfRecordTest, EveryDamagedByteIsNoticed) {
  const std::string record = ExampleBuilder().Integers("label", {3}).Record();
  for (std::size_t i = 0; i < 2 * record.size(); ++i) {
    std::string damaged = record + record;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    const auto source = Open(damaged);
    if (!source.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(source.status())) << source.status();
      continue;
    }
    EXPECT_TRUE(absl::IsDataLoss((*source)->Read(i < record.size() ? 0 : 1).status())) << "byte " << i;
  }
  for (std::size_t size = 1; size < record.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(Open(record + record.substr(0, size)).status())) << size << " bytes of a record";
  }
}

TEST_F(TfRecordTest, ErrorsOfTheFileSayWhereAndWhat) {
  const std::string record = ExampleBuilder().Integers("label", {3}).Record();  // 34 bytes
  std::string length = record;
  length[8] = static_cast<char>(length[8] ^ 1);
  EXPECT_EQ(MessageOfOpen(record + length),
            "a: record 1 at byte 34: checksum of its length: found 25641f25, expected 25641f24");
  EXPECT_EQ(MessageOfOpen(record + record.substr(0, 5)),
            "a: record 1 at byte 34: the file ends after 5 bytes, expected the 12 of a length and its checksum");
  EXPECT_EQ(MessageOfOpen(record + record.substr(0, 33)),
            "a: record 1 at byte 34: 34 bytes with its checksums, but the file ends after 33");
  EXPECT_EQ(MessageOfOpen(""), "a: 1 files without a record, expected one at least");
  EXPECT_EQ(MessageOfOpen(Record("no example")),
            "a: record 0 at byte 0: 10 bytes of data that are none, expected a tf.train.Example");
  EXPECT_EQ(MessageOfOpen(Record("")), "a: record 0 at byte 0: has no features, expected one or more");
  EXPECT_EQ(
      MessageOfOpen(ExampleBuilder().Bytes("raw", {"\xff"}).Record()),
      "a: record 0 at byte 0: feature \"raw\" is neither an image nor UTF-8 text: the data set has to say what its "
      "features are");
  EXPECT_EQ(MessageOfOpen(ExampleBuilder().Bytes("texts", {"a", "b"}).Record()),
            "a: record 0 at byte 0: feature \"texts\" has 2 texts or images: the data set has to say what its features "
            "are");
  ExampleBuilder empty;
  empty.Feature("none");
  EXPECT_EQ(MessageOfOpen(empty.Record()),
            "a: record 0 at byte 0: feature \"none\" is empty: the data set has to say what its features are");
  files_.Put("set/readme", "");
  EXPECT_EQ(OpenTfRecord(files_, "set", {}).status().message(),
            "set: of 1 files, as readme, none is a file with \"tfrec\" in its name");
}

TEST_F(TfRecordTest, ErrorsOfASampleSayWhereAndWhat) {
  const std::string good = ExampleBuilder().Integers("label", {3}).Record();  // 34 bytes
  std::string data = good;
  data[20] = static_cast<char>(data[20] ^ 1);
  const std::string wrong = MessageOfRead(good + data, 1);
  EXPECT_EQ(wrong.substr(0, 53), "a: record 1 at byte 34: checksum of its data: found d") << wrong;

  const auto with = [&](ExampleBuilder& second) { return MessageOfRead(good + second.Record(), 1); };
  EXPECT_EQ(MessageOfRead(good + Record("no example"), 1),
            "a: record 1 at byte 34: 10 bytes of data that are none, expected a tf.train.Example");
  EXPECT_EQ(with(ExampleBuilder().Integers("labels", {3})),
            "a: record 1 at byte 34: feature \"label\" is not there, expected in every record");
  EXPECT_EQ(with(ExampleBuilder().Floats("label", {3})),
            "a: record 1 at byte 34: feature \"label\" is a float_list, expected an int64_list");
  EXPECT_EQ(with(ExampleBuilder().Integers("label", {3, 4})),
            "a: record 1 at byte 34: feature \"label\" has 2 elements, expected 1, for []");
  ExampleBuilder empty;
  empty.Feature("label");
  EXPECT_EQ(with(empty), "a: record 1 at byte 34: feature \"label\" is no list, expected an int64_list");

  const auto one = [&](ExampleBuilder& example, const TfRecordFeature& feature) {
    return MessageOfRead(example.Record(), 0, {.image = {.most_pixels = 5}, .features = {feature}});
  };
  EXPECT_EQ(one(ExampleBuilder().Integers("x", {1, 10}), {"x", Kind::kIntegers, {2}, 10}),
            "a: record 0 at byte 0: feature \"x\" holds 10, expected 0 to 9");
  EXPECT_EQ(one(ExampleBuilder().Integers("x", {1, 2, 3}), {"x", Kind::kIntegers, {kAnyExtent, 2}}),
            "a: record 0 at byte 0: feature \"x\" has 3 elements, expected a multiple of 2, for [*, 2]");
  EXPECT_EQ(one(ExampleBuilder().Integers("x", {1}), {"x", Kind::kFloats}),
            "a: record 0 at byte 0: feature \"x\" is an int64_list, expected a float_list");
  EXPECT_EQ(one(ExampleBuilder().Integers("x", {1}), {"x", Kind::kText}),
            "a: record 0 at byte 0: feature \"x\" is an int64_list, expected a bytes_list");
  EXPECT_EQ(one(ExampleBuilder().Bytes("x", {"\xff"}), {"x", Kind::kText}),
            "a: record 0 at byte 0: feature \"x\" at its byte 0: found the byte 0xff, expected UTF-8");
  EXPECT_EQ(one(ExampleBuilder().Bytes("x", {"a", "b"}), {"x", Kind::kText}),
            "a: record 0 at byte 0: feature \"x\" has 2 texts or images, expected one");
  EXPECT_EQ(one(ExampleBuilder().Bytes("x", {"GIF8"}), {"x", Kind::kImage}),
            "a: record 0 at byte 0: feature \"x\" begins with the bytes 47494638, expected a JPEG (ffd8ff) or PNG "
            "(89504e47) image");
  EXPECT_EQ(one(ExampleBuilder().Bytes("x", {Png(1)}), {"x", Kind::kImage}),
            "a: record 0 at byte 0: feature \"x\" is a PNG image of 3 x 2 pixels (width x height), expected 5 at most");
}

TEST_F(TfRecordTest, FeaturesThatContradictThemselvesAreRefused) {
  const auto refused = [&](const std::vector<TfRecordFeature>& features) {
    const auto source = OpenTfRecord(files_, "a", {.features = features});
    EXPECT_TRUE(absl::IsInvalidArgument(source.status())) << source.status();
    return std::string(source.status().message());
  };
  EXPECT_EQ(refused({{"x"}, {"x"}}), "a: feature \"x\" is given twice");
  EXPECT_EQ(refused({{"x", Kind::kFloats, {}, 3}}), "a: feature \"x\" has classes, expected integers");
  EXPECT_EQ(refused({{"x", Kind::kIntegers, {}, -3}}), "a: feature \"x\" has -3 classes, expected 0 or more");
  EXPECT_EQ(refused({{"x", Kind::kImage, {3}}}),
            "a: feature \"x\" has the shape [3], expected none of texts and images");
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{0}, {2, kAnyExtent}, {-2}, {1 << 30, 1 << 30, 1 << 30}}) {
    EXPECT_THAT(refused({{"x", Kind::kFloats, shape}}), ::testing::StartsWith("a: feature \"x\" has the shape ["));
  }
}

TEST_F(TfRecordTest, ABrokenRecordLeavesTheOthers) {
  std::string records;
  for (std::int64_t i = 0; i < 3; ++i) records += ExampleBuilder().Integers("label", {i + 1}).Record();
  records[34 + 20] = static_cast<char>(records[34 + 20] ^ 1);
  const auto source = Open(records);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_FALSE((*source)->Read(1).ok());
  EXPECT_EQ(Integer((*(*source)->Read(2))[0]), 3);
  files_.FailReads(1, absl::UnavailableError("the store is down"));
  EXPECT_TRUE(absl::IsUnavailable((*source)->Read(0).status()));
  files_.Cut("a", 40);
  EXPECT_TRUE(absl::IsDataLoss((*source)->Read(2).status()));
  EXPECT_TRUE((*source)->Read(0).ok());
}

}  // namespace
}  // namespace downpour::data
