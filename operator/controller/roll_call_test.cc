#include "operator/controller/roll_call.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "operator/controller/testing/pods.h"
#include "operator/planner/conditions.h"
#include "tests/support/seeds.h"

namespace downpour::controller {
namespace {

CoordinatorGateway::Answer AnswerAt(double time) {
  CoordinatorGateway::Answer answer;
  answer.received_time = time;
  return answer;
}

void AddMember(CoordinatorGateway::Answer& answer, const std::string& role, std::uint32_t index,
               std::uint32_t incarnation) {
  v1::MemberProgress* member = answer.reply.add_members();
  member->set_role(role);
  member->set_index(index);
  member->set_process_incarnation(incarnation);
}

TEST(RollCallTest, WhoIsReadyIsTheCoordinatorsWordAboutThisVeryStart) {
  Pod coordinator = MakePod(api::Role::kCoordinator);
  coordinator.meta.creation_time = 1000;
  const Pods pods = {Shared(coordinator), Shared(MakePod(api::Role::kParameterServer)),
                     Shared(MakePod(api::Role::kWorker, 0, "Running", 2)), Shared(MakePod(api::Role::kWorker, 1))};
  CoordinatorGateway::Answer answer = AnswerAt(999);
  AddMember(answer, "ps", 0, 1);
  AddMember(answer, "worker", 0, 1);
  AddMember(answer, "worker", 1, 1);
  const auto ready = [&pods](const std::optional<CoordinatorGateway::Answer>& heard) {
    RollCall roll_call;
    std::string marks;
    for (const planner::Instance& one : roll_call.Take(pods, heard)) marks += one.ready ? 'x' : '-';
    return marks;
  };
  EXPECT_EQ(ready(std::nullopt), "----");
  EXPECT_EQ(ready(answer), "-x-x") << "the coordinator before this one answered, about the worker before this one";
  answer.received_time = 1000;
  EXPECT_EQ(ready(answer), "xx-x");
  AddMember(answer, "worker", 0, 2);
  EXPECT_EQ(ready(answer), "xxxx");
}

TEST(RollCallTest, WhoVanishedIsAsIfOnItsWayOrAsItWasSeenToEnd) {
  RollCall roll_call;
  Pod leaves = MakePod(api::Role::kWorker, 0);
  leaves.meta.deletion_time = 1000;
  const Pod ends = MakePod(api::Role::kWorker, 1);
  const Pods before = {Shared(leaves), Shared(ends)};
  ASSERT_EQ(roll_call.Take(before, std::nullopt).size(), 2u);
  roll_call.Remember(before, {});
  Pod ended = ends;
  ended.phase = "Failed";
  ended.exit_code = 3;
  ASSERT_EQ(roll_call.Take({Shared(leaves), Shared(ended)}, std::nullopt).size(), 2u);
  // What came of that could not be stored, and by now both are gone.
  const std::vector<planner::Instance> missed = roll_call.Take({}, AnswerAt(2000));
  ASSERT_EQ(missed.size(), 2u);
  EXPECT_EQ(missed[0].uid, leaves.meta.uid);
  EXPECT_TRUE(missed[0].terminating);
  EXPECT_FALSE(missed[0].terminating_since.has_value()) << "there is nothing to be stopped by force";
  EXPECT_FALSE(missed[0].ready);
  EXPECT_EQ(missed[1].uid, ends.meta.uid);
  EXPECT_FALSE(missed[1].terminating);
  EXPECT_EQ(missed[1].exit_code, 3);
}

TEST(RollCallTest, NobodyIsMissedOnceWhatBecomesOfTheJobIsDecided) {
  for (const char* type :
       {planner::kComplete, planner::kFailed, planner::kSuccessCriteriaMet, planner::kFailureTarget}) {
    RollCall roll_call;
    const Pods pods = {Shared(MakePod(api::Role::kWorker))};
    roll_call.Take(pods, std::nullopt);
    roll_call.Remember(pods, {});
    api::TrainingJobStatus status;
    status.conditions.push_back({type, true, "", "", 0, 0});
    roll_call.Remember(pods, status);
    EXPECT_TRUE(roll_call.Take({}, std::nullopt).empty()) << type;
  }
}

// Pods start, end and vanish; statuses are stored, or not; the operator is deaf for as long as it likes.
TEST(RollCallTest, WhoVanishesIsToldUntilThatIsStoredAndNeverAgain) {
  for (std::uint32_t seed = 0; seed < Seeds(500); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    RollCall roll_call;
    Pods pods;
    api::TrainingJobStatus status;          // as stored
    std::set<std::string> missable;         // seen alive when a status was stored last, its end not stored since
    std::map<std::string, int> told;        // that it vanished, in statuses that were stored
    std::map<std::string, bool> must_tell;  // who went while missable
    int incarnation = 0;
    const auto pick = [&] { return pods.begin() + static_cast<std::ptrdiff_t>(random() % pods.size()); };
    for (int step = 0; step < 80; ++step) {
      switch (random() % 6) {
        case 0:
        case 1:
          pods.push_back(Shared(MakePod(api::Role::kWorker, 0, "Running", ++incarnation)));
          break;
        case 2:
          if (!pods.empty()) {
            const auto which = pick();
            Pod pod = **which;
            pod.phase = "Failed";
            *which = Shared(pod);
          }
          break;
        case 3:
          if (!pods.empty()) {
            const auto which = pick();
            if (missable.contains((*which)->meta.uid)) must_tell[(*which)->meta.uid] = true;
            pods.erase(which);
          }
          break;
        default: {
          const std::vector<planner::Instance> instances = roll_call.Take(pods, std::nullopt);
          ASSERT_GE(instances.size(), pods.size());
          std::set<std::string> vanished;
          for (std::size_t i = 0; i < instances.size(); ++i) {
            if (i < pods.size()) {
              ASSERT_EQ(instances[i].uid, pods[i]->meta.uid);
            } else {
              ASSERT_TRUE(vanished.insert(instances[i].uid).second);
            }
          }
          for (const auto& [uid, must] : must_tell) ASSERT_TRUE(vanished.contains(uid)) << uid;
          ASSERT_EQ(vanished.size(), must_tell.size());
          if (random() % 3 == 0) break;  // it could not be stored
          for (const std::string& uid : vanished) {
            ASSERT_EQ(++told[uid], 1) << uid;
            status.counted_uids.push_back(uid);
          }
          must_tell.clear();
          missable.clear();
          for (const PodPointer& pod : pods) {
            // The planner counts who has ended, and may count who is about to be evicted.
            if (HasEnded(*pod) || random() % 10 == 0) status.counted_uids.push_back(pod->meta.uid);
            const auto& counted = status.counted_uids;
            if (std::find(counted.begin(), counted.end(), pod->meta.uid) == counted.end()) {
              missable.insert(pod->meta.uid);
            }
          }
          roll_call.Remember(pods, status);
        }
      }
    }
  }
}

}  // namespace
}  // namespace downpour::controller
