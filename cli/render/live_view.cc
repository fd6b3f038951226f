#include "cli/render/live_view.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/render/fold_events.h"
#include "cli/render/format.h"
#include "cli/render/ring_text.h"
#include "cli/render/styled_line.h"
#include "cli/render/test_metrics.h"
#include "operator/api/manifest.h"

namespace downpour::cli {
namespace {

constexpr double kSilentSeconds = 3;
constexpr std::size_t kMaxEvents = 8;
constexpr std::size_t kMaxSparkline = 40;
constexpr char kGiveBack[] = "\x1b[?25h\x1b[?1049l";

std::atomic<int> views_open = 0;

struct Row {
  std::string name;
  std::string state;
  const char* style = kPlain;
  std::string samples_per_second = "-";
  std::string step_milliseconds = "-";
  std::string staleness = "-";
  std::string restarts = "-";
  std::string pid = "-";
  std::string node;
};

const char* StateStyle(const std::string& state) {
  if (state == "failed" || state == "ended" || state == "lost" || state == "missing") return kRed;
  if (state == "starting" || state == "stopping" || state == "registering" || state == "waiting" ||
      state == "recovering" || state == "leaving" || state == "pending" ||
      // Of a pod that waits, in the platform's words: Unschedulable, ImagePullBackOff.
      (!state.empty() && state.front() >= 'A' && state.front() <= 'Z')) {
    return kYellow;
  }
  return kGreen;
}

void FillFromMember(const v1::MemberProgress& member, Row* row) {
  if (!member.state().empty()) row->state = CleanText(member.state());
  row->style = StateStyle(row->state);
  const std::uint64_t silent_seconds = member.silent_milliseconds() / 1000;
  if (static_cast<double>(silent_seconds) >= kSilentSeconds) {
    row->state = absl::StrCat("silent ", silent_seconds, " s");
    row->style = kYellow;
  }
  if (member.has_worker()) {
    const v1::WorkerStats& worker = member.worker();
    if (worker.has_samples_per_second()) row->samples_per_second = FormatCount(worker.samples_per_second());
    row->step_milliseconds = FormatDecimal(worker.step_seconds() * 1000, 1);
    row->staleness = FormatDecimal(worker.staleness(), 1);
  } else if (member.has_ps()) {
    row->staleness = FormatDecimal(member.ps().staleness(), 1);
  }
}

// The processes, then the members that no process of ours is.
std::vector<Row> MakeRows(const Snapshot& snapshot) {
  std::vector<Row> rows;
  std::vector<const v1::MemberProgress*> members;
  if (snapshot.progress.has_value()) {
    for (const v1::MemberProgress& member : snapshot.progress->members()) members.push_back(&member);
  }
  for (const ProcessView& process : snapshot.processes) {
    Row row;
    row.name = CleanText(process.name);
    row.state = CleanText(process.state);
    row.style = StateStyle(row.state);
    row.restarts = absl::StrCat(process.restarts);
    if (process.pid > 0) row.pid = absl::StrCat(process.pid);
    row.node = CleanText(process.node);
    const auto member = std::find_if(members.begin(), members.end(), [&](const v1::MemberProgress* candidate) {
      return candidate != nullptr && static_cast<int>(candidate->index()) == process.index &&
             candidate->role() == std::string(api::ToString(process.role));
    });
    if (member != members.end()) {
      if (process.state == "running") FillFromMember(**member, &row);
      *member = nullptr;
    }
    rows.push_back(std::move(row));
  }
  for (const v1::MemberProgress* member : members) {
    if (member == nullptr) continue;
    Row row;
    row.name = absl::StrCat(CleanText(member->role()), "-", member->index());
    FillFromMember(*member, &row);
    rows.push_back(std::move(row));
  }
  return rows;
}

class Frame {
 public:
  Frame(const api::TrainingJob& job, const Snapshot& snapshot, const TerminalSize& size, const LiveViewContext& context)
      : job_(job),
        snapshot_(snapshot),
        context_(context),
        width_(static_cast<std::size_t>(std::max(size.columns, 1))),
        height_(static_cast<std::size_t>(std::max(size.rows, 8)) - 1) {}

  std::string Render() {
    AddHead();
    AddBars();
    AddCurve();
    AddCheckpoint();
    AddStandbys();
    AddRing();
    AddCourse();
    const std::string why = Why();
    if (!why.empty() && LinesLeft() > 2) Add(NewLine().Add(" ").Add(why, kYellow));
    AddRows();
    AddEvents();
    return text_;
  }

 private:
  Line NewLine() const { return Line(width_, context_.colour); }
  void Add(Line& line) {
    text_ += line.Take();
    ++lines_;
  }
  std::size_t LinesLeft() const { return height_ - lines_; }
  const v1::ProgressReply* progress() const { return snapshot_.progress.has_value() ? &*snapshot_.progress : nullptr; }

  // Of the whole job, and of the epoch that is under way.
  double JobFraction() const {
    if (progress() == nullptr || progress()->updates_expected() == 0) return 0;
    return static_cast<double>(progress()->updates_applied()) / static_cast<double>(progress()->updates_expected());
  }
  double EpochFraction() const {
    if (progress() == nullptr || progress()->updates_per_epoch() == 0) return 0;
    if (progress()->epochs_done() >= progress()->epochs()) return 1;
    const double per_epoch = static_cast<double>(progress()->updates_per_epoch());
    const double fraction = static_cast<double>(progress()->updates_applied()) / per_epoch - progress()->epochs_done();
    return std::clamp(fraction, 0.0, 1.0);
  }
  std::string Remaining() const {
    const v1::ProgressReply* now = progress();
    if (now == nullptr || now->phase() != v1::PHASE_TRAINING || !(now->samples_per_second() > 0)) return "-";
    const double samples = static_cast<double>(now->samples_per_epoch()) * now->epochs() * (1 - JobFraction());
    return FormatDuration(std::max(0.0, samples) / now->samples_per_second());
  }

  std::string Why() const {
    if (!snapshot_.note.empty()) return CleanText(snapshot_.note);
    if (progress() == nullptr) {
      return snapshot_.status.reason.empty() ? "waiting for the coordinator's first answer"
                                             : CleanText(snapshot_.status.reason);
    }
    if (snapshot_.progress_age_seconds > kSilentSeconds) {
      return absl::StrCat("no answer from the coordinator for ", FormatDuration(snapshot_.progress_age_seconds),
                          "; what it said last is shown");
    }
    return CleanText(progress()->message());
  }

  void AddHead() {
    const std::string& phase = snapshot_.status.phase;
    std::string words = phase.empty() ? "Pending" : CleanText(phase);
    const char* style = phase == "Failed" ? kRed : phase == "Running" || phase == "Succeeded" ? kGreen : kYellow;
    if (progress() != nullptr) {
      absl::StrAppend(&words, ", ", PhaseWord(progress()->phase()));
      if (progress()->phase() == v1::PHASE_FAILED) style = kRed;
      if (progress()->phase() == v1::PHASE_RECOVERING) style = kYellow;
    }
    const std::string times = absl::StrCat("elapsed ", FormatDuration(snapshot_.seconds), "  left ", Remaining());
    Line line = NewLine();
    const std::size_t room = width_ - std::min(width_, Columns(times) + Columns(words) + 6);
    line.Add(" ").Add(FitColumns(CleanText(job_.metadata.name), std::max<std::size_t>(room, 8)), kBold);
    line.Add("  ").Add(words, style).Add("  ");
    if (line.left() > Columns(times)) line.Add(std::string(line.left() - Columns(times) - 1, ' '));
    line.Add(times, kDim);
    Add(line);
  }

  void AddBar(const std::string& name, double fraction, const std::string& after, const char* style) {
    const std::size_t room = std::clamp<std::size_t>(width_, 20, 36) - 20;  // of a narrow terminal, beside the numbers
    const std::size_t bar = width_ < 60 ? room : std::clamp<std::size_t>(width_ - 44, 16, 60);
    Line line = NewLine();
    line.Add(" ").AddLeft(name, 14).Add(Bar(fraction, bar), style);
    line.AddRight(absl::StrFormat("%.0f%%", std::floor(100 * std::clamp(fraction, 0.0, 1.0))), 5).Add("  ");
    Add(line.Add(after, kDim));
  }

  void AddBars() {
    const v1::ProgressReply* now = progress();
    const std::uint32_t epochs =
        now != nullptr ? now->epochs() : static_cast<std::uint32_t>(std::max(1, job_.spec.training.whole_epochs()));
    const std::uint32_t current = now != nullptr ? std::min(now->epochs_done() + 1, epochs) : 1;
    AddBar(absl::StrCat("epoch ", current, "/", epochs), EpochFraction(), "", kCyan);
    std::string updates;
    if (now != nullptr && now->updates_expected() > 0) {
      updates = absl::StrCat(now->updates_applied(), "/", now->updates_expected(), " updates");
    }
    AddBar("job", JobFraction(), updates, kGreen);
  }

  void AddCurve() {
    Line line = NewLine();
    const v1::ProgressReply* now = progress();
    line.Add(" loss ", kDim).Add(now != nullptr && now->has_loss() ? FormatDecimal(now->loss(), 4) : "-", kBold);
    std::vector<TestMetric> metrics = ExpectedMetrics(job_);
    std::uint32_t epoch = 0;
    if (now != nullptr && now->evaluations_size() > 0) {
      const v1::Evaluation& newest =
          *std::max_element(now->evaluations().begin(), now->evaluations().end(),
                            [](const auto& a, const auto& b) { return a.dataset_epoch() < b.dataset_epoch(); });
      metrics = MetricsOf(newest);
      epoch = newest.dataset_epoch();
    }
    const auto add_metric = [](const TestMetric& metric, Line* to) {
      to->Add(absl::StrCat("  ", MetricLabel(metric.name), " "), kDim).Add(FormatDecimal(metric.value, 4), kBold);
    };
    if (!metrics.empty()) {
      add_metric(metrics.front(), &line);
      if (epoch > 0) line.Add(absl::StrCat(" @", epoch), kDim);
    }
    line.Add("  ").Add(now != nullptr && now->has_samples_per_second() ? FormatCount(now->samples_per_second()) : "-",
                       kBold);
    line.Add(" samples/s", kDim);
    std::vector<double> losses;
    for (const CurvePoint& point : context_.curve) {
      if (point.loss.has_value()) losses.push_back(*point.loss);
    }
    if (line.left() > 4) {
      line.Add("  ").Add(Sparkline(losses, std::min(kMaxSparkline, line.left() - 1)), kCyan);
    }
    Add(line);
    if (metrics.size() < 2 || LinesLeft() <= 2) return;
    Line others = NewLine();
    others.Add(" test", kDim);
    for (std::size_t i = 1; i < metrics.size(); ++i) add_metric(metrics[i], &others);
    Add(others);
  }

  void AddCheckpoint() {
    if (progress() == nullptr || !progress()->has_checkpoint() || LinesLeft() <= 4) return;
    const v1::CheckpointProgress& checkpoint = progress()->checkpoint();
    Line line = NewLine();
    line.Add(" checkpoint ", kDim);
    if (checkpoint.newest().empty()) {
      line.Add("none yet", kBold);
    } else {
      line.Add(absl::StrCat("update ", checkpoint.newest_updates()), kBold);
      line.Add(
          absl::StrCat(", ", FormatDuration(static_cast<double>(checkpoint.newest_age_milliseconds()) / 1000), " ago"),
          kDim);
    }
    if (!checkpoint.error().empty())
      line.Add("  ").Add(absl::StrCat("failing: ", CleanText(checkpoint.error())), kYellow);
    Add(line);
  }

  // Of a job that is to have some.
  void AddStandbys() {
    if (progress() == nullptr || progress()->replication().factor() < 2 || LinesLeft() <= 4) return;
    const v1::ReplicationProgress& replication = progress()->replication();
    const bool all = replication.in_sync() == replication.slices();
    Line line = NewLine();
    line.Add(" standbys ", kDim);
    line.Add(absl::StrCat(replication.in_sync(), "/", replication.slices(), " slices"), all ? kBold : kYellow);
    if (!replication.message().empty()) line.Add("  ").Add(CleanText(replication.message()), kDim);
    Add(line);
  }

  // Of a job without parameter servers.
  void AddRing() {
    if (progress() == nullptr || !progress()->has_ring() || LinesLeft() <= 4) return;
    const v1::RingProgress& ring = progress()->ring();
    const bool whole = ring.formed() && ring.members() == ring.wanted();
    Line line = NewLine();
    line.Add(" ring ", kDim).Add(RingText(ring), whole ? kBold : kYellow);
    const std::string why = CleanText(ring.message());
    if (!why.empty() && !absl::StrContains(Why(), why)) line.Add("  ").Add(why, kDim);
    Add(line);
  }

  // What evaluations have decided.
  void AddCourse() {
    if (progress() == nullptr) return;
    const auto add = [this](const char* name, const std::string& text) {
      if (!text.empty() && LinesLeft() > 4) Add(NewLine().Add(name, kDim).Add(CleanText(text), kCyan));
    };
    add(" ends  ", progress()->stop_reason());
    add(" rate  ", progress()->rate_reason());
    if (progress()->has_best_epoch()) add(" best  ", progress()->best_reason());
  }

  void AddRows() {
    const std::vector<Row> rows = MakeRows(snapshot_);
    if (rows.empty() || LinesLeft() < 2) return;
    const bool spacious = LinesLeft() > rows.size() + 2;
    if (spacious) Add(NewLine().Add(""));
    // Short headings where the terminal is narrow, and no pid.
    const bool wide = width_ >= 78;
    Add(NewLine().Add(" ").Add(HeadingText(wide), kDim));
    const std::size_t events = std::min(context_.events.size(), kMaxEvents);
    // The events keep up to three lines and the empty one before them, if that leaves most of the rows.
    std::size_t room = LinesLeft();
    const std::size_t reserve = events == 0 ? 0 : std::min<std::size_t>(events, 3) + 1;
    if (room > 2 * reserve) room -= reserve;
    const std::size_t shown = rows.size() <= room ? rows.size() : room - 1;
    for (std::size_t i = 0; i < shown; ++i) AddRow(rows[i], wide);
    if (shown < rows.size()) {
      Add(NewLine().Add(absl::StrCat(" +", rows.size() - shown, " more"), kDim));
    }
  }

  std::string HeadingText(bool wide) const {
    if (snapshot_.on_cluster) return absl::StrFormat("%-15s%-21s%9s  %s", "role", "state", "restarts", "node");
    return wide ? absl::StrFormat("%-15s%-14s%10s%9s%11s%10s%8s", "role", "state", "samples/s", "step ms", "staleness",
                                  "restarts", "pid")
                : absl::StrFormat("%-14s%-12s%10s%8s%6s%9s", "role", "state", "samples/s", "step ms", "stale",
                                  "restarts");
  }

  void AddRow(const Row& row, bool wide) {
    Line line = NewLine();
    const char* restarts = row.restarts != "0" && row.restarts != "-" ? kYellow : kPlain;
    if (snapshot_.on_cluster) {
      line.Add(" ").AddLeft(row.name, 14).Add(" ").AddLeft(row.state, 20, row.style).Add(" ");
      Add(line.AddRight(row.restarts, 9, restarts).Add("  ").Add(row.node, kDim));
      return;
    }
    line.Add(" ").AddLeft(row.name, wide ? 14 : 13).Add(" ").AddLeft(row.state, wide ? 13 : 11, row.style).Add(" ");
    line.AddRight(row.samples_per_second, 10).AddRight(row.step_milliseconds, wide ? 9 : 8);
    line.AddRight(row.staleness, wide ? 11 : 6);
    line.AddRight(row.restarts, wide ? 10 : 9, restarts);
    if (wide) line.AddRight(row.pid, 8, kDim);
    Add(line);
  }

  void AddEvents() {
    const std::vector<TimelineEvent> events = FoldEvents(context_.events);
    std::size_t count = std::min(events.size(), kMaxEvents);
    if (count == 0 || LinesLeft() < 1) return;
    if (LinesLeft() > 1) Add(NewLine().Add(""));
    count = std::min(count, LinesLeft());
    for (const TimelineEvent& event : std::span(events).last(count)) {
      Line line = NewLine();
      line.Add(" ").AddRight(FormatDuration(event.seconds), 9, kDim).Add("  ");
      line.Add(CleanText(event.reason), event.warning ? kYellow : kCyan).Add("  ").Add(CleanText(event.message));
      Add(line);
    }
  }

  const api::TrainingJob& job_;
  const Snapshot& snapshot_;
  const LiveViewContext& context_;
  const std::size_t width_;
  const std::size_t height_;
  std::string text_;
  std::size_t lines_ = 0;
};

}  // namespace

std::optional<TerminalSize> ReadTerminalSize(int file_descriptor) {
  winsize size{};
  if (ioctl(file_descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return std::nullopt;
  return TerminalSize{size.ws_col, size.ws_row};
}

std::string RenderLiveView(const api::TrainingJob& job, const Snapshot& snapshot, const TerminalSize& size,
                           const LiveViewContext& context) {
  return Frame(job, snapshot, size, context).Render();
}

LiveView::LiveView(std::ostream& out) : out_(out) {}

LiveView::~LiveView() { Close(); }

void LiveView::Show(const std::string& frame) {
  // One write, so that the terminal never shows half a frame: enter if need be, home, lines, clear what is below.
  std::string bytes = open_ ? "" : "\x1b[?1049h\x1b[?25l";
  bytes += "\x1b[H";
  for (const char c : frame) {
    if (c == '\n')
      bytes += "\x1b[K\r\n";
    else
      bytes += c;
  }
  bytes += "\x1b[J";
  if (!open_) ++views_open;
  out_ << bytes << std::flush;
  open_ = true;
  last_frame_ = frame;
}

void LiveView::Close() {
  if (!open_) return;
  open_ = false;
  --views_open;
  out_ << kGiveBack << last_frame_ << std::flush;
}

const char* LiveView::Farewell() { return views_open > 0 ? kGiveBack : ""; }

}  // namespace downpour::cli
