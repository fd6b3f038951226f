#include "cli/why/explanation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/render/format.h"
#include "cli/render/test_metrics.h"
#include "cli/why/ring.h"
#include "operator/planner/checkpoint.h"
#include "operator/planner/conditions.h"
#include "operator/planner/context.h"
#include "operator/planner/disruption.h"
#include "operator/planner/failure.h"
#include "operator/planner/ring.h"

namespace downpour::cli {
namespace {

using planner::Instance;
using planner::InstanceName;
using planner::InstancePhase;

constexpr double kOperatorSeconds = 15;    // within which an operator looks at a new job
constexpr double kUncountedSeconds = 30;   // within which it writes down that a member ended
constexpr double kStandstillSeconds = 60;  // after progress should have been written
constexpr std::size_t kMostNames = 3;

// As it should be when true; of all others, known or not, the opposite holds.
constexpr std::string_view kGoodConditions[] = {planner::kReady,    planner::kScheduled, planner::kSuccessCriteriaMet,
                                                planner::kComplete, planner::kProtected, planner::kRingFormed};

std::string Capitalised(std::string text) {
  if (!text.empty() && text.front() >= 'a' && text.front() <= 'z') text.front() = static_cast<char>(text.front() - 32);
  return text;
}

// Without what a sentence around it changes: the first letter and the full stop.
absl::string_view WithoutEnds(absl::string_view text) {
  return absl::StripSuffix(text.substr(std::min<std::size_t>(1, text.size())), ".");
}

// With one full stop at the end.
std::string Sentence(absl::string_view text) {
  while (absl::ConsumeSuffix(&text, ".") || absl::ConsumeSuffix(&text, " ")) {
  }
  return absl::StrCat(Capitalised(std::string(text)), ".");
}

std::string NameList(const std::vector<std::string>& names) {
  if (names.size() <= kMostNames) return absl::StrJoin(names, ", ");
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + kMostNames, ", "), " and ",
                      names.size() - kMostNames, " more");
}

const char* IsOrAre(std::size_t count) { return count == 1 ? "is" : "are"; }

// "Exit code 3", "OOMKilled (exit code 137)", "Exit code 3 in the init container fetch".
std::string CauseText(const api::FailureRecord& failure) {
  std::string text = failure.cause;
  const bool told = absl::StartsWithIgnoreCase(text, "exit code") || absl::StartsWith(text, "Killed by signal");
  if (failure.exit_code.has_value() && !told) absl::StrAppend(&text, " (exit code ", *failure.exit_code, ")");
  if (failure.exit_code.has_value() && !failure.container.empty()) {
    absl::StrAppend(&text, " in the ", failure.container);
  }
  return text;
}

bool SameStory(const api::FailureRecord& a, const api::FailureRecord& b) {
  return a.role == b.role && a.index == b.index && a.cause == b.cause && a.node == b.node && a.action == b.action &&
         a.exit_code == b.exit_code && a.container == b.container && a.last_log_line == b.last_log_line;
}

class Explainer {
 public:
  Explainer(const Situation& situation, double now)
      : situation_(situation), status_(situation.job.status), spec_(situation.job.spec), now_(now) {
    SortMembers();
  }

  Explanation Take() {
    explanation_.subject = situation_.subject;
    AddFacts();
    AddHeadline();
    AddSection(situation_.on_cluster ? "Operator" : "Run", Doubts());
    AddSection("Conditions", Conditions());
    AddSection(FailureTitle(), Failures());
    AddSection(situation_.on_cluster ? "Pods that are not ready" : "Processes that are not ready", Members());
    AddSection("What happens next", Next());
    AddSection("Recent warnings", Events());
    AddSection("Could not be read", situation_.gaps);
    return std::move(explanation_);
  }

 private:
  const char* MemberWord(std::size_t count) const {
    if (situation_.on_cluster) return count == 1 ? "pod" : "pods";
    return count == 1 ? "process" : "processes";
  }
  const char* Thing() const { return situation_.on_cluster ? "job" : "run"; }
  bool Over() const { return !situation_.outcome.empty(); }
  bool Ending() const {
    return Over() || situation_.deletion_requested || planner::IsTrue(status_, planner::kFailureTarget) ||
           planner::IsTrue(status_, planner::kSuccessCriteriaMet);
  }
  bool NeverSeen() const {
    return situation_.on_cluster && status_.phase.empty() && status_.observed_generation == 0 && !Over();
  }
  std::string Since(double time) const { return FormatAge(now_ - time); }
  std::string Until(double time) const { return FormatAge(std::ceil(time - now_)); }

  void AddSection(std::string title, std::vector<std::string> lines) {
    if (!lines.empty()) explanation_.sections.push_back({std::move(title), std::move(lines)});
  }

  // Which members are missing, wait, start or stop.
  void SortMembers() {
    if (!situation_.instances.has_value() || Ending() || planner::IsTrue(status_, planner::kSuspended)) return;
    for (const api::Role role : planner::kStartOrder) {
      for (int index = 0; index < planner::RoleStatusOf(status_, role).desired; ++index) {
        const Instance* live = nullptr;
        for (const Instance& instance : *situation_.instances) {
          if (instance.role != role || instance.index != index || !planner::IsLive(instance)) continue;
          if (live == nullptr || instance.incarnation > live->incarnation) live = &instance;
        }
        if (live == nullptr) {
          missing_.emplace_back(role, index);
        } else if (live->terminating) {
          stopping_.push_back(live);
        } else if (live->phase == InstancePhase::kPending) {
          pending_.push_back(live);
        } else if (!live->ready) {
          unready_.push_back(live);
        }
      }
    }
  }

  void AddFacts() {
    std::vector<std::string> facts;
    facts.push_back(Over() ? situation_.outcome : status_.phase.empty() ? "no status" : status_.phase);
    if (!status_.phase.empty() && !Over()) {
      facts.push_back(absl::StrCat("workers ", status_.worker.ready, "/", status_.worker.desired));
      if (!planner::IsAllReduce(spec_)) {
        facts.push_back(absl::StrCat("ps ", status_.parameter_server.ready, "/", status_.parameter_server.desired));
      } else if (status_.ring.has_value()) {
        facts.push_back(absl::StrCat("ring of ", status_.ring->members, "/", status_.ring->wanted,
                                     status_.ring->formed ? "" : ", not formed"));
      }
      if (status_.slices.has_value() && planner::HasStandbys(spec_)) {
        facts.push_back(absl::StrCat("slices with a standby ", status_.slices->in_sync, "/", status_.slices->total));
      }
    }
    if (status_.progress.has_value() && status_.progress->total_steps > 0) {
      facts.push_back(absl::StrCat("update ", status_.progress->step, "/", status_.progress->total_steps));
    }
    if (const auto& checkpoint = status_.checkpoint; checkpoint.has_value() && !checkpoint->newest.empty()) {
      const std::string ago = checkpoint->time.has_value() ? absl::StrCat(" ", Since(*checkpoint->time), " ago") : "";
      facts.push_back(absl::StrCat("checkpoint of update ", checkpoint->updates, ago));
    }
    if (situation_.created_time.has_value()) facts.push_back(absl::StrCat("age ", Since(*situation_.created_time)));
    explanation_.facts = absl::StrJoin(facts, ", ");
  }

  void Say(Severity severity, std::string text) {
    explanation_.severity = severity;
    explanation_.headline = std::move(text);
  }

  // Uses a condition for the headline: its message need not be said again.
  void SayCondition(Severity severity, const char* type, const std::string& before, const std::string& after = "") {
    const api::Condition& condition = *planner::FindCondition(status_, type);
    told_.insert(type);
    std::string text = absl::StrCat(before, before.empty() ? "" : ": ", condition.message);
    Say(severity, absl::StrCat(Sentence(text), after.empty() ? "" : " ", after));
  }

  void AddHeadline() {
    if (Over()) return SayOutcome();
    if (situation_.deletion_requested) {
      const std::size_t left = situation_.instances.has_value() ? CountLive() : 0;
      return Say(Severity::kAttention, absl::StrCat("The job is being deleted", Left(left), "."));
    }
    if (!situation_.managed_by.empty()) {
      return Say(Severity::kAttention,
                 absl::StrCat("The job is left to another controller: spec.managedBy is ", situation_.managed_by, "."));
    }
    if (planner::IsTrue(status_, planner::kFailureTarget)) {
      return SayCondition(
          Severity::kAlarm, planner::kFailureTarget,
          absl::StrCat("the job is failing (", planner::FindCondition(status_, planner::kFailureTarget)->reason, ")"));
    }
    if (planner::IsTrue(status_, planner::kSuccessCriteriaMet)) {
      return Say(Severity::kFine, absl::StrCat("Training is finished", Left(CountLive()), WhatIsLeft(), "."));
    }
    if (NeverSeen()) return SayNeverSeen();
    if (SayPlatform()) return;
    SayMembers();
  }

  std::size_t CountLive() const {
    if (!situation_.instances.has_value()) return 0;
    return static_cast<std::size_t>(
        std::count_if(situation_.instances->begin(), situation_.instances->end(), planner::IsLive));
  }
  std::string Left(std::size_t count) const {
    if (count == 0) return "";
    return absl::StrCat("; ", count, " ", MemberWord(count), count == 1 ? " has" : " have", " not ended yet");
  }

  // What is to end and has not, a sidecar for instance.
  std::string WhatIsLeft() const {
    return CountLive() == 0 ? "" : absl::StrCat(": ", planner::WhatIsLive(*situation_.instances));
  }

  void SayOutcome() {
    const std::string ago =
        status_.completion_time.has_value() ? absl::StrCat(" ", Since(*status_.completion_time), " ago") : "";
    if (situation_.outcome == kOutcomeSucceeded) {
      std::string text = absl::StrCat("The ", Thing(), " finished", ago);
      if (status_.start_time.has_value() && status_.completion_time.has_value()) {
        absl::StrAppend(&text, ", ", FormatAge(*status_.completion_time - *status_.start_time), " after its start");
      }
      if (status_.progress.has_value()) {
        const std::string metrics = MetricsText(MetricsOf(*status_.progress));
        if (!metrics.empty()) absl::StrAppend(&text, "; test ", metrics);
      }
      if (status_.training.has_value() && !status_.training->stop_reason.empty()) {
        absl::StrAppend(&text, "; ", status_.training->stop_reason);
      }
      return Say(Severity::kFine, absl::StrCat(text, "."));
    }
    if (situation_.outcome == kOutcomeFailed) {
      const std::string reason = status_.reason.empty() ? "" : absl::StrCat(" (", status_.reason, ")");
      return Say(Severity::kAlarm,
                 Sentence(absl::StrCat("The ", Thing(), " failed", ago, reason,
                                       situation_.outcome_message.empty() ? "" : ": ", situation_.outcome_message)));
    }
    Say(Severity::kAttention,
        Sentence(situation_.outcome_message.empty() ? absl::StrCat("The ", Thing(), " is ", situation_.outcome)
                                                    : situation_.outcome_message));
  }

  void SayNeverSeen() {
    if (const std::size_t live = CountLive(); live > 0) {
      return Say(Severity::kAttention, absl::StrCat("The job begins: ", live, " ", MemberWord(live), " ", IsOrAre(live),
                                                    " there, and no status is stored yet."));
    }
    const double age = situation_.created_time.has_value() ? now_ - *situation_.created_time : 0;
    if (age < kOperatorSeconds) {
      return Say(Severity::kAttention, "The job was just made; no operator has looked at it yet.");
    }
    Say(Severity::kAlarm, absl::StrCat("No operator has looked at this job in the ", FormatAge(age),
                                       " since it was made: none runs, or it does not watch this namespace."));
  }

  // Conditions that say by themselves why nothing goes on.
  bool SayPlatform() {
    if (planner::IsTrue(status_, planner::kSpecInvalid)) {
      SayCondition(Severity::kAlarm, planner::kSpecInvalid, "the operator cannot read the spec");
    } else if (planner::IsTrue(status_, planner::kSuspended)) {
      SayCondition(Severity::kAttention, planner::kSuspended, "");
    } else if (planner::IsTrue(status_, planner::kTemplateInvalid)) {
      SayCondition(Severity::kAlarm, planner::kTemplateInvalid, "a pod template is refused", "Nothing was started.");
    } else if (planner::IsTrue(status_, planner::kBlocked)) {
      const std::string reason = planner::FindCondition(status_, planner::kBlocked)->reason;
      SayCondition(Severity::kAlarm, planner::kBlocked,
                   absl::StrCat("the platform refuses what the operator asks for (", reason, ")"));
    } else if (planner::IsTrue(status_, planner::kRestarting)) {
      SayCondition(Severity::kAttention, planner::kRestarting, "the whole job is restarted");
    } else if (planner::IsTrue(status_, planner::kParametersLost)) {
      SayCondition(Severity::kAlarm, planner::kParametersLost, "", WhatIsMissing());
    } else if (planner::IsTrue(status_, planner::kRecovering)) {
      SayCondition(Severity::kAttention, planner::kRecovering, "training stands still while the job recovers",
                   WhatIsMissing());
    } else {
      return false;
    }
    return true;
  }

  // "worker-2 is pending: Unschedulable: ...; worker-0 is started again in 4s"; empty: nothing is missing.
  std::string MissingText() const {
    std::vector<std::string> parts;
    if (!pending_.empty()) {
      std::string text = absl::StrCat(Names(pending_), " ", IsOrAre(pending_.size()), " pending");
      const auto with_word = std::find_if(pending_.begin(), pending_.end(),
                                          [](const Instance* one) { return !one->waiting_reason.empty(); });
      if (with_word != pending_.end()) absl::StrAppend(&text, ": ", (*with_word)->waiting_reason);
      parts.emplace_back(absl::StripSuffix(text, "."));
    }
    std::vector<std::string> due;
    for (const auto& [role, index] : missing_) {
      const std::string name = InstanceName(role, index);
      const double earliest = planner::EarliestStart(status_, spec_.failure_policy, role, index, now_);
      if (earliest <= now_) {
        due.push_back(name);
      } else if (parts.size() < kMostNames) {
        const api::FailureRecord* failure = NewestFailure(role, index);
        parts.push_back(absl::StrCat(name, " ended",
                                     failure == nullptr ? "" : absl::StrCat(" (", CauseText(*failure), ")"),
                                     " and is started again in ", Until(earliest)));
      }
    }
    if (!due.empty()) parts.push_back(absl::StrCat(NameList(due), " ", IsOrAre(due.size()), " not there"));
    if (!stopping_.empty())
      parts.push_back(absl::StrCat(Names(stopping_), " ", IsOrAre(stopping_.size()), " stopping"));
    if (!unready_.empty()) parts.push_back(absl::StrCat(Names(unready_), " ", IsOrAre(unready_.size()), " starting"));
    return absl::StrJoin(parts, "; ");
  }

  std::string WhatIsMissing() const {
    const std::string missing = MissingText();
    return missing.empty() ? "" : absl::StrCat("Now: ", missing, ".");
  }

  // What the headline says in full is cut to its first word.
  std::string WaitingText(const Instance& instance) const {
    const std::string& reason = instance.waiting_reason;
    if (!absl::StrContains(explanation_.headline, absl::StripSuffix(reason, "."))) return reason;
    return reason.substr(0, reason.find(':'));
  }

  static std::string Names(const std::vector<const Instance*>& instances) {
    std::vector<std::string> names;
    names.reserve(instances.size());
    for (const Instance* instance : instances) names.push_back(InstanceName(instance->role, instance->index));
    return NameList(names);
  }

  const api::FailureRecord* NewestFailure(api::Role role, int index) const {
    const auto found =
        std::find_if(status_.failures.rbegin(), status_.failures.rend(),
                     [&](const api::FailureRecord& failure) { return failure.role == role && failure.index == index; });
    return found == status_.failures.rend() ? nullptr : &*found;
  }

  // The status may not know yet what the pods show.
  std::string WorkersText() const {
    int ready = status_.worker.ready;
    if (situation_.instances.has_value()) {
      const auto shown =
          std::count_if(situation_.instances->begin(), situation_.instances->end(), [](const Instance& instance) {
            return instance.role == api::Role::kWorker && instance.ready && !instance.terminating;
          });
      ready = std::min(ready, static_cast<int>(shown));
    }
    return absl::StrCat(ready, " of ", status_.worker.desired, " workers");
  }

  void SayMembers() {
    const std::string missing = MissingText();
    const bool trains = status_.phase == "Running";
    if (trains && RingIsFormedAnew(situation_.job)) {
      const std::string why = RingMessage(situation_.job);
      told_.insert(planner::kRingFormed);
      return Say(Severity::kAttention,
                 absl::StrCat("Training stands still until its ring of workers is formed anew",
                              why.empty() ? "" : ": " + why, missing.empty() ? "" : "; " + missing, "."));
    }
    if (trains && missing.empty() && planner::IsTrue(status_, planner::kDrainWaits)) {
      return SayCondition(Severity::kAttention, planner::kDrainWaits, "the job trains");
    }
    if (trains && missing.empty() && planner::IsWanted(status_, planner::kSuspendRequest)) {
      return SayCondition(Severity::kAttention, planner::kSuspended, "the job still trains");
    }
    if (trains && missing.empty() && planner::IsTrue(status_, planner::kCheckpointFailing)) {
      return SayCondition(Severity::kAttention, planner::kCheckpointFailing, "the job trains");
    }
    const api::Condition* standbys = planner::FindCondition(status_, planner::kProtected);
    if (trains && missing.empty() && standbys != nullptr && !standbys->status) {
      return SayCondition(Severity::kAttention, planner::kProtected,
                          "the job trains, and the loss of a parameter server would cost progress");
    }
    if (trains && missing.empty()) {
      std::string text = "The job trains";
      if (status_.worker.ready < status_.worker.desired) absl::StrAppend(&text, " with ", WorkersText());
      const bool apart = RingLacksWorkers(situation_.job);
      if (apart) {
        const std::string why = RingMessage(situation_.job);
        absl::StrAppend(&text, "; ", status_.ring->members, " of ", status_.ring->wanted, " are in its ring",
                        why.empty() ? "" : ": " + why);
      }
      const api::Condition* lost = planner::FindCondition(status_, planner::kParametersLost);
      if (lost != nullptr) {  // not any more, or the headline would be another
        absl::StrAppend(&text, ". Parameters were lost, and ", Since(lost->last_transition_time), " ago ",
                        lost->message);
      } else if (!status_.failures.empty()) {
        const api::FailureRecord& newest = status_.failures.back();
        absl::StrAppend(&text, "; the newest failure was ", InstanceName(newest.role, newest.index), " ",
                        Since(newest.time), " ago (", CauseText(newest), ")");
      }
      const bool whole = status_.worker.ready >= status_.worker.desired && lost == nullptr && !apart;
      return Say(whole ? Severity::kFine : Severity::kAttention, absl::StrCat(text, "."));
    }
    if (trains) {
      return Say(Severity::kAttention, absl::StrCat("Training goes on with ", WorkersText(), ": ", missing, "."));
    }
    const std::string ring = RingMessage(situation_.job);
    if (!ring.empty()) told_.insert(planner::kRingFormed);
    if (!missing.empty()) {
      return Say(Severity::kAttention, absl::StrCat("Training waits: ", ring.empty() ? "" : ring + "; ", missing, "."));
    }
    const api::Condition* scheduled = planner::FindCondition(status_, planner::kScheduled);
    if (scheduled != nullptr && !scheduled->status) {
      return SayCondition(Severity::kAttention, planner::kScheduled, "training waits");
    }
    if (status_.phase == "Finishing") return Say(Severity::kFine, "Training is finished; the result is being written.");
    if (status_.phase == "Pending" && !situation_.instances.has_value()) {
      return Say(Severity::kAttention, "Training has not begun; nothing says why.");
    }
    if (!ring.empty()) return Say(Severity::kAttention, absl::StrCat("Training waits: ", ring, "."));
    if (!situation_.coordinator_message.empty()) {
      return Say(Severity::kAttention, absl::StrCat("Training waits: ", situation_.coordinator_message, "."));
    }
    Say(Severity::kAttention,
        absl::StrCat("Every ", MemberWord(1), " runs; training waits for the coordinator to say that it goes on."));
  }

  // Signs that whoever should act does not.
  std::vector<std::string> Doubts() const {
    std::vector<std::string> lines;
    if (Over() || NeverSeen() || !situation_.managed_by.empty()) return lines;
    const char* whether = situation_.on_cluster ? "does the operator run?" : "does `downpour run` hang?";
    if (situation_.on_cluster && status_.observed_generation < situation_.job.metadata.generation) {
      lines.push_back(absl::StrCat("the operator has acted on generation ", status_.observed_generation,
                                   " of the spec, the newest is ", situation_.job.metadata.generation,
                                   "; if that stays so: ", whether));
    }
    if (situation_.instances.has_value() && !Ending()) {
      for (const Instance& instance : *situation_.instances) {
        const auto& counted = status_.counted_uids;
        if (planner::IsLive(instance) || !instance.finished_time.has_value()) continue;
        if (now_ - *instance.finished_time < kUncountedSeconds) continue;
        if (std::find(counted.begin(), counted.end(), instance.uid) != counted.end()) continue;
        lines.push_back(absl::StrCat(InstanceName(instance.role, instance.index), " ended ",
                                     Since(*instance.finished_time), " ago and the status does not say so: ", whether));
        break;
      }
    }
    for (const auto& [role, index] : missing_) {
      const api::RoleStatus& counts = planner::RoleStatusOf(status_, role);
      const bool ended = std::any_of(
          situation_.instances->begin(), situation_.instances->end(),
          [&role = role, &index = index](const Instance& one) { return one.role == role && one.index == index; });
      if (ended || counts.ready < counts.desired) continue;
      lines.push_back(absl::StrCat(InstanceName(role, index),
                                   " is gone and the status does not say so; if that stays so: ", whether));
      break;
    }
    const bool unfinished = status_.progress.has_value() && status_.progress->step < status_.progress->total_steps;
    if (status_.phase == "Running" && unfinished && !situation_.deletion_requested && ProgressIsOverdue()) {
      lines.push_back(absl::StrCat("no progress was reported for ", Since(status_.progress->last_update_time),
                                   ": either training stands still, or ", whether));
    }
    return lines;
  }

  // The status is older than it should be. One of many jobs may be minutes old, and nothing is wrong with it.
  bool ProgressIsOverdue() const {
    if (!status_.progress.has_value()) return true;
    return now_ > status_.progress->next_update_time.value_or(status_.progress->last_update_time) + kStandstillSeconds;
  }

  std::vector<std::string> Conditions() const {
    std::vector<std::string> lines;
    if (Over()) {
      const api::Condition* const output = planner::FindCondition(status_, planner::kOutputTemporary);
      const bool told = output != nullptr && output->status && situation_.outcome == kOutcomeSucceeded;
      if (told) lines.push_back(absl::StrCat(output->type, ": ", output->message));
      return lines;
    }
    for (const api::Condition& condition : status_.conditions) {
      const bool good = std::find(std::begin(kGoodConditions), std::end(kGoodConditions), condition.type) !=
                        std::end(kGoodConditions);
      if (condition.status == good || condition.type == planner::kResumed) continue;
      // The facts and the list of members say the same, and more.
      const bool listed = !pending_.empty() || !stopping_.empty() || !unready_.empty() || !missing_.empty();
      if (condition.type == planner::kReady && listed) continue;
      std::string line = absl::StrCat(condition.type, " is ", condition.status ? "true" : "false", " for ",
                                      Since(condition.last_transition_time), ": ", condition.reason);
      const bool said =
          told_.count(condition.type) != 0 || (condition.type == planner::kScheduled && !pending_.empty());
      if (!said && !condition.message.empty()) {
        absl::StrAppend(&line, condition.reason.empty() ? "" : ", ", condition.message);
      }
      lines.push_back(std::move(line));
    }
    return lines;
  }

  std::string FailureTitle() const {
    const api::FailurePolicy& policy = spec_.failure_policy;
    return absl::StrCat(
        "Failures: ", status_.restarts_total, status_.restarts_total == 1 ? " restart, " : " restarts, ",
        status_.restarts_counted, " of them towards the limits (", policy.max_restarts_per_replica, " a member, ",
        policy.max_restarts, " the job, ",
        policy.window_seconds == 0 ? "for life" : absl::StrCat("within ", FormatAge(policy.window_seconds)), ")");
  }

  std::vector<std::string> Failures() const {
    std::vector<std::string> lines;
    const auto& failures = status_.failures;
    for (auto newest = failures.rbegin(); newest != failures.rend();) {
      auto other = std::next(newest);
      while (other != failures.rend() && SameStory(*newest, *other)) ++other;
      const auto times = std::distance(newest, other);
      std::string line = absl::StrCat(Since(newest->time), " ago, ", InstanceName(newest->role, newest->index), ": ",
                                      CauseText(*newest));
      if (!newest->node.empty()) absl::StrAppend(&line, " on ", newest->node);
      if (times > 1) absl::StrAppend(&line, ", ", times, " times");
      if (!newest->action.empty()) absl::StrAppend(&line, ", ", newest->action);
      if (!newest->counted) absl::StrAppend(&line, ", not counted");
      if (!newest->last_log_line.empty()) {
        absl::StrAppend(&line, ": \"", newest->last_log_line, "\"");
      } else if (newest->cause == "Hang" || newest->cause == "PendingTimeout") {
        const std::size_t why = newest->message.find("ended: ");
        absl::StrAppend(&line, ": ", newest->message.substr(why == std::string::npos ? 0 : why + 7));
      }
      lines.push_back(std::move(line));
      newest = other;
    }
    return lines;
  }

  // Those of whom the same is to be said share a line.
  std::vector<std::string> Members() const {
    std::vector<std::pair<std::string, std::vector<std::string>>> members;  // what is said, of whom
    for (const std::vector<const Instance*>* group : {&pending_, &stopping_, &unready_}) {
      for (const Instance* instance : *group) {
        const double since =
            instance->terminating ? instance->terminating_since.value_or(now_) : instance->created_time;
        std::string line = absl::StrCat(instance->terminating                        ? "stopping"
                                        : instance->phase == InstancePhase::kPending ? "pending"
                                                                                     : "starting",
                                        " for ", Since(since));
        if (!instance->node.empty()) absl::StrAppend(&line, " on ", instance->node);
        if (!instance->waiting_reason.empty()) absl::StrAppend(&line, ", ", WaitingText(*instance));
        const auto same =
            std::find_if(members.begin(), members.end(), [&line](const auto& one) { return one.first == line; });
        std::vector<std::string>& names =
            same == members.end() ? members.emplace_back(line, std::vector<std::string>()).second : same->second;
        names.push_back(InstanceName(instance->role, instance->index));
      }
    }
    std::vector<std::string> lines;
    lines.reserve(members.size());
    for (const auto& [line, names] : members) lines.push_back(absl::StrCat(NameList(names), ": ", line));
    return lines;
  }

  std::vector<std::string> Next() const {
    std::vector<std::string> lines;
    if (Over()) {
      if (spec_.ttl_seconds_after_finished.has_value() && status_.completion_time.has_value()) {
        lines.push_back(absl::StrCat("the job is deleted in ",
                                     Until(*status_.completion_time + *spec_.ttl_seconds_after_finished),
                                     " (ttlSecondsAfterFinished)"));
      }
      AddLogs(&lines);
      return lines;
    }
    if (situation_.deletion_requested || !situation_.managed_by.empty() || NeverSeen()) return lines;
    if (planner::IsTrue(status_, planner::kFailureTarget)) {
      lines.push_back(absl::StrCat("what still runs is stopped", WhatIsLeft(), "; then the job has failed"));
      AddLogs(&lines);
      return lines;
    }
    if (planner::IsTrue(status_, planner::kSuspended)) {
      const std::optional<api::CheckpointStatus>& checkpoint = status_.checkpoint;
      lines.push_back(absl::StrCat(
          checkpoint.has_value() && !checkpoint->newest.empty()
              ? absl::StrCat("the job goes on from ", checkpoint->newest, " (update ", checkpoint->updates, ")")
              : "the job starts anew",
          " when spec.suspend is false"));
      return lines;
    }
    if (planner::IsTrue(status_, planner::kSpecInvalid)) {
      lines.emplace_back("nothing, until the spec is mended or an operator that can read it runs");
      return lines;
    }
    if (planner::IsTrue(status_, planner::kTemplateInvalid)) {
      lines.emplace_back("the platform is asked again every 30 s, and at once when the spec changes");
      return lines;
    }
    if (planner::IsTrue(status_, planner::kBlocked)) {
      lines.emplace_back("it is tried again with a back-off; nothing needs to be done once the obstacle is gone");
    }
    AddRestarts(&lines);
    AddNeedlessPs(&lines);
    AddTimeouts(&lines);
    AddDeadlines(&lines);
    AddLogs(&lines);
    return lines;
  }

  void AddRestarts(std::vector<std::string>* lines) const {
    for (const auto& [role, index] : missing_) {
      const double earliest = planner::EarliestStart(status_, spec_.failure_policy, role, index, now_);
      lines->push_back(earliest > now_ ? absl::StrCat(InstanceName(role, index), " is started again in ",
                                                      Until(earliest), " (back-off)")
                                       : absl::StrCat(InstanceName(role, index), " is to be started now"));
    }
  }

  void AddNeedlessPs(std::vector<std::string>* lines) const {
    if (!status_.slices.has_value()) return;
    std::vector<std::string> names;
    for (const int index : status_.slices->parameter_servers) {
      if (index < status_.parameter_server.desired) continue;
      names.push_back(InstanceName(api::Role::kParameterServer, index));
    }
    if (names.empty()) return;
    lines->push_back(absl::StrCat(NameList(names), names.size() == 1 ? " ends" : " end",
                                  " once what is there has gone to the other parameter servers"));
  }

  void AddTimeouts(std::vector<std::string>* lines) const {
    const api::FailurePolicy& policy = spec_.failure_policy;
    const auto oldest = std::min_element(pending_.begin(), pending_.end(), [](const Instance* a, const Instance* b) {
      return a->created_time < b->created_time;
    });
    if (oldest != pending_.end() && policy.pending_timeout_seconds > 0) {
      const double deadline = (*oldest)->created_time + policy.pending_timeout_seconds;
      lines->push_back(absl::StrCat(
          InstanceName((*oldest)->role, (*oldest)->index), " counts as failed and is replaced ",
          deadline > now_ ? absl::StrCat("if still pending in ", Until(deadline)) : "now", " (pendingTimeoutSeconds)"));
    }
    for (const Instance* instance : stopping_) {
      if (!instance->terminating_since.has_value()) continue;
      const double deadline = *instance->terminating_since + policy.termination_timeout_seconds;
      lines->push_back(absl::StrCat(InstanceName(instance->role, instance->index), " is removed by force ",
                                    deadline > now_ ? absl::StrCat("if it is still there in ", Until(deadline)) : "now",
                                    " (terminationTimeoutSeconds)"));
    }
  }

  void AddDeadlines(std::vector<std::string>* lines) const {
    if (planner::IsTrue(status_, planner::kDrainWaits) && spec_.parameter_server.has_value()) {
      const bool saves = planner::SavesBeforeDrain(spec_);
      const double deadline =
          planner::DrainDeadline(spec_, planner::FindCondition(status_, planner::kDrainWaits)->last_transition_time);
      lines->push_back(absl::StrCat(
          "evictions of parameter servers are let through ",
          !status_.leaving_parameter_servers.empty()
              ? absl::StrCat("of those that hold nothing any more, and of all in ", Until(deadline))
          : saves ? absl::StrCat("when a checkpoint is made, or in ", Until(deadline), " (onDisruption.timeoutSeconds)")
                  : absl::StrCat("in ", Until(deadline), " (maxProtectSeconds)")));
    }
    if (planner::IsWanted(status_, planner::kSuspendRequest) && spec_.checkpoint.has_value()) {
      lines->push_back(
          absl::StrCat("the job is suspended when a checkpoint is made, or in ",
                       Until(status_.checkpoint_request->since + planner::RequestSeconds(*spec_.checkpoint))));
    }
    if (spec_.progress_deadline_seconds > 0 && status_.last_progress_time.has_value() &&
        (status_.phase != "Running" || ProgressIsOverdue())) {
      const double deadline = *status_.last_progress_time + spec_.progress_deadline_seconds;
      lines->push_back(absl::StrCat("the ", Thing(), " fails if no update is applied within ", Until(deadline),
                                    " (progressDeadlineSeconds)"));
    }
    if (spec_.active_deadline_seconds.has_value() && status_.start_time.has_value()) {
      lines->push_back(absl::StrCat("the ", Thing(), " fails if it is not finished within ",
                                    Until(*status_.start_time + *spec_.active_deadline_seconds),
                                    " (activeDeadlineSeconds)"));
    }
  }

  // Whose log to read: the newest failure's, or that of a member that runs and is not ready.
  void AddLogs(std::vector<std::string>* lines) const {
    std::optional<std::pair<api::Role, int>> whose;
    std::string container;  // empty: ours, which is all that `downpour logs` reads
    if (!unready_.empty()) {
      whose.emplace(unready_.front()->role, unready_.front()->index);
    } else if (!status_.failures.empty() && situation_.outcome != kOutcomeSucceeded) {
      // On a cluster the log goes with the pod; here it is kept.
      const api::FailureRecord& newest = status_.failures.back();
      const auto is_it = [&newest](const Instance& instance) { return instance.uid == newest.uid; };
      if (!situation_.on_cluster || (situation_.instances.has_value() &&
                                     std::any_of(situation_.instances->begin(), situation_.instances->end(), is_it))) {
        whose.emplace(newest.role, newest.index);
        container = newest.container.substr(newest.container.rfind(' ') + 1);  // "init container fetch"
      }
    }
    if (!whose.has_value()) return;
    const std::string name = InstanceName(whose->first, whose->second);
    if (!container.empty()) {
      const api::Metadata& job = situation_.job.metadata;
      lines->push_back(absl::StrCat("more in its log: kubectl logs ", job.name, "-", name, " -n ", job.namespace_name,
                                    " -c ", container));
      return;
    }
    lines->push_back(absl::StrCat("more in its log: ", situation_.logs_command, " --role ",
                                  name.substr(0, name.rfind('-')), " --index ", whose->second));
  }

  std::vector<std::string> Events() const {
    std::vector<const SituationEvent*> events;
    for (const SituationEvent& event : situation_.events) {
      // What the headline or the failures say need not be said again.
      const bool said =
          absl::StrContains(explanation_.headline, WithoutEnds(event.message)) ||
          event.reason == planner::kOutputTemporary ||  // the condition has it as it is now
          event.reason == planner::kCheckpointTemporary || event.reason == planner::kCheckpointFailing ||
          std::any_of(status_.failures.begin(), status_.failures.end(),
                      [&event](const api::FailureRecord& failure) { return failure.message == event.message; });
      if (!said) events.push_back(&event);
    }
    std::stable_sort(events.begin(), events.end(),
                     [](const SituationEvent* a, const SituationEvent* b) { return a->time > b->time; });
    std::vector<std::string> lines;
    lines.reserve(events.size());
    for (const SituationEvent* event : events) {
      lines.push_back(absl::StrCat(Since(event->time), " ago, ", event->about.empty() ? "" : event->about + ": ",
                                   event->reason, event->count > 1 ? absl::StrCat(" (", event->count, " times)") : "",
                                   ": ", event->message));
    }
    return lines;
  }

  const Situation& situation_;
  const api::TrainingJobStatus& status_;
  const api::TrainingJobSpec& spec_;
  const double now_;
  Explanation explanation_;
  std::set<std::string> told_;  // conditions whose message is in the headline
  std::vector<const Instance*> pending_, stopping_, unready_;
  std::vector<std::pair<api::Role, int>> missing_;
};

}  // namespace

Explanation Explain(const Situation& situation, double now) { return Explainer(situation, now).Take(); }

std::string MemberState(const Instance& instance) {
  if (!planner::IsLive(instance)) return "ended";
  if (instance.terminating) return "stopping";
  if (instance.phase == InstancePhase::kRunning) return instance.ready ? "running" : "starting";
  const std::string word = instance.waiting_reason.substr(0, instance.waiting_reason.find(':'));
  return word.empty() ? "pending" : word;
}

}  // namespace downpour::cli
