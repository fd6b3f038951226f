#ifndef DOWNPOUR_TRAINER_MODEL_TESTING_STEPS_H_
#define DOWNPOUR_TRAINER_MODEL_TESTING_STEPS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/fields.h"
#include "trainer/model/model.h"

// Steps of a model, for tests.
namespace downpour::model::testing {

inline std::unique_ptr<Model> Create(const ModelOptions& options) {
  absl::StatusOr<std::unique_ptr<Model>> model = CreateModel(options);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

// Normal numbers, words below 20 and labels below 3; a sample for each of `lengths`.
inline data::Batch RandomBatch(const data::SampleFields& fields, std::uint64_t seed,
                               std::vector<std::int64_t> lengths) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const std::int64_t samples = static_cast<std::int64_t>(lengths.size());
  const bool ragged = fields.inputs[0].ragged();
  data::Batch batch{
      {ragged ? data::MakeRaggedArray(fields.inputs[0], lengths) : data::MakeArray(fields.inputs[0], samples)},
      {data::MakeArray(fields.targets[0], samples)}};
  if (ragged) {
    const std::int64_t longest = batch.inputs[0].shape[1];
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      for (std::int64_t word = 0; word < lengths[i]; ++word) {
        batch.inputs[0].mutable_values<std::int32_t>()[i * longest + word] = static_cast<std::int32_t>(random() % 20);
      }
    }
  } else {
    for (float& value : batch.inputs[0].mutable_values<float>()) value = normal(random);
  }
  for (std::int64_t& label : batch.targets[0].mutable_values<std::int64_t>()) {
    label = static_cast<std::int64_t>(random() % 3);
  }
  return batch;
}

struct Step {
  double loss = 0;
  std::vector<std::vector<float>> gradients;  // by tensor
};

inline Step Compute(Model& model, const data::Batch& batch, std::uint64_t seed = 1) {
  Step step;
  step.gradients.resize(model.tensors().size());
  const auto result =
      model.ComputeGradients(batch, seed, nullptr, [&](std::size_t tensor, absl::Span<const float> gradient) {
        EXPECT_TRUE(step.gradients[tensor].empty()) << "twice";
        step.gradients[tensor].assign(gradient.begin(), gradient.end());
      });
  EXPECT_TRUE(result.ok()) << result.status();
  if (result.ok()) step.loss = result->loss;
  return step;
}

// The same loss, and each value of the gradients as near as that.
inline void ExpectSame(const Step& found, const Step& expected, float near) {
  EXPECT_NEAR(found.loss, expected.loss, 1e-6);
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    EXPECT_THAT(found.gradients[i], ::testing::Pointwise(::testing::FloatNear(near), expected.gradients[i]))
        << "tensor " << i;
  }
}

inline std::vector<std::string> NamesOf(const Model& model) {
  std::vector<std::string> names;
  for (const Tensor& tensor : model.tensors()) names.push_back(tensor.name);
  return names;
}

inline std::vector<float> ValueOf(const Model& model, std::size_t tensor) {
  std::vector<float> values(static_cast<std::size_t>(model.tensors()[tensor].elements()));
  model.GetParameter(tensor, absl::MakeSpan(values));
  return values;
}

}  // namespace downpour::model::testing

#endif  // DOWNPOUR_TRAINER_MODEL_TESTING_STEPS_H_
