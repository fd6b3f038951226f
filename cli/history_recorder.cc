#include "cli/history_recorder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/render/summary_text.h"
#include "cli/render/test_metrics.h"
#include "cli/test_metrics_json.h"

namespace downpour::cli {
namespace {

using json = nlohmann::ordered_json;

// Text from other processes may hold bytes that are no UTF-8; NaN and infinity become null.
std::string Line(const json& object) { return object.dump(-1, ' ', false, json::error_handler_t::replace); }

json OrNull(const std::optional<double>& value) { return value.has_value() ? json(*value) : json(nullptr); }

int CountMembers(const v1::ProgressReply& reply, const char* role) {
  return static_cast<int>(std::count_if(reply.members().begin(), reply.members().end(),
                                        [role](const v1::MemberProgress& member) { return member.role() == role; }));
}

// What came of auditing the ledger of a run that trained to its end; null: it did not.
json AuditOf(const RunSummary& summary) {
  if (summary.ledger.has_value()) return LedgerExact(*summary.ledger) ? "Exact" : "NotExact";
  return summary.phase == "Succeeded" ? json("NotRead") : json(nullptr);
}

}  // namespace

double EpochsDone(const v1::ProgressReply& reply) {
  if (reply.updates_per_epoch() == 0) return reply.epochs_done();
  return static_cast<double>(reply.updates_applied()) / static_cast<double>(reply.updates_per_epoch());
}

HistoryRecorder::HistoryRecorder(api::TrainingJob job, std::string job_uid, std::string run_directory,
                                 double start_time, std::size_t max_points)
    : start_time_(start_time), max_points_(std::max<std::size_t>(2, max_points)) {
  history_.summary.job = job.metadata.name;
  history_.summary.job_uid = std::move(job_uid);
  history_.summary.run_directory = std::move(run_directory);
  history_.job = std::move(job);
}

std::vector<std::string> HistoryRecorder::AddProgress(double time, const v1::ProgressReply& reply,
                                                      std::optional<double> coordinator_start, int restarts) {
  std::vector<std::string> lines;
  const double seconds = time - start_time_;
  const std::uint64_t generation = std::max<std::uint64_t>(generation_, reply.view().generation());
  const bool begun_again = generation != generation_;
  generation_ = generation;
  if (begun_again) {
    // Another history: what was counted before is gone.
    epochs_done_ = reply.has_restoration() ? reply.epochs_done() : 0;
    last_updates_ = 0;
    last_samples_ = 0;
  }
  RunSummary& summary = history_.summary;
  if (reply.has_restoration() && !first_update_seconds_.has_value()) {
    base_updates_ = reply.restoration().updates();
    summary.resumed_from = reply.restoration().checkpoint();
  }
  if (reply.updates_applied() > base_updates_ && !first_update_seconds_.has_value()) {
    first_update_seconds_ = seconds;
    // The coordinator saw it when it happened, the answer came up to one interval later.
    if (reply.first_update_milliseconds() > 0 && coordinator_start.has_value()) {
      const double seen =
          *coordinator_start - start_time_ + static_cast<double>(reply.first_update_milliseconds()) / 1000;
      first_update_seconds_ = std::min(seconds, seen);
    }
  }
  AddBytes(reply);
  const double epochs = EpochsDone(reply);
  if (reply.updates_applied() > last_updates_) {
    last_updates_ = reply.updates_applied();
    // Those of another run are none of this one.
    const std::uint64_t made = last_updates_ > base_updates_ ? last_updates_ - base_updates_ : 0;
    last_samples_ =
        static_cast<double>(reply.samples_done()) * static_cast<double>(made) / static_cast<double>(last_updates_);
    last_update_seconds_ = seconds;
    CurvePoint point;
    point.seconds = seconds;
    point.updates = reply.updates_applied();
    point.epochs = epochs;
    if (reply.has_loss()) point.loss = reply.loss();
    if (reply.has_samples_per_second()) point.samples_per_second = reply.samples_per_second();
    point.workers = CountMembers(reply, "worker");
    point.generation = generation;
    point.samples = reply.samples_done();
    point.bytes = summary.bytes;
    AddPoint(point);
    lines.push_back(Line({{"type", "progress"},
                          {"seconds", seconds},
                          {"generation", point.generation},
                          {"updates", point.updates},
                          {"updatesExpected", reply.updates_expected()},
                          {"epochs", epochs},
                          {"samples", point.samples},
                          {"samplesPerSecond", OrNull(point.samples_per_second)},
                          {"loss", OrNull(point.loss)},
                          {"receivedBytes", summary.bytes.received},
                          {"sentBytes", summary.bytes.sent},
                          {"workers", point.workers},
                          {"ps", CountMembers(reply, "ps")},
                          {"leases", reply.leases_active()},
                          {"leaseExpirations", reply.lease_expirations()},
                          {"restarts", restarts}}));
  }
  if (reply.epochs_done() > epochs_done_) {
    epochs_done_ = reply.epochs_done();
    AddEvent(time, false, "EpochDone", absl::StrCat("epoch ", epochs_done_, " of ", reply.epochs(), " is done"));
  }
  for (const v1::Evaluation& evaluation : reply.evaluations()) {
    const auto [found, is_new] =
        evaluation_index_.try_emplace({generation, evaluation.dataset_epoch()}, history_.evaluations.size());
    if (is_new) {
      history_.evaluations.push_back(evaluation);
      history_.evaluation_seconds.push_back(seconds);
    } else {
      v1::Evaluation& known = history_.evaluations[found->second];
      if (known.SerializeAsString() == evaluation.SerializeAsString()) continue;
      known = evaluation;  // the same epoch, evaluated again (the final model is)
    }
    const std::vector<TestMetric> metrics = MetricsOf(evaluation);
    lines.push_back(Line({{"type", "evaluation"},
                          {"seconds", seconds},
                          {"generation", generation},
                          {"epochs", evaluation.dataset_epoch()},
                          {"accuracy", OrNull(AccuracyOf(metrics))},
                          {"metrics", MetricsToJson(metrics)},
                          {"loss", evaluation.loss()},
                          {"samples", evaluation.samples()}}));
  }
  model_path_ = reply.model_path();
  summary.stop_reason = reply.stop_reason();
  summary.rate_reason = reply.rate_reason();
  summary.best_epoch.reset();
  if (reply.has_best_epoch()) summary.best_epoch = static_cast<int>(reply.best_epoch());
  summary.best_reason = reply.best_reason();
  best_path_ = reply.best_path();
  for (const v1::MemberProgress& member : reply.members()) {
    if (!member.has_worker()) continue;
    auto& [bytes, saved] = pushed_[{member.index(), member.process_incarnation()}];
    bytes = std::max(bytes, member.worker().push_bytes());
    saved = std::max(saved, member.worker().push_bytes_saved());
  }
  summary.push_bytes = summary.push_bytes_saved = 0;
  for (const auto& [worker, pushed] : pushed_) {
    summary.push_bytes += pushed.first;
    summary.push_bytes_saved += pushed.second;
  }

  if (!reply.checkpoint().newest().empty()) {
    summary.checkpoint = reply.checkpoint().newest();
    summary.checkpoint_updates = reply.checkpoint().newest_updates();
  }
  // A coordinator that was replaced forgot those of before; the run has them all the same.
  for (const std::string& warning : reply.warnings()) {
    if (std::find(summary.warnings.begin(), summary.warnings.end(), warning) != summary.warnings.end()) continue;
    summary.warnings.push_back(warning);
    AddEvent(time, true, "TaskFailed", warning);
  }
  summary.generation = generation;
  summary.epochs = epochs;
  summary.first_update_seconds = first_update_seconds_.value_or(0);
  const double training = last_update_seconds_ - summary.first_update_seconds;
  summary.samples_per_second.reset();
  if (last_updates_ >= base_updates_ + 2 && training > 0) summary.samples_per_second = last_samples_ / training;
  summary.test_metrics.clear();
  summary.test_loss.reset();
  const auto newest = evaluation_index_.empty() ? evaluation_index_.end() : std::prev(evaluation_index_.end());
  if (newest != evaluation_index_.end() && newest->first.first == generation) {
    summary.test_metrics = MetricsOf(history_.evaluations[newest->second]);
    summary.test_loss = history_.evaluations[newest->second].loss();
  }
  return lines;
}

void HistoryRecorder::AddPoint(const CurvePoint& point) {
  if (++skipped_ < stride_) return;
  skipped_ = 0;
  history_.curve.push_back(point);
  if (history_.curve.size() < max_points_) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < history_.curve.size(); i += 2) history_.curve[kept++] = history_.curve[i];
  history_.curve.resize(kept);
  stride_ *= 2;
}

void HistoryRecorder::AddBytes(const v1::ProgressReply& reply) {
  for (const v1::MemberProgress& member : reply.members()) {
    if (member.role() != "ps") continue;
    // A coordinator that was replaced has no figures of a ps until it has heard of it.
    NetworkBytes& bytes = bytes_[member.session()];
    bytes.received = std::max<std::uint64_t>(bytes.received, member.ps().received_bytes());
    bytes.sent = std::max<std::uint64_t>(bytes.sent, member.ps().sent_bytes());
  }
  NetworkBytes& total = history_.summary.bytes;
  total = {};
  for (const auto& [session, bytes] : bytes_) {
    total.received += bytes.received;
    total.sent += bytes.sent;
  }
}

void HistoryRecorder::AddProcesses(const std::vector<Process>& processes) {
  for (const Process& process : processes) {
    const auto [found, is_new] = span_index_.try_emplace(process.uid, history_.spans.size());
    if (is_new) {
      TimelineSpan span;
      span.name = process.name;
      span.incarnation = process.incarnation;
      span.start_seconds = process.created_time - start_time_;
      history_.spans.push_back(span);
    }
    TimelineSpan& span = history_.spans[found->second];
    if (process.finished_time.has_value() && !span.end_seconds.has_value()) {
      span.end_seconds = *process.finished_time - start_time_;
      span.end_cause = EndCause(process);
    }
  }
}

void HistoryRecorder::AddEvent(double time, bool warning, const std::string& reason, const std::string& message) {
  history_.events.push_back({time - start_time_, warning, reason, message});
}

void HistoryRecorder::AddRecovery(const api::RecoveryStatus& recovery) {
  if (!recovery.lost_updates.has_value()) return;
  lost_updates_[recovery.last_start_time] = *recovery.lost_updates;
  history_.summary.lost_updates = 0;
  for (const auto& [begin, lost] : lost_updates_) history_.summary.lost_updates += lost;
}

void HistoryRecorder::Finish(double time, const std::string& phase, const std::string& message, int restarts,
                             std::optional<LedgerSummary> ledger) {
  RunSummary& summary = history_.summary;
  summary.phase = phase;
  summary.message = message;
  summary.restarts = restarts;
  summary.ledger = ledger;
  summary.total_seconds = time - start_time_;
  // The model of a run that did not succeed is no result.
  summary.model_path = phase == kSucceeded ? model_path_ : "";
  summary.best_path = phase == kSucceeded ? best_path_ : "";
}

std::string SummaryToJson(const RunSummary& summary) {
  const json first_update = summary.first_update_seconds > 0 ? json(summary.first_update_seconds) : json(nullptr);
  json ledger;
  if (summary.ledger.has_value()) {
    ledger = {{"expected", summary.ledger->expected},
              {"applied", summary.ledger->applied},
              {"missing", summary.ledger->missing},
              {"duplicated", summary.ledger->duplicated},
              {"skipped", summary.ledger->skipped}};
  }
  json best;
  if (summary.best_epoch.has_value()) {
    best = {{"epoch", *summary.best_epoch}, {"reason", summary.best_reason}, {"path", summary.best_path}};
  }
  const json document = {{"job", summary.job},
                         {"jobUid", summary.job_uid},
                         {"phase", summary.phase},
                         {"message", summary.message},
                         {"testAccuracy", OrNull(AccuracyOf(summary.test_metrics))},
                         {"testMetrics", MetricsToJson(summary.test_metrics)},
                         {"testLoss", OrNull(summary.test_loss)},
                         {"epochs", summary.epochs},
                         {"samplesPerSecond", OrNull(summary.samples_per_second)},
                         {"firstUpdateSeconds", first_update},
                         {"totalSeconds", summary.total_seconds},
                         {"restarts", summary.restarts},
                         {"generation", summary.generation},
                         {"resumedFrom", summary.resumed_from},
                         {"checkpoint", summary.checkpoint},
                         {"checkpointUpdates", summary.checkpoint_updates},
                         {"lostUpdates", summary.lost_updates},
                         {"pushBytes", summary.push_bytes},
                         {"pushBytesSaved", summary.push_bytes_saved},
                         {"receivedBytes", summary.bytes.received},
                         {"sentBytes", summary.bytes.sent},
                         {"ledger", ledger},
                         {"audit", AuditOf(summary)},
                         {"stopReason", summary.stop_reason},
                         {"rateReason", summary.rate_reason},
                         {"best", best},
                         {"modelPath", summary.model_path},
                         {"runDirectory", summary.run_directory},
                         {"warnings", summary.warnings}};
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace downpour::cli
