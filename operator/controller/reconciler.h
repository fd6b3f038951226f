#ifndef DOWNPOUR_OPERATOR_CONTROLLER_RECONCILER_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_RECONCILER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "operator/controller/coordinator_gateway.h"
#include "operator/controller/job_record.h"
#include "operator/controller/namespace_services.h"
#include "operator/controller/objects.h"
#include "operator/controller/pod.h"
#include "operator/controller/thread_pool.h"
#include "operator/kube/client.h"
#include "operator/kube/event_recorder.h"
#include "operator/kube/informer.h"
#include "operator/planner/plan.h"

namespace downpour::controller {

struct ReconcilerOptions {
  ImageOptions images;
  // A status in which nothing but the picture changed (phase, counts, messages) is written at most this often; where
  // nothing but progress did, at most that often.
  absl::Duration picture_interval = absl::Seconds(5);
  absl::Duration progress_interval = absl::Seconds(10);
  // How often a coordinator is asked: while a job starts, recovers or ends, and while it trains.
  absl::Duration ask_interval = absl::Seconds(1);
  absl::Duration ask_interval_at_rest = absl::Seconds(10);
  // Where many jobs run, each has to wait longer for its turn: these times the number of jobs that are not over. One
  // that starts, recovers or ends shares the turns of those that do so too, but is asked as often as a job at rest, and
  // often enough to hear why its pods ended before the planner takes that for failures (ten seconds). One that nobody
  // has heard of and whose pods do not all run yet, or that could not be told ready yet as others wait for it (see
  // below), has nothing urgent to say, and is asked like one at rest.
  absl::Duration write_spacing = absl::Milliseconds(250);
  absl::Duration ask_spacing = absl::Milliseconds(50);
  absl::Duration ask_interval_after_end = absl::Seconds(3);
  // So long all must have trained before evictions are held up: until then there is little to lose, and a platform
  // that starts many jobs has more urgent things to do. Longer where many run, like the writes above.
  absl::Duration budget_delay = absl::Minutes(1);
  // That a job is ready is told at once, unless many become ready together where writing is slow, as making pods comes
  // first: after a burst so many times pass from one such status to the next as storing one takes lately. None waits
  // longer than the patience, or than the turns of writes above where many run.
  // A job's first status likewise, which says nothing yet that its pods do not: see Reconciler.
  int telling_burst = 20;
  double telling_gap = 20;
  absl::Duration telling_patience = absl::Minutes(1);
  int most_parallel = 50;  // writes of one job at a time
  // A cache that has not seen our own write after so long is reported, and waited for nevertheless.
  absl::Duration stale_check = absl::Seconds(2);
};

// What the metrics trainingjob_* are made of; each may be empty. Called from any thread.
struct ReconcilerHooks {
  std::function<void(const kube::EventToRecord&)> on_event;
  std::function<void()> on_stale;
  std::function<void(const JobRecord& before, const api::TrainingJobStatus& after)> on_status;
  std::function<void(std::string_view news)> on_status_write;  // essential, picture, progress
};

// What a status to be stored says that the stored one does not.
enum class News {
  kNone,
  kProgress,
  kPicture,    // phase, counts, messages: for people
  kReady,      // all members train: people wait for it, no decision does
  kEssential,  // what later decisions rest on, or people wait for
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

// Brings one job a step nearer to what it asks for: looks into the caches and plans, which waits for nobody; then
// stores the status and acts. Both halves of one key are for one thread at a time; different keys in parallel.
// Thread-safe otherwise.
//
// It never acts on a cache that has not seen its own writes: names are deterministic and writes carry preconditions, so
// that what slips through is refused by the server.
//
// A status is stored before anything is done that it speaks of. One may wait: the first, as long as it says no more
// than that each member was started once. Until it is stored this memory goes by it. A leader that comes after and
// finds a job without a status takes each member for started once already, so that no incarnation is given out twice.
class Reconciler {
 public:
  // All outlive it. `clock`: seconds since 1970.
  Reconciler(ReconcilerOptions options, kube::Client* client, const kube::Store<JobRecord>* jobs,
             const kube::Store<Pod>* pods, CoordinatorGateway* gateway, ReconcilerHooks hooks,
             std::function<double()> clock);

  // The uids of all jobs that there were, asked for anew, after this process began to lead: of these a leader before
  // may have started members of which nothing tells. Before the first pass.
  void SetFound(std::unordered_set<std::string> uids);

  // A pass over the job of this key, "NAMESPACE/NAME". What it decides is to be carried out before the next. If there
  // is no such job (NAME may be empty), over what was shared by those of its namespace.
  Decision Decide(const std::string& key);

 private:
  // What is remembered of a job between two passes. Losing that of all jobs, and SetFound anew, costs a write or a
  // question, never a mistake.
  struct Memory {
    std::string uid;
    std::uint64_t jobs_version = 0;  // the cache must have seen these of our own writes
    std::uint64_t pods_version = 0;
    std::unordered_set<std::string> deleted;  // uids of pods that we deleted
    // Pods that may run and whose end is not accounted for yet. One that is in no cache any more vanished without a
    // trace, as while the operator was deaf.
    std::vector<kube::Store<Pod>::Pointer> alive;
    double status_written = 0;
    struct Untold {
      double since = 0;
      std::optional<double> turn;  // when to tell it
    };
    std::optional<Untold> untold_ready;  // the job is ready, and the stored status does not say so
    struct Unwritten {
      api::TrainingJobStatus status;
      Untold untold;
    };
    std::optional<Unwritten> unwritten;  // the first status of the job, which waits for its turn
    // So that what is refused is not asked for again and again.
    struct Hold {
      std::optional<planner::Obstacle> obstacle;
      int refusals = 0;  // in a row
      double until = 0;
    };
    Hold starts;      // of pods, and what comes before them
    Hold publishing;  // where the coordinator is found, which does not wait for pods that are refused
    std::int64_t templates_checked = 0;  // the newest generation on which there is a verdict
    std::string template_error;
    double template_check_time = 0;
    enum class Slice { kUnknown, kMissing, kThere };  // the job's EndpointSlice
    Slice slice = Slice::kUnknown;
    std::string published;    // the address that it says, if it is there; empty: none
    double published_at = 0;  // or seen there
    bool budget_made = false;
    std::optional<double> ready_since;  // the first time that this memory knows of
    double budget_held_until = 0;       // after a refusal
    bool over = false;                  // the job, for good
    bool moves = false;                 // the job starts, recovers or ends, and its coordinator is asked about it
    std::string coordinator;            // the uid of its pod, which is asked
    absl::Duration ask;                 // how often, or somewhat oftener
    double asked_since = 0;             // no answer may have been expected before
  };

  // One pass, from what it sees to what comes of it.
  struct Pass {
    kube::Store<JobRecord>::Pointer stored;  // what the cache has
    kube::Store<JobRecord>::Pointer record;  // the same with the status that it may not have yet
    std::vector<kube::Store<Pod>::Pointer> pods;
    double now = 0;
    Memory memory;
  };

  Memory Recall(const std::string& key, const std::string& uid);
  void Remember(const std::string& key, Memory memory);
  void Forget(const std::string& key);
  // Adds `memory` to what is counted of all of them, `times` 1, or takes it out, -1.
  void Count(const Memory& memory, int times) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How far the caches have seen everything, read before what is taken out of them.
  struct Seen {
    std::uint64_t jobs_version = 0;
    std::uint64_t pods_version = 0;
  };
  static bool IsStale(const Memory& memory, const Seen& seen, const std::vector<kube::Store<Pod>::Pointer>& pods);
  // Whether the cache knows of no change of the job's specification, nor of its deletion, since `record`.
  bool IsCurrent(const JobRecord& record) const;
  // `interval`, or longer where many jobs run.
  absl::Duration Stretched(absl::Duration interval, absl::Duration spacing);
  // When a job that was written at `last` may be for people again.
  double NextWrite(const std::string& uid, absl::Duration interval, double last);
  // When `untold` is told: at a turn of its own, or about when to ask again for one where too many wait.
  double TurnToTell(const std::string& uid, Memory::Untold& untold, double now);
  // Whether turns to tell are taken for longer than now.
  bool IsRush(double now);
  // When the status of `plan`, which says `news`, is to be stored; nothing: not at all. Keeps it in the memory if it is
  // the job's first and has to wait.
  std::optional<double> StatusDue(Pass& pass, const planner::Plan& plan, News news);
  // Keeps in `memory` since when the job is ready without having been told, and says so in `status`.
  void NoteReady(const JobRecord& record, api::TrainingJobStatus& status, Memory& memory, double now);
  // Its instances are in the order of the pods, then those that vanished. What is remembered of pods that are in the
  // cache becomes what is there now.
  planner::Observed Observe(const JobRecord& record, const std::vector<kube::Store<Pod>::Pointer>& pods, Memory& memory,
                            const std::optional<CoordinatorGateway::Answer>& answer) const;
  // Until when the next answer may take of a coordinator that is asked as `memory` says.
  double AnswerDue(const Memory& memory, const planner::Observed& observed, double now) const;
  void FollowCoordinator(const JobRecord& record, const std::vector<kube::Store<Pod>::Pointer>& pods,
                         const planner::Observed& observed, Memory& memory, double now);
  // Once a status is stored, or none was needed: who is left whose end is not accounted for.
  static void NoteAlive(const std::vector<kube::Store<Pod>::Pointer>& pods, const api::TrainingJobStatus& status,
                        Memory& memory);
  // Whether the job is about to begin and nobody knows what the platform says of its templates.
  static bool LacksVerdict(const Pass& pass);
  // Keeps in `memory` what the platform says of the job's templates. An error: it says nothing yet.
  absl::Status CheckTemplates(const JobRecord& record, Memory& memory, double now);
  // What came of asking for something new, `what` in words should it have failed. Then it is not asked for again before
  // a back-off is over; what stood in the way before still does if the failure says nothing else.
  void NoteObstacle(const absl::Status& status, const std::string& what, Memory::Hold& hold) const;
  static const std::optional<planner::Obstacle>& StandsInTheWay(const Memory& memory);
  absl::Status StoreStatus(const JobRecord& record, const api::TrainingJobStatus& status, Memory& memory, double now);
  // When to make the PodDisruptionBudget of the parameter servers: once all members have trained for a while.
  std::optional<double> BudgetDue(const api::TrainingJobStatus& status, Memory& memory, double now);
  // Makes it; if it cannot, when to try next.
  std::optional<absl::Duration> Protect(const JobRecord& record, Memory& memory, double now);
  absl::Status CarryOut(const JobRecord& record, const planner::Plan& plan,
                        const std::vector<kube::Store<Pod>::Pointer>& pods, Memory& memory);
  absl::Status Start(const JobRecord& record, const std::vector<planner::Action>& starts,
                     const std::vector<kube::Store<Pod>::Pointer>& pods, Memory& memory);
  // Whether the job's slice says this address, or none if it is empty, as far as is known or worth a question.
  static bool IsPublished(const std::string& address, const api::TrainingJobStatus& status, const Memory& memory);
  // Lets the coordinator be found at `address`; empty: nowhere.
  absl::Status Publish(const JobRecord& record, const std::string& address, Memory& memory);
  absl::Status WriteSlice(const JobRecord& record, const std::string& address, Memory& memory);
  // Made now, or there already and ours. kAlreadyExists: somebody else's.
  absl::StatusOr<kube::Json> CreateOwned(const JobRecord& record, const kube::Resource& resource,
                                         const kube::Json& object);
  absl::Status Remove(const JobRecord& record, const std::vector<const planner::Action*>& removals,
                      const std::vector<kube::Store<Pod>::Pointer>& pods, Memory& memory);
  absl::Status DeletePod(const Pod& pod, bool at_once, Memory& memory, absl::Mutex& memory_mutex);
  absl::Status CreatePod(const JobRecord& record, const planner::Action& start, const PodsOfRole& pods_of_role,
                         const std::vector<kube::Store<Pod>::Pointer>& pods, Memory& memory, absl::Mutex& memory_mutex);
  // Decides, on caches that are up to date.
  Decision Advance(const std::shared_ptr<Pass>& pass);
  // The same once the templates are checked, with what came of it.
  Decision Plan(const std::shared_ptr<Pass>& pass, const absl::Status& checked);
  // Where there is no job of this key: the service of its namespace goes after the last one.
  Decision RemoveService(const std::string& key);
  Decision RefuseSpec(const std::shared_ptr<Pass>& pass);
  // A plan, and what else is to be done in this pass.
  struct Work {
    planner::Plan plan;
    std::string_view news;                 // of the status that is to be stored, as metrics call it; empty: none is
    std::optional<std::string> published;  // where the coordinator is to be found from now on; absent: nothing changes
    bool publishes = false;                // now
    bool makes_budget = false;
    absl::Status checked;  // what came of checking the templates
    bool was_blocked = false;
    std::optional<absl::Duration> requeue_after;
  };
  static bool IsIdle(const Work& work);
  ReconcileResult Do(Pass& pass, const Work& work);
  void Emit(const JobRecord& record, const std::vector<planner::Event>& events) const;

  const ReconcilerOptions options_;
  kube::Client* const client_;
  const kube::Store<JobRecord>* const jobs_;
  const kube::Store<Pod>* const pods_;
  CoordinatorGateway* const gateway_;
  const ReconcilerHooks hooks_;
  const std::function<double()> clock_;
  std::unordered_set<std::string> found_;  // see SetFound
  NamespaceServices services_;
  ThreadPool helpers_;  // that make or delete the pods of a job beside the thread that carries its pass out
  absl::Mutex mutex_;
  std::unordered_map<std::string, Memory> memories_ ABSL_GUARDED_BY(mutex_);
  int over_ ABSL_GUARDED_BY(mutex_) = 0;                  // of these
  int moves_ ABSL_GUARDED_BY(mutex_) = 0;                 // likewise
  double status_seconds_ ABSL_GUARDED_BY(mutex_) = 0;     // that one takes to be stored lately
  double next_turn_to_tell_ ABSL_GUARDED_BY(mutex_) = 0;  // or earlier, by what is left of the burst
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_RECONCILER_H_
