#include "operator/controller/job_record.h"

#include <optional>

#include "gtest/gtest.h"
#include "tests/support/training_job.h"

namespace downpour::controller {
namespace {

using kube::Json;

Json Object(std::int64_t generation = 1) {
  Json object = TrainingJobObject("team", "lenet", 1, 2);
  object["metadata"].update({{"uid", "job-uid"}, {"generation", generation}, {"managedFields", Json::array()}});
  return object;
}

TEST(JobRecordTest, ReadsTheJobWithItsStoredStatus) {
  Json object = Object(3);
  object["status"] = {{"phase", "Running"}, {"incarnations", {{"worker-1", 4}}}};
  const std::optional<JobRecord> record = DecodeJob(object);
  ASSERT_TRUE(record.has_value());
  EXPECT_TRUE(record->errors.empty());
  EXPECT_TRUE(record->managed_here);
  EXPECT_EQ(record->meta.Key(), "team/lenet");
  EXPECT_EQ(record->job.metadata.uid, "job-uid");
  EXPECT_EQ(record->job.metadata.generation, 3);
  EXPECT_EQ(record->job.metadata.namespace_name, "team");
  EXPECT_EQ(record->job.spec.worker.replicas, 2);
  EXPECT_EQ(record->job.status.incarnations.at("worker-1"), 4);
}

TEST(JobRecordTest, WhatHasNoNameOrUidIsNoJob) {
  for (const char* field : {"name", "uid"}) {
    Json object = Object();
    object["metadata"].erase(field);
    EXPECT_FALSE(DecodeJob(object).has_value()) << field;
  }
}

TEST(JobRecordTest, ASpecIsReadAgainOnlyIfItMayHaveChanged) {
  const JobRecord before = *DecodeJob(Object());
  Json changed = Object();
  changed["spec"]["worker"]["replicas"] = 5;
  changed["status"] = {{"phase", "Running"}};
  const JobRecord same = *DecodeJob(changed, &before);
  EXPECT_EQ(same.job.spec, before.job.spec) << "no server changes it within a generation";
  EXPECT_EQ(same.job.status.phase, "Running");
  changed["metadata"]["generation"] = 2;
  EXPECT_EQ(DecodeJob(changed, &before)->job.spec.worker.replicas, 5);
  changed["metadata"].update({{"generation", 1}, {"uid", "another"}});
  EXPECT_EQ(DecodeJob(changed, &before)->job.spec.worker.replicas, 5) << "of the same name";
  JobRecord unreadable = before;
  unreadable.errors.push_back({"status", "no"});
  changed["metadata"]["uid"] = "job-uid";
  EXPECT_EQ(DecodeJob(changed, &unreadable)->job.spec.worker.replicas, 5);
}

TEST(JobRecordTest, AJobOfAnotherControllerIsNotOursHoweverItsSpecLooks) {
  Json object = Object();
  object["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue";
  for (const bool readable : {true, false}) {
    if (!readable) object["spec"]["somethingOfTheirs"] = true;
    const JobRecord theirs = *DecodeJob(object);
    EXPECT_FALSE(theirs.managed_here);
    EXPECT_EQ(theirs.errors.empty(), readable);
    EXPECT_FALSE(DecodeJob(object, &theirs)->managed_here);
  }
  const JobRecord ours = *DecodeJob(Object());
  object["metadata"]["generation"] = 2;
  EXPECT_FALSE(DecodeJob(object, &ours)->managed_here);
}

TEST(JobRecordTest, WhatCannotBeReadIsAnErrorOfTheObject) {
  Json object = Object();
  object["spec"]["worker"]["replicas"] = "many";
  EXPECT_FALSE(DecodeJob(object)->errors.empty());
  object = Object();
  object["status"] = {{"incarnations", "many"}};
  const JobRecord record = *DecodeJob(object);
  ASSERT_EQ(record.errors.size(), 1u);
  EXPECT_EQ(record.errors.front().path, "status");
}

}  // namespace
}  // namespace downpour::controller
