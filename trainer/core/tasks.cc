#include "trainer/core/tasks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/core/training_monitor.h"

namespace downpour::core {
namespace {

constexpr std::size_t kEvaluationsTold = 100;
constexpr std::size_t kWarningsKept = 100;
// A task is tried once at each worker, and so often more at those where it failed: for about a minute, in which another
// worker may come or the reason may pass.
constexpr int kRetries = 7;
constexpr absl::Duration kFirstPause = absl::Seconds(1);
constexpr absl::Duration kMostPause = absl::Seconds(15);

}  // namespace

void Tasks::Add(const TaskKey& key) {
  if (done_.count(key) == 0) open_.try_emplace(key);
}

void Tasks::Adopt(const v1::HeldLease& held, std::uint64_t session) {
  // An evaluation that is lost with the earlier coordinator is made again, and may be better still.
  if (held.kind() == v1::TASK_KEEP_BEST) return;
  const TaskKey key{held.shard().dataset_epoch(), held.kind()};
  if (done_.count(key) == 0) open_.try_emplace(key, Task{session, held.lease()});
}

void Tasks::EndSession(std::uint64_t session) {
  for (auto& [key, task] : open_) {
    if (task.session == session) task.session = 0;
  }
}

bool Tasks::Holds(std::uint64_t session) const {
  return std::any_of(open_.begin(), open_.end(),
                     [session](const auto& entry) { return entry.second.session == session; });
}

void Tasks::DropWaiting(std::uint32_t dataset_epoch) {
  std::erase_if(open_, [dataset_epoch](const auto& entry) {
    return entry.first.dataset_epoch < dataset_epoch && entry.second.session == 0;
  });
}

void Tasks::Forget() {
  open_.clear();
  done_.clear();
  warnings_.clear();
  evaluations_.clear();
  of_another_job_.clear();
  best_.reset();
}

bool Tasks::MayTry(const Task& task, std::uint32_t worker, const std::set<std::uint32_t>& available, Time now) {
  const auto failures_at = [&task](std::uint32_t index) {
    const auto found = task.failures.find(index);
    return found == task.failures.end() ? 0 : found->second.count;
  };
  const int here = failures_at(worker);
  if (here == 0) return true;
  if (now < task.retry_at) return false;
  return std::none_of(available.begin(), available.end(),
                      [&](std::uint32_t other) { return failures_at(other) < here; });
}

void Tasks::Grant(std::uint64_t session, std::uint32_t worker, bool wants, const std::set<std::uint32_t>& available,
                  Time now, LeaseNumbers& numbers, v1::WorkerSyncReply* reply) {
  bool has_one =
      std::any_of(open_.begin(), open_.end(), [session](const auto& entry) { return entry.second.session == session; });
  for (auto& [key, task] : open_) {
    if (task.session != 0 && task.session != session) continue;
    if (task.session == 0) {
      if (has_one || !wants || !MayTry(task, worker, available, now)) continue;
      has_one = true;
      task.session = session;
      task.lease = numbers.Next();
    }
    v1::Lease* lease = reply->add_leases();
    lease->set_lease(task.lease);
    lease->set_kind(key.kind);
    lease->mutable_shard()->set_dataset_epoch(key.dataset_epoch);
  }
}

std::optional<Tasks::Failure> Tasks::Accept(const v1::TaskResult& result, std::uint64_t session,
                                            const ProcessKey& process, Time now) {
  const TaskKey key{result.dataset_epoch(), result.kind()};
  const auto task = open_.find(key);
  if (task == open_.end() || task->second.session != session || task->second.lease != result.lease()) {
    return std::nullopt;
  }
  if (!result.warning().empty()) Warn(result.warning());
  if (!result.error().empty()) return CountFailure(key, result, process.first, now);
  Finish(key);
  if (result.samples() > 0) {
    v1::Evaluation evaluation;
    evaluation.set_dataset_epoch(result.dataset_epoch());
    if (result.has_accuracy()) evaluation.set_accuracy(result.accuracy());
    evaluation.set_loss(result.loss());
    evaluation.set_samples(result.samples());
    *evaluation.mutable_metrics() = result.metrics();
    evaluations_[result.dataset_epoch()] = std::move(evaluation);
  }
  if (key.kind == v1::TASK_KEEP_BEST && !result.path().empty()) best_ = result;
  if (key.kind == v1::TASK_EXPORT && !result.path().empty()) {
    model_path_ = result.path();
    model_writer_ = process;
  }
  return std::nullopt;
}

std::optional<Tasks::Failure> Tasks::CountFailure(const TaskKey& key, const v1::TaskResult& result,
                                                  std::uint32_t worker, Time now) {
  if (result.failure() != v1::FAILURE_OTHER) return Failure{result.failure(), result.error()};
  Task& task = open_.at(key);
  task.session = 0;
  Tries& here = task.failures[worker];
  ++here.count;
  here.error = result.error();
  int tries = 0;
  std::vector<std::string> errors;
  for (const auto& [index, failures] : task.failures) {
    tries += failures.count;
    errors.push_back(failures.error);
  }
  const int retries = tries - static_cast<int>(task.failures.size());
  task.retry_at = now + std::min(kFirstPause * (1 << retries), kMostPause);
  if (retries < kRetries) return std::nullopt;
  Finish(key);
  const bool exports = key.kind == v1::TASK_EXPORT;
  std::string message =
      absl::StrCat(exports ? "the model could not be written"
                   : key.kind == v1::TASK_KEEP_BEST
                       ? "the best model could not be kept"
                       : absl::StrCat("the evaluation after epoch ", key.dataset_epoch, " could not be made"),
                   " in ", tries, " tries: ", absl::StrJoin(errors, "; "));
  // Only the model is what the job is for: an accuracy can be had of it later.
  if (exports) return Failure{v1::FAILURE_OTHER, std::move(message)};
  Warn(std::move(message));
  return std::nullopt;
}

void Tasks::Finish(const TaskKey& key) {
  open_.erase(key);
  done_.insert(key);
}

void Tasks::Warn(std::string warning) {
  if (warnings_.size() >= kWarningsKept || std::find(warnings_.begin(), warnings_.end(), warning) != warnings_.end()) {
    return;
  }
  warnings_.push_back(std::move(warning));
}

bool Tasks::AllDone(std::uint32_t dataset_epoch) const {
  return open_.empty() || open_.rbegin()->first.dataset_epoch < dataset_epoch;
}

std::vector<std::string> Tasks::Errors() const {
  std::vector<std::string> errors;
  for (const auto& [key, task] : open_) {
    for (const auto& [index, failures] : task.failures) errors.push_back(failures.error);
  }
  return errors;
}

void Tasks::Report(v1::ProgressReply* progress) const {
  const std::size_t told = std::min(evaluations_.size(), kEvaluationsTold);
  for (auto one = std::prev(evaluations_.end(), static_cast<std::ptrdiff_t>(told)); one != evaluations_.end(); ++one) {
    *progress->add_evaluations() = one->second;
  }
  if (!keep_best_.empty()) ReportBest(progress);
  for (const std::string& warning : warnings_) progress->add_warnings(warning);
  progress->set_model_path(model_path_);
  if (!model_writer_.has_value()) return;
  progress->set_model_worker(model_writer_->first);
  progress->set_model_worker_incarnation(model_writer_->second);
}

void Tasks::ReportBest(v1::ProgressReply* progress) const {
  // It may be of a history that is lost: then of an evaluation that nobody remembers.
  if (best_.has_value()) {
    progress->set_best_epoch(best_->best_epoch());
    for (const v1::Metric& metric : best_->metrics()) {
      progress->set_best_reason(DescribeBest(metric.name(), best_->best_epoch(), metric.value()));
    }
    progress->set_best_path(best_->path());
    return;
  }
  std::vector<v1::Evaluation> own = evaluations();
  std::erase_if(own, [this](const v1::Evaluation& one) { return of_another_job_.count(one.dataset_epoch()) != 0; });
  const BestDecision best = FindBest(own, MonitoredMetricOf(keep_best_));
  if (!best.index.has_value()) return;
  progress->set_best_epoch(own[*best.index].dataset_epoch());
  progress->set_best_reason(best.reason);
}

void Tasks::Describe(v1::CheckpointManifest* manifest) const {
  for (const auto& [epoch, evaluation] : evaluations_) *manifest->add_evaluations() = evaluation;
  for (const TaskKey& key : done_) {
    if (key.kind == v1::TASK_EVALUATE) manifest->add_evaluated(key.dataset_epoch);
  }
}

void Tasks::Restore(const v1::CheckpointManifest& manifest, bool own) {
  // The last one of a job that had ended within an epoch is of none that is finished here.
  for (const v1::Evaluation& evaluation : manifest.evaluations()) {
    if (evaluation.dataset_epoch() > manifest.watermark()) continue;
    evaluations_[evaluation.dataset_epoch()] = evaluation;
    if (!own) of_another_job_.insert(evaluation.dataset_epoch());
  }
  for (std::uint32_t epoch : manifest.evaluated()) {
    if (epoch <= manifest.watermark()) done_.insert({epoch, v1::TASK_EVALUATE});
  }
}

void Tasks::Restore(const v1::View& view) {
  for (const v1::Evaluation& evaluation : view.evaluations()) {
    evaluations_[evaluation.dataset_epoch()] = evaluation;
    done_.insert({evaluation.dataset_epoch(), v1::TASK_EVALUATE});
  }
}

std::vector<v1::Evaluation> Tasks::evaluations() const {
  std::vector<v1::Evaluation> all;
  all.reserve(evaluations_.size());
  for (const auto& [epoch, evaluation] : evaluations_) all.push_back(evaluation);
  return all;
}

std::vector<v1::Evaluation> Tasks::SettledEvaluations() const {
  std::vector<v1::Evaluation> settled = evaluations();
  for (const auto& [key, task] : open_) {
    if (key.kind != v1::TASK_EVALUATE) continue;
    std::erase_if(settled, [&key = key](const v1::Evaluation& evaluation) {
      return evaluation.dataset_epoch() > key.dataset_epoch;
    });
    break;  // the earliest
  }
  return settled;
}

}  // namespace downpour::core
