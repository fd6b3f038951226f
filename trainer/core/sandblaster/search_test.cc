#include "trainer/core/sandblaster/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/core/sandblaster/vectors.h"

namespace downpour::core::sandblaster {
namespace {

constexpr std::uint32_t kEpochs = 40;
constexpr std::size_t kElements = 10;

// Two slices of parameters and one of a buffer between them.
v1::View MakeView() {
  v1::View view;
  for (v1::TensorKind kind : {v1::PARAMETER, v1::BUFFER, v1::PARAMETER}) {
    v1::TensorSpec* tensor = view.add_tensors();
    tensor->set_name(absl::StrCat("tensor", view.tensors_size()));
    tensor->add_shape(kElements);
    tensor->set_type(v1::FLOAT32);
    tensor->set_kind(kind);
  }
  view.set_mode(v1::SANDBLASTER);
  view.mutable_optimizer()->set_type(v1::LBFGS);
  view.mutable_optimizer()->set_history(4);
  view.mutable_data()->set_epochs(kEpochs);
  view.mutable_data()->set_sample_count(2);
  return view;
}

v1::LbfgsConfig MakeConfig() {
  v1::LbfgsConfig config;
  config.set_gradient_tolerance(1e-5);
  return config;
}

// The slices 0 and 2, each of half a quadratic function.
class Slices {
 public:
  Slices() : vectors_{Vectors(4, kElements), Vectors(4, kElements)}, values_(2, std::vector<float>(kElements)) {}

  v1::VectorReply Direct(std::size_t which, const v1::VectorCommand& command) {
    Vectors& vectors = vectors_[which];
    if (vectors.number() < command.number()) {
      EXPECT_EQ(command.number(), vectors.number() + 1);
      vectors.CarryOut(command, absl::MakeSpan(values_[which]));
    }
    v1::VectorReply reply;
    reply.set_number(command.number());
    v1::SliceSums* sums = reply.add_slices();
    sums->set_slice(which == 0 ? 0 : 2);
    sums->set_number(vectors.number());
    if (command.number() == 0) {
      reply.mutable_search()->Add(vectors.search().begin(), vectors.search().end());
    } else {
      sums->mutable_sums()->Add(vectors.sums().begin(), vectors.sums().end());
    }
    return reply;
  }
  void Evaluate() {
    double loss = 0;
    std::vector<std::vector<float>> gradients = values_;
    for (std::size_t slice = 0; slice < 2; ++slice) {
      for (std::size_t i = 0; i < kElements; ++i) {
        const double scale = 1 + static_cast<double>(slice * kElements + i);
        const double distance = values_[slice][i] - 0.1 * static_cast<double>(i);
        loss += 0.5 * scale * distance * distance;
        gradients[slice][i] = static_cast<float>(scale * distance);
      }
    }
    StepContext context;
    context.samples = 2;
    context.loss = loss;
    for (std::size_t slice = 0; slice < 2; ++slice) {
      vectors_[slice].Step(values_[slice], Payload::OfFloats(gradients[slice], nullptr), context, {});
    }
  }
  const std::vector<std::vector<float>>& values() const { return values_; }

 private:
  std::vector<Vectors> vectors_;
  std::vector<std::vector<float>> values_;
};

// Directives and answers get lost, come late and twice, and the coordinator is replaced, as `random` wants.
std::vector<std::vector<float>> RunSearch(std::mt19937_64* random, std::uint32_t* iterations) {
  const auto chance = [random](int percent) {
    return random != nullptr && static_cast<int>((*random)() % 100) < percent;
  };
  Slices slices;
  auto search = std::make_unique<Search>(MakeView(), MakeConfig());
  std::uint32_t complete = 0;
  std::vector<v1::VectorReply> late;
  for (int step = 0; step < 100000 && !search->done(); ++step) {
    if (chance(10)) {
      search = std::make_unique<Search>(MakeView(), MakeConfig());
      late.clear();  // a new coordinator gets no answers of the one before
    }
    const std::uint32_t end = search->end_of_grants();
    EXPECT_LE(end, complete + 1);
    if (end > complete) {
      slices.Evaluate();
      ++complete;
    }
    search->Advance(complete);
    for (std::size_t slice = 0; slice < 2; ++slice) {
      v1::DirectRequest directive;
      search->Ask(&directive);
      if (!directive.has_vectors() || chance(30)) continue;
      const v1::VectorReply reply = slices.Direct(slice, directive.vectors());
      if (!chance(30)) search->Answer(reply);
      late.push_back(reply);
    }
    if (chance(30) && !late.empty()) search->Answer(late[(*random)() % late.size()]);
  }
  EXPECT_TRUE(search->done());
  EXPECT_EQ(search->lbfgs().outcome(), Lbfgs::Outcome::kConverged) << search->lbfgs().Describe();
  *iterations = search->lbfgs().iterations();
  return slices.values();
}

TEST(SearchTest, EndsTheSameWhateverIsLostAndWhoeverGoesOn) {
  std::uint32_t iterations = 0;
  const std::vector<std::vector<float>> expected = RunSearch(nullptr, &iterations);
  for (const std::vector<float>& slice : expected) {
    for (std::size_t i = 0; i < kElements; ++i) EXPECT_NEAR(slice[i], 0.1 * static_cast<double>(i), 1e-5);
  }
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    std::uint32_t again = 0;
    ASSERT_EQ(RunSearch(&random, &again), expected) << seed;
    ASSERT_EQ(again, iterations) << seed;
  }
}

TEST(SearchTest, GivesNothingOutBeforeItIsKnownWhereItIs) {
  Search search(MakeView(), MakeConfig());
  EXPECT_EQ(search.end_of_grants(), 0u);
  EXPECT_FALSE(search.settled());
  EXPECT_FALSE(search.Advance(1));
  Slices slices;
  search.Answer(slices.Direct(0, {}));
  EXPECT_FALSE(search.known());
  search.Answer(slices.Direct(1, {}));
  EXPECT_TRUE(search.settled());
  EXPECT_EQ(search.end_of_grants(), 1u);
  EXPECT_FALSE(search.Advance(0));
  EXPECT_TRUE(search.Advance(1));
  EXPECT_FALSE(search.settled());
  EXPECT_EQ(search.end_of_grants(), 1u);
  v1::ProgressReply progress;
  search.Report(&progress);
  EXPECT_EQ(progress.search().evaluations(), 1u);
  EXPECT_EQ(progress.search().outcome(), "");
}

TEST(SearchTest, ASliceThatRemembersAnotherSearchIsAnError) {
  Search search(MakeView(), MakeConfig());
  v1::VectorReply reply;
  for (std::uint32_t slice : {0u, 2u}) reply.add_slices()->set_slice(slice);
  reply.add_search(1);
  search.Answer(reply);
  EXPECT_FALSE(search.error().ok());
  EXPECT_FALSE(search.done());
}

}  // namespace
}  // namespace downpour::core::sandblaster
