#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing/memory_source.h"
#include "trainer/data/transforms/transform.h"

namespace downpour::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::ElementsOf;
using ::testing::HasSubstr;
using testing::ValueOf;

const Column kImage{"image", ElementType::kU8, {3, kAnyExtent, kAnyExtent}};
const Column kGrey{"image", ElementType::kU8, {1, kAnyExtent, kAnyExtent}};
const Column kLabel{"label", ElementType::kI64, {}, false, 4};
const Column kText{"text", ElementType::kU8, {kAnyExtent}, true};

Value Ramp(std::int64_t channels, std::int64_t height, std::int64_t width) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(channels * height * width));
  std::iota(pixels.begin(), pixels.end(), std::uint8_t{0});
  return ValueOf({channels, height, width}, pixels);
}

std::vector<std::uint8_t> Pixels(const absl::StatusOr<Value>& value) {
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? ElementsOf<std::uint8_t>(*value) : std::vector<std::uint8_t>{};
}

std::string Refusal(const absl::StatusOr<Transform>& transform) {
  EXPECT_TRUE(absl::IsInvalidArgument(transform.status())) << transform.status();
  return std::string(transform.status().message());
}

// The definition, in double precision.
double Bilinear(const std::vector<std::uint8_t>& image, std::int64_t height, std::int64_t width, double y, double x) {
  const auto at = [&](std::int64_t row, std::int64_t column) {
    row = std::min(std::max<std::int64_t>(row, 0), height - 1);
    column = std::min(std::max<std::int64_t>(column, 0), width - 1);
    return static_cast<double>(image[static_cast<std::size_t>(row * width + column)]);
  };
  y = std::max(y, 0.0);
  x = std::max(x, 0.0);
  const auto row = static_cast<std::int64_t>(y);
  const auto column = static_cast<std::int64_t>(x);
  const double down = y - static_cast<double>(row);
  const double right = x - static_cast<double>(column);
  return (at(row, column) * (1 - right) + at(row, column + 1) * right) * (1 - down) +
         (at(row + 1, column) * (1 - right) + at(row + 1, column + 1) * right) * down;
}

TEST(ResizeTest, IsBilinearBetweenTheMiddlesOfPixels) {
  Random random(1, 2, 3);
  for (int round = 0; round < 50; ++round) {
    const std::int64_t height = random.Between(1, 20);
    const std::int64_t width = random.Between(1, 20);
    const std::int64_t to_height = random.Between(1, 30);
    const std::int64_t to_width = random.Between(1, 30);
    std::vector<std::uint8_t> image(static_cast<std::size_t>(height * width));
    for (std::uint8_t& pixel : image) pixel = static_cast<std::uint8_t>(random.Between(0, 255));
    const absl::StatusOr<Transform> resize = Resize(kGrey, to_height, to_width);
    ASSERT_TRUE(resize.ok()) << resize.status();
    EXPECT_THAT(resize->output.shape, ElementsAre(1, to_height, to_width));
    const std::vector<std::uint8_t> pixels = Pixels(resize->apply(ValueOf({1, height, width}, image), nullptr));
    ASSERT_EQ(pixels.size(), static_cast<std::size_t>(to_height * to_width));
    for (std::int64_t row = 0; row < to_height; ++row) {
      for (std::int64_t column = 0; column < to_width; ++column) {
        const double y =
            (static_cast<double>(row) + 0.5) * static_cast<double>(height) / static_cast<double>(to_height) - 0.5;
        const double x =
            (static_cast<double>(column) + 0.5) * static_cast<double>(width) / static_cast<double>(to_width) - 0.5;
        EXPECT_NEAR(pixels[static_cast<std::size_t>(row * to_width + column)], Bilinear(image, height, width, y, x),
                    0.8)
            << height << " x " << width << " to " << to_height << " x " << to_width << " at " << row << ", " << column;
      }
    }
  }
}

TEST(ResizeTest, ChannelsAreApartAndTheSameSizeIsTheSameImage) {
  const Value image = Ramp(3, 2, 2);
  EXPECT_EQ(Pixels(Resize(kImage, 2, 2)->apply(image, nullptr)), ElementsOf<std::uint8_t>(image));
  EXPECT_THAT(Pixels(Resize(kImage, 1, 1)->apply(image, nullptr)), ElementsAre(2, 6, 10));
}

TEST(CropTest, KeepsTheMiddle) {
  EXPECT_THAT(Pixels(CenterCrop(kGrey, 2, 2)->apply(Ramp(1, 4, 4), nullptr)), ElementsAre(5, 6, 9, 10));
  EXPECT_THAT(Pixels(RandomCrop(kGrey, 2, 2, 0)->apply(Ramp(1, 4, 4), nullptr)), ElementsAre(5, 6, 9, 10))
      << "nothing is random in evaluation";
  EXPECT_THAT(Pixels(RandomCrop(kGrey, 4, 4, 1)->apply(ValueOf<std::uint8_t>({1, 2, 2}, {1, 2, 3, 4}), nullptr)),
              ElementsAre(0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0));
}

TEST(CropTest, RandomOnesAreAnywhereAndBlackOutsideOfTheImage) {
  const absl::StatusOr<Transform> crop = RandomCrop(kGrey, 2, 2, 1);
  std::set<std::string> seen;
  for (std::uint64_t sample = 0; sample < 200; ++sample) {
    Random random(1, 0, sample);
    const std::vector<std::uint8_t> pixels =
        Pixels(crop->apply(ValueOf<std::uint8_t>({1, 2, 2}, {1, 2, 3, 4}), &random));
    seen.emplace(pixels.begin(), pixels.end());
  }
  EXPECT_EQ(seen.size(), 9U) << "3 x 3 places";
  for (const std::string& one : {std::string("\0\0\0\1", 4), std::string("\4\0\0\0", 4), std::string("\1\2\3\4")}) {
    EXPECT_EQ(seen.count(one), 1U);
  }
}

TEST(CropTest, SmallImagesAreRefusedAsSoonAsTheyAreKnown) {
  EXPECT_EQ(Refusal(CenterCrop({"image", ElementType::kU8, {3, 4, 4}}, 4, 5)),
            "CenterCrop to 4 x 5: the image is [3, 4, 4], expected no less");
  const absl::StatusOr<Value> value = CenterCrop(kGrey, 4, 5)->apply(Ramp(1, 4, 4), nullptr);
  EXPECT_TRUE(absl::IsDataLoss(value.status())) << value.status();
}

TEST(RandomFlipTest, TurnsRowsAroundAsOftenAsItIsSaid) {
  const Value image = Ramp(3, 2, 3);
  Random always(1, 0, 0);
  EXPECT_THAT(Pixels(RandomFlip(kImage, 1)->apply(image, &always)),
              ElementsAre(2, 1, 0, 5, 4, 3, 8, 7, 6, 11, 10, 9, 14, 13, 12, 17, 16, 15));
  EXPECT_EQ(Pixels(RandomFlip(kImage, 1)->apply(image, nullptr)), ElementsOf<std::uint8_t>(image));
  const absl::StatusOr<Transform> flip = RandomFlip(kImage, 0.25);
  int flipped = 0;
  for (std::uint64_t sample = 0; sample < 4000; ++sample) {
    Random random(7, 0, sample);
    if (Pixels(flip->apply(image, &random)).front() == 2) ++flipped;
  }
  EXPECT_NEAR(flipped, 1000, 100);
}

TEST(ColorJitterTest, KeepsTheImageWithoutAmountsAndIsAFunctionOfTheNumbers) {
  const Value image = Ramp(3, 4, 4);
  for (std::uint64_t sample = 0; sample < 10; ++sample) {
    Random random(1, 0, sample);
    EXPECT_EQ(Pixels(ColorJitter(kImage, 0, 0, 0)->apply(image, &random)), ElementsOf<std::uint8_t>(image));
    Random first(1, 0, sample);
    Random second(1, 0, sample);
    EXPECT_EQ(Pixels(ColorJitter(kImage, 0.5, 0.5, 0.5)->apply(image, &first)),
              Pixels(ColorJitter(kImage, 0.5, 0.5, 0.5)->apply(image, &second)));
  }
}

TEST(ColorJitterTest, BrightnessIsAFactorAndGreyHasNoSaturation) {
  Random random(3, 0, 5);
  Random same(3, 0, 5);
  const double factor = 1 + 0.5 * (2 * same.Fraction() - 1);
  const std::vector<std::uint8_t> pixels = Pixels(ColorJitter(kGrey, 0.5, 0, 0)->apply(Ramp(1, 4, 4), &random));
  for (std::size_t i = 0; i < pixels.size(); ++i) EXPECT_NEAR(pixels[i], factor * static_cast<double>(i), 0.51);
  EXPECT_THAT(Refusal(ColorJitter(kGrey, 0, 0, 0.1)), HasSubstr("without saturation"));
}

TEST(NormaliseTest, PixelsAreFractionsOf255) {
  const absl::StatusOr<Transform> one = Normalise(kGrey, {0.5F}, {0.25F});
  EXPECT_EQ(one->output.type, ElementType::kF32);
  const auto values = ElementsOf<float>(*one->apply(ValueOf<std::uint8_t>({1, 1, 2}, {0, 255}), nullptr));
  EXPECT_THAT(values, ElementsAre(-2.0F, 2.0F));
  const absl::StatusOr<Transform> three = Normalise(kImage, {0, 1, 0}, {1, 1, 0.5F});
  EXPECT_THAT(ElementsOf<float>(*three->apply(ValueOf<std::uint8_t>({3, 1, 1}, {255, 255, 255}), nullptr)),
              ElementsAre(1.0F, 0.0F, 2.0F));
  const absl::StatusOr<Transform> floats = Normalise({"x", ElementType::kF32, {2}}, {1}, {2});
  EXPECT_THAT(ElementsOf<float>(*floats->apply(ValueOf<float>({2}, {3, 1}), nullptr)), ElementsAre(1.0F, 0.0F));
}

TEST(NormaliseTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(Refusal(Normalise(kImage, {0, 0}, {1, 1})),
            "Normalize has 2 means for u8 [3, *, *], expected 1 or as many as the first extent");
  EXPECT_THAT(Refusal(Normalise(kImage, {0}, {1, 1})), HasSubstr("1 means and 2 deviations"));
  EXPECT_EQ(Refusal(Normalise(kLabel, {0}, {1})), "Normalize is for u8 and fp32, not for i64 []");
  EXPECT_EQ(Refusal(Normalise(kText, {0}, {1})), "Normalize is for u8 and fp32, not for text");
}

TEST(OneHotTest, HasAOneAtTheLabel) {
  const absl::StatusOr<Transform> one_hot = OneHot(kLabel, 0);
  EXPECT_THAT(one_hot->output.shape, ElementsAre(4));
  EXPECT_THAT(ElementsOf<float>(*one_hot->apply(ValueOf<std::int64_t>({}, {2}), nullptr)), ElementsAre(0, 0, 1, 0));
  EXPECT_EQ(one_hot->apply(ValueOf<std::int64_t>({}, {4}), nullptr).status().message(), "label 4, expected 0 to 3");
  EXPECT_EQ(Refusal(OneHot(kLabel, 3)), "OneHot has 3 classes, the column 4");
  EXPECT_THAT(Refusal(OneHot({"x", ElementType::kI32}, 0)), HasSubstr("needs `classes`"));
  EXPECT_EQ(Refusal(OneHot(kImage, 3)), "OneHot is for one integer, not for u8 [3, *, *]");
}

TEST(LimitClassesTest, GivesANumberThatHasNoneItsClasses) {
  const absl::StatusOr<Transform> limited = LimitClasses({"x", ElementType::kI32}, 3);
  EXPECT_EQ(limited->output.classes, 3);
  EXPECT_TRUE(limited->apply(ValueOf<std::int32_t>({}, {2}), nullptr).ok());
  EXPECT_EQ(limited->apply(ValueOf<std::int32_t>({}, {3}), nullptr).status().message(), "label 3, expected 0 to 2");
  EXPECT_EQ(limited->apply(ValueOf<std::int32_t>({}, {-1}), nullptr).status().message(), "label -1, expected 0 to 2");
  EXPECT_EQ(Refusal(LimitClasses(kLabel, 3)), "the data have 4 classes, expected at most 3");
  EXPECT_EQ(Refusal(LimitClasses(kImage, 3)), "classes are of one integer, not of u8 [3, *, *]");
}

TEST(CastTest, HoldsTheNumberOrSaysWhichItCannot) {
  const Column floats{"x", ElementType::kF32, {3}};
  EXPECT_THAT(
      ElementsOf<std::int32_t>(*Cast(floats, ElementType::kI32)->apply(ValueOf<float>({3}, {-1, 0, 7}), nullptr)),
      ElementsAre(-1, 0, 7));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float broken : {0.5F, nan, 2147483648.0F, HUGE_VALF}) {
    EXPECT_TRUE(
        absl::IsDataLoss(Cast(floats, ElementType::kI32)->apply(ValueOf<float>({3}, {0, 1, broken}), nullptr).status()))
        << broken;
  }
  EXPECT_EQ(Cast(kLabel, ElementType::kU8)->apply(ValueOf<std::int64_t>({}, {256}), nullptr).status().message(),
            "found 256, expected what u8 holds");
  EXPECT_EQ(Cast(kLabel, ElementType::kI32)->output.classes, 4);
  EXPECT_EQ(Cast(kLabel, ElementType::kF32)->output.classes, 0);
  EXPECT_THAT(ElementsOf<float>(
                  *Cast(kImage, ElementType::kF32)->apply(ValueOf<std::uint8_t>({3, 1, 1}, {0, 7, 255}), nullptr)),
              ElementsAre(0, 7, 255));
}

TEST(TransformsTest, ImagesOnly) {
  for (const Column& column : {kLabel, kText, Column{"x", ElementType::kF32, {3, 8, 8}}}) {
    EXPECT_THAT(Refusal(Resize(column, 1, 1)),
                HasSubstr("Resize is for images, u8 [channels, height, width], not for "));
    EXPECT_THAT(Refusal(CenterCrop(column, 1, 1)), HasSubstr("is for images"));
    EXPECT_THAT(Refusal(RandomCrop(column, 1, 1, 0)), HasSubstr("is for images"));
    EXPECT_THAT(Refusal(RandomFlip(column, 1)), HasSubstr("is for images"));
    EXPECT_THAT(Refusal(ColorJitter(column, 1, 1, 1)), HasSubstr("is for images"));
  }
}

}  // namespace
}  // namespace downpour::data
