#include "cli/history_recorder.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cli/render/test_metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr double kStart = 1000;

HistoryRecorder MakeRecorder(std::size_t max_points = 2000) {
  api::TrainingJob job;
  job.metadata.name = "demo";
  return HistoryRecorder(job, "0123", "/runs/demo-1", kStart, max_points);
}

v1::ProgressReply Reply(std::uint64_t updates, std::uint64_t generation = 1) {
  v1::ProgressReply reply;
  reply.mutable_view()->set_generation(generation);
  reply.set_updates_applied(updates);
  reply.set_updates_per_epoch(100);
  reply.set_epochs(10);
  reply.set_epochs_done(static_cast<std::uint32_t>(updates / 100));
  reply.set_samples_done(updates * 32);
  reply.set_loss(1);
  return reply;
}

void Evaluate(v1::ProgressReply& reply, std::uint32_t epoch, double accuracy) {
  v1::Evaluation* const evaluation = reply.add_evaluations();
  evaluation->set_dataset_epoch(epoch);
  evaluation->set_accuracy(accuracy);
}

std::optional<double> Accuracy(const HistoryRecorder& recorder) {
  return AccuracyOf(recorder.history().summary.test_metrics);
}

TEST(HistoryRecorderTest, TheCurveStaysSmallAndInOrderUnderManySeeds) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const std::size_t max_points = 2 + random() % 100;
    HistoryRecorder recorder = MakeRecorder(max_points);
    std::uint64_t updates = 0;
    double time = kStart;
    std::size_t lines = 0, advanced = 0;
    const int answers = static_cast<int>(random() % 1000);
    for (int i = 0; i < answers; ++i) {
      time += 0.2;
      const std::uint64_t step = random() % 3;
      updates += step;
      if (step > 0) ++advanced;
      for (const std::string& line : recorder.AddProgress(time, Reply(updates), kStart, 0)) {
        if (json::parse(line).at("type") == "progress") ++lines;
      }
    }
    EXPECT_EQ(lines, advanced) << "metrics.jsonl has every point";
    const std::vector<CurvePoint>& curve = recorder.history().curve;
    EXPECT_LT(curve.size(), std::max<std::size_t>(max_points, 2));
    EXPECT_EQ(curve.empty(), advanced == 0);
    for (std::size_t i = 1; i < curve.size(); ++i) {
      EXPECT_LT(curve[i - 1].seconds, curve[i].seconds);
      EXPECT_LT(curve[i - 1].updates, curve[i].updates);
    }
    EXPECT_DOUBLE_EQ(recorder.history().summary.epochs, static_cast<double>(updates) / 100);
  }
}

TEST(HistoryRecorderTest, FirstUpdateIsTheMoreExactOfTheTwo) {
  v1::ProgressReply reply = Reply(1);
  reply.set_first_update_milliseconds(700);
  HistoryRecorder known = MakeRecorder();
  known.AddProgress(kStart + 1.5, Reply(0), kStart + 0.5, 0);
  known.AddProgress(kStart + 2, reply, kStart + 0.5, 0);
  EXPECT_DOUBLE_EQ(known.history().summary.first_update_seconds, 1.2);
  known.AddProgress(kStart + 9, reply, kStart + 8, 0);
  EXPECT_DOUBLE_EQ(known.history().summary.first_update_seconds, 1.2) << "the first counts";

  HistoryRecorder replaced = MakeRecorder();
  replaced.AddProgress(kStart + 2, reply, std::nullopt, 0);
  EXPECT_DOUBLE_EQ(replaced.history().summary.first_update_seconds, 2);
}

TEST(HistoryRecorderTest, AnotherGenerationBeginsAgain) {
  HistoryRecorder recorder = MakeRecorder();
  v1::ProgressReply reply = Reply(250);
  Evaluate(reply, 1, 0.6);
  Evaluate(reply, 2, 0.7);
  recorder.AddProgress(kStart + 5, reply, kStart, 0);
  EXPECT_EQ(Accuracy(recorder), 0.7);
  recorder.AddProgress(kStart + 6, Reply(10, 2), kStart, 1);
  EXPECT_EQ(Accuracy(recorder), std::nullopt) << "of parameters that are lost";
  EXPECT_DOUBLE_EQ(recorder.history().summary.epochs, 0.1);
  EXPECT_EQ(recorder.history().summary.generation, 2u);
  reply = Reply(110, 2);
  Evaluate(reply, 1, 0.65);
  const std::vector<std::string> lines = recorder.AddProgress(kStart + 8, reply, kStart, 1);
  EXPECT_EQ(lines.size(), 2u);
  EXPECT_EQ(Accuracy(recorder), 0.65);
  EXPECT_EQ(recorder.history().evaluations.size(), 3u);
  EXPECT_EQ(recorder.history().evaluation_seconds.size(), 3u);
  EXPECT_EQ(recorder.history().events.size(), 2u) << "two leaps of finished epochs";
}

TEST(HistoryRecorderTest, AnEvaluationIsWrittenOnceUnlessItChanges) {
  HistoryRecorder recorder = MakeRecorder();
  v1::ProgressReply reply = Reply(100);
  Evaluate(reply, 1, 0.5);
  EXPECT_EQ(recorder.AddProgress(kStart + 1, reply, kStart, 0).size(), 2u);
  EXPECT_EQ(recorder.AddProgress(kStart + 2, reply, kStart, 0).size(), 0u);
  reply.mutable_evaluations(0)->set_accuracy(0.51);
  const std::vector<std::string> lines = recorder.AddProgress(kStart + 3, reply, kStart, 0);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_DOUBLE_EQ(json::parse(lines[0]).at("accuracy").get<double>(), 0.51);
  EXPECT_EQ(Accuracy(recorder), 0.51);
  reply.mutable_evaluations(0)->set_loss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(recorder.AddProgress(kStart + 4, reply, kStart, 0).size(), 1u);
  EXPECT_EQ(recorder.AddProgress(kStart + 5, reply, kStart, 0).size(), 0u) << "not a number, as before";
}

TEST(HistoryRecorderTest, EveryMetricIsWrittenByItsNameInTheOrderOfTheManifest) {
  HistoryRecorder recorder = MakeRecorder();
  v1::ProgressReply reply = Reply(100);
  v1::Evaluation* const evaluation = reply.add_evaluations();
  evaluation->set_dataset_epoch(1);
  evaluation->set_loss(0.0021);
  const auto add = [evaluation](const std::string& name, double value) {
    v1::Metric* metric = evaluation->add_metrics();
    metric->set_name(name);
    metric->set_value(value);
  };
  add("MeanAbsoluteError", 0.0312);
  add("Bias", std::numeric_limits<double>::quiet_NaN());
  std::vector<std::string> lines = recorder.AddProgress(kStart + 1, reply, kStart, 0);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1],
              HasSubstr(R"("accuracy":null,"metrics":{"MeanAbsoluteError":0.0312,"Bias":null},"loss":0.0021)"));
  const std::string summary = SummaryToJson(recorder.history().summary);
  EXPECT_TRUE(json::parse(summary).at("testAccuracy").is_null()) << "none was measured";
  EXPECT_EQ(nlohmann::ordered_json::parse(summary).at("testMetrics").dump(),
            R"({"MeanAbsoluteError":0.0312,"Bias":null})");

  add("BinaryAccuracy", 0.875);
  evaluation->set_accuracy(0.875);
  lines = recorder.AddProgress(kStart + 2, reply, kStart, 0);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(json::parse(lines[0]).at("accuracy"), 0.875);
  EXPECT_EQ(json::parse(lines[0]).at("metrics").at("BinaryAccuracy"), 0.875);
}

TEST(HistoryRecorderTest, LinesAreJsonWhateverTheNumbersAre) {
  HistoryRecorder recorder = MakeRecorder();
  v1::ProgressReply reply = Reply(5);
  reply.set_loss(std::numeric_limits<double>::quiet_NaN());
  reply.set_samples_per_second(std::numeric_limits<double>::infinity());
  for (const std::string& line : recorder.AddProgress(kStart + 1, reply, kStart, 0)) {
    EXPECT_THAT(line, ::testing::Not(HasSubstr("\n")));
    EXPECT_TRUE(json::parse(line).at("loss").is_null());
  }
}

TEST(HistoryRecorderTest, WhatIsNotKnownIsNull) {
  HistoryRecorder recorder = MakeRecorder();
  v1::ProgressReply reply = Reply(1);
  reply.clear_loss();
  reply.set_first_update_milliseconds(500);
  const std::vector<std::string> lines = recorder.AddProgress(kStart + 1, reply, kStart, 0);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(json::parse(lines[0]).at("loss").is_null());
  EXPECT_TRUE(json::parse(lines[0]).at("samplesPerSecond").is_null());
  ASSERT_EQ(recorder.history().curve.size(), 1u);
  EXPECT_FALSE(recorder.history().curve[0].loss.has_value());
  EXPECT_FALSE(recorder.history().curve[0].samples_per_second.has_value());
  EXPECT_TRUE(json::parse(SummaryToJson(recorder.history().summary)).at("samplesPerSecond").is_null());

  reply = Reply(2);
  reply.set_samples_per_second(32);
  const json second = json::parse(recorder.AddProgress(kStart + 2, reply, kStart, 0).at(0));
  EXPECT_EQ(second.at("loss"), 1.0);
  EXPECT_EQ(second.at("samplesPerSecond"), 32.0);
  EXPECT_GT(recorder.history().summary.samples_per_second, 0);
}

TEST(HistoryRecorderTest, BytesOfAllPsAreAddedUpWhoeverIsReplaced) {
  HistoryRecorder recorder = MakeRecorder();
  double time = kStart;
  std::uint64_t updates = 0;
  struct Ps {
    std::uint64_t session, received, sent;
  };
  const auto add = [&](const std::vector<Ps>& all) {
    v1::ProgressReply reply = Reply(++updates);
    reply.add_members()->set_role("worker");
    for (const Ps& ps : all) {
      v1::MemberProgress* const member = reply.add_members();
      member->set_role("ps");
      member->set_session(ps.session);
      member->mutable_ps()->set_received_bytes(ps.received);
      member->mutable_ps()->set_sent_bytes(ps.sent);
    }
    const json line = json::parse(recorder.AddProgress(++time, reply, kStart, 0).at(0));
    EXPECT_EQ(recorder.history().curve.back().bytes, recorder.history().summary.bytes);
    return NetworkBytes{line.at("receivedBytes").get<std::uint64_t>(), line.at("sentBytes").get<std::uint64_t>()};
  };
  EXPECT_EQ(add({{1, 100, 10}, {2, 50, 5}}), (NetworkBytes{150, 15}));
  EXPECT_EQ(add({{1, 0, 0}, {2, 60, 6}}), (NetworkBytes{160, 16}))
      << "a new coordinator has not heard of the first yet";
  EXPECT_EQ(add({{1, 120, 12}, {3, 7, 1}}), (NetworkBytes{187, 19})) << "the second was replaced";
  EXPECT_EQ(add({}), (NetworkBytes{187, 19}));
}

TEST(HistoryRecorderTest, SpansOfProcessesHaveTheirEnds) {
  HistoryRecorder recorder = MakeRecorder();
  Process process;
  process.uid = "worker-0.1";
  process.name = "worker-0";
  process.created_time = kStart + 1;
  recorder.AddProcesses({process});
  process.finished_time = kStart + 4;
  process.exit_code = 137;
  process.signal = 9;
  recorder.AddProcesses({process});
  recorder.AddProcesses({process});
  process.uid = "worker-0.2";
  process.incarnation = 2;
  process.created_time = kStart + 5;
  process.finished_time.reset();
  recorder.AddProcesses({process});
  const std::vector<TimelineSpan>& spans = recorder.history().spans;
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].start_seconds, 1);
  EXPECT_EQ(spans[0].end_seconds, 4);
  EXPECT_EQ(spans[0].end_cause, "killed by signal 9 (Killed)");
  EXPECT_EQ(spans[1].incarnation, 2);
  EXPECT_FALSE(spans[1].end_seconds.has_value());
}

TEST(HistoryRecorderTest, WhatARunBeganWithIsNotItsOwn) {
  HistoryRecorder recorder = MakeRecorder();
  v1::ProgressReply reply = Reply(50);
  reply.mutable_restoration()->set_checkpoint("/ckpt/demo/3");
  reply.mutable_restoration()->set_updates(50);
  recorder.AddProgress(kStart + 1, reply, std::nullopt, 0);
  EXPECT_EQ(recorder.history().summary.first_update_seconds, 0) << "none is its own";
  const double per_update = static_cast<double>(Reply(50).samples_done()) / 50;
  for (const int updates : {51, 60}) {
    v1::ProgressReply more = Reply(static_cast<std::uint64_t>(updates));
    *more.mutable_restoration() = reply.restoration();
    more.mutable_checkpoint()->set_newest("/ckpt/demo/4");
    more.mutable_checkpoint()->set_newest_updates(55);
    recorder.AddProgress(kStart + updates - 49, more, std::nullopt, 0);
  }
  api::RecoveryStatus recovery;
  recovery.last_start_time = 1;
  recorder.AddRecovery(recovery);
  recovery.lost_updates = 7;
  recorder.AddRecovery(recovery);
  recorder.AddRecovery(recovery);
  recovery.last_start_time = 2;
  recorder.AddRecovery(recovery);
  const RunSummary& summary = recorder.history().summary;
  EXPECT_EQ(summary.resumed_from, "/ckpt/demo/3");
  EXPECT_EQ(summary.first_update_seconds, 2);
  EXPECT_DOUBLE_EQ(summary.samples_per_second.value(), 10 * per_update / 9);
  EXPECT_EQ(summary.checkpoint, "/ckpt/demo/4");
  EXPECT_EQ(summary.checkpoint_updates, 55u);
  EXPECT_EQ(summary.lost_updates, 14u);
}

TEST(HistoryRecorderTest, PushedBytesAreThoseOfEveryWorkerThereWas) {
  HistoryRecorder recorder = MakeRecorder();
  const auto report = [&](std::uint32_t index, std::uint32_t incarnation, std::uint64_t bytes, std::uint64_t saved) {
    v1::ProgressReply reply = Reply(1);
    v1::MemberProgress* member = reply.add_members();
    member->set_role("worker");
    member->set_index(index);
    member->set_process_incarnation(incarnation);
    member->mutable_worker()->set_push_bytes(bytes);
    member->mutable_worker()->set_push_bytes_saved(saved);
    recorder.AddProgress(kStart + 1, reply, std::nullopt, 0);
  };
  report(0, 1, 100, 300);
  report(1, 1, 10, 30);
  report(0, 1, 200, 600);
  report(0, 2, 1, 3);
  EXPECT_EQ(recorder.history().summary.push_bytes, 211u);
  EXPECT_EQ(recorder.history().summary.push_bytes_saved, 633u);
}

TEST(HistoryRecorderTest, TheSummaryHasEveryKey) {
  HistoryRecorder recorder = MakeRecorder();
  v1::ProgressReply reply = Reply(100);
  Evaluate(reply, 1, 0.875);
  reply.set_model_path("/runs/demo-1/model.safetensors");
  reply.set_stop_reason("stopped early after epoch 1");
  reply.set_rate_reason("multiplied by 0.5");
  reply.set_best_epoch(1);
  reply.set_best_reason("Loss was best");
  reply.set_best_path("/runs/demo-1/best.safetensors");
  v1::ProgressReply first = Reply(1);
  first.add_warnings("of the coordinator before");
  reply.add_warnings("39 updates were skipped");
  recorder.AddProgress(kStart + 2, first, std::nullopt, 0);
  recorder.AddProgress(kStart + 3, first, std::nullopt, 0);
  recorder.AddProgress(kStart + 4, reply, std::nullopt, 0);
  recorder.Finish(kStart + 6, kSucceeded, "", 2, LedgerSummary{100, 100, 0, 0, 0});
  const json document = json::parse(SummaryToJson(recorder.history().summary));
  const json expected = json::parse(R"({
    "job": "demo", "jobUid": "0123", "phase": "Succeeded", "message": "", "testAccuracy": 0.875,
    "testMetrics": {"Accuracy": 0.875}, "testLoss": 0.0,
    "epochs": 1.0, "samplesPerSecond": 1600.0, "firstUpdateSeconds": 2.0, "totalSeconds": 6.0, "restarts": 2,
    "generation": 1, "resumedFrom": "", "checkpoint": "", "checkpointUpdates": 0, "lostUpdates": 0, "pushBytes": 0, "pushBytesSaved": 0,
    "receivedBytes": 0, "sentBytes": 0, "ledger": {"expected": 100, "applied": 100, "missing": 0, "duplicated": 0, "skipped": 0}, "audit": "Exact",
    "stopReason": "stopped early after epoch 1", "rateReason": "multiplied by 0.5",
    "best": {"epoch": 1, "reason": "Loss was best", "path": "/runs/demo-1/best.safetensors"},
    "modelPath": "/runs/demo-1/model.safetensors", "runDirectory": "/runs/demo-1",
    "warnings": ["of the coordinator before", "39 updates were skipped"]})");
  EXPECT_EQ(document, expected) << document.dump(2);

  recorder.Finish(kStart + 6, kFailed, "why", 2, std::nullopt);
  const json failed = json::parse(SummaryToJson(recorder.history().summary));
  EXPECT_TRUE(failed.at("ledger").is_null());
  EXPECT_TRUE(failed.at("audit").is_null());
  EXPECT_EQ(failed.at("modelPath"), "") << "the model of a failed run is no result";
  EXPECT_EQ(failed.at("best").at("path"), "");
}

}  // namespace
}  // namespace downpour::cli
