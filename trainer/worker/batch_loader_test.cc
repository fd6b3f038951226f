#include "trainer/worker/batch_loader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"

namespace downpour::worker {
namespace {

constexpr std::uint32_t kSize = 4;  // of a minibatch

// The index and the seed are the sample.
class Echo final : public data::Dataset {
 public:
  std::int64_t size() const override { return 100; }
  const data::SampleFields& fields() const override { return fields_; }
  absl::StatusOr<data::Batch> Read(absl::Span<const std::int64_t> indices,
                                   std::optional<std::uint64_t> seed) const override {
    const absl::MutexLock lock(&mutex_);
    ++reads_;
    data::Batch batch{{data::MakeArray(fields_.inputs[0], static_cast<std::int64_t>(indices.size()))}, {}};
    const absl::Span<std::int64_t> values = batch.inputs[0].mutable_values<std::int64_t>();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      values[2 * i] = indices[i];
      values[2 * i + 1] = static_cast<std::int64_t>(seed.value_or(0));
    }
    return batch;
  }
  int reads() const {
    const absl::MutexLock lock(&mutex_);
    return reads_;
  }

 private:
  const data::SampleFields fields_{{{"echo", data::ElementType::kI64, {2}}}, {}};
  mutable absl::Mutex mutex_;
  mutable int reads_ ABSL_GUARDED_BY(mutex_) = 0;
};

core::DataPlan MakePlan() {
  v1::DataPlan proto;
  proto.set_sample_count(100);
  proto.set_batch_size(10);
  proto.set_updates_per_shard(5);
  proto.set_epochs(2);
  proto.set_seed(3);
  absl::StatusOr<core::DataPlan> plan = core::DataPlan::Create(proto);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

void ExpectTaken(BatchLoader* loader, const core::DataPlan& plan, const Minibatch& minibatch) {
  const auto batch = loader->Take(plan, minibatch);
  ASSERT_TRUE(batch.ok()) << batch.status();
  std::vector<std::int64_t> expected;
  const std::uint64_t seed = plan.UpdateSeed(minibatch.update, minibatch.number);
  for (const std::int64_t index : plan.SampleIndices(minibatch.update, minibatch.number, kSize)) {
    expected.insert(expected.end(), {index, static_cast<std::int64_t>(seed)});
  }
  const absl::Span<const std::int64_t> values = (*batch)->inputs[0].values<std::int64_t>();
  EXPECT_EQ(std::vector<std::int64_t>(values.begin(), values.end()), expected)
      << "group " << minibatch.update.group << ", minibatch " << minibatch.number;
}

TEST(BatchLoaderTest, EachMinibatchHasTheSamplesOfThePlanHoweverManyAreReadAhead) {
  const core::DataPlan plan = MakePlan();
  for (const std::size_t ahead : {0U, 1U, 2U, 5U}) {
    SCOPED_TRACE(ahead);
    Echo dataset;
    BatchLoader loader(&dataset, kSize, {.batches = ahead});
    for (std::uint32_t group = 0; group < 5; ++group) {
      std::vector<core::UpdateId> next;
      for (std::uint32_t later = group + 1; later < 5 && next.size() < ahead; ++later) next.push_back({1, 0, later});
      for (std::uint32_t number = 0; number < 3; ++number) {
        ExpectTaken(&loader, plan, {{1, 0, group}, number});
        loader.Prefetch(plan, {{1, 0, group}, number + 1}, next);
      }
    }
    EXPECT_EQ(dataset.reads(), 15) << "each once";
  }
}

TEST(BatchLoaderTest, AfterALostLeaseWhatFollowsIsThatOfTheNewOne) {
  const core::DataPlan plan = MakePlan();
  Echo dataset;
  BatchLoader loader(&dataset, kSize, {.batches = 3});
  loader.Prefetch(plan, {{0, 0, 1}, 0}, {{0, 0, 2}});
  ExpectTaken(&loader, plan, {{0, 1, 0}, 0});
  loader.Prefetch(plan, {{0, 1, 0}, 1}, {});
  ExpectTaken(&loader, plan, {{0, 1, 0}, 1});
  ExpectTaken(&loader, plan, {{0, 0, 1}, 0});
}

TEST(BatchLoaderTest, AnUpdateThatAChangedPlanMakesAnotherIsReadAnew) {
  const core::DataPlan plan = MakePlan();
  const absl::StatusOr<core::DataPlan> changed = plan.WithBatchSize(0, 1, 5);
  ASSERT_TRUE(changed.ok()) << changed.status();
  Echo dataset;
  BatchLoader loader(&dataset, kSize, {.batches = 2});
  const Minibatch minibatch{{0, 1, 2}, 0};
  ASSERT_NE(plan.SampleIndices(minibatch.update, 0, kSize), changed->SampleIndices(minibatch.update, 0, kSize));
  loader.Prefetch(plan, minibatch, {});
  ExpectTaken(&loader, *changed, minibatch);
  // One that the older plan does not have is not read ahead.
  const core::UpdateId only_changed{0, 2, 0};
  ASSERT_TRUE(changed->Contains(only_changed) && !plan.Contains(only_changed));
  loader.Prefetch(plan, {{0, 1, 4}, 0}, {only_changed});
  ExpectTaken(&loader, *changed, {only_changed, 0});
}

}  // namespace
}  // namespace downpour::worker
