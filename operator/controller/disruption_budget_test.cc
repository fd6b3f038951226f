#include "operator/controller/disruption_budget.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "operator/controller/objects.h"
#include "operator/kube/http_transport.h"
#include "operator/planner/conditions.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/plain_credentials.h"
#include "tests/support/training_job.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using kube::Json;

constexpr char kBudgets[] = "/poddisruptionbudgets";
constexpr absl::Duration kDelay = absl::Seconds(60);

// One job, and a server that holds its budget.
class DisruptionBudgetTest : public ::testing::Test {
 protected:
  DisruptionBudgetTest()
      : client_(kube::MakeHttpTransport(std::make_shared<kube::PlainCredentials>(server_.Start())),
                {absl::Seconds(10), 10000, 10000}) {
    server_.Put(kube::kTrainingJobs, TrainingJobObject("team", "lenet"));
    record_ = DecodeJob(*server_.Get(kube::kTrainingJobs, "team", "lenet")).value();
    SetReady(true);
  }

  void SetReady(bool ready) { status_.conditions = {{planner::kReady, ready, "", "", now_, 1}}; }
  std::optional<planner::ProtectedPs> Wanted(bool wanted) const {
    return wanted ? std::optional<planner::ProtectedPs>(protected_) : std::nullopt;
  }
  std::optional<double> Due(bool wanted) { return budget_.Due(status_, Wanted(wanted), kDelay, now_); }
  // What a pass does.
  absl::Status Pass(bool wanted) {
    const std::optional<double> due = Due(wanted);
    return due.has_value() && now_ >= *due ? budget_.Write(record_, Wanted(wanted), client_, now_) : absl::OkStatus();
  }
  bool Exists() const { return server_.Get(kube::kPodDisruptionBudgets, "team", "lenet-ps").has_value(); }

  double now_ = 1'800'000'000;
  FakeApiServer server_;
  kube::Client client_;
  JobRecord record_;
  api::TrainingJobStatus status_;
  planner::ProtectedPs protected_ = {2, {}};
  DisruptionBudget budget_ = DisruptionBudget::OfNewJob();
};

TEST_F(DisruptionBudgetTest, IsMadeOnceAllHaveTrainedForAWhileAndGoesWhenItIsNotWanted) {
  SetReady(false);
  EXPECT_EQ(Due(true), std::nullopt);
  EXPECT_EQ(Due(false), std::nullopt) << "there is none";
  SetReady(true);
  const double ready = now_;
  EXPECT_EQ(Due(true), ready + 60);
  now_ += 30;
  SetReady(true);  // somebody came and went
  EXPECT_EQ(Due(true), ready + 60);
  now_ += 30;
  ASSERT_TRUE(Pass(true).ok());
  EXPECT_TRUE(Exists());
  SetReady(false);
  EXPECT_TRUE(Pass(false).ok());
  EXPECT_FALSE(Exists()) << "at once, whoever is missing";
  EXPECT_EQ(Due(false), std::nullopt);
  SetReady(true);
  ASSERT_TRUE(Pass(true).ok());
  EXPECT_TRUE(Exists());
}

TEST_F(DisruptionBudgetTest, OneThatIsForOthersIsChangedAtOnce) {
  const auto spec = [this] { return server_.Get(kube::kPodDisruptionBudgets, "team", "lenet-ps")->at("spec"); };
  now_ += 60;
  ASSERT_TRUE(Pass(true).ok());
  EXPECT_EQ(spec().at("minAvailable"), 2);
  SetReady(false);
  protected_ = {3, {}};  // more are wanted, and do not run yet
  ASSERT_TRUE(Pass(true).ok());
  EXPECT_EQ(spec().at("minAvailable"), 3);
  protected_ = {2, {1}};
  ASSERT_TRUE(Pass(true).ok());
  EXPECT_EQ(spec().at("minAvailable"), 2);
  EXPECT_EQ(spec().at("selector").at("matchExpressions"),
            Json::parse(R"([{"key": "training.downpour.dev/index", "operator": "NotIn", "values": ["1"]}])"));
  EXPECT_EQ(spec().at("selector").at("matchLabels").size(), 2u);
  const std::size_t asked = server_.CountRequests();
  ASSERT_TRUE(Pass(true).ok());
  EXPECT_EQ(server_.CountRequests(), asked);
  budget_ = DisruptionBudget();  // an operator that is new
  protected_ = {2, {0}};
  ASSERT_TRUE(Pass(true).ok());
  EXPECT_EQ(spec().at("selector").at("matchExpressions").at(0).at("values"), Json::array({"0"}));
  protected_ = {3, {}};
  ASSERT_TRUE(Pass(true).ok());
  EXPECT_FALSE(spec().at("selector").contains("matchExpressions"));
  EXPECT_EQ(spec().at("minAvailable"), 3);
}

TEST_F(DisruptionBudgetTest, ANewJobThatIsNotProtectedCostsNoRequest) {
  const std::size_t asked = server_.CountRequests();
  now_ += 3600;
  EXPECT_TRUE(Pass(false).ok());
  EXPECT_EQ(server_.CountRequests(), asked);
}

TEST_F(DisruptionBudgetTest, OneThatSomebodyDeletedIsMadeAgainWithinTenMinutes) {
  now_ += 60;
  ASSERT_TRUE(Pass(true).ok());
  EXPECT_TRUE(server_.Remove(kube::kPodDisruptionBudgets, "team", "lenet-ps"));
  const std::size_t asked = server_.CountRequests();
  now_ += 599;
  EXPECT_TRUE(Pass(true).ok());
  EXPECT_EQ(server_.CountRequests(), asked) << "it is believed";
  now_ += 1;
  EXPECT_TRUE(Pass(true).ok());
  EXPECT_TRUE(Exists());
  now_ += 600;
  EXPECT_TRUE(Pass(true).ok());
  EXPECT_EQ(server_.CountRequests("POST", kBudgets), 2) << "it is there";
}

TEST_F(DisruptionBudgetTest, AnOperatorThatIsNewFindsWhatThereIs) {
  now_ += 60;
  ASSERT_TRUE(Pass(true).ok());
  budget_ = DisruptionBudget();
  ASSERT_TRUE(Pass(true).ok());
  EXPECT_EQ(server_.CountRequests("POST", kBudgets), 1);
  budget_ = DisruptionBudget();
  ASSERT_TRUE(Pass(false).ok());
  EXPECT_FALSE(Exists());
  budget_ = DisruptionBudget();
  ASSERT_TRUE(Pass(false).ok()) << "there is none";
  EXPECT_EQ(server_.CountRequests("DELETE", kBudgets), 1);
  budget_ = DisruptionBudget();
  ASSERT_TRUE(Pass(true).ok());
  EXPECT_TRUE(Exists());
}

TEST_F(DisruptionBudgetTest, OneOfSomebodyElseIsLeftAlone) {
  Json other = MakePodDisruptionBudget(record_.job, protected_);
  other["metadata"].erase("ownerReferences");
  server_.Put(kube::kPodDisruptionBudgets, other);
  now_ += 60;
  EXPECT_TRUE(absl::IsAlreadyExists(Pass(true)));
  EXPECT_TRUE(budget_.failed_before());
  now_ += 60;
  EXPECT_TRUE(Pass(false).ok()) << "ours is not there";
  EXPECT_TRUE(Exists());
}

TEST_F(DisruptionBudgetTest, WhatIsRefusedIsTriedAgainInAMinute) {
  now_ += 60;
  for (const bool wanted : {true, false}) {
    const char* const method = wanted ? "POST" : "DELETE";
    server_.Inject(method, kBudgets, FakeApiServer::Refuse(403, "Forbidden", "no"), -1);
    EXPECT_FALSE(Pass(wanted).ok());
    EXPECT_TRUE(budget_.failed_before());
    EXPECT_EQ(Due(wanted), now_ + 60);
    now_ += 60;
    EXPECT_FALSE(Pass(wanted).ok());
    server_.ClearFaults();
    now_ += 60;
    EXPECT_TRUE(Pass(wanted).ok());
    EXPECT_FALSE(budget_.failed_before());
    EXPECT_EQ(Exists(), wanted);
  }
}

TEST_F(DisruptionBudgetTest, AJobThatIsOverIsNoneOfItsBusiness) {
  status_.conditions.push_back({planner::kComplete, true, "", "", now_, 1});
  EXPECT_EQ(Due(true), std::nullopt);
  EXPECT_EQ(Due(false), std::nullopt);
}

// Requests fail before and after they took effect, the operator is restarted, and somebody deletes the budget.
TEST_F(DisruptionBudgetTest, WhateverHappensItComesToBeAsItIsWanted) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto chance = [&random](double probability) { return std::bernoulli_distribution(probability)(random); };
    bool wanted = true;
    for (int step = 0; step < 20; ++step) {
      if (chance(0.3)) wanted = !wanted;
      if (chance(0.2)) protected_ = chance(0.5) ? planner::ProtectedPs{1, {0}} : planner::ProtectedPs{2, {}};
      if (chance(0.2)) budget_ = DisruptionBudget();
      if (chance(0.1)) server_.Remove(kube::kPodDisruptionBudgets, "team", "lenet-ps");
      if (chance(0.3)) {
        server_.Inject("", kBudgets, FakeApiServer::Refuse(chance(0.5) ? 403 : 409, "Conflict", "no"), 1);
      }
      now_ += std::uniform_int_distribution<int>(0, 120)(random);
      (void)Pass(wanted);
    }
    server_.ClearFaults();
    now_ += 600;
    EXPECT_TRUE(Pass(wanted).ok());
    EXPECT_EQ(Exists(), wanted);
    if (!wanted) continue;
    const Json made = MakePodDisruptionBudget(record_.job, protected_);
    EXPECT_EQ(server_.Get(kube::kPodDisruptionBudgets, "team", "lenet-ps")->at("spec"), made.at("spec"));
  }
}

}  // namespace
}  // namespace downpour::controller
