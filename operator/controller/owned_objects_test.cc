#include "operator/controller/owned_objects.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/controller/objects.h"
#include "operator/controller/testing/job_on_server.h"
#include "operator/kube/api_error.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using kube::Json;
using ::testing::HasSubstr;

class OwnedObjectsTest : public JobOnServer {
 protected:
  absl::StatusOr<Json> Create() { return CreateOwned(client_, record_, kube::kPodDisruptionBudgets, wanted_); }
  std::optional<Json> Stored() const { return server_.Get(kube::kPodDisruptionBudgets, kNamespace, name_); }

  const Json wanted_ = MakePodDisruptionBudget(record_.job, {1, {}});
  const std::string name_ = wanted_.at("metadata").at("name").get<std::string>();
};

TEST_F(OwnedObjectsTest, WhatIsMadeIsTheJobs) {
  const absl::StatusOr<Json> made = Create();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(kube::ReadMeta(*made).controller_uid, record_.meta.uid);
  EXPECT_EQ(Stored()->at("metadata").at("uid"), made->at("metadata").at("uid"));
}

// As when the answer to its making was lost, or the cache is behind.
TEST_F(OwnedObjectsTest, WhatIsThereAndTheJobsIsTakenAsItIs) {
  ASSERT_TRUE(Create().ok());
  const Json before = *Stored();
  const absl::StatusOr<Json> again = Create();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, before);
  EXPECT_EQ(*Stored(), before);
}

TEST_F(OwnedObjectsTest, WhatIsSomebodyElsesIsToldAndLeftAlone) {
  for (const bool of_another_job : {false, true}) {
    Json theirs = wanted_;
    if (of_another_job) {
      theirs["metadata"]["ownerReferences"][0]["uid"] = "of a job of the same name before";
    } else {
      theirs["metadata"].erase("ownerReferences");
    }
    server_.Remove(kube::kPodDisruptionBudgets, kNamespace, name_);
    const Json before = server_.Put(kube::kPodDisruptionBudgets, theirs);
    const absl::Status refused = Create().status();
    EXPECT_TRUE(absl::IsAlreadyExists(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(name_));
    EXPECT_EQ(*Stored(), before);
  }
}

TEST_F(OwnedObjectsTest, WhatGoesBetweenTheTwoRequestsIsToBeTriedAgain) {
  server_.Inject("POST", "", FakeApiServer::Refuse(409, "AlreadyExists", "it exists"));
  EXPECT_TRUE(absl::IsUnavailable(Create().status()));
  EXPECT_TRUE(Create().ok());
}

TEST_F(OwnedObjectsTest, ARefusalKeepsWhatTheServerSaidAndIsNoConflictOfVersions) {
  const struct {
    int code;
    std::string reason;
  } refusals[] = {{403, "Forbidden"}, {409, "Conflict"}, {422, "Invalid"}, {500, "InternalError"}};
  for (const auto& [code, reason] : refusals) {
    server_.Inject("POST", "", FakeApiServer::Refuse(code, reason, "no"));
    const absl::Status refused = Create().status();
    ASSERT_TRUE(kube::GetApiError(refused).has_value()) << refused;
    EXPECT_EQ(kube::GetApiError(refused)->code, code);
    EXPECT_FALSE(absl::IsAborted(refused));
    EXPECT_FALSE(Stored().has_value());
  }
}

}  // namespace
}  // namespace downpour::controller
