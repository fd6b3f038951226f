#include "operator/planner/elastic.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace downpour::planner {
namespace {

using api::AbsenceState;
using api::AbsentWorker;

constexpr std::size_t kMostNames = 5;  // in a message

template <class Absences>
auto LowerBound(Absences& absent, int index) {
  return std::lower_bound(absent.begin(), absent.end(), index,
                          [](const AbsentWorker& worker, int wanted) { return worker.index < wanted; });
}

const AbsentWorker* FindAbsent(const api::TrainingJobStatus& status, int index) {
  const auto found = LowerBound(status.absent_workers, index);
  return found != status.absent_workers.end() && found->index == index ? &*found : nullptr;
}

bool IsInState(const api::TrainingJobStatus& status, api::Role role, int index, AbsenceState state) {
  if (role != api::Role::kWorker) return false;
  const AbsentWorker* absent = FindAbsent(status, index);
  return absent != nullptr && absent->state == state;
}

void SetAbsent(api::TrainingJobStatus& status, const AbsentWorker& worker) {
  const auto found = LowerBound(status.absent_workers, worker.index);
  if (found != status.absent_workers.end() && found->index == worker.index) {
    *found = worker;
  } else {
    status.absent_workers.insert(found, worker);
  }
}

std::string Names(const std::vector<int>& indices) {
  std::string names;
  for (std::size_t i = 0; i < std::min(indices.size(), kMostNames); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", InstanceName(api::Role::kWorker, indices[i]));
  }
  if (indices.size() > kMostNames) absl::StrAppend(&names, " and ", indices.size() - kMostNames, " more");
  return names;
}

// One pass of the policy over the workers of an elastic job.
class Pass {
 public:
  explicit Pass(Context& context)
      : context_(context),
        elastic_(*context.job.spec.elastic),
        status_(context.status),
        desired_(DesiredReplicas(context.job.spec, api::Role::kWorker)),
        live_(static_cast<std::size_t>(desired_), nullptr) {
    for (const Instance& instance : context.observed.instances) {
      if (instance.role != api::Role::kWorker || instance.index >= desired_ || !IsLive(instance)) continue;
      const Instance*& newest = live_[static_cast<std::size_t>(instance.index)];
      if (newest == nullptr || instance.incarnation > newest->incarnation) newest = &instance;
    }
  }

  void Run() {
    const int before = CountGivenUp(status_);
    ForgetPresent();
    TryAgain();
    GiveUp();
    KeepMinimum();
    Report(before);
  }

 private:
  bool Runs(int index) const {
    const Instance* instance = live_[static_cast<std::size_t>(index)];
    return instance != nullptr && instance->phase == InstancePhase::kRunning && !instance->terminating &&
           !context_.IsAccounted(*instance);
  }

  // Since when the worker waits for a place; absent: it does not.
  std::optional<double> WaitsSince(int index) const {
    if (Runs(index)) return std::nullopt;
    if (const AbsentWorker* absent = FindAbsent(status_, index)) {
      return absent->state == AbsenceState::kParked ? std::nullopt : std::optional(absent->since);
    }
    const Instance* instance = live_[static_cast<std::size_t>(index)];
    if (instance == nullptr || instance->phase != InstancePhase::kPending || instance->terminating ||
        context_.IsAccounted(*instance)) {
      return std::nullopt;
    }
    return instance->created_time;
  }

  int Wanted() const { return desired_ - CountParked(status_, api::Role::kWorker, desired_); }

  void ForgetPresent() {
    std::erase_if(status_.absent_workers, [this](const AbsentWorker& absent) {
      if (absent.index >= desired_) return true;
      if (!Runs(absent.index)) return false;
      if (absent.state == AbsenceState::kRetrying) returned_.push_back(absent.index);
      return true;
    });
  }

  void TryAgain() {
    std::optional<double> newest;
    for (const AbsentWorker& absent : status_.absent_workers) {
      if (absent.state == AbsenceState::kParked) newest = std::max(newest.value_or(absent.since), absent.since);
    }
    if (!newest.has_value()) return;
    const double time = *newest + elastic_.grow_cooldown_seconds;
    if (context_.now < time) {
      context_.WakeAt(time);
      return;
    }
    for (int index = 0; index < desired_; ++index) {
      if (IsParked(status_, api::Role::kWorker, index)) {
        SetAbsent(status_, {index, AbsenceState::kRetrying, context_.now});
      } else if (WaitsSince(index).has_value()) {
        // Kept by the minimum alone: it takes part, lest it be given up for those that are only being tried.
        const AbsentWorker* absent = FindAbsent(status_, index);
        const AbsenceState state = absent == nullptr ? AbsenceState::kWaiting : absent->state;
        SetAbsent(status_, {index, state, context_.now});
      }
    }
  }

  // From the highest index down, as the user's own scaling down does.
  void GiveUp() {
    int wanted = Wanted();
    for (int index = desired_ - 1; index >= 0 && wanted > elastic_.min_replicas; --index) {
      const std::optional<double> since = WaitsSince(index);
      if (!since.has_value()) continue;
      const double deadline = *since + elastic_.shrink_after_seconds;
      if (context_.now < deadline) {
        context_.WakeAt(deadline);
        continue;
      }
      const AbsentWorker* absent = FindAbsent(status_, index);
      if (absent == nullptr || absent->state != AbsenceState::kRetrying) lost_.push_back(index);
      SetAbsent(status_, {index, AbsenceState::kParked, context_.now});
      context_.WakeAt(context_.now + elastic_.grow_cooldown_seconds);
      parked_ = true;
      --wanted;
      const Instance* instance = live_[static_cast<std::size_t>(index)];
      if (instance == nullptr) continue;
      context_.Account(*instance);  // its end is no failure, nor is that it is still pending
      if (why_.empty()) why_ = instance->waiting_reason;
    }
    if (why_.empty() && context_.observed.obstacle.has_value()) why_ = context_.observed.obstacle->message;
  }

  // The bounds and the wanted number may have changed.
  void KeepMinimum() {
    int missing = elastic_.min_replicas - Wanted();
    for (AbsentWorker& absent : status_.absent_workers) {
      if (missing <= 0) return;
      if (absent.state != AbsenceState::kParked) continue;
      absent = {absent.index, AbsenceState::kRetrying, context_.now};
      --missing;
    }
  }

  void Report(int given_up_before) {
    std::vector<int> given_up;
    for (const AbsentWorker& absent : status_.absent_workers) {
      if (absent.state != AbsenceState::kWaiting) given_up.push_back(absent.index);
    }
    const std::string size = absl::StrCat(desired_ - static_cast<int>(given_up.size()), " of ", desired_, " workers");
    if (!returned_.empty()) context_.Emit(false, "Grown", absl::StrCat(Names(returned_), " runs again: ", size));
    const std::string reason = absl::StrCat(" did not start within ", elastic_.shrink_after_seconds, " s",
                                            why_.empty() ? "" : absl::StrCat(" (", why_, ")"));
    if (!lost_.empty()) {
      std::reverse(lost_.begin(), lost_.end());
      context_.Emit(true, "Shrunk", absl::StrCat(Names(lost_), reason, "; the job goes on with ", size));
    }
    if (given_up.empty()) {
      context_.ClearCondition(kShrunk, "AllWorkers", absl::StrCat("the job has its ", desired_, " workers"));
    } else if (parked_) {
      context_.SetCondition(kShrunk, true, "WorkersGivenUp",
                            absl::StrCat(size, ": ", Names(given_up), reason, "; tried again ",
                                         elastic_.grow_cooldown_seconds, " s after that"));
    } else if (static_cast<int>(given_up.size()) != given_up_before) {
      context_.SetCondition(kShrunk, true, "WorkersGivenUp", absl::StrCat(size, ": ", Names(given_up), " given up"));
    }
  }

  Context& context_;
  const api::ElasticSpec& elastic_;
  api::TrainingJobStatus& status_;
  const int desired_;
  std::vector<const Instance*> live_;  // by index
  std::vector<int> returned_;          // given up before, and run again
  std::vector<int> lost_;              // given up in this pass
  bool parked_ = false;                // likewise, or once more
  std::string why_;                    // the platform's words
};

}  // namespace

bool IsParked(const api::TrainingJobStatus& status, api::Role role, int index) {
  return IsInState(status, role, index, AbsenceState::kParked);
}

bool IsRetried(const api::TrainingJobStatus& status, api::Role role, int index) {
  return IsInState(status, role, index, AbsenceState::kRetrying);
}

int CountParked(const api::TrainingJobStatus& status, api::Role role, int desired) {
  if (role != api::Role::kWorker) return 0;
  return static_cast<int>(
      std::count_if(status.absent_workers.begin(), status.absent_workers.end(), [desired](const AbsentWorker& worker) {
        return worker.state == AbsenceState::kParked && worker.index < desired;
      }));
}

int CountGivenUp(const api::TrainingJobStatus& status) {
  return static_cast<int>(
      std::count_if(status.absent_workers.begin(), status.absent_workers.end(),
                    [](const AbsentWorker& worker) { return worker.state != AbsenceState::kWaiting; }));
}

void Resize(Context& context) {
  if (context.job.spec.elastic.has_value()) {
    Pass(context).Run();
  } else {
    ForgetAbsences(context);
  }
}

void NoteStart(Context& context, int index) {
  if (!context.job.spec.elastic.has_value() || FindAbsent(context.status, index) != nullptr) return;
  SetAbsent(context.status, {index, AbsenceState::kWaiting, context.now});
  context.WakeAt(context.now + context.job.spec.elastic->shrink_after_seconds);
}

void WaitAnew(Context& context) {
  for (AbsentWorker& absent : context.status.absent_workers) {
    if (absent.state != AbsenceState::kParked) absent.since = context.now;
  }
}

void ForgetAbsences(Context& context) {
  context.status.absent_workers.clear();
  context.ClearCondition(kShrunk, "AllWorkers", "every worker is tried");
}

}  // namespace downpour::planner
