#ifndef DOWNPOUR_CLI_RUN_VIEW_H_
#define DOWNPOUR_CLI_RUN_VIEW_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "cli/render/live_view.h"
#include "cli/run_loop.h"

namespace downpour::cli {

// True if the descriptor is a terminal that can be painted on: TERM is neither dumb nor missing.
bool IsPaintable(int file_descriptor);

// True if colours are wanted on this descriptor: it is paintable, and NO_COLOR is not set.
bool WantsColour(int file_descriptor);

// Repaints a terminal a few times a second, and when the phase changes.
class LiveRunView final : public RunView {
 public:
  LiveRunView(std::ostream& out, int file_descriptor, api::TrainingJob job);
  void Show(const Snapshot& snapshot, const RunHistory& history) override;

 private:
  const int file_descriptor_;
  const api::TrainingJob job_;
  LiveView view_;
  std::optional<double> shown_seconds_;
  std::string shown_phase_;
};

// Prints what changed, a line each; that parameters were lost, in full.
class PlainRunView final : public RunView {
 public:
  explicit PlainRunView(std::ostream& out) : out_(out) {}
  void Show(const Snapshot& snapshot, const RunHistory& history) override;

 private:
  std::ostream& out_;
  std::optional<Snapshot> previous_;
  double last_progress_seconds_ = 0;
  std::size_t events_shown_ = 0;
};

// The view that fits the descriptor behind `out`: live where it is paintable, else plain.
std::unique_ptr<RunView> MakeRunView(std::ostream& out, int file_descriptor, const api::TrainingJob& job);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RUN_VIEW_H_
