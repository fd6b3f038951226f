#include "operator/controller/questions.h"

#include <algorithm>
#include <optional>
#include <random>

#include "gtest/gtest.h"
#include "operator/controller/testing/pods.h"
#include "tests/support/seeds.h"

namespace downpour::controller {
namespace {

constexpr double kNow = 1'800'000'000;

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

planner::Observed Observe(const Pods& pods, bool ready, std::optional<planner::CoordinatorPhase> phase,
                          double heard = kNow) {
  planner::Observed observed;
  for (const PodPointer& pod : pods) observed.instances.push_back(ToInstance(*pod, ready));
  if (phase.has_value()) {
    observed.report.emplace();
    observed.report->phase = *phase;
    observed.report->received_time = heard;
  }
  return observed;
}

const Pods& Running() {
  static const Pods pods = {Shared(MakePod(api::Role::kCoordinator)), Shared(MakePod(api::Role::kWorker, 0)),
                            Shared(MakePod(api::Role::kWorker, 1))};
  return pods;
}

TEST(QuestionsTest, AJobIsAtRestWhileItTrainsWithAllItsMembersAndElseMoves) {
  using Phase = planner::CoordinatorPhase;
  const auto moves = [](const Pods& pods, bool ready, std::optional<Phase> phase) {
    Questions questions;
    questions.Look({}, {1, 0}, pods, Observe(pods, ready, phase), false, kNow);
    return questions.moves();
  };
  EXPECT_FALSE(moves(Running(), true, Phase::kTraining));
  EXPECT_TRUE(moves(Running(), false, Phase::kTraining));
  EXPECT_TRUE(moves(Running(), true, std::nullopt)) << "it has not answered yet";
  for (const Phase phase :
       {Phase::kUnknown, Phase::kStarting, Phase::kRecovering, Phase::kFinishing, Phase::kDone, Phase::kFailed}) {
    EXPECT_TRUE(moves(Running(), true, phase)) << static_cast<int>(phase);
  }
  Pods one_waits = Running();
  one_waits.push_back(Shared(MakePod(api::Role::kWorker, 2, "Pending")));
  EXPECT_TRUE(moves(one_waits, true, Phase::kTraining));
  EXPECT_FALSE(moves({one_waits.back()}, true, std::nullopt)) << "there is nobody to be asked";
}

TEST(QuestionsTest, WhoIsAskedIsTheCoordinatorThatRunsAndHasAnAddress) {
  Questions questions;
  const auto look = [&questions](const Pods& pods) {
    return questions.Look({}, {1, 0}, pods, Observe(pods, false, std::nullopt), false, kNow);
  };
  Pod no_address = MakePod(api::Role::kCoordinator, 0, "Running", 2);
  no_address.address.clear();
  const Pods nobody = {Shared(MakePod(api::Role::kCoordinator, 0, "Failed")), Shared(no_address),
                       Shared(MakePod(api::Role::kParameterServer))};
  EXPECT_EQ(look(nobody), absl::InfiniteDuration());
  EXPECT_EQ(questions.coordinator(), nullptr);
  Pods somebody = nobody;
  somebody.push_back(Shared(MakePod(api::Role::kCoordinator, 0, "Running", 3)));
  EXPECT_LT(look(somebody), absl::InfiniteDuration());
  EXPECT_EQ(questions.coordinator(), somebody.back());
  look(nobody);
  EXPECT_EQ(questions.coordinator(), nullptr) << "who is gone is not asked on";
}

// For every load: nobody is asked more often than once a second, those that move share the turns, and nobody waits
// longer than promised, least of all where a pod has ended.
TEST(QuestionsTest, TheRateIsSharedAndBounded) {
  const PaceOptions options;
  for (std::uint32_t seed = 0; seed < Seeds(2000); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Load load;
    load.jobs = static_cast<int>(random() % 3000) + 1;
    load.moving = static_cast<int>(random() % static_cast<unsigned>(load.jobs + 1));
    Pods pods = Running();
    const bool ended = random() % 2 == 0;
    if (ended) pods.push_back(Shared(MakePod(api::Role::kWorker, 2, random() % 2 == 0 ? "Failed" : "Succeeded")));
    const bool ready = random() % 2 == 0;
    Questions questions;
    const double ask = Seconds(
        questions.Look(options, load, pods, Observe(pods, ready, planner::CoordinatorPhase::kTraining), false, kNow));
    EXPECT_GE(ask, Seconds(options.ask_interval));
    if (ended) {
      EXPECT_LE(ask, Seconds(options.ask_interval_after_end)) << "the planner takes silence for a failure";
    }
    if (questions.moves()) {
      EXPECT_LE(ask, Seconds(options.ask_interval_at_rest)) << "who moves waits no longer than who is at rest";
      const double longest = Seconds(ended ? options.ask_interval_after_end : options.ask_interval_at_rest);
      if (ask < longest) {
        EXPECT_LE(load.moving / ask, 1 / Seconds(options.ask_spacing) + 1e-9) << "questions a second";
      }
    } else {
      EXPECT_GE(ask, Seconds(options.ask_interval_at_rest));
      EXPECT_LE(load.jobs / ask, 1 / Seconds(options.ask_spacing) + 1e-9) << "questions a second";
    }
  }
}

// A job that is looked at now and then while its load changes; a gateway that puts the questions as it is told, where a
// longer period may put off the one that was due; a coordinator that answers each within four seconds.
TEST(QuestionsTest, NothingIsConcludedFromSilenceWhileEachQuestionIsAnswered) {
  const PaceOptions options;
  for (std::uint32_t seed = 0; seed < Seeds(500); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto uniform = [&random](double most) { return std::uniform_real_distribution<double>(0, most)(random); };
    Questions questions;
    double now = kNow;
    double heard = kNow;
    double next = 0;      // question
    double answer = 0;    // to the one that was put; 0: none was
    double period = 1e9;  // between questions
    Load load;
    bool ended = false;
    for (int step = 0; step < 300; ++step) {
      Pods pods = Running();
      if (ended) pods.push_back(Shared(MakePod(api::Role::kWorker, 2, "Failed")));
      const planner::Observed observed = Observe(pods, !ended, planner::CoordinatorPhase::kTraining, heard);
      const double ask = Seconds(questions.Look(options, load, pods, observed, false, now));
      ASSERT_LT(now, questions.AnswerDue(options, observed, now)) << "heard " << now - heard << " s ago";
      if (next == 0) next = now;
      if (ask >= 2 * period) next = now + uniform(ask);
      if (ask < period) next = std::min(next, now + ask);
      period = ask;
      const double until = now + uniform(step % 3 == 0 ? 20 : 2);
      while (std::min(next, answer == 0 ? next : answer) <= until) {
        if (answer != 0 && answer <= next) {
          heard = answer;
          answer = 0;
        } else {
          if (answer == 0) answer = next + uniform(4);
          next += period;
        }
      }
      now = until;
      if (random() % 10 == 0) load.jobs = static_cast<int>(random() % 3000);
      if (random() % 10 == 0) load.moving = static_cast<int>(random() % static_cast<unsigned>(load.jobs + 1));
      if (random() % 10 == 0) ended = !ended;
    }
  }
}

// However seldom it was asked before.
TEST(QuestionsTest, SilenceIsNotExcusedForLongerThanAsksAreApartNow) {
  const PaceOptions options;
  for (std::uint32_t seed = 0; seed < Seeds(500); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Questions questions;
    double now = kNow;
    for (int change = 0; change < 5; ++change) {
      const Load load = {static_cast<int>(random() % 3000) + 1, static_cast<int>(random() % 300)};
      const planner::Observed observed =
          Observe(Running(), random() % 2 == 0, planner::CoordinatorPhase::kTraining, kNow);
      const double begun = now;
      const double ask = Seconds(questions.Look(options, load, Running(), observed, false, now));
      now += static_cast<double>(random() % 20);
      questions.Look(options, load, Running(), observed, false, now);
      EXPECT_LE(questions.AnswerDue(options, observed, now),
                begun + 2 * std::max(2 * ask, Seconds(options.ask_interval_after_end)) + 5);
    }
  }
}

TEST(QuestionsTest, ANewCoordinatorAndAClockThatWasAheadGetTheirTime) {
  const PaceOptions options;
  Questions questions;
  const auto due = [&](const Pods& pods, double now, double heard) {
    const planner::Observed observed = Observe(pods, false, planner::CoordinatorPhase::kRecovering, heard);
    questions.Look(options, {1, 1}, pods, observed, false, now);
    return questions.AnswerDue(options, observed, now);
  };
  due(Running(), kNow, kNow);
  EXPECT_LT(due(Running(), kNow + 300, kNow), kNow + 300);
  Pods replaced = Running();
  replaced.front() = Shared(MakePod(api::Role::kCoordinator, 0, "Running", 2));
  EXPECT_GT(due(replaced, kNow + 300, kNow), kNow + 300);
  const double earlier = kNow - 3600;
  const double after = due(replaced, earlier, kNow);
  EXPECT_GT(after, earlier);
  EXPECT_LE(after, earlier + 2 * Seconds(options.ask_interval_at_rest) + 5) << "not in an hour";
}

}  // namespace
}  // namespace downpour::controller
