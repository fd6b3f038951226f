#ifndef DOWNPOUR_CLI_DRILL_DRILL_H_
#define DOWNPOUR_CLI_DRILL_DRILL_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "operator/api/training_job.h"

// What a drill decides and measures while it breaks a job on purpose. All pure; times are seconds on one clock. One
// kill at a time: the next waits until the job has recovered from the one before, so that what is measured is of one of
// them.
namespace downpour::cli {

// kNode: all pods of the job on one node.
enum class DrillKind { kWorker, kPs, kCoordinator, kNode };

std::string DrillKindName(DrillKind kind);
// "worker,ps", each once. kInvalidArgument: none, or another word.
absl::StatusOr<std::vector<DrillKind>> ParseDrillKinds(const std::string& text);

struct DrillOptions {
  std::vector<DrillKind> kinds;  // one is picked each time
  std::optional<int> index;      // absent: any
  double every = 5;              // from one kill to the next, at least
  double duration = 60;          // no kill after that
  double patience = 60;          // for the job to recover from each
  bool pause = false;            // a process is stopped for `stop_for` rather than killed
  double stop_for = 10;
};

// A process or a pod.
struct DrillMember {
  std::string id;  // of this very start
  api::Role role = api::Role::kWorker;
  int index = 0;
  std::string node;     // of a pod
  bool alive = false;   // it can be killed
  bool member = false;  // it takes part in the job
  double heard = 0;     // when the job last heard of it, if it is a member

  std::string name() const;  // "worker-2"
};

bool IsOfKind(const DrillMember& member, DrillKind kind);

struct DrillProgress {
  double word = 0;                    // another one with each time that it is said anew
  std::uint64_t generation = 0;       // another one after parameters were lost
  std::uint64_t updates = 0;          // applied
  std::uint64_t restored = 0;         // of these, what the generation began with
  std::optional<std::uint64_t> lost;  // by the newest loss; absent: not known
};

// How the job looks at `now`.
struct DrillLook {
  double now = 0;
  std::string outcome;  // "Succeeded", "Failed", ...; empty: it goes on
  bool training = false;
  std::vector<DrillMember> members;
  std::optional<DrillProgress> progress;  // absent: nobody could say
};

struct DrillAttack {
  DrillKind kind = DrillKind::kWorker;
  std::vector<DrillMember> victims;

  std::string what() const;  // "worker-2", "worker-0 and ps-1 on node n3"
};

// A kill, or a stop, and what came of it. Seconds count from `time`.
struct DrillKill {
  DrillAttack attack;
  double time = 0;
  std::optional<double> let_go;    // when a stopped process went on
  std::optional<double> replaced;  // all of them are members again
  std::optional<double> trained;   // an update more was applied
  double stood_still = 0;          // the longest time without one, until the job had recovered
  int rollbacks = 0;
  std::uint64_t lost = 0;  // updates
  bool job_succeeded = false;

  std::optional<double> word_before;      // the newest word of the progress at the kill
  std::optional<std::uint64_t> baseline;  // updates that the first word after it told

  bool recovered() const { return job_succeeded || (replaced.has_value() && trained.has_value()); }
  std::string missing() const;  // why it is not
};

struct DrillState {
  double start = 0;
  std::vector<DrillKill> kills;
  std::optional<double> word;
  std::optional<std::uint64_t> generation;
  std::uint64_t updates = 0;  // the most in this generation
  double last_rise = 0;
};

// Takes in what a look shows. Returns what happened, a line each.
std::vector<std::string> TakeLook(const DrillLook& look, DrillState* state);

// Notes a kill that was carried out after the last look, and began at `time`.
void NoteKill(const DrillAttack& attack, double time, DrillState* state);

enum class DrillStep { kWait, kKill, kLetGoOn, kEnd };

struct DrillDecision {
  DrillStep step = DrillStep::kWait;
  DrillAttack attack;  // of kKill
  std::string reason;  // of kEnd: why before its time; empty: it is over
};

// What to do now; `look` has been taken in.
DrillDecision DecideDrill(const DrillOptions& options, const DrillState& state, const DrillLook& look,
                          std::mt19937_64* random);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_DRILL_DRILL_H_
