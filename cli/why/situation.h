#ifndef DOWNPOUR_CLI_WHY_SITUATION_H_
#define DOWNPOUR_CLI_WHY_SITUATION_H_

#include <optional>
#include <string>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/planner/plan.h"

// Where a job stands, on a cluster or on this machine, as far as somebody outside can see it. Plain values.
namespace downpour::cli {

// What the platform reported about the job or one of its pods.
struct SituationEvent {
  double time = 0;  // the newest time it was seen
  int count = 1;
  std::string about;  // "worker-2"; empty: the job itself
  std::string reason;
  std::string message;
};

// Situation::outcome.
inline constexpr char kOutcomeSucceeded[] = "Succeeded";
inline constexpr char kOutcomeFailed[] = "Failed";

struct Situation {
  std::string subject;       // "lenet in namespace team-a", "run lenet-3"
  bool on_cluster = false;   // members are pods and an operator acts; else processes, and `downpour run` does
  std::string logs_command;  // to which --role and --index are added: "downpour logs lenet -n team-a"
  api::TrainingJob job;
  std::optional<double> created_time;
  bool deletion_requested = false;
  std::string managed_by;  // another controller; empty: our own
  std::string outcome;     // Succeeded, Failed, Stopped, Lost; empty: it goes on
  std::string outcome_message;
  std::string coordinator_message;  // what it says that it waits for; empty: nothing, or it was not asked
  // The members that are there or have ended. Absent: they could not be read.
  std::optional<std::vector<planner::Instance>> instances;
  std::vector<SituationEvent> events;
  std::vector<std::string> gaps;  // what could not be read and why, a sentence each
};

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_WHY_SITUATION_H_
