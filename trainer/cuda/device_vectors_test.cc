#include "trainer/cuda/device_vectors.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/core/ring/ring_replica.h"
#include "trainer/core/testing/optimizers.h"
#include "trainer/cuda/testing/counting_kernels.h"

namespace downpour::cuda {
namespace {

using core::RingReplica;

constexpr v1::OptimizerType kTypes[] = {v1::SGD, v1::MOMENTUM, v1::NESTEROV, v1::ADAM, v1::ADAM_W};

std::uint32_t OneTo(std::mt19937& random, std::uint32_t most) {
  return 1 + static_cast<std::uint32_t>(random()) % most;
}

v1::View MakeView(std::mt19937& random, v1::OptimizerType type) {
  v1::View view;
  view.mutable_stamp()->set_generation(1);
  view.mutable_stamp()->set_incarnation(1);
  view.mutable_stamp()->set_epoch(1);
  view.set_mode(v1::SYNCHRONOUS);
  view.set_updates_per_step(OneTo(random, 4));
  view.mutable_data()->set_sample_count(95 + OneTo(random, 100));
  view.mutable_data()->set_batch_size(OneTo(random, 7));
  view.mutable_data()->set_updates_per_shard(OneTo(random, 4));
  view.mutable_data()->set_epochs(2);
  v1::OptimizerConfig& optimizer = *view.mutable_optimizer();
  optimizer = core::testing::ConfigOf(type);
  optimizer.add_no_decay("*.bias");
  if (random() % 2 == 0) {
    optimizer.mutable_schedule()->set_type(v1::SCHEDULE_EXPONENTIAL);
    optimizer.mutable_schedule()->set_gamma(0.9);
    optimizer.mutable_schedule()->set_every_updates(3);
  }
  if (random() % 3 == 0) optimizer.set_weight_decay(0);
  const auto add = [&view](const std::string& name, v1::TensorKind kind, std::int64_t elements) {
    v1::TensorSpec* const tensor = view.add_tensors();
    tensor->set_name(name);
    tensor->set_type(v1::FLOAT32);
    tensor->set_kind(kind);
    tensor->add_shape(elements);
  };
  const std::uint32_t layers = OneTo(random, 3);
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    add(absl::StrCat(layer, ".weight"), v1::PARAMETER, OneTo(random, 300));
    add(absl::StrCat(layer, ".bias"), v1::PARAMETER, OneTo(random, 9));
  }
  // Of two slices.
  if (random() % 64 == 0) add("large", v1::PARAMETER, (std::int64_t{4} << 18) + 5);
  for (std::uint32_t layer = 1; layer < layers; ++layer) {
    add(absl::StrCat(layer, ".mean"), v1::BUFFER, OneTo(random, 20));
  }
  return view;
}

// On the host, and in memory of kernels: what both are to have.
class Pair {
 public:
  Pair(DeviceKernels* kernels, const v1::View& view, std::mt19937& random)
      : random_(random),
        host_(*RingReplica::Create(view)),
        device_(*RingReplica::Create(view, [kernels](const v1::View& of, absl::Span<const core::Slice> slices) {
          return MakeDeviceVectors(kernels, of, slices);
        })) {
    for (std::uint32_t slice = 0; slice < host_.slices().size(); ++slice) {
      const std::vector<float> value = core::testing::RandomFloats(random_, host_.slices()[slice].elements);
      for (RingReplica* const one : {&host_, &device_}) one->Initialise(slice, core::Payload::OfFloats(value, nullptr));
    }
  }

  RingReplica& host() { return host_; }
  RingReplica& device() { return device_; }

  void Step() {
    const RingReplica::Step step{host_.NextStep(), random_() % 5 == 0 ? core::Verdict::kSkip : core::Verdict::kApply,
                                 random_() % 3 == 0 ? 0.37 : 1};
    ASSERT_EQ(device_.NextStep(), step.updates);
    sums_.clear();
    for (const core::Slice& slice : host_.slices()) {
      sums_.push_back(core::testing::RandomFloats(random_, slice.elements));
    }
    for (RingReplica* const one : {&host_, &device_}) {
      one->TakeStep(step, [this](std::uint32_t slice) { return absl::MakeConstSpan(sums_[slice]); });
    }
    ASSERT_TRUE(device_.status().ok()) << device_.status();
  }

  // As parameter servers leave it in the middle of a step: some slices have its first updates.
  void TakeHalfAStep() {
    const std::vector<core::UpdateId> updates = host_.NextStep();
    if (updates.size() < 2) return;
    ASSERT_TRUE(device_.ToHost().ok());
    for (std::uint32_t number = 0; number < host_.slices().size(); ++number) {
      if (random_() % 2 == 0) continue;
      const core::Slice& slice = host_.slices()[number];
      const v1::TensorSpec& tensor = host_.view().tensors(static_cast<int>(slice.tensor));
      if (tensor.kind() == v1::BUFFER) continue;
      core::SliceState state(
          number, slice, *core::CreateOptimizer(host_.view().optimizer(), tensor.name(), slice.elements), host_.plan());
      state.SetStepWidth(host_.view().updates_per_step());
      ASSERT_TRUE(state.Import(host_.Export(number), 0.01).ok());
      const std::vector<float> gradient = core::testing::RandomFloats(random_, slice.elements);
      state.Apply(updates.front(), core::Verdict::kApply, core::EncodedGradient(core::testing::WholePayload(gradient)),
                  {.learning_rate = 0.02});
      const core::SliceSnapshot snapshot = state.Export();
      for (RingReplica* const one : {&host_, &device_}) ASSERT_TRUE(one->Import(snapshot).ok());
    }
  }

  void ChangeWidth() {
    v1::View view = host_.view();
    view.set_updates_per_step(OneTo(random_, 4));
    for (RingReplica* const one : {&host_, &device_}) ASSERT_TRUE(one->SetView(view).ok());
  }

  // The device's goes to another one, from the host.
  void Move(DeviceKernels* kernels) {
    ASSERT_TRUE(device_.ToHost().ok());
    RingReplica another =
        *RingReplica::Create(host_.view(), [kernels](const v1::View& of, absl::Span<const core::Slice> slices) {
          return MakeDeviceVectors(kernels, of, slices);
        });
    for (std::uint32_t slice = 0; slice < host_.slices().size(); ++slice) {
      ASSERT_TRUE(another.Import(device_.Export(slice)).ok());
    }
    device_ = std::move(another);
  }

  void ExpectSame() {
    ASSERT_TRUE(device_.ToHost().ok());
    ASSERT_TRUE(device_.FromHost().ok());
    for (std::uint32_t slice = 0; slice < host_.slices().size(); ++slice) {
      const core::SliceSnapshot wanted = host_.Export(slice), got = device_.Export(slice);
      ASSERT_TRUE(core::testing::SameBits(*got.value, *wanted.value)) << slice;
      ASSERT_TRUE(core::testing::SameState(got.optimizer, wanted.optimizer)) << slice;
      ASSERT_EQ(got.table.SerializeAsString(), wanted.table.SerializeAsString()) << slice;
      // Where the model takes it from; of the host's kernels it can be read here.
      const core::Slice& part = host_.slices()[slice];
      const float* const there = device_.vectors()->tensor(part.tensor) + part.offset;
      ASSERT_EQ(std::memcmp(there, wanted.value->data(), wanted.value->size() * sizeof(float)), 0) << slice;
    }
  }

 private:
  std::mt19937& random_;
  RingReplica host_, device_;
  std::vector<std::vector<float>> sums_;
};

TEST(DeviceVectorsTest, TakeTheStepsOfAReplicaOnTheHost) {
  const std::unique_ptr<DeviceKernels> kernels = MakeHostKernels();
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const v1::View view = MakeView(random, kTypes[seed % std::size(kTypes)]);
    Pair pair(kernels.get(), view, random);
    for (int i = 0; i < 12 && !pair.host().NextStep().empty(); ++i) {
      switch (random() % 8) {
        case 0:
          ASSERT_NO_FATAL_FAILURE(pair.TakeHalfAStep());
          break;
        case 1:
          ASSERT_NO_FATAL_FAILURE(pair.ChangeWidth());
          break;
        case 2:
          ASSERT_NO_FATAL_FAILURE(pair.Move(kernels.get()));
          break;
        default:
          break;
      }
      ASSERT_NO_FATAL_FAILURE(pair.Step());
      if (random() % 3 != 0) continue;
      ASSERT_NO_FATAL_FAILURE(pair.ExpectSame());
    }
    ASSERT_NO_FATAL_FAILURE(pair.ExpectSame());
  }
}

TEST(DeviceVectorsTest, AreNotForWhatHasNoKernel) {
  const std::unique_ptr<DeviceKernels> kernels = MakeHostKernels();
  std::mt19937 random(1);
  const core::MakeReplicaVectors make = [&](const v1::View& of, absl::Span<const core::Slice> slices) {
    return MakeDeviceVectors(kernels.get(), of, slices);
  };
  const absl::StatusOr<RingReplica> lamb = RingReplica::Create(MakeView(random, v1::LAMB), make);
  EXPECT_EQ(lamb.status().code(), absl::StatusCode::kUnimplemented);
  v1::View divided = MakeView(random, v1::SGD);
  divided.set_state_copies(1);
  EXPECT_EQ(RingReplica::Create(divided, make).status().code(), absl::StatusCode::kInvalidArgument);
}

// Of which each call fails from some on.
class Failing final : public core::ReplicaVectors {
 public:
  explicit Failing(int* left) : left_(left) {}
  absl::Status Put(std::uint32_t, absl::Span<const float>, const core::OptimizerState&) override { return Call(); }
  absl::Status Get(std::uint32_t, absl::Span<float>, core::OptimizerState*) override { return Call(); }
  absl::Status Step(absl::Span<const SliceStep>) override { return Call(); }
  absl::Status Finish() override { return Call(); }
  absl::Status Read(absl::Span<const float>, absl::Span<float>) override { return Call(); }
  const float* tensor(std::size_t) const override { return nullptr; }

 private:
  absl::Status Call() { return --*left_ >= 0 ? absl::OkStatus() : absl::InternalError("the device is gone"); }
  int* const left_;
};

TEST(DeviceVectorsTest, AnErrorOfTheDeviceStays) {
  std::mt19937 random(2);
  const v1::View view = MakeView(random, v1::SGD);
  const auto slices = static_cast<int>(core::CutTensors(view)->size());
  // While the first values go there, and with the step.
  for (const int calls : {0, slices, slices + 1}) {
    int left = calls;
    RingReplica replica = *RingReplica::Create(view, [&](const v1::View&, absl::Span<const core::Slice>) {
      return absl::StatusOr<std::unique_ptr<core::ReplicaVectors>>(std::make_unique<Failing>(&left));
    });
    std::vector<std::vector<float>> sums;
    for (std::uint32_t slice = 0; slice < replica.slices().size(); ++slice) {
      sums.emplace_back(replica.slices()[slice].elements, 1.0f);
      replica.Initialise(slice, core::Payload::OfFloats(sums.back(), nullptr));
    }
    replica.TakeStep({replica.NextStep()}, [&](std::uint32_t slice) { return absl::MakeConstSpan(sums[slice]); });
    EXPECT_EQ(replica.status().message(), "the device is gone") << calls;
    left = 1000;
    EXPECT_FALSE(replica.ToHost().ok()) << "what is there may be anything";
    EXPECT_FALSE(replica.FromHost().ok());
  }
}

TEST(DeviceVectorsTest, SayHowMuchMemoryIsMissing) {
  testing::CountingKernels::Counts counts;
  counts.fails_at = 2;  // the second of three vectors, behind an event
  testing::CountingKernels kernels(&counts);
  v1::View view;
  *view.mutable_optimizer() = core::testing::ConfigOf(v1::ADAM);
  view.add_tensors()->set_name("large");
  const std::vector<core::Slice> slices(1 << 10, core::Slice{0, 0, 1000});
  const auto made = MakeDeviceVectors(&kernels, view, slices);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(made.status().message()), ::testing::HasSubstr("values and 2 vectors of the optimizer, "));
  EXPECT_EQ(counts.held, 0);
}

}  // namespace
}  // namespace downpour::cuda
