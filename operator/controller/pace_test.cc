#include "operator/controller/pace.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "operator/api/testing/random_job.h"
#include "operator/planner/conditions.h"
#include "tests/support/seeds.h"

namespace downpour::controller {
namespace {

constexpr double kNow = 1'800'000'000;
constexpr double kRounding = 1e-5;  // of such a time

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

JobRecord Record(int number, std::optional<api::ProgressStatus> told = std::nullopt) {
  JobRecord record;
  record.meta.uid = absl::StrCat("uid-", number);
  record.job.status.progress = std::move(told);
  return record;
}

// A load and a moment; what was written, or told, may be of any time, also of a clock that was ahead.
struct Scene {
  explicit Scene(std::mt19937& random) {
    const auto below = [&random](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    load.jobs = below(2) == 0 ? below(30) : below(5000);
    load.moving = below(load.jobs + 1);
    now = kNow + below(10000);
    const auto some_time = [&] { return now + below(4000) - 3000; };
    if (below(3) != 0) {
      api::ProgressStatus progress;
      progress.last_update_time = some_time();
      if (below(2) == 0) progress.next_update_time = progress.last_update_time + below(2000);
      told = progress;
    }
    if (below(3) != 0) written = some_time();
    stored = Record(below(1000), told);
  }
  PaceOptions options;
  Load load;
  double now = 0;
  double written = 0;
  std::optional<api::ProgressStatus> told;
  JobRecord stored;
};

TEST(PaceTest, EssentialNewsIsNeverDelayedAndNoNewsNeverStored) {
  for (std::uint32_t seed = 0; seed < Seeds(5000); ++seed) {
    std::mt19937 random(seed);
    const Scene scene(random);
    const auto due = [&](News news) {
      return StatusDue(scene.options, scene.load, scene.stored, news, scene.written, scene.now);
    };
    ASSERT_EQ(due(News::kEssential), scene.now) << seed;
    ASSERT_EQ(due(News::kNone), std::nullopt) << seed;
  }
}

TEST(PaceTest, WhatIsForPeopleWaitsOneAndAHalfPeriodsAtMostWhateverTheClocksWere) {
  for (std::uint32_t seed = 0; seed < Seeds(5000); ++seed) {
    std::mt19937 random(seed);
    const Scene scene(random);
    const PaceOptions& options = scene.options;
    for (const News news : {News::kProgress, News::kPicture}) {
      const auto due = StatusDue(options, scene.load, scene.stored, news, scene.written, scene.now);
      const absl::Duration interval = news == News::kPicture ? options.picture_interval : options.progress_interval;
      const double period = Seconds(Stretched(interval, options.write_spacing, scene.load.jobs));
      ASSERT_TRUE(due.has_value());
      ASSERT_LE(*due, scene.now + 1.5 * period + kRounding) << seed << ToString(news);
    }
  }
}

// As many jobs as there are share the rate, each with news at every look.
TEST(PaceTest, AllJobsTogetherKeepTheRateAndEachHasItsTurns) {
  for (const int jobs : {1, 10, 40, 41, 100, 1000}) {
    for (const News news : {News::kProgress, News::kPicture}) {
      SCOPED_TRACE(absl::StrCat(jobs, " ", std::string(ToString(news))));
      const PaceOptions options;
      const Load load = {jobs, 0};
      const absl::Duration interval = news == News::kPicture ? options.picture_interval : options.progress_interval;
      const double period = std::max(Seconds(interval), jobs * Seconds(options.write_spacing));
      std::mt19937 random(1);
      int writes = 0;
      const double end = kNow + 20 * period;
      for (int job = 0; job < jobs; ++job) {
        const JobRecord record = Record(job);
        double written = kNow;
        int own = 0;
        for (double now = kNow; now < end; now += period / 100 * (1 + static_cast<double>(random() % 10))) {
          if (now < *StatusDue(options, load, record, news, written, now)) continue;
          ASSERT_GE(now - written, period / 2 - kRounding);
          written = now;
          ++own;
        }
        EXPECT_GE(own, 17) << "in twenty periods, each time up to a tenth late";
        EXPECT_LE(own, 21);
        writes += own;
      }
      EXPECT_LE(writes / (end - kNow), 1.05 * jobs / period);
      EXPECT_LE(writes / (end - kNow), 1.05 / Seconds(options.write_spacing)) << "four a second";
    }
  }
}

// What a status says of when it is renewed is kept, though many jobs come meanwhile.
TEST(PaceTest, ThePromiseOfTheNextProgressIsKept) {
  for (std::uint32_t seed = 0; seed < Seeds(5000); ++seed) {
    std::mt19937 random(seed);
    const Scene before(random);
    const Scene after(random);
    const double promised = NextProgress(before.options, before.load, before.stored.meta.uid, before.now);
    api::ProgressStatus told;
    told.last_update_time = before.now;
    told.next_update_time = promised;
    JobRecord stored = before.stored;
    stored.job.status.progress = told;
    for (double now = before.now; now < promised + 100; now += 10) {
      const auto due = StatusDue(before.options, after.load, stored, News::kProgress, before.now, now);
      ASSERT_LE(due.value(), promised + kRounding) << seed;
    }
    const auto due = StatusDue(before.options, before.load, stored, News::kProgress, before.now, before.now);
    const absl::Duration ask =
        Stretched(before.options.ask_interval_at_rest, before.options.ask_spacing, before.load.jobs);
    ASSERT_NEAR(*due + Seconds(ask), promised, kRounding) << seed << ": there is time for an answer to be awaited";
  }
}

// --- what is news ---

// A random number may be the largest there is.
template <class Number>
void Raise(Number& number) {
  number = number == std::numeric_limits<Number>::max() ? 0 : number + 1;
}

struct Change {
  News news;
  std::function<void(api::TrainingJobStatus&)> make;
};

const std::vector<Change>& Changes() {
  using Status = api::TrainingJobStatus;
  static const std::vector<Change> changes = {
      {News::kProgress, [](Status& status) { status.last_progress_time = status.last_progress_time.value_or(0) + 1; }},
      {News::kProgress, [](Status& status) { Raise(status.last_progress_step); }},
      {News::kProgress,
       [](Status& status) {
         if (!status.progress.has_value()) status.progress.emplace();
         Raise(status.progress->step);
       }},
      {News::kPicture, [](Status& status) { status.phase += "x"; }},
      {News::kPicture, [](Status& status) { status.reason += "x"; }},
      {News::kPicture, [](Status& status) { Raise(status.worker.ready); }},
      {News::kPicture, [](Status& status) { Raise(status.parameter_server.pending); }},
      {News::kPicture, [](Status& status) { Raise(status.membership.epoch); }},
      {News::kPicture, [](Status& status) { status.counted_uids.pop_back(); }},
      {News::kPicture, [](Status& status) { status.conditions.front().message += "x"; }},
      {News::kPicture, [](Status& status) { status.conditions.front().reason += "x"; }},  // why it is not ready
      {News::kEssential, [](Status& status) { status.conditions.front().status = true; }},
      {News::kEssential, [](Status& status) { status.conditions.back().reason += "x"; }},
      {News::kEssential, [](Status& status) { status.conditions.pop_back(); }},
      {News::kEssential, [](Status& status) { status.counted_uids.push_back("another"); }},
      {News::kEssential, [](Status& status) { Raise(status.observed_generation); }},
      {News::kEssential, [](Status& status) { Raise(status.incarnations["worker-7"]); }},
      {News::kEssential, [](Status& status) { status.failures.emplace_back(); }},
      {News::kEssential,
       [](Status& status) {
         if (!status.recovery.has_value()) status.recovery.emplace();
         status.recovery->last_cause += "x";
       }},
  };
  return changes;
}

api::TrainingJobStatus SomeStatus(std::mt19937_64& random) {
  api::TrainingJobStatus status = api::testing::RandomStatus(random);
  std::erase_if(status.conditions, [](const api::Condition& one) { return one.type == planner::kReady; });
  status.conditions.insert(status.conditions.begin(), {planner::kReady, false, "MembersMissing", "", 0, 0});
  // Two changes may each take one away.
  status.conditions.push_back({planner::kScheduled, true, "AllScheduled", "", 0, 0});
  status.conditions.push_back({planner::kBlocked, true, "QuotaExceeded", "", 0, 0});
  status.counted_uids.insert(status.counted_uids.end(), {"one", "two"});
  return status;
}

planner::Plan StoringPlan(const api::TrainingJobStatus& status) {
  planner::Plan plan;
  plan.actions.push_back({planner::ActionType::kStoreStatus, {}, 0, 0, "", ""});
  plan.status = status;
  return plan;
}

TEST(PaceTest, TheNewsIsThatOfTheWeightiestChange) {
  for (std::uint32_t seed = 0; seed < Seeds(200); ++seed) {
    std::mt19937_64 random(seed);
    const api::TrainingJobStatus before = SomeStatus(random);
    for (std::size_t i = 0; i < Changes().size(); ++i) {
      const Change& one = Changes()[i];
      const Change& other = Changes()[random() % Changes().size()];
      api::TrainingJobStatus after = before;
      one.make(after);
      EXPECT_EQ(CompareStatus(before, StoringPlan(after)), one.news) << i << " " << seed;
      // Two that undo each other would say nothing.
      api::TrainingJobStatus both = before;
      other.make(both);
      one.make(both);
      if (before.counted_uids == both.counted_uids && before.counted_uids != after.counted_uids) continue;
      EXPECT_EQ(CompareStatus(before, StoringPlan(both)), std::max(one.news, other.news)) << i << " " << seed;
    }
  }
}

TEST(PaceTest, WhatIsDoneOrToldIsStoredBeforeAndThatAJobMayFinishIsNoNews) {
  std::mt19937_64 random(1);
  const api::TrainingJobStatus before = SomeStatus(random);
  api::TrainingJobStatus after = before;
  ++after.last_progress_step;
  for (const planner::ActionType type :
       {planner::ActionType::kStart, planner::ActionType::kStop, planner::ActionType::kForceStop,
        planner::ActionType::kRemove, planner::ActionType::kDeleteJob, planner::ActionType::kFinish}) {
    planner::Plan plan = StoringPlan(after);
    plan.actions.push_back({type, {}, 0, 0, "", ""});
    const bool finishes = type == planner::ActionType::kFinish;
    EXPECT_EQ(CompareStatus(before, plan), finishes ? News::kProgress : News::kEssential) << static_cast<int>(type);
  }
  planner::Plan plan = StoringPlan(after);
  plan.events.push_back({true, "WorkerLost", "worker-1"});
  EXPECT_EQ(CompareStatus(before, plan), News::kEssential);
  plan.actions.clear();
  EXPECT_EQ(CompareStatus(before, plan), News::kNone) << "the planner wants nothing stored";
}

}  // namespace
}  // namespace downpour::controller
