#include "trainer/data/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace downpour::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(Fields, AreSaidInOneLine) {
  EXPECT_EQ(ToString(Field{"image", ElementType::kU8, {1, 28, 28}}), "image: u8 [1, 28, 28]");
  EXPECT_EQ(ToString(Field{"label", ElementType::kI64, {}, 10}), "label: i64 [] below 10");
  EXPECT_EQ(ToString(Field{"words", ElementType::kI32, {kRagged}, 10000}), "words: i32 [*] below 10000");
  EXPECT_EQ(ShapeText({kRagged, 8}), "[*, 8]");
  EXPECT_EQ(ToString(SampleFields{{{"x", ElementType::kF32, {3}}}, {}}), "inputs {x: fp32 [3]}, targets {}");
}

TEST(Fields, AnArrayHasRoomForItsSamples) {
  Array array = MakeArray({"next", ElementType::kF32, {2, 3}}, 4);
  EXPECT_THAT(array.shape, ElementsAre(4, 2, 3));
  EXPECT_EQ(array.values<float>().size(), 24U);
  EXPECT_THAT(array.values<float>(), Each(0.0F));
  array.mutable_values<float>()[23] = 1;
  EXPECT_EQ(array.values<float>()[23], 1.0F);
  EXPECT_EQ(MakeArray({"label", ElementType::kI64, {}}, 5).bytes.size(), 40U);
}

TEST(Fields, ARaggedArrayIsAsLongAsItsLongestSample) {
  const Field words{"words", ElementType::kI32, {kRagged, 2}};
  EXPECT_TRUE(words.ragged());
  const Array array = MakeRaggedArray(words, {3, 0, 5});
  EXPECT_THAT(array.shape, ElementsAre(3, 5, 2));
  EXPECT_THAT(array.lengths, ElementsAre(3, 0, 5));
  EXPECT_EQ(array.bytes.size(), 120U);
  EXPECT_THAT(MakeRaggedArray(words, {}).shape, ElementsAre(0, 0, 2));
}

TEST(Fields, ABatchIsAsLargeAsItsFirstField) {
  EXPECT_EQ(Batch().size(), 0);
  EXPECT_EQ((Batch{{}, {MakeArray({"label", ElementType::kI64, {}}, 3)}}).size(), 3);
}

}  // namespace
}  // namespace downpour::data
