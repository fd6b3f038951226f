#include "trainer/core/job_model.h"

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

v1::WorkerSyncRequest RequestOf(std::uint64_t samples, std::int64_t extent) {
  v1::WorkerSyncRequest request;
  request.set_index(2);
  request.set_sample_count(samples);
  v1::TensorSpec* tensor = request.add_tensors();
  tensor->set_name("weight");
  tensor->set_type(v1::FLOAT32);
  tensor->add_shape(extent);
  return request;
}

TEST(JobModelTest, TheFirstWorkerSaysWhatItIsAndTheOthersHaveTheSame) {
  JobModel model;
  EXPECT_FALSE(model.known());
  EXPECT_EQ(model.Check(RequestOf(24, 3)), "");
  EXPECT_TRUE(model.known());
  EXPECT_EQ(model.Check(RequestOf(24, 3)), "");
  EXPECT_EQ(model.Check(RequestOf(25, 3)), "worker-2 sees 25 training samples, the job has 24");
  EXPECT_NE(model.Check(RequestOf(24, 4)), "");
}

TEST(JobModelTest, WhoHasReadOtherInitialWeightsIsRefused) {
  v1::WorkerSyncRequest request = RequestOf(24, 3);
  request.set_initial_weights_crc32c(0xab);
  JobModel model;
  ASSERT_EQ(model.Check(request), "");
  EXPECT_EQ(model.Check(request), "");
  v1::WorkerSyncRequest other = request;
  other.set_initial_weights_crc32c(0xac);
  const std::string why =
      "worker-2 sees another file at spec.model.initialWeights.path than the job: CRC-32C 000000ac, expected CRC-32C "
      "000000ab";
  EXPECT_EQ(model.Check(other), why);
  EXPECT_NE(model.Check(RequestOf(24, 3)), "") << "none was read";
  v1::TrainingConfig config;
  config.set_batch_size(2);
  config.set_epochs(5);
  const absl::StatusOr<v1::View> view = model.MakeView(config, {}, std::vector<v1::PsMember>(1));
  ASSERT_TRUE(view.ok()) << view.status();
  JobModel after_a_restart;
  after_a_restart.TakeFrom(*view);
  EXPECT_EQ(after_a_restart.Check(request), "");
  EXPECT_EQ(after_a_restart.Check(other), why);
  ASSERT_EQ(JobModel().Check(RequestOf(24, 3)), "");
}

TEST(JobModelTest, AViewPlacesItAndHasAllOfIt) {
  JobModel model;
  ASSERT_EQ(model.Check(RequestOf(24, 3)), "");
  v1::TrainingConfig config;
  config.set_batch_size(2);
  config.set_epochs(5);
  config.mutable_optimizer()->set_learning_rate(0.5);
  v1::ViewStamp stamp;
  stamp.set_generation(9);
  std::vector<v1::PsMember> ps(2);
  ps[1].set_index(1);
  const absl::StatusOr<v1::View> view = model.MakeView(config, stamp, ps);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->stamp().generation(), 9u);
  EXPECT_EQ(view->layout_size(), 1);
  EXPECT_EQ(view->ps_size(), 2);
  EXPECT_EQ(view->data().updates_per_shard(), 1u) << "chosen, as the configuration says nothing";
  EXPECT_EQ(view->optimizer().learning_rate(), 0.5);
  JobModel same;
  same.TakeFrom(*view);
  EXPECT_EQ(same.Check(RequestOf(24, 3)), "");
  EXPECT_NE(same.Check(RequestOf(25, 3)), "");

  config.set_accumulate(3);
  EXPECT_EQ(model.MakeView(config, stamp, ps)->data().batch_size(), 6u);
  config.set_accumulate(1);
  config.mutable_local_steps()->set_count(4);
  EXPECT_EQ(model.MakeView(config, stamp, ps)->data().batch_size(), 8u);

  EXPECT_EQ(model.MakeView(config, stamp, ps)->data().shuffle_window(), 0u);
  config.mutable_dataset()->set_shuffle_block(5);
  EXPECT_EQ(model.MakeView(config, stamp, ps)->data().shuffle_block(), 5u);
  EXPECT_EQ(model.MakeView(config, stamp, ps)->data().shuffle_window(), 16u) << "two data shards, about four blocks";
  config.mutable_dataset()->set_shuffle_block(1);
  EXPECT_EQ(model.MakeView(config, stamp, ps)->data().shuffle_window(), 8u) << "a data shard";

  config.mutable_optimizer()->add_no_decay("*.bias");
  EXPECT_EQ(model.MakeView(config, stamp, ps).status().message(),
            "spec.update.optimizer.noDecay[0]: no trained parameter is called \"*.bias\"; there are weight");
  config.mutable_optimizer()->clear_no_decay();
  config.set_batch_size(0);
  EXPECT_TRUE(absl::IsInvalidArgument(model.MakeView(config, stamp, ps).status()));
}

TEST(JobModelTest, EachIncarnationNumbersHistoriesFromARangeOfItsOwn) {
  EXPECT_EQ(*NextGeneration(0, 1), 1u);
  EXPECT_EQ(*NextGeneration(5, 1), 6u);
  EXPECT_EQ(*NextGeneration(5, 2), (1u << 20) + 1);
  EXPECT_EQ(*NextGeneration((1u << 20) + 1, 2), (1u << 20) + 2);
  EXPECT_TRUE(absl::IsResourceExhausted(NextGeneration(1u << 20, 1).status()));
}

}  // namespace
}  // namespace downpour::core
