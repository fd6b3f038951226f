#include "trainer/tracking/tracker_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"

namespace downpour::tracking {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Waits that have an end take no time.
class FakeClock final : public Clock {
 public:
  absl::Duration Now() override {
    absl::MutexLock lock(&mutex_);
    return now_;
  }
  void Await(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration limit) override {
    if (limit == absl::InfiniteDuration()) {
      mutex.Await(condition);
      return;
    }
    if (condition.Eval()) return;
    Pass(limit);
    absl::MutexLock lock(&mutex_);
    waits_.push_back(limit);
  }
  void Pass(absl::Duration duration) {
    absl::MutexLock lock(&mutex_);
    now_ += duration;
  }
  std::vector<absl::Duration> waits() {
    absl::MutexLock lock(&mutex_);
    return waits_;
  }

 private:
  absl::Mutex mutex_;
  absl::Duration now_ ABSL_GUARDED_BY(mutex_) = absl::Hours(3);
  std::vector<absl::Duration> waits_ ABSL_GUARDED_BY(mutex_);
};

// What a tracker was asked, and what it answers; it outlives the tracker.
struct Script {
  absl::Mutex mutex;
  std::vector<std::string> calls ABSL_GUARDED_BY(mutex);
  std::vector<std::int64_t> written ABSL_GUARDED_BY(mutex);  // steps, of calls that went well
  std::vector<absl::Duration> limits ABSL_GUARDED_BY(mutex);
  std::vector<absl::Duration> hurries ABSL_GUARDED_BY(mutex);
  std::function<absl::Status(const std::string& call)> answer;  // without the mutex; empty: OK

  std::vector<std::string> Calls() {
    absl::MutexLock lock(&mutex);
    return calls;
  }
  std::vector<absl::Duration> Limits() {
    absl::MutexLock lock(&mutex);
    return limits;
  }
  std::vector<absl::Duration> Hurries() {
    absl::MutexLock lock(&mutex);
    return hurries;
  }
  std::vector<std::int64_t> Written() {
    absl::MutexLock lock(&mutex);
    return written;
  }
};

class ScriptedTracker final : public Tracker {
 public:
  explicit ScriptedTracker(Script& script) : script_(script) {}
  std::string name() const override { return "scripted"; }
  absl::Status Begin(const Run& run, absl::Duration limit) override {
    return Answer(absl::StrCat("begin ", run.job_name), limit);
  }
  absl::Status Write(absl::Span<const Point> points, absl::Duration limit) override {
    std::string call = "write";
    for (const Point& point : points) absl::StrAppend(&call, " ", point.step);
    absl::Status status = Answer(call, limit);
    if (status.ok()) {
      absl::MutexLock lock(&script_.mutex);
      for (const Point& point : points) script_.written.push_back(point.step);
    }
    return status;
  }
  absl::Status End(Outcome outcome, double time, absl::Duration limit) override {
    return Answer(absl::StrCat("end ", static_cast<int>(outcome), " at ", time), limit);
  }
  void Hurry(absl::Duration left) override {
    absl::MutexLock lock(&script_.mutex);
    script_.hurries.push_back(left);
  }

 private:
  absl::Status Answer(const std::string& call, absl::Duration limit) {
    {
      absl::MutexLock lock(&script_.mutex);
      script_.calls.push_back(call);
      script_.limits.push_back(limit);
    }
    return script_.answer ? script_.answer(call) : absl::OkStatus();
  }

  Script& script_;
};

Point At(std::int64_t step) {
  Point point;
  point.step = step;
  return point;
}

class TrackerThreadTest : public testing::Test {
 protected:
  TrackerThreadTest() {
    options_.clock = &clock_;
    options_.say = [this](const std::string& message) { said_.push_back(message); };
    run_.job_name = "job";
  }

  void Start() {
    thread_ = std::make_unique<TrackerThread>(std::make_unique<ScriptedTracker>(script_), run_, options_);
  }

  // The first call that begins like this waits for `released`.
  void HoldUp(const std::string& beginning) {
    script_.answer = [this, beginning](const std::string& call) {
      if (call.starts_with(beginning) && !reached_.HasBeenNotified()) {
        reached_.Notify();
        released_.WaitForNotification();
      }
      return absl::OkStatus();
    };
  }

  FakeClock clock_;
  Script script_;
  tracking::Run run_;
  TrackerThreadOptions options_;
  std::vector<std::string> said_;  // by the thread: to be read when it is gone
  absl::Notification reached_;
  absl::Notification released_;
  std::unique_ptr<TrackerThread> thread_;
};

TEST_F(TrackerThreadTest, ATrackerIsToldEverythingInOrder) {
  options_.batch = 2;
  HoldUp("begin");
  Start();
  for (int step = 1; step <= 5; ++step) thread_->Add(At(step));
  thread_->End(Outcome::kFailed, 17);
  thread_->Add(At(6));  // after the end
  released_.Notify();
  thread_.reset();
  EXPECT_THAT(script_.Calls(), ElementsAre("begin job", "write 1 2", "write 3 4", "write 5", "end 1 at 17"));
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(TrackerThreadTest, ARunThatIsNotOverIsLeftOpen) {
  HoldUp("begin");
  Start();
  reached_.WaitForNotification();
  thread_->Add(At(1));
  released_.Notify();
  thread_.reset();
  EXPECT_THAT(script_.Calls(), ElementsAre("begin job", "write 1"));
}

TEST_F(TrackerThreadTest, WhatFailsForTheMomentIsTriedAgain) {
  int failures = 0;
  script_.answer = [&failures](const std::string& call) {
    const bool fails = call.starts_with("write") && ++failures <= 8;
    return fails ? absl::UnavailableError("is away") : absl::OkStatus();
  };
  absl::Notification written;
  options_.say = [&](const std::string& message) {
    said_.push_back(message);
    if (message.find("again") != std::string::npos) written.Notify();
  };
  Start();
  thread_->Add(At(1));
  written.WaitForNotification();
  EXPECT_EQ(thread_->dropped(), 0);
  EXPECT_FALSE(thread_->complaint().has_value());
  thread_.reset();
  EXPECT_THAT(script_.Written(), ElementsAre(1));
  std::vector<double> waits;
  for (const absl::Duration wait : clock_.waits()) waits.push_back(absl::ToDoubleSeconds(wait));
  EXPECT_THAT(waits, ElementsAre(1, 2, 4, 8, 16, 32, 60, 60));
  EXPECT_THAT(said_, ElementsAre("scripted: is away", "scripted: works again; points dropped so far: 0"));
}

TEST_F(TrackerThreadTest, ASlowTrackerHoldsUpNobody) {
  options_.capacity = 4;
  options_.batch = 2;
  HoldUp("write");
  Start();
  thread_->Add(At(1));
  reached_.WaitForNotification();
  for (int step = 2; step <= 10; ++step) thread_->Add(At(step));
  EXPECT_EQ(thread_->dropped(), 5);
  EXPECT_EQ(thread_->complaint(), "scripted misses figures of this run: it does not take them as fast as they come");
  released_.Notify();
  thread_.reset();
  EXPECT_THAT(script_.Written(), ElementsAre(1, 7, 8, 9, 10));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("as fast as they come")));
}

TEST_F(TrackerThreadTest, WhatIsRefusedIsDroppedAndTheRestGoesOn) {
  options_.batch = 1;
  absl::Notification refused;
  script_.answer = [&refused](const std::string& call) {
    if (call != "write 1") return absl::OkStatus();
    refused.Notify();
    return absl::InvalidArgumentError("what is that");
  };
  Start();
  thread_->Add(At(1));
  thread_->Add(At(2));
  refused.WaitForNotification();
  thread_->End(Outcome::kSucceeded, 3);
  thread_.reset();
  EXPECT_THAT(script_.Calls(), ElementsAre("begin job", "write 1", "write 2", "end 0 at 3"));
  EXPECT_THAT(said_, ElementsAre("scripted: what is that", "scripted misses figures of this run: what is that",
                                 "scripted: works again; points dropped so far: 1"));
}

TEST_F(TrackerThreadTest, ARunThatIsThereNoMoreBeginsAgain) {
  bool lost = false;
  script_.answer = [&lost](const std::string& call) {
    if (!call.starts_with("write") || lost) return absl::OkStatus();
    lost = true;
    return absl::NotFoundError("no such run");
  };
  Start();
  thread_->Add(At(1));
  thread_.reset();
  EXPECT_THAT(script_.Calls(), ElementsAre("begin job", "write 1", "begin job", "write 1"));
}

TEST_F(TrackerThreadTest, ATrackerThatStaysAwayDoesNotHoldUpTheEnd) {
  script_.answer = [](const std::string&) { return absl::UnavailableError("is away"); };
  Start();
  for (int step = 1; step <= 3; ++step) thread_->Add(At(step));
  thread_->End(Outcome::kSucceeded, 3);
  thread_->Stop();
  EXPECT_EQ(thread_->dropped(), 3);
  EXPECT_EQ(thread_->complaint(), "scripted misses figures of this run: is away");
  EXPECT_THAT(said_, ElementsAre("scripted: is away", "scripted misses figures of this run: is away"));
}

TEST_F(TrackerThreadTest, TheEndHasLessTimeWhereTheLastCallFailed) {
  HoldUp("begin");
  Start();
  reached_.WaitForNotification();
  thread_->End(Outcome::kSucceeded, 3);
  released_.Notify();
  thread_.reset();
  EXPECT_THAT(script_.Hurries(), ElementsAre(options_.farewell));

  absl::Notification failed;
  script_.answer = [](const std::string&) { return absl::UnavailableError("is away"); };
  options_.say = [&failed](const std::string& message) {
    if (message.find("misses") == std::string::npos) failed.Notify();
  };
  Start();
  failed.WaitForNotification();
  thread_->End(Outcome::kSucceeded, 3);
  thread_.reset();
  EXPECT_THAT(script_.Hurries(), ElementsAre(options_.farewell, options_.farewell_after_failure));
}

TEST_F(TrackerThreadTest, ATrackerThatGoesAwayAtTheEndHoldsItUpNoLonger) {
  script_.answer = [this](const std::string& call) {
    if (!call.starts_with("begin")) return absl::UnavailableError("is away");
    reached_.Notify();
    released_.WaitForNotification();
    return absl::OkStatus();
  };
  Start();
  reached_.WaitForNotification();
  thread_->Add(At(1));
  thread_->End(Outcome::kSucceeded, 3);
  released_.Notify();
  const absl::Duration begin = clock_.Now();
  thread_.reset();
  EXPECT_LE(clock_.Now() - begin, options_.farewell_after_failure);
  EXPECT_EQ(script_.Calls().back(), "end 0 at 3") << "it is worth an attempt";
}

TEST_F(TrackerThreadTest, TheOutcomeIsToldThoughNotAllPointsAre) {
  options_.batch = 1;
  options_.farewell = absl::Seconds(8);
  script_.answer = [this](const std::string& call) {
    if (call.starts_with("begin")) {
      reached_.Notify();
      released_.WaitForNotification();
    } else {
      clock_.Pass(absl::Seconds(2));
    }
    return absl::OkStatus();
  };
  Start();
  reached_.WaitForNotification();
  for (int step = 1; step <= 9; ++step) thread_->Add(At(step));
  thread_->End(Outcome::kFailed, 17);
  released_.Notify();
  thread_->Stop();
  EXPECT_THAT(script_.Calls(), ElementsAre("begin job", "write 1", "write 2", "write 3", "end 1 at 17"));
  EXPECT_THAT(script_.Limits(),
              ElementsAre(options_.limit, absl::Seconds(6), absl::Seconds(4), absl::Seconds(2), absl::Seconds(2)));
  EXPECT_EQ(thread_->dropped(), 6);
}

// Whatever goes wrong, and when: each point is written once, in order, or counted as dropped.
TEST_F(TrackerThreadTest, EachPointIsWrittenOrCountedUnderManySeeds) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Script script;
    std::mt19937_64 random(seed);
    const double failing = std::uniform_real_distribution<double>(0, 0.6)(random);
    script.answer = [&](const std::string&) -> absl::Status {
      if (std::uniform_real_distribution<double>(0, 1)(random) >= failing) return absl::OkStatus();
      switch (random() % 4) {
        case 0:
          return absl::InvalidArgumentError("refused");
        case 1:
          return absl::NotFoundError("gone");
        default:
          return absl::UnavailableError("away");
      }
    };
    TrackerThreadOptions options = options_;
    options.capacity = 1 + seed % 7;
    options.batch = 1 + seed % 3;
    std::uint64_t dropped = 0;
    constexpr int kPoints = 50;
    {
      TrackerThread thread(std::make_unique<ScriptedTracker>(script), run_, options);
      for (int step = 1; step <= kPoints; ++step) thread.Add(At(step));
      thread.End(Outcome::kSucceeded, 1);
      thread.Stop();
      dropped = thread.dropped();
    }
    const std::vector<std::int64_t> written = script.Written();
    EXPECT_TRUE(std::is_sorted(written.begin(), written.end()));
    EXPECT_EQ(std::adjacent_find(written.begin(), written.end()), written.end());
    EXPECT_EQ(written.size() + dropped, kPoints);
  }
}

}  // namespace
}  // namespace downpour::tracking
