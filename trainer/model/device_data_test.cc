// What is done of samples on a device, as on the host: here on the CPU, bit for bit.
#include "trainer/model/device_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/index_dataset.h"
#include "trainer/data/source_dataset.h"
#include "trainer/data/testing/memory_source.h"
#include "trainer/model/copied_model.h"
#include "trainer/model/testing/late_copies.h"
#include "trainer/model/testing/steps.h"

namespace downpour::model {
namespace {

using data::Column;
using data::ElementType;
using data::SourceField;
using data::testing::ValueOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kSamples = 40;

// Images of three channels and 9 x 7 pixels, an image for a mask, a row of numbers and a label.
std::shared_ptr<const data::SampleSource> Source(bool with_broken = false) {
  std::mt19937_64 random(3);
  const auto pixels = [&random](std::size_t count) {
    std::vector<std::uint8_t> values(count);
    for (std::uint8_t& value : values) value = static_cast<std::uint8_t>(random());
    return values;
  };
  std::vector<absl::StatusOr<data::Sample>> samples;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    std::vector<float> numbers(4);
    for (float& number : numbers) number = std::normal_distribution<float>(0, 3)(random);
    samples.push_back(data::Sample{ValueOf({3, 9, 7}, pixels(3 * 9 * 7)), ValueOf({1, 9, 7}, pixels(9 * 7)),
                                   ValueOf({4}, numbers), ValueOf<std::int64_t>({}, {i % 3})});
  }
  if (with_broken) samples[7] = absl::DataLossError("sample 7 is broken");
  return std::make_shared<data::testing::MemorySource>(std::vector<Column>{{"image", ElementType::kU8, {3, 9, 7}},
                                                                           {"mask", ElementType::kU8, {1, 9, 7}},
                                                                           {"numbers", ElementType::kF32, {4}},
                                                                           {"label", ElementType::kI64, {}, false, 3}},
                                                       std::move(samples));
}

using Steps = std::vector<SourceField::Step>;
SourceField::Step Crop(std::int64_t height, std::int64_t width, std::int64_t padding) {
  return [=](const Column& column) { return data::RandomCrop(column, height, width, padding); };
}
SourceField::Step Middle(std::int64_t height, std::int64_t width) {
  return [=](const Column& column) { return data::CenterCrop(column, height, width); };
}
SourceField::Step Flip(double probability) {
  return [=](const Column& column) { return data::RandomFlip(column, probability); };
}
SourceField::Step Normal(std::vector<float> mean, std::vector<float> deviation) {
  return [=](const Column& column) { return data::Normalise(column, mean, deviation); };
}
SourceField::Step ToFloat() {
  return [](const Column& column) { return data::Cast(column, ElementType::kF32); };
}
SourceField::Step Bigger() {
  return [](const Column& column) { return data::Resize(column, 12, 11); };
}
SourceField::Step Jitter() {
  return [](const Column& column) { return data::ColorJitter(column, 0.5, 0.5, 0); };
}

struct Case {
  std::string name;
  std::string input, target;
  Steps input_steps, target_steps = {};
  bool fixed = true;
  std::size_t deferred = 0;  // steps of the input
};

std::vector<Case> Cases() {
  const std::vector<float> mean = {0.485F, 0.456F, 0.406F}, deviation = {0.229F, 0.224F, 0.225F};
  return {
      {"nothing", "image", "label", {}},
      {"crop", "image", "label", {Crop(5, 6, 0)}, {}, true, 1},
      {"crop into the padding", "image", "label", {Crop(9, 7, 4)}, {}, true, 1},
      {"more padding than image", "image", "label", {Crop(3, 3, 12)}, {}, true, 1},
      {"middle", "image", "label", {Middle(4, 6)}, {}, true, 1},
      {"flip", "image", "label", {Flip(0.5)}, {}, true, 1},
      {"always flip", "image", "label", {Flip(1)}, {}, true, 1},
      {"normalise each channel", "image", "label", {Normal(mean, deviation)}, {}, true, 1},
      {"normalise all alike", "image", "label", {Normal({0.3F}, {0.7F})}, {}, true, 1},
      {"normalise numbers", "numbers", "label", {Normal({0.3F, 1, -2, 0}, {0.7F, 2, 3, 4})}, {}, true, 1},
      {"cast", "image", "label", {ToFloat()}, {}, true, 1},
      {"cast of a target", "image", "label", {}, {ToFloat()}, true, 0},
      {"all",
       "image",
       "label",
       {Crop(8, 8, 3), Flip(0.4), Crop(6, 5, 1), Flip(0.5), Normal(mean, deviation)},
       {},
       true,
       5},
      {"image and mask alike",
       "image",
       "mask",
       {Crop(8, 8, 3), Flip(0.4), Normal(mean, deviation)},
       {Crop(8, 8, 3), Flip(0.4), ToFloat()},
       true,
       3},
      {"behind a step of the host",
       "image",
       "label",
       {nullptr, Bigger(), nullptr, Crop(9, 9, 2), Flip(0.5)},
       {},
       true,
       2},
      {"behind a random step of the host", "image", "label", {Flip(0.5), Jitter(), Crop(5, 5, 0)}, {}, false, 1},
  };
}

std::unique_ptr<data::Dataset> Open(const Case& one, bool with_broken = false) {
  absl::StatusOr<std::unique_ptr<data::Dataset>> dataset =
      data::MakeSourceDataset(Source(with_broken),
                              {{.column = one.input, .steps = one.input_steps},
                               {.column = one.target, .target = true, .steps = one.target_steps}},
                              {.skip = with_broken, .most = 5}, 0);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *std::move(dataset);
}

std::vector<std::int64_t> Shuffled(std::uint64_t seed) {
  std::vector<std::int64_t> order(kSamples);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  return order;
}

void ExpectBytes(const at::Tensor& found, const data::Array& expected) {
  const at::Tensor values = found.contiguous();
  EXPECT_EQ(values.sizes().vec(), expected.shape);
  ASSERT_EQ(values.nbytes(), expected.bytes.size());
  EXPECT_EQ(std::memcmp(values.const_data_ptr(), expected.bytes.data(), expected.bytes.size()), 0);
}

std::vector<at::Tensor> HostArrays(const DeviceData& device, const data::Batch& batch) {
  std::vector<at::Tensor> arrays;
  for (const auto* some : {&batch.inputs, &batch.targets}) {
    for (const data::Array& array : *some) {
      const at::ScalarType type = array.type == ElementType::kU8    ? at::kByte
                                  : array.type == ElementType::kI64 ? at::kLong
                                                                    : at::kFloat;
      arrays.push_back(at::from_blob(const_cast<std::byte*>(array.bytes.data()), array.shape, type));
    }
  }
  for (const at::Tensor& array : device.Travelling(batch)) arrays.push_back(array);
  return arrays;
}

TEST(DeviceDataTest, EachTransformMakesTheBytesOfTheHost) {
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.name);
    const std::unique_ptr<data::Dataset> host = Open(one), left = Open(one);
    const data::Deferred deferred = left->Defer();
    EXPECT_EQ(deferred.inputs[0].steps.size(), one.deferred);
    EXPECT_EQ(deferred.fixed, one.fixed);
    EXPECT_EQ(left->fields(), host->fields()) << "what is to come of it";
    DeviceData device(at::kCPU, deferred);
    if (one.fixed) {
      ASSERT_TRUE(device.Hold(*left).ok());
    }
    const auto by_index = data::MakeIndexDataset(kSamples, host->fields());
    for (const std::optional<std::uint64_t> seed :
         {std::optional<std::uint64_t>(), std::optional<std::uint64_t>(5), std::optional<std::uint64_t>(6)}) {
      const std::vector<std::int64_t> order = Shuffled(seed.value_or(0));
      for (std::size_t first = 0; first < order.size(); first += 16) {
        const absl::Span<const std::int64_t> indices = absl::MakeConstSpan(order).subspan(first, 16);
        const auto expected = host->Read(indices, seed), stored = left->Read(indices, seed);
        ASSERT_TRUE(expected.ok() && stored.ok()) << expected.status() << stored.status();
        ASSERT_TRUE(device.Check(*stored).ok());
        std::vector<data::Batch> batches = {*stored};
        if (one.fixed) batches.push_back(*by_index->Read(indices, seed));
        for (const data::Batch& batch : batches) {
          EXPECT_EQ(batch.size(), static_cast<std::int64_t>(indices.size()));
          const std::vector<at::Tensor> made = device.Make(HostArrays(device, batch));
          ASSERT_EQ(made.size(), 2U);
          ExpectBytes(made[0], expected->inputs[0]);
          ExpectBytes(made[1], expected->targets[0]);
        }
      }
    }
  }
}

TEST(DeviceDataTest, SamplesThatAreLeftOutHaveNoPart) {
  const Case one{"", "image", "label", {Crop(5, 5, 1), Flip(0.5)}};
  const std::unique_ptr<data::Dataset> host = Open(one, true), left = Open(one, true);
  DeviceData device(at::kCPU, left->Defer());
  const std::vector<std::int64_t> order = Shuffled(1);
  const auto expected = host->Read(order, 9), stored = left->Read(order, 9);
  ASSERT_TRUE(expected.ok() && stored.ok());
  EXPECT_EQ(stored->size(), kSamples - 1);
  const std::vector<at::Tensor> made = device.Make(HostArrays(device, *stored));
  ExpectBytes(made[0], expected->inputs[0]);
  ExpectBytes(made[1], expected->targets[0]);
  const absl::Status held = device.Hold(*left);
  EXPECT_TRUE(absl::IsFailedPrecondition(held)) << "an index would be another sample";
  EXPECT_THAT(std::string(held.message()), HasSubstr("sample 7 is broken"));
}

TEST(DeviceDataTest, LabelsAreLookedThroughWhenTheyAreHeld) {
  const std::unique_ptr<data::Dataset> dataset = Open({"", "image", "label", {}});
  data::Deferred deferred = dataset->Defer();
  deferred.targets[0].stored.classes = 2;  // the data have three
  const absl::Status held = DeviceData(at::kCPU, deferred).Hold(*dataset);
  EXPECT_EQ(held, absl::InvalidArgumentError("label 2, expected 0 to 1"));
}

TEST(DeviceDataTest, HoldsWhatIsSmallAndAlwaysTheSame) {
  data::Deferred deferred{
      {{{"image", ElementType::kU8, {3, 10, 10}}, {}}}, {{{"label", ElementType::kI64, {}}, {}}}, true};
  constexpr std::int64_t kBytes = 308;  // of a sample
  const std::int64_t free = 1000 * kBytes;
  EXPECT_THAT(WhyNotHeld(deferred, 250, free, HoldChoice::kAuto), IsEmpty());
  EXPECT_EQ(WhyNotHeld(deferred, 251, free, HoldChoice::kAuto), "251 samples of 308 bytes are more than 77000 bytes");
  EXPECT_THAT(WhyNotHeld(deferred, 251, free, HoldChoice::kAlways), IsEmpty());
  EXPECT_EQ(WhyNotHeld(deferred, 1, free, HoldChoice::kNever), "nobody wants it to");
  EXPECT_THAT(WhyNotHeld(deferred, kMostHeldBytes / kBytes, std::nullopt, HoldChoice::kAuto), IsEmpty());
  EXPECT_THAT(WhyNotHeld(deferred, kMostHeldBytes / kBytes + 1, std::int64_t{1} << 40, HoldChoice::kAuto),
              HasSubstr("are more than 1073741824 bytes"))
      << "all of them would be read before the first step";
  EXPECT_THAT(WhyNotHeld(deferred, std::int64_t{1} << 60, std::nullopt, HoldChoice::kAuto), HasSubstr("are more than"));
  deferred.fixed = false;
  EXPECT_THAT(WhyNotHeld(deferred, 1, free, HoldChoice::kAlways), HasSubstr("drawn anew"));
  deferred = {{{{"words", ElementType::kI32, {data::kRagged}}, {}}}, {{{"label", ElementType::kI64, {}}, {}}}, true};
  EXPECT_EQ(WhyNotHeld(deferred, 1, free, HoldChoice::kAlways), "its samples differ in length (words: i32 [*])");
}

// An epoch of a model that is given minibatches by `choice`, against one that is given those of the host.
void ExpectSameEpoch(const Case& one, HoldChoice choice, bool expect_held) {
  ModelOptions options;
  options.model.layers = R"([{"type": "conv2d", "name": "conv", "filters": 4, "kernel": 3}, {"type": "flatten"},
                             {"type": "dense", "name": "dense", "units": 3}])";
  const std::unique_ptr<data::Dataset> host = Open(one);
  std::unique_ptr<data::Dataset> given = Open(one);
  options.fields = host->fields();
  options.device = DeviceChoice::kCpu;
  options.layout = LayoutChoice::kChannelsLast;
  testing::LateCopies::Record record;
  absl::StatusOr<std::unique_ptr<Model>> made =
      CreateCopiedModel(options, [&record] { return std::make_unique<testing::LateCopies>(&record); });
  ASSERT_TRUE(made.ok()) << made.status();
  const std::unique_ptr<Model> plain = testing::Create(options);
  const absl::StatusOr<bool> held = (*made)->TakeData(given.get(), choice);
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(*held, expect_held);
  if (*held) given = data::MakeIndexDataset(given->size(), given->fields());
  const std::vector<std::int64_t> order = Shuffled(4);
  std::vector<std::shared_ptr<const data::Batch>> batches;
  for (std::size_t first = 0; first < order.size(); first += 16) {
    batches.push_back(
        std::make_shared<const data::Batch>(*given->Read(absl::MakeConstSpan(order).subspan(first, 16), first)));
  }
  std::size_t next = 0;
  (*made)->StageFrom([&] { return next < batches.size() ? batches[next] : nullptr; });
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const data::Batch expected = *host->Read(absl::MakeConstSpan(order).subspan(16 * i, 16), 16 * i);
    next = i + 1;
    const testing::Step found = testing::Compute(**made, *batches[i], i), right = testing::Compute(*plain, expected, i);
    EXPECT_EQ(found.loss, right.loss);
    EXPECT_EQ(found.gradients, right.gradients);
  }
  // Evaluation is given samples of the host.
  const data::Batch test = *host->Read(order, std::nullopt);
  EXPECT_EQ((*made)->Evaluate(test)->loss.sum, plain->Evaluate(test)->loss.sum);
}

TEST(DeviceDataTest, AnEpochIsThatOfTheHost) {
  const Case augmented{
      "", "image", "label", {Crop(9, 7, 2), Flip(0.5), Normal({0.4F, 0.5F, 0.6F}, {0.2F, 0.3F, 0.4F})}};
  ExpectSameEpoch(augmented, HoldChoice::kAuto, true);
  ExpectSameEpoch(augmented, HoldChoice::kNever, false);
  ExpectSameEpoch({"", "image", "label", {}}, HoldChoice::kAlways, true);
  ExpectSameEpoch({"", "image", "label", {Jitter(), Crop(5, 5, 0)}}, HoldChoice::kAuto, false);
}

TEST(DeviceDataTest, WhatCannotBeHeldIsSaidWhereItHasToBe) {
  ModelOptions options;
  options.model.layers = R"([{"type": "flatten"}, {"type": "dense", "name": "dense", "units": 3}])";
  options.device = DeviceChoice::kCpu;
  const std::unique_ptr<data::Dataset> broken = Open({"", "image", "label", {}}, true);
  options.fields = broken->fields();
  testing::LateCopies::Record record;
  const auto create = [&] {
    return *CreateCopiedModel(options, [&record] { return std::make_unique<testing::LateCopies>(&record); });
  };
  const std::unique_ptr<Model> model = create();
  EXPECT_EQ(model->TakeData(broken.get(), HoldChoice::kAlways).status(),
            absl::FailedPreconditionError(
                "spec.dataset.onDevice: Always, but the device cannot hold the data set: sample 7 is broken"));
  EXPECT_EQ(*model->TakeData(broken.get(), HoldChoice::kAuto), false);
  // What nobody holds, or has taken, cannot be asked for.
  const data::Batch by_index = *data::MakeIndexDataset(kSamples, options.fields)->Read({0, 1}, 1);
  EXPECT_EQ(model->ComputeGradients(by_index, 1, nullptr, nullptr).status(),
            absl::InvalidArgumentError("a batch with the sample 0, of 0 that the device holds"));
  EXPECT_TRUE(absl::IsInvalidArgument(create()->ComputeGradients(by_index, 1, nullptr, nullptr).status()));
  // On the CPU nothing is taken.
  const std::unique_ptr<data::Dataset> plain = Open({"", "image", "label", {Flip(0.5)}});
  EXPECT_EQ(*testing::Create(options)->TakeData(plain.get(), HoldChoice::kAlways), false);
  EXPECT_THAT(plain->Read({0}, 1)->indices, IsEmpty());
}

}  // namespace
}  // namespace downpour::model
