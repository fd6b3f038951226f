#include "trainer/core/counted_evaluations.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

constexpr ShardKey kBegun{2, 3};

v1::Evaluation Of(std::uint32_t epoch, double loss) {
  v1::Evaluation evaluation;
  evaluation.set_dataset_epoch(epoch);
  evaluation.set_loss(loss);
  return evaluation;
}

class CountedEvaluationsTest : public testing::Test {
 protected:
  CountedEvaluationsTest() {
    config_.mutable_early_stopping()->set_metric("Loss");
    config_.mutable_early_stopping()->set_patience(1);
    config_.mutable_optimizer()->set_learning_rate(0.1);
    view_.set_mode(v1::ASYNC);
  }
  bool Count(const std::vector<v1::Evaluation>& settled) {
    return CountEvaluations(config_, plan_, kBegun, settled, &view_);
  }
  // Five data shards in each of six epochs.
  static DataPlan MakePlan() {
    v1::DataPlan plan;
    plan.set_sample_count(10);
    plan.set_batch_size(1);
    plan.set_updates_per_shard(2);
    plan.set_epochs(6);
    return *DataPlan::Create(plan);
  }

  v1::TrainingConfig config_;
  DataPlan plan_ = MakePlan();
  v1::View view_;
};

TEST_F(CountedEvaluationsTest, EachIsCountedOnceAndInOrder) {
  EXPECT_FALSE(Count({}));
  EXPECT_TRUE(Count({Of(1, 0.5)}));
  EXPECT_FALSE(Count({Of(1, 0.5)}));
  EXPECT_TRUE(Count({Of(1, 0.7), Of(3, 0.4)}));
  EXPECT_FALSE(Count({Of(1, 0.5), Of(2, 0.9), Of(3, 0.4)})) << "the one of epoch 2 is too late";
  ASSERT_EQ(view_.evaluations_size(), 2);
  EXPECT_EQ(view_.evaluations(0).loss(), 0.5);
  EXPECT_EQ(view_.evaluations(1).dataset_epoch(), 3u);
  EXPECT_FALSE(view_.has_end());
}

TEST_F(CountedEvaluationsTest, TrainingEndsBehindWhatIsBegunAndStaysSo) {
  Count({Of(1, 0.5), Of(2, 0.6)});
  ASSERT_TRUE(view_.has_end());
  EXPECT_EQ(ShardKey(view_.end().dataset_epoch(), view_.end().shard()), kBegun);
  CountEvaluations(config_, plan_, {4, 0}, {{Of(3, 0.1)}}, &view_);
  EXPECT_EQ(ShardKey(view_.end().dataset_epoch(), view_.end().shard()), kBegun);
  v1::ProgressReply progress;
  ReportDecisions(config_, view_, &progress);
  EXPECT_NE(progress.stop_reason().find("after epoch 2"), std::string::npos) << progress.stop_reason();
  EXPECT_EQ(progress.rate_reason(), "");
}

TEST_F(CountedEvaluationsTest, TheEndIsBehindAWholeStep) {
  view_.set_mode(v1::SYNCHRONOUS);
  view_.set_updates_per_step(2);
  Count({Of(1, 0.5), Of(2, 0.6)});
  EXPECT_EQ(ShardKey(view_.end().dataset_epoch(), view_.end().shard()), ShardKey(2, 4));
  view_.set_updates_per_step(3);
  FitEnd(plan_, &view_);
  EXPECT_EQ(ShardKey(view_.end().dataset_epoch(), view_.end().shard()), ShardKey(3, 0))
      << "six are more than there are";
}

TEST_F(CountedEvaluationsTest, WhereAllIsBegunNothingEndsEarly) {
  CountEvaluations(config_, plan_, {5, 5}, {{Of(1, 0.5), Of(2, 0.6)}}, &view_);
  EXPECT_FALSE(view_.has_end());
  v1::ProgressReply progress;
  ReportDecisions(config_, view_, &progress);
  EXPECT_EQ(progress.stop_reason(), "");
}

TEST_F(CountedEvaluationsTest, OnAPlateauTheRateIsReduced) {
  config_.clear_early_stopping();
  v1::ReduceOnPlateauConfig& rule = *config_.mutable_reduce_on_plateau();
  rule.set_metric("Loss");
  rule.set_factor(0.5);
  EXPECT_TRUE(HeedsEvaluations(config_));
  Count({Of(1, 0.5)});
  EXPECT_FALSE(view_.has_learning_rate_scale());
  Count({Of(2, 0.5), Of(3, 0.5)});
  EXPECT_EQ(view_.learning_rate_scale(), 0.25);
  EXPECT_FALSE(view_.has_local_learning_rate_scale());
  v1::ProgressReply progress;
  ReportDecisions(config_, view_, &progress);
  EXPECT_NE(progress.rate_reason().find("0.25"), std::string::npos) << progress.rate_reason();
}

TEST_F(CountedEvaluationsTest, OfLocalStepsTheirOwnRateIsReduced) {
  v1::ReduceOnPlateauConfig& rule = *config_.mutable_reduce_on_plateau();
  rule.set_metric("Loss");
  rule.set_factor(0.5);
  rule.set_min_learning_rate(0.15);
  config_.mutable_local_steps()->set_count(4);
  config_.mutable_local_steps()->set_learning_rate(0.2);
  Count({Of(1, 0.5), Of(2, 0.6)});
  EXPECT_EQ(view_.local_learning_rate_scale(), 0.15 / 0.2);
  EXPECT_FALSE(view_.has_learning_rate_scale());
}

}  // namespace
}  // namespace downpour::core
