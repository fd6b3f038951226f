#include "cli/render/fold_events.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace downpour::cli {

std::vector<TimelineEvent> FoldEvents(std::span<const TimelineEvent> events) {
  std::vector<TimelineEvent> folded;
  std::size_t count = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const TimelineEvent& event = events[i];
    ++count;
    const bool goes_on =
        i + 1 < events.size() && !event.warning && !events[i + 1].warning && events[i + 1].reason == event.reason;
    if (goes_on) continue;
    folded.push_back(event);
    if (count > 1) absl::StrAppend(&folded.back().message, " (", count, " times)");
    count = 0;
  }
  return folded;
}

}  // namespace downpour::cli
