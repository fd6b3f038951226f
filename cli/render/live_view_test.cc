#include "cli/render/live_view.h"

#include <cctype>
#include <limits>
#include <random>
#include <sstream>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

int Pick(std::mt19937& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

std::string HostileText(std::mt19937& random, int longest) {
  std::string text;
  for (int i = Pick(random, 0, longest); i > 0; --i) text.push_back(static_cast<char>(Pick(random, 0, 255)));
  return text;
}

double HostileNumber(std::mt19937& random) {
  constexpr double kNumbers[] = {0, -1, 1e-9, 0.5, 3, 12345, 1e12, 1e300};
  const int choice = Pick(random, 0, 9);
  if (choice == 8) return std::numeric_limits<double>::quiet_NaN();
  if (choice == 9) return std::numeric_limits<double>::infinity();
  return kNumbers[choice];
}

struct Scene {
  api::TrainingJob job;
  Snapshot snapshot;
  std::vector<CurvePoint> curve;
  std::vector<TimelineEvent> events;
  std::size_t rows = 0;
};

Scene RandomScene(std::mt19937& random) {
  Scene scene;
  scene.job.metadata.name = HostileText(random, 80);
  scene.snapshot.seconds = HostileNumber(random);
  scene.snapshot.on_cluster = Pick(random, 0, 1) == 1;
  scene.snapshot.note = HostileText(random, 100);
  scene.snapshot.status.phase = HostileText(random, 30);
  scene.snapshot.status.reason = HostileText(random, 200);
  constexpr api::Role kRoles[] = {api::Role::kCoordinator, api::Role::kParameterServer, api::Role::kWorker};
  for (int i = Pick(random, 0, 40); i > 0; --i) {
    ProcessView process;
    process.name = HostileText(random, 30);
    process.role = kRoles[Pick(random, 0, 2)];
    process.index = 1000 + i;  // no member's
    process.pid = Pick(random, 0, 1 << 30);
    process.state = HostileText(random, 20);
    process.node = HostileText(random, 80);
    process.restarts = Pick(random, 0, 1 << 30);
    scene.snapshot.processes.push_back(process);
  }
  scene.rows = scene.snapshot.processes.size();
  if (Pick(random, 0, 3) > 0) {
    v1::ProgressReply progress;
    progress.set_phase(static_cast<v1::JobPhase>(Pick(random, 0, 5)));
    progress.set_message(std::string(static_cast<std::size_t>(Pick(random, 0, 300)), 'm'));
    progress.set_epochs(static_cast<std::uint32_t>(Pick(random, 0, 10)));
    progress.set_epochs_done(static_cast<std::uint32_t>(Pick(random, 0, 12)));
    progress.set_updates_expected(static_cast<std::uint64_t>(Pick(random, 0, 1 << 30)));
    progress.set_updates_applied(static_cast<std::uint64_t>(Pick(random, 0, 1 << 30)));
    progress.set_updates_per_epoch(static_cast<std::uint64_t>(Pick(random, 0, 100)));
    progress.set_samples_per_epoch(static_cast<std::uint64_t>(Pick(random, 0, 1 << 30)));
    progress.set_samples_per_second(HostileNumber(random));
    progress.set_loss(HostileNumber(random));
    for (int i = Pick(random, 0, 5); i > 0; --i) {
      v1::MemberProgress* member = progress.add_members();
      member->set_role(i % 2 == 0 ? "ps" : "worker");
      member->set_index(static_cast<std::uint32_t>(i));
      member->set_state(HostileText(random, 5).empty() ? "" : "computing");
      member->set_silent_milliseconds(static_cast<std::uint64_t>(Pick(random, 0, 10000)));
      if (i % 2 == 1) {
        member->mutable_worker()->set_samples_per_second(HostileNumber(random));
        member->mutable_worker()->set_step_seconds(HostileNumber(random));
        member->mutable_worker()->set_staleness(HostileNumber(random));
      }
      ++scene.rows;
    }
    if (Pick(random, 0, 1) == 1) progress.add_evaluations()->set_accuracy(HostileNumber(random));
    for (int i = Pick(random, 0, 10); i > 0 && progress.evaluations_size() > 0; --i) {
      v1::Metric* metric = progress.mutable_evaluations(0)->add_metrics();
      metric->set_name(HostileText(random, 40));
      metric->set_value(HostileNumber(random));
    }
    scene.snapshot.progress = progress;
    scene.snapshot.progress_age_seconds = HostileNumber(random);
  }
  for (int i = Pick(random, 0, 100); i > 0; --i) {
    CurvePoint point;
    point.loss = HostileNumber(random);
    scene.curve.push_back(point);
  }
  for (int i = Pick(random, 0, 20); i > 0; --i) {
    scene.events.push_back({HostileNumber(random), i % 2 == 0, HostileText(random, 40), HostileText(random, 300)});
  }
  return scene;
}

std::vector<std::string> Lines(const std::string& frame) {
  std::vector<std::string> lines;
  std::istringstream stream(frame);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Takes out ESC [ digits and semicolons m.
std::string WithoutColours(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain += text[i];
      continue;
    }
    std::size_t end = i + 1;
    if (end < text.size() && text[end] == '[') ++end;
    while (end < text.size() && (std::isdigit(static_cast<unsigned char>(text[end])) != 0 || text[end] == ';')) ++end;
    if (end >= text.size() || text[end] != 'm') {
      ADD_FAILURE() << "an escape sequence that is no colour";
      return plain;
    }
    i = end;
  }
  return plain;
}

int CodePoints(const std::string& text) {
  int count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

TEST(RenderLiveViewTest, FitsEveryTerminalWhateverIsShown) {
  for (int seed = 0; seed < 1000; ++seed) {
    std::mt19937 random(seed);
    const Scene scene = RandomScene(random);
    const TerminalSize size{Pick(random, 1, 200), Pick(random, 8, 70)};
    const std::string colour = RenderLiveView(scene.job, scene.snapshot, size, {scene.curve, scene.events, true});
    const std::string plain = RenderLiveView(scene.job, scene.snapshot, size, {scene.curve, scene.events, false});
    ASSERT_EQ(WithoutColours(colour), plain) << seed;
    ASSERT_THAT(plain, EndsWith("\n")) << seed;
    const std::vector<std::string> lines = Lines(plain);
    ASSERT_LE(static_cast<int>(lines.size()), size.rows - 1) << seed;
    for (const std::string& line : lines) {
      ASSERT_LE(CodePoints(line), size.columns) << seed << ": " << line;
      for (const char c : line) ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << seed;
    }
  }
}

TEST(RenderLiveViewTest, RowsThatDoNotFitAreCounted) {
  for (int rows = 8; rows < 60; ++rows) {
    for (int workers = 1; workers < 40; workers += 3) {
      Snapshot snapshot;
      for (int i = 0; i < workers; ++i) {
        ProcessView process;
        process.name = "worker-" + std::to_string(i);
        process.index = i;
        process.state = "running";
        snapshot.processes.push_back(process);
      }
      const std::vector<TimelineEvent> events(4, TimelineEvent{1, false, "Started", "all"});
      const std::string frame = RenderLiveView({}, snapshot, {80, rows}, {{}, events, false});
      int shown = 0;
      int left_out = 0;
      for (const std::string& line : Lines(frame)) {
        shown += line.rfind(" worker-", 0) == 0;
        if (line.rfind(" +", 0) == 0) left_out = std::stoi(line.substr(2));
      }
      EXPECT_EQ(shown + left_out, workers) << rows << " rows";
    }
  }
}

TEST(RenderLiveViewTest, ShowsTheFigures) {
  api::TrainingJob job;
  job.metadata.name = "lenet";
  Snapshot snapshot;
  snapshot.seconds = 42;
  snapshot.status.phase = "Running";
  v1::ProgressReply progress;
  progress.set_phase(v1::PHASE_TRAINING);
  progress.set_epochs(10);
  progress.set_epochs_done(3);
  progress.set_updates_expected(2350);
  progress.set_updates_applied(822);
  progress.set_updates_per_epoch(235);
  progress.set_samples_per_epoch(60000);
  progress.set_samples_per_second(10000);
  progress.set_loss(0.4312);
  for (std::uint32_t epoch = 1; epoch <= 3; ++epoch) {
    v1::Evaluation* evaluation = progress.add_evaluations();
    evaluation->set_dataset_epoch(epoch);
    evaluation->set_accuracy(0.5 + 0.1 * epoch);
  }
  v1::MemberProgress* member = progress.add_members();
  member->set_role("worker");
  member->set_index(2);
  member->set_state("computing");
  member->mutable_worker()->set_samples_per_second(4100);
  member->mutable_worker()->set_step_seconds(0.0612);
  member->mutable_worker()->set_staleness(1.34);
  snapshot.progress = progress;
  ProcessView process;
  process.name = "worker-2";
  process.index = 2;
  process.pid = 4711;
  process.restarts = 1;
  process.state = "running";
  snapshot.processes.push_back(process);
  std::vector<CurvePoint> curve(3);
  for (CurvePoint& point : curve) point.loss = 0.5;
  const std::vector<TimelineEvent> events = {{31, true, "WorkerReplaced", "worker-2 is back"}};
  const std::string frame = RenderLiveView(job, snapshot, {80, 24}, {curve, events, false});
  for (const char* text : {"lenet",
                           "Running, training",
                           "elapsed 42 s",
                           "left 39 s",
                           "epoch 4/10",
                           "49%",
                           "34%",
                           "822/2350 updates",
                           "loss 0.4312",
                           "accuracy 0.8000 @3",
                           "10.0k samples/s",
                           "▁▁▁",
                           "worker-2",
                           "computing",
                           "4.10k",
                           "61.2",
                           "1.3",
                           "4711",
                           "WorkerReplaced",
                           "worker-2 is back"}) {
    EXPECT_THAT(frame, HasSubstr(text));
  }
  EXPECT_THAT(frame, Not(HasSubstr("waiting for")));

  snapshot.processes[0].state = "ended";  // what it said last is no news any more
  snapshot.progress_age_seconds = 12;
  const std::string later = RenderLiveView(job, snapshot, {80, 24}, {curve, events, false});
  EXPECT_THAT(later, HasSubstr("ended"));
  EXPECT_THAT(later, Not(HasSubstr("computing")));
  EXPECT_THAT(later, HasSubstr("no answer from the coordinator for 12 s"));
}

TEST(RenderLiveViewTest, SaysHowManySlicesHaveAStandbyWhereTheyAreToHaveOne) {
  Snapshot snapshot;
  const auto frame = [&snapshot] { return RenderLiveView({}, snapshot, {80, 24}, {{}, {}, false}); };
  snapshot.progress.emplace();
  v1::ReplicationProgress& replication = *snapshot.progress->mutable_replication();
  replication.set_factor(1);
  replication.set_slices(12);
  EXPECT_THAT(frame(), Not(HasSubstr("standbys")));
  replication.set_factor(2);
  replication.set_in_sync(9);
  replication.set_message("3 are copied");
  EXPECT_THAT(frame(), HasSubstr(" standbys 9/12 slices  3 are copied"));
}

TEST(RenderLiveViewTest, SaysWhatTheRingIsAndWhy) {
  Snapshot snapshot;
  const auto frame = [&snapshot] { return RenderLiveView({}, snapshot, {80, 24}, {{}, {}, false}); };
  snapshot.progress.emplace();
  EXPECT_THAT(frame(), Not(HasSubstr("ring")));
  v1::RingProgress& ring = *snapshot.progress->mutable_ring();
  ring.set_members(3);
  ring.set_wanted(3);
  ring.set_formed(true);
  ring.set_updates_per_step(6);
  EXPECT_THAT(frame(), HasSubstr("\n ring 3 of 3 workers, 6 updates a step\n"));
  ring.set_members(2);
  ring.set_formed(false);
  ring.set_message("rank 1 is gone: 2 workers");
  EXPECT_THAT(frame(), HasSubstr("\n ring 2 of 3 workers, not formed  rank 1 is gone: 2 workers\n"));
  snapshot.progress->set_message("rank 1 is gone: 2 workers");
  EXPECT_THAT(frame(), HasSubstr("\n ring 2 of 3 workers, not formed\n rank 1 is gone: 2 workers\n")) << "said once";
}

TEST(RenderLiveViewTest, SaysHowOldTheNewestCheckpointIsAndWhyThereIsNoNewerOne) {
  Snapshot snapshot;
  const auto frame = [&snapshot] { return RenderLiveView({}, snapshot, {80, 24}, {{}, {}, false}); };
  snapshot.progress.emplace();
  EXPECT_THAT(frame(), Not(HasSubstr("checkpoint")));
  v1::CheckpointProgress& checkpoint = *snapshot.progress->mutable_checkpoint();
  EXPECT_THAT(frame(), HasSubstr(" checkpoint none yet"));
  checkpoint.set_newest("/ckpt/a/1");
  checkpoint.set_newest_updates(120);
  checkpoint.set_newest_age_milliseconds(42000);
  checkpoint.set_error("disk full");
  EXPECT_THAT(frame(), HasSubstr(" checkpoint update 120, 42 s ago  failing: disk full"));
}

TEST(RenderLiveViewTest, SaysWhatEvaluationsDecided) {
  Snapshot snapshot;
  const auto frame = [&snapshot] { return RenderLiveView({}, snapshot, {80, 24}, {{}, {}, false}); };
  snapshot.progress.emplace();
  for (const char* name : {" ends ", " rate ", " best "}) EXPECT_THAT(frame(), Not(HasSubstr(name)));
  snapshot.progress->set_stop_reason("stopped early after epoch 7");
  snapshot.progress->set_rate_reason("the learning rate is multiplied by 0.5");
  snapshot.progress->set_best_epoch(4);
  snapshot.progress->set_best_reason("Loss was best after epoch 4, 0.25");
  for (const char* line : {" ends  stopped early after epoch 7", " rate  the learning rate is multiplied by 0.5",
                           " best  Loss was best after epoch 4, 0.25"}) {
    EXPECT_THAT(frame(), HasSubstr(line));
  }
}

TEST(RenderLiveViewTest, WhatIsNotKnownIsADash) {
  Snapshot snapshot;
  v1::ProgressReply progress;
  progress.set_phase(v1::PHASE_TRAINING);
  progress.set_updates_expected(10);
  progress.set_updates_applied(1);
  v1::MemberProgress* member = progress.add_members();
  member->set_role("worker");
  member->set_state("computing");
  member->mutable_worker()->set_steps(1);
  snapshot.progress = progress;
  const std::vector<CurvePoint> curve(3);
  const std::string frame = RenderLiveView({}, snapshot, {80, 24}, {curve, {}, false});
  EXPECT_THAT(frame, HasSubstr(" loss -  accuracy -  - samples/s"));
  EXPECT_THAT(frame, HasSubstr("left -"));
  EXPECT_THAT(frame, Not(HasSubstr("▁"))) << "no curve is drawn of what is not known";
  EXPECT_THAT(frame, HasSubstr(" worker-0       computing              -"));
}

TEST(RenderLiveViewTest, MetricsAreShownByTheirNames) {
  api::TrainingJob job;
  job.spec.model.metrics = {"MeanAbsoluteError"};
  Snapshot snapshot;
  EXPECT_THAT(RenderLiveView(job, snapshot, {80, 24}, {{}, {}, false}), HasSubstr(" loss -  MeanAbsoluteError -  - "));
  v1::Evaluation* evaluation = snapshot.progress.emplace().add_evaluations();
  evaluation->set_dataset_epoch(3);
  const auto add = [evaluation](const std::string& name, double value) {
    v1::Metric* metric = evaluation->add_metrics();
    metric->set_name(name);
    metric->set_value(value);
  };
  add("MeanAbsoluteError", 0.0312);
  EXPECT_THAT(RenderLiveView(job, snapshot, {80, 24}, {{}, {}, false}),
              HasSubstr(" loss -  MeanAbsoluteError 0.0312 @3  - samples/s  \n"));
  add("BinaryAccuracy", 0.875);
  add("F1", 0.5);
  EXPECT_THAT(RenderLiveView(job, snapshot, {80, 24}, {{}, {}, false}),
              HasSubstr(" loss -  MeanAbsoluteError 0.0312 @3  - samples/s  \n test  accuracy 0.8750  F1 0.5000\n"));
}

TEST(RenderLiveViewTest, PodsHaveNodesInsteadOfFigures) {
  Snapshot snapshot;
  snapshot.on_cluster = true;
  snapshot.note = "worker-1 is pending";
  snapshot.status.phase = "Running";
  v1::ProgressReply progress;
  progress.add_evaluations()->set_accuracy(0.5);  // of an epoch that is not known
  snapshot.progress = progress;
  ProcessView pod;
  pod.name = "worker-1";
  pod.state = "Unschedulable";
  pod.restarts = 2;
  pod.node = "node-with-a-long-name.example";
  snapshot.processes.push_back(pod);
  const std::string frame = RenderLiveView(api::TrainingJob(), snapshot, {80, 24}, {{}, {}, false});
  EXPECT_THAT(frame, HasSubstr("worker-1 is pending\n"));
  EXPECT_THAT(frame, HasSubstr("accuracy 0.5000  "));
  EXPECT_THAT(frame, HasSubstr(" role           state                 restarts  node\n"
                               " worker-1       Unschedulable                2  node-with-a-long-name.example\n"));
}

TEST(LiveViewTest, RepaintsInPlaceAndRestoresTheTerminal) {
  std::ostringstream out;
  {
    LiveView view(out);
    EXPECT_EQ(out.str(), "");
    view.Show("one\ntwo\n");
    EXPECT_EQ(out.str(), "\x1b[?1049h\x1b[?25l\x1b[Hone\x1b[K\r\ntwo\x1b[K\r\n\x1b[J");
    out.str("");
    view.Show("three\n");
    EXPECT_EQ(out.str(), "\x1b[Hthree\x1b[K\r\n\x1b[J");
    out.str("");
  }
  EXPECT_EQ(out.str(), "\x1b[?25h\x1b[?1049lthree\n");
}

TEST(LiveViewTest, WritesNothingUnlessShown) {
  std::ostringstream out;
  { LiveView view(out); }
  EXPECT_EQ(out.str(), "");
  LiveView view(out);
  view.Show("x\n");
  view.Close();
  const std::string closed = out.str();
  view.Close();
  EXPECT_EQ(out.str(), closed);
}

TEST(LiveViewTest, WhatIsNoTerminalHasNoSize) { EXPECT_FALSE(ReadTerminalSize(-1).has_value()); }

TEST(LiveViewTest, ManyEpochsDoNotPushAFailureOut) {
  std::vector<TimelineEvent> events = {{1, true, "WorkerLost", "worker-2 is gone"}};
  for (int epoch = 1; epoch <= 20; ++epoch) {
    events.push_back({1.0 + epoch, false, "EpochDone", "epoch " + std::to_string(epoch)});
  }
  const std::string frame = RenderLiveView({}, {}, {80, 24}, {{}, events, false});
  EXPECT_THAT(frame, HasSubstr("worker-2 is gone"));
  EXPECT_THAT(frame, HasSubstr("epoch 20 (20 times)"));
}

}  // namespace
}  // namespace downpour::cli
