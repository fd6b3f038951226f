#ifndef DOWNPOUR_TRAINER_CORE_JOB_WORK_H_
#define DOWNPOUR_TRAINER_CORE_JOB_WORK_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "downpour/v1/checkpoint.pb.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/data_leases.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/keys.h"
#include "trainer/core/ledger.h"
#include "trainer/core/membership.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/ps_states.h"
#include "trainer/core/sandblaster/search.h"
#include "trainer/core/tasks.h"
#include "trainer/core/time.h"

namespace downpour::core {

// The work of the history at hand: its data shards, the search of mode SANDBLASTER, evaluations and the tasks of the
// end; how far it is, and which worker gets what of it. When there is any to be given, and under which view, is for
// the coordinator to say. Not thread-safe.
class JobWork {
 public:
  // `config` must outlive this; its mode may change.
  JobWork(const v1::TrainingConfig& config, std::uint32_t incarnation, PlantedBug bug = PlantedBug::kNone);
  JobWork(const JobWork&) = delete;
  JobWork& operator=(const JobWork&) = delete;

  // ---- histories
  // There is one. Before, nothing may be called but this, the reports, and what is about sessions and tasks.
  bool begun() const { return leases_.has_value(); }
  // One begins under this view, of whose plan so much is done.
  void Begin(const v1::View& view, const DataPlan& plan, const Ledger& ledger);
  // It is that of an earlier coordinator. Until then, leases are adopted from the workers that hold them, and none is
  // granted.
  void AdoptUntil(Time until, const v1::View& view);
  // It begins with a checkpoint. What follows from its evaluations is put into the view, which nobody may have yet.
  // False: nothing does.
  bool Restore(Time now, const v1::CheckpointManifest& manifest, v1::View* view);
  // Another view is in force: whose ps are asked, where training ends.
  void SetPs(const std::set<std::uint32_t>& ps) { leases_->SetPs(ps); }
  void SetEnd(const v1::View& view);
  // What follows from the mode begins anew.
  void BeginMode(const v1::View& view, Membership* members);

  // ---- how far it is
  const DataLeases& leases() const { return *leases_; }
  const Tasks& tasks() const { return tasks_; }
  bool adopting() const { return adopt_until_.has_value(); }
  // The coordinator was paused: whoever holds leases has until then to say so, if it had any time.
  void ExtendAdoption(Time until);
  // Nobody adopts anything any more, if the time is over or everybody has spoken. Whether that is so.
  bool EndAdoption(Time now, bool all_known);
  // No command on vectors is under way.
  bool settled() const { return !search_.has_value() || search_->settled(); }
  // While it trains: ps have to be asked about vectors.
  bool SearchAsks() const;
  // The search cannot go on.
  absl::Status error() const { return search_.has_value() ? search_->error() : absl::OkStatus(); }
  // Takes in what is complete by now. `members_confirmed`: the list of sessions that every ps has; `cut_opens`: not
  // every worker knows of the cut yet.
  void Step(std::uint64_t members_confirmed, bool cut_opens);
  // All is applied that is to be.
  bool done() const { return search_.has_value() ? search_->done() : leases_->done(); }
  // Where that has come to nothing, why; else empty.
  std::string NotFinite() const;
  // Once it is done: the tasks of the end. True: they are done as well.
  bool Finish();
  // There are evaluations that the view has not counted, and something may follow from them.
  bool HasNewEvaluations(const v1::View& view) const;
  // Counts those that no earlier one is awaited before. False: there are none, the view is as it was.
  bool CountNewEvaluations(v1::View* view) const;

  // ---- of ps
  // Puts what it is asked into a directive; about vectors as well if it `asks_search`.
  void Ask(std::uint32_t ps, bool asks_search, v1::DirectRequest* directive) const;
  // Data shards that its answer retired.
  std::vector<ShardKey> Answer(std::uint32_t ps, const v1::DirectReply& reply);

  // ---- of workers
  // Keeps what the worker had of an earlier coordinator, unless somebody else has it.
  void Adopt(const v1::WorkerSyncRequest& request);
  // Lists what the worker has and gives it more, of data shards only in `training`. `member`: as the list of sessions
  // has it, in which it is noted who trains where that has to be known.
  void Grant(const v1::WorkerSyncRequest& request, const Member& member, const v1::View& view, bool training, Time now,
             Membership* members, v1::WorkerSyncReply* reply);
  // Why the job fails, if it does.
  std::optional<Tasks::Failure> Accept(const v1::WorkerSyncRequest& request, const Member& member, Time now);
  // The data shards that it was still working on.
  std::vector<ShardKey> EndSession(std::uint64_t session, std::uint64_t members_version);

  // `done`: the job is.
  void Report(const v1::View& view, const PsStates& states, bool done, v1::ProgressReply* progress) const;

 private:
  // Of the epochs that are done, but not of all.
  void AddEvaluation();
  // Whether evaluations decide anything in the history at hand.
  bool heeds() const;
  // It is where an iteration of the search ended: that waits for its evaluation.
  bool EvaluatesPoint() const;
  void StepSearch(bool cut_opens);
  void GrantShards(const v1::WorkerSyncRequest& request, const Member& member, const v1::View& view, bool training,
                   Membership* members, v1::WorkerSyncReply* reply);

  const v1::TrainingConfig& config_;
  PlantedBug bug_;
  LeaseNumbers lease_numbers_;
  std::optional<DataLeases> leases_;           // from the first history on
  std::optional<sandblaster::Search> search_;  // of mode SANDBLASTER
  Tasks tasks_;
  std::optional<Time> adopt_until_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_JOB_WORK_H_
