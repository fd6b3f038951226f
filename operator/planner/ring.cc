#include "operator/planner/ring.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "operator/planner/status.h"

namespace downpour::planner {
namespace {

void Told(Context& context, bool formed, const char* reason, std::string message) {
  const bool before = IsTrue(context.status, kRingFormed);
  if (before && !formed) context.Emit(true, "RingBroken", message);
  context.SetCondition(kRingFormed, formed, reason, std::move(message));
}

// "2 workers train together, 6 updates a step", and what there is to say besides.
std::string TextOf(const api::RingStatus& ring) {
  std::string text =
      ring.formed ? absl::StrCat(ring.members, ring.members == 1 ? " worker trains" : " workers train together", ", ",
                                 ring.updates_per_step, ring.updates_per_step == 1 ? " update" : " updates", " a step")
      : ring.members > 0
          ? absl::StrCat("a ring of ", ring.members, ring.members == 1 ? " worker" : " workers", " is being formed")
          : absl::StrCat("there is no ring of the ", ring.wanted, " workers that are wanted");
  if (!ring.message.empty()) absl::StrAppend(&text, "; ", ring.message);
  return text;
}

}  // namespace

bool IsAllReduce(const api::TrainingJobSpec& spec) { return spec.strategy == api::Strategy::kAllReduce; }

bool WorkersHoldAll(const Context& context) {
  const bool known = TrainingReport(context) != nullptr;
  const auto working = std::count_if(context.observed.instances.begin(), context.observed.instances.end(),
                                     [&](const Instance& instance) {
                                       return instance.role == api::Role::kWorker && IsWorking(&instance) &&
                                              !context.IsAccounted(instance) && (instance.ready || !known);
                                     });
  const std::optional<api::ElasticSpec>& elastic = context.job.spec.elastic;
  if (!elastic.has_value() || !elastic->state_copies.has_value() || !context.status.ring.has_value())
    return working > 0;
  // Of each part of the optimizer's state so many have a copy: as many lost at once may take one with them.
  return working > 0 && working + *elastic->state_copies > context.status.ring->members;
}

void UpdateRing(Context& context) {
  if (!IsAllReduce(context.job.spec) || IsSettled(context.status)) return;
  for (const char* type : {kSuspended, kRestarting}) {
    if (IsTrue(context.status, type)) return;
  }
  const CoordinatorReport* report = CurrentReport(context);
  if (report == nullptr) return;
  if (!report->ring.has_value()) {
    // It is about to begin, and waits for somebody.
    if (report->phase == CoordinatorPhase::kStarting && !report->message.empty()) {
      Told(context, false, "Waiting", report->message);
    }
    return;
  }
  const std::optional<api::RingStatus> before = std::exchange(context.status.ring, *report->ring);
  const api::RingStatus& ring = *context.status.ring;
  const std::string message = TextOf(ring);
  // A coordinator that is new has formed none yet, and finds one.
  const bool anew = !before.has_value() || !before->formed || ring.formed_count > before->formed_count;
  if (ring.formed && (anew || !IsTrue(context.status, kRingFormed))) context.Emit(false, kRingFormed, message);
  Told(context, ring.formed, ring.formed ? "Formed" : ring.members > 0 ? "Forming" : "Waiting", message);
}

}  // namespace downpour::planner
