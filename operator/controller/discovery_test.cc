#include "operator/controller/discovery.h"

#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "operator/controller/objects.h"
#include "operator/controller/testing/job_on_server.h"
#include "operator/planner/conditions.h"
#include "tests/support/seeds.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using kube::Json;

class DiscoveryTest : public JobOnServer {
 protected:
  static PodPointer Coordinator(const std::string& address, const std::string& phase = "Running") {
    Pod pod = MakePod(api::Role::kCoordinator, 0, phase);
    pod.address = address;
    return Shared(pod);
  }
  std::optional<std::string> Due() const { return discovery_.Due(record_, status_, pods_); }
  // As a pass does.
  absl::Status Pass() {
    const std::optional<std::string> address = Due();
    if (!address.has_value()) return absl::OkStatus();
    return discovery_.Publish(record_, *address, client_, services_, now_);
  }
  // What the slice says; empty: nothing, or there is none.
  std::string Said() const {
    const std::optional<Json> slice = server_.Get(kube::kEndpointSlices, kNamespace, "lenet");
    if (!slice.has_value() || slice->at("endpoints").empty()) return "";
    EXPECT_EQ(slice->at("endpoints").size(), 1u);
    return slice->at("endpoints").at(0).at("addresses").at(0).get<std::string>();
  }
  int Requests() const { return server_.CountRequests("", "/endpointslices"); }

  double now_ = 1'800'000'000;
  NamespaceServices services_{&client_, [this] { return now_; }};
  Discovery discovery_ = Discovery::OfNewJob();
  api::TrainingJobStatus status_;
  Pods pods_;
};

TEST_F(DiscoveryTest, ACoordinatorIsFoundFromItsAddressUntilItsEnd) {
  pods_ = {Coordinator("", "Pending"), Shared(MakePod(api::Role::kWorker))};
  EXPECT_EQ(Due(), std::nullopt) << "there is no slice that would say anything else";
  pods_.front() = Coordinator("10.0.0.1");
  ASSERT_TRUE(Pass().ok());
  EXPECT_EQ(Said(), "10.0.0.1");
  EXPECT_TRUE(server_.Get(kube::kServices, kNamespace, kServiceName).has_value()) << "under whose name it is found";
  EXPECT_EQ(Due(), std::nullopt);
  pods_.front() = Coordinator("10.0.0.1", "Failed");
  ASSERT_EQ(Due(), "") << "its address may be given to somebody else";
  ASSERT_TRUE(Pass().ok());
  EXPECT_EQ(Said(), "");
  pods_.clear();
  EXPECT_EQ(Due(), std::nullopt);
  pods_ = {Coordinator("10.0.0.2")};
  ASSERT_TRUE(Pass().ok());
  EXPECT_EQ(Said(), "10.0.0.2");
}

TEST_F(DiscoveryTest, NobodyLooksForACoordinatorThatHasDoneItsWorkNorForAJobThatIsDecided) {
  pods_ = {Coordinator("10.0.0.1")};
  ASSERT_TRUE(Pass().ok());
  pods_ = {Coordinator("10.0.0.1", "Succeeded")};
  EXPECT_EQ(Due(), std::nullopt);
  pods_.push_back(Coordinator("10.0.0.2"));
  EXPECT_EQ(Due(), "10.0.0.2") << "another was started";
  status_.conditions.push_back({planner::kSuccessCriteriaMet, true, "", "", 0, 0});
  EXPECT_EQ(Due(), std::nullopt);
  status_.conditions.clear();
  JobRecord leaving = record_;
  leaving.meta.deletion_time = now_;
  EXPECT_EQ(discovery_.Due(leaving, status_, pods_), std::nullopt) << "its slice goes with it";
}

TEST_F(DiscoveryTest, ALeaderThatIsNewAsksNothingAboutAJobThatHasAllItsMembers) {
  discovery_ = Discovery();
  pods_ = {Coordinator("10.0.0.1")};
  status_.conditions.push_back({planner::kReady, true, "AllMembersReady", "", 0, 0});
  EXPECT_EQ(Due(), std::nullopt);
  status_.conditions.front().status = false;
  EXPECT_EQ(Due(), "10.0.0.1");
  status_.conditions.clear();
  pods_.clear();
  EXPECT_EQ(Due(), "") << "a slice from before may say where it was";
  ASSERT_TRUE(Pass().ok());
  EXPECT_EQ(Requests(), 1) << "there is none";
  EXPECT_EQ(Due(), std::nullopt);
}

TEST_F(DiscoveryTest, ThatTheSliceIsThereIsBelievedForAMinute) {
  pods_ = {Coordinator("10.0.0.1")};
  ASSERT_TRUE(Pass().ok());
  server_.Remove(kube::kEndpointSlices, kNamespace, "lenet");
  const int before = Requests();
  now_ += 59;
  discovery_.DoubtAfterAMinute(now_);
  EXPECT_EQ(Due(), std::nullopt);
  now_ += 1;
  EXPECT_EQ(Due(), std::nullopt) << "nobody starts who would need it";
  discovery_.DoubtAfterAMinute(now_);
  ASSERT_TRUE(Pass().ok());
  EXPECT_EQ(Said(), "10.0.0.1");
  EXPECT_EQ(Requests(), before + 2) << "a look and its making";
}

TEST_F(DiscoveryTest, ASliceOfSomebodyElseIsAnObstacleAndLeftAlone) {
  Json theirs = MakeEndpointSlice(record_.job, "10.9.9.9");
  theirs["metadata"].erase("ownerReferences");
  const Json before = server_.Put(kube::kEndpointSlices, theirs);
  pods_ = {Coordinator("10.0.0.1")};
  for (const bool anew : {false, true}) {
    if (anew) discovery_ = Discovery();
    EXPECT_TRUE(absl::IsAlreadyExists(Pass())) << anew;
    ASSERT_TRUE(discovery_.hold().obstacle.has_value());
    EXPECT_EQ(discovery_.hold().obstacle->reason, "NameConflict");
    EXPECT_EQ(server_.Get(kube::kEndpointSlices, kNamespace, "lenet"), before);
  }
}

TEST_F(DiscoveryTest, ThatItIsNowhereIsNoObstacleIfItCannotBeSaidAndIsNotSaidAllTheTime) {
  pods_ = {Coordinator("10.0.0.1")};
  ASSERT_TRUE(Pass().ok());
  server_.Inject("PATCH", "/endpointslices", FakeApiServer::Refuse(403, "Forbidden", "no"), -1);
  pods_.clear();
  EXPECT_FALSE(Pass().ok());
  EXPECT_FALSE(discovery_.hold().obstacle.has_value());
  EXPECT_GT(discovery_.hold().until, now_);
  pods_ = {Coordinator("10.0.0.2")};
  EXPECT_FALSE(Pass().ok());
  EXPECT_EQ(discovery_.hold().obstacle->reason, "Forbidden");
}

TEST_F(DiscoveryTest, AWriteWhoseAnswerIsLostIsNotTakenForUndone) {
  pods_ = {Coordinator("10.0.0.1")};
  ASSERT_TRUE(Pass().ok());
  FakeApiServer::Reaction lost = FakeApiServer::Refuse(500, "InternalError", "the answer is lost");
  lost.before = [this] {
    server_.Modify(kube::kEndpointSlices, kNamespace, "lenet", [](Json& slice) { slice["endpoints"] = Json::array(); });
  };
  server_.Inject("PATCH", "/endpointslices", lost);
  pods_.clear();
  EXPECT_FALSE(Pass().ok());
  pods_ = {Coordinator("10.0.0.1")};
  ASSERT_TRUE(Pass().ok());
  EXPECT_EQ(Said(), "10.0.0.1");
}

// Coordinators come and go, requests fail, the slice is deleted, the operator is killed.
TEST_F(DiscoveryTest, ASliceNeverLeadsToACoordinatorThatIsGoneOnceAPassWentWell) {
  for (std::uint32_t seed = 0; seed < Seeds(60); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    server_.ClearFaults();
    server_.Remove(kube::kEndpointSlices, kNamespace, "lenet");
    discovery_ = Discovery::OfNewJob();
    pods_.clear();
    std::string address;  // where the coordinator is; empty: nowhere
    for (int step = 0; step < 40; ++step) {
      switch (random() % 10) {
        case 0:
        case 1:
          address = absl::StrCat("10.0.", seed, ".", step + 1);
          pods_ = {Coordinator(address)};
          break;
        case 2:
          if (!address.empty()) pods_ = {Coordinator(address, "Failed")};
          address.clear();
          break;
        case 3:
          pods_.clear();
          address.clear();
          break;
        case 4:
          discovery_ = Discovery();
          break;
        case 5:
          server_.Remove(kube::kEndpointSlices, kNamespace, "lenet");
          break;
        case 6: {
          const char* methods[] = {"GET", "POST", "PATCH"};
          const char* method = methods[random() % 3];
          const int codes[] = {403, 409, 500, 404};
          // That there is no slice is said where there is none alone.
          const int code = codes[random() % (method == methods[0] ? 3 : 4)];
          server_.Inject(method, "/endpointslices", FakeApiServer::Refuse(code, "Conflict", "no"));
          break;
        }
        case 7:
          now_ += 61;
          discovery_.DoubtAfterAMinute(now_);
          break;
        default:
          if (Pass().ok()) {
            ASSERT_TRUE(Said().empty() || Said() == address) << Said() << " and not " << address;
            ASSERT_EQ(Due(), std::nullopt) << "there is nothing left to be done";
          }
      }
    }
    server_.ClearFaults();
    now_ += 61;
    discovery_.DoubtAfterAMinute(now_);
    ASSERT_TRUE(Pass().ok());
    EXPECT_EQ(Said(), address);
    const std::size_t before = server_.CountRequests();
    ASSERT_TRUE(Pass().ok());
    EXPECT_EQ(server_.CountRequests(), before) << "where nothing changes, nobody is asked";
  }
}

}  // namespace
}  // namespace downpour::controller
