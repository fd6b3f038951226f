#include "operator/controller/own_writes.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "operator/controller/testing/pods.h"
#include "tests/support/seeds.h"

namespace downpour::controller {
namespace {

TEST(OwnWritesTest, WhatIsNoNumberComparesAsLongSeen) {
  EXPECT_EQ(ParseVersion("17"), 17u);
  EXPECT_EQ(ParseVersion("18446744073709551615"), 18446744073709551615u);
  for (const char* text : {"", "0", "-1", "+1", " 1", "1 ", "12x", "x12", "1.5", "18446744073709551616"}) {
    EXPECT_EQ(ParseVersion(text), 0u) << text;
  }
  OwnWrites writes;
  writes.StoredStatus("opaque");
  writes.MadePod("opaque");
  EXPECT_TRUE(writes.AreSeen({}, {}));
}

TEST(OwnWritesTest, APodThatWasAskedToLeaveIsSeenOnceItIsSoOrGone) {
  OwnWrites writes;
  Pod pod = MakePod(api::Role::kWorker);
  writes.DeletedPod(pod.meta.uid);
  EXPECT_FALSE(writes.AreSeen({}, {Shared(pod)}));
  EXPECT_TRUE(writes.AreSeen({}, {Shared(MakePod(api::Role::kWorker, 0, "Running", 2))})) << "its successor";
  EXPECT_TRUE(writes.AreSeen({}, {}));
  pod.meta.deletion_time = 1e9;
  EXPECT_TRUE(writes.AreSeen({}, {Shared(pod)}));
  pod.phase = "Failed";
  EXPECT_FALSE(writes.AreSeen({}, {Shared(pod)})) << "what has ended goes at once";
}

// An API server, caches of jobs and of pods that follow it as they like, others that write, and answers to our own
// writes that come in any order.
class World {
 public:
  explicit World(std::mt19937& random) : random_(random) {}

  void Step() {
    switch (Below(8)) {
      case 0:
        writes_.StoredStatus(absl::StrCat(++version_));
        own_jobs_ = version_;
        break;
      case 1:
        MakePods();
        break;
      case 2:
        DeletePod();
        break;
      case 3:
        EndPod();
        break;
      case 4:
        ++version_;  // somebody else's write
        break;
      case 5:
        seen_.jobs += Below(version_ - seen_.jobs + 1);
        break;
      default:
        seen_.pods += Below(version_ - seen_.pods + 1);
    }
    pods_.resize(version_ + 1, pods_.back());
  }
  void CatchUp() { seen_ = {version_, version_}; }

  bool MustBeSeen() const { return seen_.jobs >= own_jobs_ && seen_.pods >= own_pods_; }
  bool AreSeen() {
    const bool seen = writes_.AreSeen(seen_, pods_[seen_.pods]);
    if (seen) writes_.ForgetDeleted();
    return seen;
  }

 private:
  std::uint64_t Below(std::uint64_t n) { return random_() % n; }
  // The pods as they are from the next version on.
  Pods& Change() {
    pods_.push_back(pods_.back());
    ++version_;
    return pods_.back();
  }

  void MakePods() {
    std::vector<std::string> answers;
    for (std::uint64_t i = 0; i <= Below(4); ++i) {
      Change().push_back(Shared(MakePod(api::Role::kWorker, 0, "Running", ++incarnation_)));
      answers.push_back(absl::StrCat(version_));
    }
    std::shuffle(answers.begin(), answers.end(), random_);
    for (const std::string& answer : answers) writes_.MadePod(answer);
    own_pods_ = version_;
  }

  void DeletePod() {
    if (pods_.back().empty()) return;
    const std::size_t which = Below(pods_.back().size());
    Pod pod = *pods_.back()[which];
    if (pod.meta.deletion_time.has_value()) return;
    Pods& pods = Change();
    pod.meta.deletion_time = 1e9;
    if (HasEnded(pod) || Below(4) == 0) {
      pods.erase(pods.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      pods[which] = Shared(pod);
    }
    writes_.DeletedPod(pod.meta.uid);
    own_pods_ = version_;
  }

  void EndPod() {
    if (pods_.back().empty()) return;
    Pods& pods = Change();
    const std::size_t which = Below(pods.size());
    Pod pod = *pods[which];
    pod.phase = "Failed";
    if (pod.meta.deletion_time.has_value()) {
      pods.erase(pods.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      pods[which] = Shared(pod);
    }
  }

  std::mt19937& random_;
  OwnWrites writes_;
  std::uint64_t version_ = 0;
  std::vector<Pods> pods_ = {{}};  // at each version
  int incarnation_ = 0;
  CacheVersions seen_;
  std::uint64_t own_jobs_ = 0;  // our newest write
  std::uint64_t own_pods_ = 0;
};

TEST(OwnWritesTest, CachesAreActedOnIfAndOnlyIfTheyHaveSeenAllOwnWrites) {
  for (std::uint32_t seed = 0; seed < Seeds(500); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    World world(random);
    for (int step = 0; step < 100; ++step) {
      world.Step();
      const bool must = world.MustBeSeen();
      ASSERT_EQ(world.AreSeen(), must) << "step " << step;
    }
    world.CatchUp();
    EXPECT_TRUE(world.AreSeen()) << "nothing holds a job up for ever";
  }
}

}  // namespace
}  // namespace downpour::controller
