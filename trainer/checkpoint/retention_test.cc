#include "trainer/checkpoint/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace downpour::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kUid[] = "00112233445566778899aabbccddeeff";

ListedCheckpoint Make(std::uint32_t cut, std::uint32_t watermark = 0, std::uint64_t generation = 1,
                      const std::string& uid = kUid) {
  ListedCheckpoint checkpoint;
  checkpoint.manifest.set_cut(cut);
  checkpoint.manifest.set_generation(generation);
  checkpoint.manifest.set_incarnation(1);
  checkpoint.manifest.set_job_uid(uid);
  checkpoint.manifest.set_watermark(watermark);
  checkpoint.name = CheckpointName(checkpoint.manifest);
  return checkpoint;
}

void Evaluate(ListedCheckpoint& checkpoint, std::uint32_t epoch, const std::string& metric, double value) {
  v1::Evaluation* const evaluation = checkpoint.manifest.add_evaluations();
  evaluation->set_dataset_epoch(epoch);
  if (metric == "Loss") {
    evaluation->set_loss(value);
    return;
  }
  v1::Metric* const one = evaluation->add_metrics();
  one->set_name(metric);
  one->set_value(value);
}

std::vector<std::uint32_t> Cuts(const std::vector<Removal>& removals) {
  std::vector<std::uint32_t> cuts;
  for (const Removal& removal : removals) {
    EXPECT_NE(removal.reason, "");
    cuts.push_back(ParseCheckpointName(removal.name)->cut);
  }
  return cuts;
}

TEST(RetentionTest, KeepsTheNewest) {
  const std::vector<ListedCheckpoint> all = {Make(5), Make(4), Make(3), Make(2), Make(1)};
  EXPECT_THAT(Cuts(ToRemove(all, {kUid, 2, "", ""})), ElementsAre(1, 2, 3));
  EXPECT_THAT(Cuts(ToRemove(all, {kUid, 0, "", ""})), ElementsAre(1, 2)) << "three unless it is said";
  EXPECT_THAT(Cuts(ToRemove(all, {kUid, 9, "", ""})), IsEmpty());
  EXPECT_EQ(ToRemove(all, {kUid, 4, "", ""})[0].reason, "the newest 4 are kept");
}

TEST(RetentionTest, TouchesNoOtherJobsAndNoneInUse) {
  const std::string other = "0011223344556677889900000000beef";
  const std::vector<ListedCheckpoint> all = {Make(5, 0, 1, other), Make(4), Make(3), Make(2, 0, 1, other), Make(1)};
  EXPECT_THAT(Cuts(ToRemove(all, {"00112233-4455-6677-8899-AABBCCDDEEFF", 1, "", ""})), ElementsAre(1, 3));
  EXPECT_THAT(Cuts(ToRemove(all, {kUid, 1, "", all[4].name})), ElementsAre(3));
  EXPECT_THAT(ToRemove(all, {"", 1, "", ""}), IsEmpty());
}

TEST(RetentionTest, KeepsTheBestOfAMetric) {
  std::vector<ListedCheckpoint> all = {Make(6, 3), Make(5, 2), Make(4, 2), Make(3, 1), Make(2, 1), Make(1, 0)};
  // Of what was done at a cut, a later one knows how good it was.
  Evaluate(all[0], 1, "Accuracy", 0.9);
  Evaluate(all[0], 2, "Accuracy", 0.7);
  Evaluate(all[0], 3, "Accuracy", 0.8);
  EXPECT_THAT(Cuts(ToRemove(all, {kUid, 1, "Accuracy", ""})), ElementsAre(1, 2, 4, 5)) << "of equals the newest";
  EXPECT_THAT(Cuts(ToRemove(all, {kUid, 1, "Top5Accuracy", ""})), ElementsAre(1, 2, 3, 4, 5));

  all = {Make(3, 3), Make(2, 2), Make(1, 1)};
  Evaluate(all[0], 3, "Loss", 0.5);
  Evaluate(all[1], 2, "Loss", std::nan(""));
  Evaluate(all[2], 1, "Loss", 0.1);
  EXPECT_THAT(Cuts(ToRemove(all, {kUid, 1, "Loss", ""})), ElementsAre(2));
  EXPECT_EQ(ToRemove(all, {kUid, 1, "Loss", ""})[0].reason,
            "the newest 1 are kept, and cut-0000000001-g1-i1-00112233 for its Loss");
}

TEST(RetentionTest, AnotherHistoryKnowsNothing) {
  std::vector<ListedCheckpoint> all = {Make(3, 2, 2), Make(2, 1, 2), Make(1, 1, 1)};
  Evaluate(all[0], 1, "Accuracy", 0.9);
  EXPECT_THAT(Cuts(ToRemove(all, {kUid, 1, "Accuracy", ""})), ElementsAre(1));
}

}  // namespace
}  // namespace downpour::checkpoint
