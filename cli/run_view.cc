#include "cli/run_view.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "cli/render/plain_lines.h"
#include "operator/planner/conditions.h"

namespace downpour::cli {
namespace {

constexpr double kRepaintSeconds = 0.2;

}  // namespace

bool IsPaintable(int file_descriptor) {
  const char* kind = std::getenv("TERM");
  return isatty(file_descriptor) != 0 && kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

bool WantsColour(int file_descriptor) {
  const char* no_colour = std::getenv("NO_COLOR");
  return IsPaintable(file_descriptor) && (no_colour == nullptr || *no_colour == '\0');
}

LiveRunView::LiveRunView(std::ostream& out, int file_descriptor, api::TrainingJob job)
    : file_descriptor_(file_descriptor), job_(std::move(job)), view_(out) {}

void LiveRunView::Show(const Snapshot& snapshot, const RunHistory& history) {
  const bool recent = shown_seconds_.has_value() && snapshot.seconds - *shown_seconds_ < kRepaintSeconds;
  if (recent && snapshot.status.phase == shown_phase_) return;
  shown_seconds_ = snapshot.seconds;
  shown_phase_ = snapshot.status.phase;
  LiveViewContext context;
  context.curve = history.curve;
  context.events = history.events;
  context.colour = WantsColour(file_descriptor_);
  view_.Show(RenderLiveView(job_, snapshot, ReadTerminalSize(file_descriptor_).value_or(TerminalSize{}), context));
}

void PlainRunView::Show(const Snapshot& snapshot, const RunHistory& history) {
  const PlainLinesResult result =
      PlainLines(previous_.has_value() ? &*previous_ : nullptr, snapshot, last_progress_seconds_);
  for (const std::string& line : result.lines) out_ << line << '\n';
  // What failed is told by the lines above; that work was lost by it, or saved, is not.
  for (; events_shown_ < history.events.size(); ++events_shown_) {
    const TimelineEvent& event = history.events[events_shown_];
    constexpr std::string_view kTold[] = {"TrainingStartedAgain", "RolledBack",         "Resumed",
                                          "CheckpointFailing",    planner::kRingFormed, "RingBroken"};
    if (std::find(std::begin(kTold), std::end(kTold), event.reason) == std::end(kTold)) continue;
    out_ << absl::StrFormat("[%8.2f s] ", event.seconds) << event.message << '\n';
  }
  out_.flush();
  last_progress_seconds_ = result.last_progress_seconds;
  previous_ = snapshot;
}

std::unique_ptr<RunView> MakeRunView(std::ostream& out, int file_descriptor, const api::TrainingJob& job) {
  if (IsPaintable(file_descriptor)) return std::make_unique<LiveRunView>(out, file_descriptor, job);
  return std::make_unique<PlainRunView>(out);
}

}  // namespace downpour::cli
