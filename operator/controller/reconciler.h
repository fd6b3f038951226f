#ifndef DOWNPOUR_OPERATOR_CONTROLLER_RECONCILER_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_RECONCILER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "operator/controller/coordinator_gateway.h"
#include "operator/controller/discovery.h"
#include "operator/controller/disruption_budget.h"
#include "operator/controller/job_pods.h"
#include "operator/controller/job_record.h"
#include "operator/controller/namespace_services.h"
#include "operator/controller/objects.h"
#include "operator/controller/obstacles.h"
#include "operator/controller/own_writes.h"
#include "operator/controller/pace.h"
#include "operator/controller/pod.h"
#include "operator/controller/questions.h"
#include "operator/controller/roll_call.h"
#include "operator/controller/template_check.h"
#include "operator/kube/client.h"
#include "operator/kube/event_recorder.h"
#include "operator/kube/informer.h"
#include "operator/planner/plan.h"

namespace downpour::controller {

struct ReconcilerOptions {
  PodOptions pods;
  PaceOptions pace;
  // So long all must have trained before evictions are held up: until then there is little to lose, and a platform
  // that starts many jobs has more urgent things to do. Longer where many run, like writes.
  absl::Duration budget_delay = absl::Minutes(1);
  int most_parallel = 50;  // writes of one job at a time
  // A cache that has not seen our own write after so long is reported, and waited for nevertheless.
  absl::Duration stale_check = absl::Seconds(2);
};

// What the metrics trainingjob_* are made of, and what is seen of the nodes; each may be empty. Called from any thread.
struct ReconcilerHooks {
  std::function<void(const kube::EventToRecord&)> on_event;
  std::function<void()> on_stale;
  std::function<void(const JobRecord& before, const api::TrainingJobStatus& after)> on_status;
  std::function<void(std::string_view news)> on_status_write;               // essential, picture, progress
  std::function<std::optional<std::vector<std::string>>()> cordoned_nodes;  // as planner::Observed has them
};

struct ReconcileResult {
  absl::Status status;                          // an error: to be tried again after a back-off
  std::optional<absl::Duration> requeue_after;  // absent: only on a change
};

struct Decision {
  ReconcileResult result;  // unless something is to be carried out
  // Writes, and waits for the API server. To be called once, by any thread; empty: there is nothing to do.
  std::function<ReconcileResult()> carry_out = nullptr;
};

// Brings one job a step nearer to what it asks for. A pass looks into the caches and plans, which waits for nobody;
// then it stores the status, and only then acts. Each step is a piece of its own:
//
//   OwnWrites          may the caches be acted on?
//   TemplateCheck      what does the platform say of the templates?          (before the first pod only)
//   RollCall           who is there, and who vanished?
//   Questions          how often is the coordinator asked?
//   planner::MakePlan  what is to be done?
//   pace               when is the status stored?
//   Discovery          where is the coordinator found?
//   JobPods            pods are made and deleted
//   DisruptionBudget   may a ps be evicted?
//
// It never acts on a cache that has not seen its own writes: names are deterministic and writes carry preconditions, so
// that what slips through is refused by the server. What it remembers of a job between two passes is dispensable:
// losing it costs a write or a question, never a mistake.
//
// Both halves of a decision about one key are for one thread at a time; different keys in parallel. Thread-safe
// otherwise.
class Reconciler {
 public:
  // All outlive it. `clock`: seconds since 1970.
  Reconciler(ReconcilerOptions options, kube::Client* client, const kube::Store<JobRecord>* jobs,
             const kube::Store<Pod>* pods, CoordinatorGateway* gateway, ReconcilerHooks hooks,
             std::function<double()> clock);

  // A pass over the job of this key, "NAMESPACE/NAME". What it decides is to be carried out before the next. If there
  // is no such job (NAME may be empty), over what was shared by those of its namespace.
  Decision Decide(const std::string& key);

 private:
  // What is remembered of a job between two passes.
  struct Memory {
    std::string uid;
    bool over = false;          // the job, for good
    double status_written = 0;  // by this process, last
    OwnWrites writes;
    TemplateCheck templates;
    RollCall roll_call;
    Questions questions;
    Discovery discovery;
    DisruptionBudget budget;
    Hold starts;  // of pods, and what comes before them
  };

  // One pass, from what it sees to what comes of it.
  struct Pass {
    kube::Store<JobRecord>::Pointer record;
    Pods pods;
    double now = 0;
    Load load;
    Memory memory;
  };
  // A plan, and what else is to be done in this pass.
  struct Work {
    planner::Plan plan;
    News news = News::kNone;               // of the status that is to be stored now
    std::optional<std::string> published;  // where the coordinator is to be found from now on; absent: nothing changes
    bool publishes = false;                // now
    bool writes_budget = false;
    absl::Status checked;  // what came of checking the templates
    bool was_blocked = false;
    std::optional<absl::Duration> requeue_after;
  };

  Memory Recall(const std::string& key, const JobRecord& record);
  void Remember(const std::string& key, Memory memory);
  void Forget(const std::string& key);
  // Adds `memory` to what is counted of all of them, `times` 1, or takes it out, -1.
  void Count(const Memory& memory, int times) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Load CurrentLoad() const;
  // Whether the cache knows of no change of the job's specification, nor of its deletion, since `record`.
  bool IsCurrent(const JobRecord& record) const;

  // Where there is no job of this key: the service of its namespace goes after the last one.
  Decision RemoveService(const std::string& key);
  Decision RefuseSpec(const std::shared_ptr<Pass>& pass);
  // Looks at the templates if that is due, and plans.
  Decision Advance(const std::shared_ptr<Pass>& pass);
  // `checked`: what came of looking at the templates.
  Decision Plan(const std::shared_ptr<Pass>& pass, const absl::Status& checked);
  planner::Observed Observe(Pass& pass);
  static bool IsIdle(const Work& work);
  // Status before action.
  ReconcileResult Do(Pass& pass, const Work& work);
  absl::Status StoreStatus(Pass& pass, const api::TrainingJobStatus& status);
  absl::Status CarryOut(Pass& pass, const planner::Plan& plan);
  absl::Status Start(Pass& pass, const std::vector<planner::Action>& starts);
  // If it cannot, when to try next.
  std::optional<absl::Duration> WriteBudget(Pass& pass, const std::optional<planner::ProtectedPs>& wanted);
  void Emit(const JobRecord& record, const std::vector<planner::Event>& events) const;

  const ReconcilerOptions options_;
  kube::Client* const client_;
  const kube::Store<JobRecord>* const jobs_;
  const kube::Store<Pod>* const pods_;
  CoordinatorGateway* const gateway_;
  const ReconcilerHooks hooks_;
  const std::function<double()> clock_;
  NamespaceServices services_;
  JobPods job_pods_;
  mutable absl::Mutex mutex_;
  std::unordered_map<std::string, Memory> memories_ ABSL_GUARDED_BY(mutex_);
  int over_ ABSL_GUARDED_BY(mutex_) = 0;    // of these
  int moving_ ABSL_GUARDED_BY(mutex_) = 0;  // likewise
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_RECONCILER_H_
