#include "operator/controller/job_pods.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "operator/controller/testing/job_on_server.h"
#include "tests/support/seeds.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using kube::Json;
using planner::Action;
using planner::ActionType;

Action StartOf(int index, int incarnation) {
  return {ActionType::kStart, api::Role::kWorker, index, incarnation, "", ""};
}
Action RemovalOf(ActionType type, const PodPointer& pod) { return {type, pod->role, pod->index, 0, pod->meta.uid, ""}; }

class JobPodsTest : public JobOnServer {
 protected:
  // As a cache that has seen everything holds them, in the order of their indexes.
  Pods Cached() const {
    Pods pods;
    for (const Json& object : server_.List(kube::kPods)) {
      if (std::optional<Pod> pod = DecodePod(object); pod.has_value()) pods.push_back(Shared(*std::move(pod)));
    }
    std::sort(pods.begin(), pods.end(), [](const PodPointer& a, const PodPointer& b) { return a->index < b->index; });
    return pods;
  }
  bool HaveSeen(const Pods& pods) const {
    const CacheVersions seen = {std::numeric_limits<std::uint64_t>::max(), ParseVersion(server_.resource_version())};
    return writes_.AreSeen(seen, pods);
  }
  JobPods::Started Start(const std::vector<Action>& starts, const Pods& pods) {
    return job_pods_.Start(record_, starts, pods, writes_);
  }
  // Workers 0 to `count` - 1, as the cache holds them.
  Pods StartWorkers(int count) {
    std::vector<Action> starts;
    for (int i = 0; i < count; ++i) starts.push_back(StartOf(i, 1));
    EXPECT_TRUE(Start(starts, {}).status.ok());
    return Cached();
  }
  void EndPod(const PodPointer& pod) {
    server_.Modify(kube::kPods, kNamespace, pod->meta.name, [](Json& object) {
      object["status"] = {{"phase", "Failed"}};
    });
  }
  bool IsThere(const PodPointer& pod) const {
    const std::optional<Json> object = server_.Get(kube::kPods, kNamespace, pod->meta.name);
    return object.has_value() && kube::ReadMeta(*object).uid == pod->meta.uid;
  }

  std::atomic<int> current_for_{std::numeric_limits<int>::max()};  // so many looks
  OwnWrites writes_;
  JobPods job_pods_{&client_, {"server:1", "trainer:1", "IfNotPresent"}, 4, [this](const JobRecord&) {
                      return current_for_.fetch_sub(1) > 0;
                    }};
};

TEST_F(JobPodsTest, WhatIsMadeIsTheStartThatWasAskedForAndTheCacheMustSeeIt) {
  const CacheVersions before = {std::numeric_limits<std::uint64_t>::max(), ParseVersion(server_.resource_version())};
  const JobPods::Started started =
      Start({{ActionType::kStart, api::Role::kParameterServer, 0, 2, "", ""}, StartOf(1, 3)}, {});
  ASSERT_TRUE(started.status.ok()) << started.status;
  EXPECT_TRUE(started.some);
  EXPECT_FALSE(started.broken_off);
  const Pods pods = Cached();
  ASSERT_EQ(pods.size(), 2u);
  EXPECT_EQ(pods[0]->meta.name, "lenet-ps-0");
  EXPECT_EQ(pods[0]->incarnation, 2);
  EXPECT_EQ(pods[1]->meta.name, "lenet-worker-1");
  EXPECT_EQ(pods[1]->incarnation, 3);
  for (const PodPointer& pod : pods) EXPECT_EQ(pod->meta.controller_uid, record_.meta.uid);
  EXPECT_FALSE(writes_.AreSeen(before, {}));
  EXPECT_TRUE(HaveSeen(pods));
}

TEST_F(JobPodsTest, WhatIsRefusedIsRefusedOnce) {
  server_.Inject("POST", "/pods", FakeApiServer::Refuse(403, "Forbidden", "exceeded quota"), -1);
  std::vector<Action> starts;
  for (int i = 0; i < 100; ++i) starts.push_back(StartOf(i, 1));
  const JobPods::Started started = Start(starts, {});
  EXPECT_TRUE(absl::IsPermissionDenied(started.status)) << started.status;
  EXPECT_FALSE(started.some);
  EXPECT_FALSE(started.broken_off);
  EXPECT_EQ(server_.CountRequests("POST", "/pods"), 1);
}

TEST_F(JobPodsTest, ANameOfSomebodyElseIsToldAndTheirPodStays) {
  const Json theirs = server_.Put(kube::kPods, {{"metadata", {{"name", "lenet-worker-0"}, {"namespace", kNamespace}}}});
  EXPECT_TRUE(absl::IsAlreadyExists(Start({StartOf(0, 1)}, {}).status));
  EXPECT_EQ(server_.Get(kube::kPods, kNamespace, "lenet-worker-0"), theirs);
}

// What is there before: nothing, what is left of the start before, or this very start, whose answer was lost. The job
// may change at any moment.
TEST_F(JobPodsTest, EachStartIsMadeOnceAndNothingIsTouchedOnceTheJobHasChanged) {
  constexpr int kWorkers = 12;
  for (std::uint32_t seed = 0; seed < Seeds(30); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    for (const PodPointer& pod : Cached()) server_.Remove(kube::kPods, kNamespace, pod->meta.name);
    writes_ = OwnWrites();
    current_for_ = std::numeric_limits<int>::max();
    Pods cached;
    std::vector<Action> starts;
    std::map<int, std::string> before;  // uids
    for (int i = 0; i < kWorkers; ++i) {
      starts.push_back(StartOf(i, 2));
      const int kind = static_cast<int>(random() % 3);
      if (kind == 0) continue;
      ASSERT_TRUE(Start({StartOf(i, kind)}, {}).status.ok());
      const PodPointer made = Cached().back();
      before[i] = made->meta.uid;
      if (kind == 1) EndPod(made);
    }
    for (const PodPointer& pod : Cached()) {
      if (pod->incarnation == 1) cached.push_back(pod);
    }
    const int changes_after = static_cast<int>(random() % (2 * kWorkers));
    current_for_ = changes_after;
    const JobPods::Started started = Start(starts, cached);
    ASSERT_TRUE(started.status.ok()) << started.status;
    EXPECT_EQ(started.broken_off, changes_after < kWorkers);
    EXPECT_EQ(started.some, changes_after > 0);
    int made = 0;
    std::set<int> there;
    const Pods after = Cached();
    for (const PodPointer& pod : after) {
      ASSERT_TRUE(there.insert(pod->index).second);
      if (pod->incarnation == 2) {
        EXPECT_FALSE(HasEnded(*pod));
        ++made;
      } else {
        EXPECT_EQ(pod->meta.uid, before[pod->index]) << "not its turn: as it was";
      }
    }
    for (const auto& [index, uid] : before) EXPECT_TRUE(there.contains(index)) << "deleted, and not made again";
    EXPECT_GE(made, std::min(changes_after, kWorkers));
    EXPECT_TRUE(HaveSeen(after));
  }
}

TEST_F(JobPodsTest, WhoIsAskedToLeaveIsAskedOnceAndWhoIsStuckGoesAtOnce) {
  Pods pods = StartWorkers(3);
  ASSERT_TRUE(job_pods_.Remove(record_, {RemovalOf(ActionType::kStop, pods[0])}, pods, writes_).ok());
  EXPECT_FALSE(HaveSeen(pods)) << "the cache does not say so yet";
  pods = Cached();
  ASSERT_EQ(pods.size(), 3u);
  EXPECT_TRUE(pods[0]->meta.deletion_time.has_value()) << "it has its time";
  EXPECT_TRUE(HaveSeen(pods));
  const int before = server_.CountRequests("DELETE", "/pods");
  ASSERT_TRUE(job_pods_.Remove(record_, {RemovalOf(ActionType::kStop, pods[0])}, pods, writes_).ok());
  EXPECT_EQ(server_.CountRequests("DELETE", "/pods"), before);
  ASSERT_TRUE(job_pods_.Remove(record_, {RemovalOf(ActionType::kForceStop, pods[0])}, pods, writes_).ok());
  EXPECT_FALSE(IsThere(pods[0]));
  EndPod(pods[1]);
  ASSERT_TRUE(job_pods_.Remove(record_, {RemovalOf(ActionType::kRemove, pods[1])}, pods, writes_).ok());
  EXPECT_FALSE(IsThere(pods[1]));
  EXPECT_TRUE(IsThere(pods[2]));
}

TEST_F(JobPodsTest, WhoIsGoneAlreadyIsRemovedAndItsSuccessorIsNotTouched) {
  const Pods pods = StartWorkers(2);
  server_.Remove(kube::kPods, kNamespace, "lenet-worker-0");
  EXPECT_TRUE(job_pods_.Remove(record_, {RemovalOf(ActionType::kStop, pods[0])}, pods, writes_).ok());
  EXPECT_TRUE(HaveSeen({pods[1]}));
  Json successor = *server_.Get(kube::kPods, kNamespace, "lenet-worker-1");
  server_.Remove(kube::kPods, kNamespace, "lenet-worker-1");
  successor["metadata"].erase("uid");
  successor = server_.Put(kube::kPods, successor);
  EXPECT_TRUE(absl::IsAborted(job_pods_.Remove(record_, {RemovalOf(ActionType::kForceStop, pods[1])}, pods, writes_)));
  EXPECT_EQ(server_.Get(kube::kPods, kNamespace, "lenet-worker-1"), successor);
}

TEST_F(JobPodsTest, AllThatIsLeftOfAJobGoesWithOneRequestAndNobodyElsesWithIt) {
  server_.Put(kube::kPods, {{"metadata", {{"name", "other"}, {"namespace", kNamespace}}}});
  const Pods pods = StartWorkers(5);
  std::vector<Action> removals;
  for (const PodPointer& pod : pods) {
    EndPod(pod);
    removals.push_back(RemovalOf(ActionType::kRemove, pod));
  }
  server_.Inject("DELETE", "/pods", FakeApiServer::Refuse(403, "Forbidden", "no"));
  EXPECT_FALSE(job_pods_.Remove(record_, removals, pods, writes_).ok());
  EXPECT_TRUE(HaveSeen(pods)) << "nothing was deleted";
  ASSERT_TRUE(job_pods_.Remove(record_, removals, pods, writes_).ok());
  EXPECT_TRUE(Cached().empty());
  EXPECT_TRUE(server_.Get(kube::kPods, kNamespace, "other").has_value());
  EXPECT_EQ(server_.CountRequests("DELETE", "/pods"), 2);
  EXPECT_FALSE(HaveSeen(pods)) << "the cache does not say so yet";
}

}  // namespace
}  // namespace downpour::controller
