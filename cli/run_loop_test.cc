#include "cli/run_loop.h"

#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cli/testing/fake_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using testing::FakeClock;
using testing::FakeCoordinator;
using testing::FakeProcesses;
using testing::FakeView;
using testing::FakeWaiter;
using ::testing::HasSubstr;

constexpr std::uint64_t kUpdates = 100;
constexpr int kUpdatesAnAnswer = 5;
constexpr LedgerSummary kExactLedger{kUpdates, kUpdates, 0, 0, 0};

api::TrainingJob MakeJob(int workers, int ps) {
  api::TrainingJob job;
  job.metadata.name = "demo";
  job.spec.parameter_server = api::ParameterServerSpec{ps, 1};
  job.spec.worker.replicas = workers;
  job.spec.training.epochs = 2;
  job.spec.failure_policy.max_restarts = 1000;
  job.spec.failure_policy.max_restarts_per_replica = 1000;
  return job;
}

// A job whose coordinator counts updates while a ps of each index and a worker run.
class RunLoopTest : public ::testing::Test {
 protected:
  void Prepare(int workers, int ps) {
    job = MakeJob(workers, ps);
    processes.emplace(clock);
    stored = {};
    newest.clear();
    updates = 0;
    ledger_reads = 0;
    recorder.emplace(job, "uid", "/run", clock.now);
    processes->on_start = [this](const ProcessSpec& spec) {
      // What is started was stored before.
      const std::string name = ProcessName(spec.role, spec.index);
      EXPECT_EQ(stored.status.incarnations[name], spec.incarnation) << name;
      EXPECT_EQ(spec.incarnation, ++newest[name]) << name;
    };
    coordinator.answer = [this] { return Answer(); };
  }

  std::vector<Process> Running(api::Role role) const {
    std::vector<Process> running = processes->List();
    std::erase_if(running, [role](const Process& process) { return process.role != role || !process.running(); });
    return running;
  }

  absl::StatusOr<v1::ProgressReply> Answer() {
    if (Running(api::Role::kCoordinator).empty()) return absl::UnavailableError("nobody listens");
    const std::vector<Process> ps = Running(api::Role::kParameterServer);
    const std::vector<Process> workers = Running(api::Role::kWorker);
    const bool trains = static_cast<int>(ps.size()) == job.spec.parameter_server->replicas && !workers.empty();
    if (trains && updates < kUpdates) updates = std::min<std::uint64_t>(kUpdates, updates + kUpdatesAnAnswer);
    v1::ProgressReply reply;
    reply.set_phase(failure.empty() ? updates == kUpdates ? v1::PHASE_DONE
                                      : updates > 0       ? v1::PHASE_TRAINING
                                                          : v1::PHASE_STARTING
                                    : v1::PHASE_FAILED);
    reply.set_message(failure);
    reply.mutable_view()->set_generation(generation);
    if (restoration.has_value()) *reply.mutable_restoration() = *restoration;
    reply.mutable_placed_ps()->Assign(placed_ps.begin(), placed_ps.end());
    reply.set_updates_applied(updates);
    reply.set_updates_expected(kUpdates);
    reply.set_updates_per_epoch(kUpdates / 2);
    for (const Process& process : processes->List()) {
      if (process.role == api::Role::kCoordinator || !process.running()) continue;
      v1::MemberProgress* const member = reply.add_members();
      member->set_role(process.role == api::Role::kWorker ? "worker" : "ps");
      member->set_index(static_cast<std::uint32_t>(process.index));
      member->set_process_incarnation(static_cast<std::uint32_t>(process.incarnation));
    }
    return reply;
  }

  RunOutcome Run() {
    const RunParts parts{clock,
                         *processes,
                         coordinator,
                         waiter,
                         view,
                         *recorder,
                         [](api::Role role, int index, int incarnation) {
                           ProcessSpec spec;
                           spec.role = role;
                           spec.index = index;
                           spec.incarnation = incarnation;
                           return spec;
                         },
                         [this](const RunState& state) {
                           if (!store_error.ok()) return store_error;
                           stored = state;
                           return absl::OkStatus();
                         },
                         [this](const std::string&) { return metrics_error; },
                         [this] { return ReadLedger(); },
                         [this](const api::TrainingJob&) { return std::exchange(change, std::nullopt); },
                         [this](const std::vector<Process>& running) { Finish(running); }};
    RunOutcome outcome = RunJob(job, "uid", clock.now, parts);
    EXPECT_FALSE(processes->AnyRunning());
    return outcome;
  }

  absl::StatusOr<LedgerSummary> ReadLedger() {
    if (++ledger_reads == heals_after) ledger = kExactLedger;
    EXPECT_FALSE(Running(api::Role::kParameterServer).empty());
    return ledger;
  }

  // Everyone hears it; the workers leave as well.
  void Finish(const std::vector<Process>& running) {
    EXPECT_GT(ledger_reads, 0) << "the tables go with the ps";
    EXPECT_TRUE(stored.status.phase == "Finishing")
        << "finished before the outcome was stored: " << stored.status.phase;
    for (const Process& process : running) {
      if (process.role != api::Role::kWorker || !deaf_workers) processes->End(process.uid, 0, 0);
    }
  }

  FakeClock clock;
  std::optional<FakeProcesses> processes;
  FakeCoordinator coordinator;
  FakeWaiter waiter{clock};
  FakeView view;
  api::TrainingJob job;
  std::optional<HistoryRecorder> recorder;
  RunState stored;
  std::map<std::string, int> newest;
  std::uint64_t updates = 0;
  std::uint64_t generation = 1;
  std::optional<v1::Restoration> restoration;
  bool deaf_workers = false;
  std::string failure;
  absl::Status store_error, metrics_error;
  absl::StatusOr<LedgerSummary> ledger = kExactLedger;
  absl::StatusOr<std::optional<api::TrainingJob>> change = std::optional<api::TrainingJob>();
  std::vector<std::uint32_t> placed_ps;  // as the coordinator says
  int ledger_reads = 0;
  int heals_after = 0;  // reads; 0: never
};

TEST_F(RunLoopTest, TrainsToTheEnd) {
  Prepare(3, 2);
  const RunOutcome outcome = Run();
  EXPECT_EQ(outcome.phase, kSucceeded) << outcome.message;
  ASSERT_TRUE(outcome.ledger.has_value());
  EXPECT_EQ(outcome.ledger->applied, kUpdates);
  EXPECT_EQ(processes->starts, 6);
  EXPECT_EQ(ledger_reads, 1);
  EXPECT_EQ(view.last.status.phase, "Succeeded");
  EXPECT_EQ(recorder->history().spans.size(), 6u);
}

// Those that are wanted are started and told of; those that are not end once they hold nothing, and not before.
TEST_F(RunLoopTest, AnotherNumberOfProcessesIsTakenUpWhileItTrains) {
  Prepare(1, 1);
  int wanted = 2;
  int looks_with_two = 0;
  waiter.on_wait = [&] {
    const std::size_t ps = Running(api::Role::kParameterServer).size();
    if (updates == 10 && job.spec.parameter_server->replicas == 1 && looks_with_two == 0) {
      job.spec.parameter_server->replicas = 2;
      job.spec.worker.replicas = 3;
      ++job.metadata.generation;
      change = job;
      placed_ps = {0, 1};
    } else if (updates >= 50 && job.spec.parameter_server->replicas == 2) {
      EXPECT_EQ(ps, 2u);
      EXPECT_EQ(Running(api::Role::kWorker).size(), 3u);
      EXPECT_EQ(coordinator.question.ps().count(), 2u);
      EXPECT_EQ(coordinator.question.ps().revision(), 2u);
      wanted = 1;
      job.spec.parameter_server->replicas = 1;
      ++job.metadata.generation;
      change = job;
    } else if (wanted == 1 && placed_ps.size() == 2 && ++looks_with_two > 5) {
      EXPECT_EQ(ps, 2u) << "it holds slices still";
      placed_ps = {0};
    }
    return 0;
  };
  const RunOutcome outcome = Run();
  EXPECT_EQ(outcome.phase, kSucceeded) << outcome.message;
  EXPECT_EQ(processes->starts, 1 + 2 + 3);
  EXPECT_EQ(stored.status.restarts_total, 0);
  EXPECT_EQ(coordinator.question.ps().count(), 1u);
  int scaled = 0;
  for (const auto& event : recorder->history().events) scaled += event.reason == "Scaled" ? 1 : 0;
  EXPECT_EQ(scaled, 2);
}

TEST_F(RunLoopTest, AWishThatCannotBeFollowedIsTold) {
  Prepare(1, 1);
  change = absl::InvalidArgumentError("scale.json: expected numbers");
  EXPECT_EQ(Run().phase, kSucceeded);
  ASSERT_FALSE(recorder->history().events.empty());
  EXPECT_EQ(recorder->history().events.front().reason, "NotScaled");
  EXPECT_EQ(recorder->history().events.front().message, "scale.json: expected numbers");
}

// Any process may be killed at any moment: the job ends well, and every replacement has a number of its own, stored
// before it is started.
TEST_F(RunLoopTest, ReplacesWhatIsKilledUnderManySeeds) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    clock.now = 1000;
    Prepare(1 + static_cast<int>(random() % 4), 1 + static_cast<int>(random() % 3));
    int kills = 0;
    waiter.on_wait = [&] {
      std::vector<Process> running = processes->List();
      std::erase_if(running, [](const Process& process) { return !process.running(); });
      // Not so late that training is over before anyone could miss it.
      if (!running.empty() && updates < kUpdates - kUpdatesAnAnswer && kills < 8 && random() % 4 == 0) {
        processes->End(running[random() % running.size()].uid, 137, 9);
        ++kills;
      }
      return 0;
    };
    const RunOutcome outcome = Run();
    ASSERT_EQ(outcome.phase, kSucceeded) << outcome.message;
    EXPECT_EQ(stored.status.restarts_total, kills);
    EXPECT_EQ(recorder->history().spans.size(), static_cast<std::size_t>(processes->starts));
  }
}

TEST_F(RunLoopTest, ALostPsTakesTheRunBackToItsCheckpoint) {
  Prepare(1, 1);
  job.spec.checkpoint.emplace();
  bool killed = false;
  waiter.on_wait = [&] {
    if (!killed && updates > kUpdates / 2) {
      processes->End(Running(api::Role::kParameterServer).at(0).uid, 137, 9);
      killed = true;
    } else if (killed && generation == 1 && !Running(api::Role::kParameterServer).empty()) {
      generation = 2;
      restoration.emplace().set_checkpoint("/ckpt/demo/1");
      restoration->set_updates(updates / 2);
      restoration->set_lost_updates(updates - updates / 2);
      updates /= 2;
    }
    return 0;
  };
  EXPECT_EQ(Run().phase, kSucceeded);
  EXPECT_EQ(coordinator.question.job_uid(), "uid");
  const RunHistory& history = recorder->history();
  EXPECT_EQ(history.summary.lost_updates, restoration->lost_updates());
  EXPECT_EQ(history.summary.resumed_from, "") << "it began with initial values";
  EXPECT_EQ(std::count_if(history.events.begin(), history.events.end(),
                          [](const TimelineEvent& event) { return event.reason == "RolledBack"; }),
            1);
  EXPECT_EQ(stored.status.recovery->restored_from, "/ckpt/demo/1");
}

TEST_F(RunLoopTest, DismissesWorkersThatDoNotHearThatTheJobIsOver) {
  Prepare(2, 1);
  deaf_workers = true;
  double done_time = 0;
  waiter.on_wait = [&] {
    if (done_time == 0 && ledger_reads > 0) done_time = clock.now;
    return 0;
  };
  EXPECT_EQ(Run().phase, kSucceeded);
  EXPECT_LE(clock.now - done_time, 5);
}

TEST_F(RunLoopTest, StopsWhenTheUserAsks) {
  Prepare(2, 1);
  waiter.on_wait = [this] { return updates > kUpdates / 2 && processes->AnyRunning() ? 1 : 0; };
  const RunOutcome outcome = Run();
  EXPECT_EQ(outcome.phase, kStopped);
  EXPECT_EQ(ledger_reads, 0);
}

TEST_F(RunLoopTest, StoppedBeforeTheFirstUpdateItSaysWhatFailed) {
  Prepare(1, 1);
  int waits = 0;
  waiter.on_wait = [&] {
    for (const Process& worker : Running(api::Role::kWorker)) {
      processes->End(worker.uid, 1, 0, "a thread cannot be started");
    }
    return ++waits > 100 ? 1 : 0;
  };
  const RunOutcome outcome = Run();
  EXPECT_EQ(outcome.phase, kStopped);
  EXPECT_EQ(outcome.message,
            "stopped by the user before the first update; the newest failure: worker-0 ended: exit code 1; its last "
            "line: a thread cannot be started");
}

TEST_F(RunLoopTest, KillsWhatDoesNotStopAfterTheGrace) {
  Prepare(2, 1);
  processes->stubborn = true;
  int asked = 0;
  double asked_time = 0;
  waiter.on_wait = [&] {
    if (updates <= kUpdates / 2 || asked > 0) return 0;
    asked_time = clock.now;
    return ++asked;
  };
  EXPECT_EQ(Run().phase, kStopped);
  EXPECT_GE(clock.now - asked_time, 5);
  EXPECT_LE(clock.now - asked_time, 6);
}

TEST_F(RunLoopTest, KillsAtOnceWhenTheUserAsksAgain) {
  Prepare(2, 1);
  processes->stubborn = true;
  double asked_time = 0;
  waiter.on_wait = [&] {
    if (updates <= kUpdates / 2) return 0;
    if (asked_time == 0) asked_time = clock.now;
    return 1;
  };
  EXPECT_EQ(Run().phase, kStopped);
  EXPECT_LE(clock.now - asked_time, 1);
}

TEST_F(RunLoopTest, StartsNothingThatIsNotStored) {
  Prepare(2, 1);
  store_error = absl::ResourceExhaustedError("/run/status.json: cannot be written: No space left on device");
  const RunOutcome outcome = Run();
  EXPECT_EQ(outcome.phase, kFailed);
  EXPECT_THAT(outcome.message, HasSubstr("No space left"));
  EXPECT_EQ(processes->starts, 0);
}

TEST_F(RunLoopTest, AWriteThatFailsLaterEndsTheRun) {
  for (const bool at_status : {true, false}) {
    SCOPED_TRACE(at_status);
    Prepare(2, 1);
    waiter.on_wait = [&] {
      if (updates < kUpdates / 2) return 0;
      (at_status ? store_error : metrics_error) = absl::ResourceExhaustedError("disk full");
      // Something to store.
      if (!at_status) return 0;
      for (const Process& process : Running(api::Role::kWorker)) processes->End(process.uid, 137, 9);
      return 0;
    };
    const RunOutcome outcome = Run();
    EXPECT_EQ(outcome.phase, kFailed);
    EXPECT_EQ(outcome.message, "disk full");
    EXPECT_EQ(ledger_reads, 0);
    store_error = metrics_error = absl::OkStatus();
  }
}

TEST_F(RunLoopTest, AProcessThatCannotBeStartedEndsTheRun) {
  Prepare(1, 1);
  processes->start_error = absl::NotFoundError("downpour-server: cannot be started");
  const RunOutcome outcome = Run();
  EXPECT_EQ(outcome.phase, kFailed);
  EXPECT_THAT(outcome.message, HasSubstr("downpour-server"));
}

TEST_F(RunLoopTest, BadInputOfAProcessFailsTheJobWithItsLine) {
  Prepare(2, 1);
  waiter.on_wait = [this] {
    for (const Process& process : Running(api::Role::kWorker)) processes->End(process.uid, 2, 0, "bad magic number");
    return 0;
  };
  const RunOutcome outcome = Run();
  EXPECT_EQ(outcome.phase, kFailed);
  EXPECT_TRUE(outcome.bad_input);
  EXPECT_THAT(outcome.message, HasSubstr("bad magic number"));
  EXPECT_EQ(processes->starts, 4);
}

TEST_F(RunLoopTest, FailureOfTheCoordinatorFailsTheJob) {
  Prepare(1, 1);
  failure = "three leases of data shard 7 failed";
  const RunOutcome outcome = Run();
  EXPECT_EQ(outcome.phase, kFailed);
  EXPECT_FALSE(outcome.bad_input);
  EXPECT_THAT(outcome.message, HasSubstr("data shard 7"));
}

TEST_F(RunLoopTest, SilenceOfThePsIsToldAndContradictionFails) {
  Prepare(1, 1);
  ledger = absl::UnavailableError("127.0.0.1:1: connection refused");
  const double begun = clock.now;
  RunOutcome outcome = Run();
  EXPECT_EQ(outcome.phase, kSucceeded);
  EXPECT_GE(clock.now - begun, 30) << "long enough for a ps that hangs for a while";
  EXPECT_LE(clock.now - begun, 60);
  EXPECT_GE(ledger_reads, 20);
  EXPECT_LE(ledger_reads, 31);
  EXPECT_THAT(outcome.message, HasSubstr("connection refused"));
  EXPECT_FALSE(outcome.ledger.has_value());

  Prepare(1, 1);
  ledger = absl::UnavailableError("127.0.0.1:1: connection refused");
  heals_after = 5;
  outcome = Run();
  EXPECT_EQ(outcome.phase, kSucceeded);
  EXPECT_TRUE(outcome.ledger.has_value());
  EXPECT_EQ(outcome.message, "");

  Prepare(1, 1);
  ledger = absl::DataLossError("slice 3: fewer steps than updates");
  outcome = Run();
  EXPECT_EQ(outcome.phase, kFailed);
  EXPECT_THAT(outcome.message, HasSubstr("slice 3"));
}

TEST_F(RunLoopTest, AWorkerThatLagsBehindIsAskedAgainAndFailsTheRunIfItStaysSo) {
  Prepare(1, 1);
  ledger = absl::AbortedError("worker-1 has 90 updates, worker-0 has 100");
  heals_after = 5;
  EXPECT_EQ(Run().phase, kSucceeded);
  EXPECT_EQ(ledger_reads, 5);

  Prepare(1, 1);
  ledger = absl::AbortedError("worker-1 has 90 updates, worker-0 has 100");
  heals_after = 0;
  const RunOutcome outcome = Run();
  EXPECT_EQ(outcome.phase, kFailed);
  EXPECT_GE(ledger_reads, 20);
  EXPECT_THAT(outcome.message, HasSubstr("worker-1 has 90 updates"));
}

TEST(ObserveTest, AProcessIsReadyOnlyIfItsOwnStartIsAMember) {
  Process process;
  process.role = api::Role::kWorker;
  process.index = 1;
  process.incarnation = 3;
  process.created_time = 100;
  v1::ProgressReply reply;
  v1::MemberProgress* const member = reply.add_members();
  member->set_role("worker");
  member->set_index(1);
  member->set_process_incarnation(2);
  EXPECT_FALSE(Observe({process}, reply, 102).instances[0].ready) << "it was an earlier incarnation";
  member->set_process_incarnation(3);
  EXPECT_TRUE(Observe({process}, reply, 102).instances[0].ready);
  EXPECT_FALSE(Observe({process}, reply, 99).instances[0].ready) << "an answer from before its start";
  EXPECT_FALSE(Observe({process}, std::nullopt, 0).instances[0].ready);
  member->set_index(2);
  EXPECT_FALSE(Observe({process}, reply, 110).instances[0].ready);
  EXPECT_FALSE(Observe({process}, std::nullopt, 0).report.has_value());

  process.finished_time = 103;
  process.exit_code = 137;
  process.signal = 9;
  const planner::Instance ended = Observe({process}, reply, 110).instances[0];
  EXPECT_EQ(ended.phase, planner::InstancePhase::kFailed);
  EXPECT_EQ(ended.exit_code, 137);
  EXPECT_FALSE(ended.ready);
}

}  // namespace
}  // namespace downpour::cli
