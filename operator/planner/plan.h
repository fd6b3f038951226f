#ifndef DOWNPOUR_OPERATOR_PLANNER_PLAN_H_
#define DOWNPOUR_OPERATOR_PLANNER_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/training_job.h"

// The planner: a pure function from what is wanted and what is seen to what to do next. Level-based: it looks at what
// is, never at which event came. The cluster backend carries the actions out with pods, the process backend with local
// processes. Times are seconds of one clock that the caller chooses and that never goes back.
namespace downpour::planner {

enum class InstancePhase { kPending, kRunning, kSucceeded, kFailed };

// A pod or a local process, as seen. One that has ended stays in the list until the stored status names its uid in
// counted_uids, or until its replacement is started; so no failure goes uncounted. A start that fails is an instance
// that failed.
struct Instance {
  std::string uid;
  api::Role role = api::Role::kWorker;
  int index = 0;
  int incarnation = 1;
  InstancePhase phase = InstancePhase::kPending;
  bool terminating = false;                 // asked to stop, still there
  std::optional<double> terminating_since;  // absent: unknown, then it is never stopped by force
  bool ready = false;                       // the coordinator counts this very instance as a member
  double created_time = 0;
  std::optional<double> started_time;  // when it began to run; absent: it has not, or nobody knows
  std::optional<double> finished_time;
  std::optional<int> exit_code;                   // 128 + signal where a signal ended it
  std::string container;                          // of a pod: whose the code is, "init container fetch"; empty: ours
  std::string reason;                             // pod or container reason: OOMKilled, Evicted, Error, ...
  std::vector<api::PodConditionRule> conditions;  // DisruptionTarget and the like
  std::string disruption;                         // reason of DisruptionTarget: PreemptionByScheduler, ...
  std::string last_log_line;
  std::string node;                             // where it runs; empty: not known
  std::string waiting_reason;                   // why it is pending: "REASON: words of the platform"; empty: no word
  std::vector<std::string> running_containers;  // of a pod: the names of those that run, whosever they are
};

// One of spec.model.metrics, over the whole test set.
struct TestMetric {
  std::string name;
  double value = 0;
  friend bool operator==(const TestMetric&, const TestMetric&) = default;
};

// How far a checkpoint is that was asked for (ProgressRequest.checkpoint_request).
enum class RequestState { kNone, kPending, kDone, kFailed };

struct CheckpointReport {
  std::string newest;         // URI; empty: none of this job yet
  std::uint64_t updates = 0;  // that it holds
  double time = 0;            // when it was made, on the planner's clock
  int written = 0;            // by this coordinator
  int failed = 0;             // likewise
  std::string error;          // why the newest attempt failed; empty: it did not
  std::string request;        // the wish that `request_state` is about
  RequestState request_state = RequestState::kNone;
};

// The checkpoint that the generation began with.
struct Restoration {
  std::string checkpoint;  // URI
  std::uint64_t updates = 0;
  std::vector<std::string> skipped;  // newer ones that were not used: "NAME: why"
  std::optional<std::uint64_t> lost_updates;
  std::optional<double> lost_seconds;  // of training
};

// Of the slices of the parameters.
struct ReplicationReport {
  int slices = 0;
  int in_sync = 0;      // of these, with a standby that has all that was acknowledged
  int moving = 0;       // that are being copied
  std::string message;  // what is under way, or why nothing is; empty: all is as wanted
};

// What the coordinator was told with a question about its parameter servers.
struct ToldOfPs {
  std::int64_t revision = 0;    // generation of the manifest that says how many there are to be; 0: none was told
  std::vector<int> leaving_ps;  // that are to hold nothing
};

enum class CoordinatorPhase { kUnknown, kStarting, kRecovering, kTraining, kFinishing, kDone, kFailed };

// The coordinator's last answer. Absent: it never answered. Old answers carry their age; unknown is never zero.
// What a worker computes on, in its own words: "cpu, ..." or "cuda, ...".
struct WorkerDevice {
  int index = 0;
  std::string device;
  int count = 1;  // of devices
};

struct CoordinatorReport {
  double received_time = 0;
  CoordinatorPhase phase = CoordinatorPhase::kUnknown;
  std::string message;
  std::string failure_reason;  // of kFailed, in CamelCase; empty: none of its own
  std::uint64_t generation = 0;
  std::uint64_t updates_applied = 0;
  std::uint64_t updates_expected = 0;
  bool parameters_lost = false;
  int epoch = 0;                                 // of the data set, from 1; 0: none has begun
  std::optional<api::UpdateModeStatus> mode;     // absent: not every ps has taken one up
  double samples_per_second = 0;                 // 0: not known
  std::optional<double> loss;                    // mean over the newest updates
  std::string outcome;                           // how training came to its end; empty: all epochs are done
  std::optional<api::TrainingStatus> training;   // what evaluations decided; absent: nothing
  std::optional<double> test_accuracy;           // of the newest evaluation; absent: none, or it measures no accuracy
  std::vector<TestMetric> test_metrics;          // of the newest evaluation, in the order of the manifest
  std::vector<std::string> warnings;             // what the job goes on without
  std::optional<api::OutputStatus> model;        // once it is written
  std::optional<CheckpointReport> checkpoint;    // absent: the job has no store
  std::optional<Restoration> restoration;        // absent: it began with initial values
  std::optional<ReplicationReport> replication;  // absent: nothing is known yet
  std::optional<api::RingStatus> ring;           // of all-reduce; absent: nothing is known yet
  std::vector<WorkerDevice> devices;             // of those that have told, by index
  std::vector<int> placed_ps;                    // with a place in the view in force; empty: nobody knows
  ToldOfPs told;                                 // with the question that this answers
};

// Why the actions of the newest plan could not be carried out: a quota, a name that somebody else owns, ...
struct Obstacle {
  std::string reason;  // enumerable: QuotaExceeded, NameConflict, ...
  std::string message;
};

struct Observed {
  bool deletion_requested = false;
  std::optional<Obstacle> obstacle;
  double starts_held_until = 0;  // after an obstacle: nothing is started before
  // What the platform has against the job's templates; empty: nothing.
  std::string template_error;
  bool templates_unchecked = false;  // nobody knows yet what it says of them: a job that has not begun does not begin
  // Of a job that has not begun: its output directory, if that is in no volume that outlives its pod; else empty.
  std::string temporary_output;
  // Likewise: the templates that mount no volume that outlives their pods where checkpoints go: "A and B"; else empty.
  std::string temporary_checkpoints;
  std::string gpus;     // the resource of GPUs that the workers' template asks for: "nvidia.com/gpu"; empty: none
  int worker_gpus = 1;  // on which each is to compute
  std::vector<Instance> instances;
  std::optional<CoordinatorReport> report;
  // On which nothing is scheduled any more, as they are drained; absent: nobody knows.
  std::optional<std::vector<std::string>> cordoned_nodes;
  // The coordinator's next answer may take until then, as it is asked now and then, or has not been asked by this
  // caller before. That there is none yet says nothing. 0: it is asked all the time.
  double answer_due = 0;
};

enum class ActionType {
  kStoreStatus,  // must be durable before any later action of the same plan
  kStart,        // role, index, incarnation; what is left of an ended instance of this role and index is removed first
  kStop,         // uid: graceful, then forced after the grace period
  kForceStop,    // uid: stuck in terminating
  kFinish,       // tell coordinator and ps to exit 0: the outcome is stored. May be repeated
  kRemove,       // uid: what is left of an instance that has ended, once the job is over (podCleanup)
  kDeleteJob,    // the job itself, ttlSecondsAfterFinished after its end
};

struct Action {
  ActionType type = ActionType::kStart;
  api::Role role = api::Role::kWorker;
  int index = 0;
  int incarnation = 0;
  std::string uid;
  std::string reason;                         // for people
  std::vector<std::string> avoid_nodes = {};  // kStart: the nodes that it must not run on
};

struct Event {
  bool warning = false;
  std::string reason;  // enumerable: WorkerReplaced, PsLost, JobFailed, ...
  std::string message;
};

// The parameter servers that evictions are kept away from.
struct ProtectedPs {
  int count = 0;          // so many have to stay
  std::vector<int> free;  // indices of those that need not: they hold nothing, and no place is made for anything there
  friend bool operator==(const ProtectedPs&, const ProtectedPs&) = default;
};

struct Plan {
  std::vector<Action> actions;          // in the order they must be carried out
  api::TrainingJobStatus status;        // differs from the stored one only if the first action is kStoreStatus
  std::vector<Event> events;            // to be emitted once, after the status was stored
  std::optional<double> requeue_after;  // seconds; absent: only on a change
  // Set while evictions of parameter servers are to be held up. Means nothing of a job that is over.
  std::optional<ProtectedPs> protected_ps;
};

// `job.status` is the status stored last. Deterministic; no I/O, no clock, no randomness. A caller that stops between
// any two actions plans anew from the stored status and what it then sees.
//
// Start order: one plan starts coordinator, ps and workers, in this order of its actions; nobody waits for anybody, as
// ps and workers repeat their first call until the coordinator answers. Each start takes a fresh incarnation, also
// where one was given out but never seen to start: gaps are fine, reuse is not.
//
// The list of instances must show what earlier actions of this caller did.
Plan MakePlan(const api::TrainingJob& job, const Observed& observed, double now);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_PLAN_H_
