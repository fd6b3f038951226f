#ifndef DOWNPOUR_CLI_RENDER_LIVE_VIEW_H_
#define DOWNPOUR_CLI_RENDER_LIVE_VIEW_H_

#include <optional>
#include <ostream>
#include <span>
#include <string>

#include "cli/run_history.h"

// The view of a running job on a terminal.
namespace downpour::cli {

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

// The size of the terminal behind a file descriptor; absent when there is none.
std::optional<TerminalSize> ReadTerminalSize(int file_descriptor);

// What the view shows beside the snapshot. The spans are only read during the call.
struct LiveViewContext {
  std::span<const CurvePoint> curve;      // oldest first; the loss sparkline
  std::span<const TimelineEvent> events;  // oldest first; the newest are shown
  bool colour = true;                     // ANSI colours
};

// One frame: lines ended by '\n', each at most `size.columns` columns wide, at most `size.rows` - 1 of them. Rows that
// do not fit are left out and counted ("+3 more"); where there are less than 60 columns, lines are cut. Works from 8
// rows; fewer are taken as that. Pure. Text from outside (messages, states) loses its control characters.
std::string RenderLiveView(const api::TrainingJob& job, const Snapshot& snapshot, const TerminalSize& size,
                           const LiveViewContext& context);

// Repaints frames in place on a terminal: on the alternate screen, from the home position, each line cleared to its
// end, one write a frame, cursor hidden. The first Show enters; Close (or the destructor) restores the terminal and
// leaves the last frame on the normal screen. Not thread-safe; the stream must outlive it.
class LiveView {
 public:
  explicit LiveView(std::ostream& out);
  ~LiveView();
  LiveView(const LiveView&) = delete;
  LiveView& operator=(const LiveView&) = delete;

  void Show(const std::string& frame);
  void Close();

  // What gives the terminal back where a view is open and the process ends without closing it; "": none is open. From
  // any thread.
  static const char* Farewell();

 private:
  std::ostream& out_;
  bool open_ = false;
  std::string last_frame_;
};

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RENDER_LIVE_VIEW_H_
