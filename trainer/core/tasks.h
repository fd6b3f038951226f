#ifndef DOWNPOUR_TRAINER_CORE_TASKS_H_
#define DOWNPOUR_TRAINER_CORE_TASKS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "downpour/v1/checkpoint.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/keys.h"
#include "trainer/core/time.h"

namespace downpour::core {

struct TaskKey {
  std::uint32_t dataset_epoch = 0;  // finished epochs
  v1::TaskKind kind = v1::TASK_EVALUATE;
  // Of what can be done with the same weights the export comes first: nothing that goes wrong with the others may
  // cost the model.
  friend bool operator<(const TaskKey& a, const TaskKey& b) {
    return std::tuple(a.dataset_epoch, a.kind != v1::TASK_EXPORT, a.kind) <
           std::tuple(b.dataset_epoch, b.kind != v1::TASK_EXPORT, b.kind);
  }
};

// Evaluations and exports: who has which, how often it failed where, and what came of them. Each goes to one worker at
// a time, of those that are there to one where it failed least. Not thread-safe.
class Tasks {
 public:
  // `keep_best`: the metric by which the model of the best evaluation is kept; empty: none is.
  explicit Tasks(std::string keep_best = "") : keep_best_(std::move(keep_best)) {}

  // Why the job fails.
  struct Failure {
    v1::FailureKind kind = v1::FAILURE_OTHER;
    std::string message;
  };

  // One that is there or done already stays as it is.
  void Add(const TaskKey& key);
  // What a worker had before the coordinator started.
  void Adopt(const v1::HeldLease& held, std::uint64_t session);
  void EndSession(std::uint64_t session);
  bool Holds(std::uint64_t session) const;
  // Drops what nobody has begun of the tasks before `dataset_epoch`.
  void DropWaiting(std::uint32_t dataset_epoch);
  // For another history. Where the model was written stays known.
  void Forget();

  // Lists what `session`, of the worker with index `worker`, holds; if it `wants` it is given one more where it has
  // none. `available`: indices of the workers that could take a task.
  void Grant(std::uint64_t session, std::uint32_t worker, bool wants, const std::set<std::uint32_t>& available,
             Time now, LeaseNumbers& numbers, v1::WorkerSyncReply* reply);
  // Of a task that the session does not hold it is ignored.
  std::optional<Failure> Accept(const v1::TaskResult& result, std::uint64_t session, const ProcessKey& process,
                                Time now);

  // Of `dataset_epoch` and later ones.
  bool AllDone(std::uint32_t dataset_epoch) const;
  // The newest errors of what is not done; empty: none.
  std::vector<std::string> Errors() const;
  void Report(v1::ProgressReply* progress) const;
  // In the order of their epochs.
  std::vector<v1::Evaluation> evaluations() const;
  // After so many epochs; 0: there is none.
  std::uint32_t newest_evaluation() const { return evaluations_.empty() ? 0 : evaluations_.rbegin()->first; }
  // Of these, those before the first that is still awaited.
  std::vector<v1::Evaluation> SettledEvaluations() const;
  // What a checkpoint keeps of them: evaluations, and which need not be done again.
  void Describe(v1::CheckpointManifest* manifest) const;
  // `own`: it is of this job, so the best model of its evaluations may be there.
  void Restore(const v1::CheckpointManifest& manifest, bool own);
  // What an earlier coordinator counted.
  void Restore(const v1::View& view);

 private:
  // How a task went at one worker that could not do it.
  struct Tries {
    int count = 0;
    std::string error;  // the newest
  };
  struct Task {
    std::uint64_t session = 0;  // 0: nobody has it
    std::uint64_t lease = 0;
    std::map<std::uint32_t, Tries> failures = {};  // by the index of the worker
    Time retry_at = absl::ZeroDuration();          // by a worker where it failed before
  };

  void ReportBest(v1::ProgressReply* progress) const;
  static bool MayTry(const Task& task, std::uint32_t worker, const std::set<std::uint32_t>& available, Time now);
  std::optional<Failure> CountFailure(const TaskKey& key, const v1::TaskResult& result, std::uint32_t worker, Time now);
  void Finish(const TaskKey& key);
  void Warn(std::string warning);

  std::map<TaskKey, Task> open_;
  std::set<TaskKey> done_;
  std::vector<std::string> warnings_;                    // each once
  std::map<std::uint32_t, v1::Evaluation> evaluations_;  // by finished epochs
  std::string keep_best_;
  std::set<std::uint32_t> of_another_job_;  // evaluations whose models are none of this one's
  std::optional<v1::TaskResult> best_;      // where the best model is, at the end
  std::string model_path_;
  std::optional<ProcessKey> model_writer_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_TASKS_H_
