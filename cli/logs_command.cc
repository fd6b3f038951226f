#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/job_logs.h"
#include "cli/log_printer.h"
#include "cli/run_folder.h"
#include "cli/run_overview.h"
#include "cli/wake.h"
#include "operator/api/manifest.h"
#include "operator/kube/wait.h"

namespace downpour::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kLookTime = absl::Milliseconds(300);
constexpr std::size_t kPieceBytes = std::size_t{64} << 10;

// The logs of a run that are chosen: path by the name of the member.
std::map<std::string, std::string> ChosenLogs(const std::string& root, const LogChoice& choice) {
  std::string beginning = choice.role.has_value() ? absl::StrCat(std::string(api::ToString(*choice.role)), "-") : "";
  std::map<std::string, std::string> logs;
  std::error_code error;
  for (fs::directory_iterator entry(root + "/logs", error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    const std::string name = path.stem().string();
    if (path.extension() != ".log" || !absl::StartsWith(name, beginning)) continue;
    if (choice.index.has_value() && name != absl::StrCat(beginning, *choice.index)) continue;
    logs.emplace(name, path.string());
  }
  return logs;
}

// A file that grows.
class GrowingFile {
 public:
  explicit GrowingFile(const std::string& path) : stream_(path, std::ios::binary) {}

  // The lines that became complete; at the `end` also what is left.
  std::vector<std::string> Read(bool end) {
    std::vector<std::string> lines;
    std::string piece(kPieceBytes, '\0');
    do {
      stream_.clear();
      stream_.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      rest_.append(piece, 0, static_cast<std::size_t>(stream_.gcount()));
      std::size_t begin = 0;
      for (std::size_t at = 0; (at = rest_.find('\n', begin)) != std::string::npos; begin = at + 1) {
        lines.push_back(rest_.substr(begin, at - begin));
      }
      rest_.erase(0, begin);
    } while (stream_.gcount() > 0);
    if (end && !rest_.empty()) lines.push_back(std::move(rest_));
    return lines;
  }

 private:
  std::ifstream stream_;
  std::string rest_;  // of a line that is being written
};

absl::Status PrintRunLogs(const std::string& root, const LogChoice& choice, const std::stop_token& stop) {
  const std::optional<int> tail = choice.TailOfEach();
  LogPrinter printer(std::cout, /*names=*/!choice.one_member());
  std::map<std::string, GrowingFile> files;
  for (bool first = true;; first = false) {
    // Asked first: what is written before a run ends is printed.
    const bool running = choice.follow && RunIsHeld(root);
    for (const auto& [name, path] : ChosenLogs(root, choice)) {
      const std::vector<std::string> lines = files.try_emplace(name, path).first->second.Read(!running);
      std::size_t begin = 0;
      if (first && tail.has_value()) begin = lines.size() - std::min(lines.size(), static_cast<std::size_t>(*tail));
      for (std::size_t i = begin; i < lines.size(); ++i) printer.Print(name, lines[i]);
    }
    if (files.empty() && !running) return absl::NotFoundError(absl::StrCat(root, ": has no such log in logs/"));
    if (!running || !std::cout || !kube::SleepFor(stop, kLookTime)) return absl::OkStatus();
  }
}

}  // namespace

int LogsCommand(const Target& target, const LogChoice& choice) {
  if (choice.index.has_value() && !choice.role.has_value()) {
    return Complain(absl::InvalidArgumentError("--index: of which --role?"));
  }
  std::unique_ptr<SignalStop> signals;  // to follow; else a signal ends this process as it ends any
  if (choice.follow) {
    absl::StatusOr<std::unique_ptr<SignalStop>> created = SignalStop::Create();
    if (!created.ok()) return Complain(created.status());
    signals = *std::move(created);
  }
  const std::stop_token stop = signals == nullptr ? std::stop_token() : signals->token();
  absl::Status status;
  if (target.cluster.given()) {
    const absl::StatusOr<std::unique_ptr<Cluster>> cluster = OpenForJob(target);
    status = cluster.ok() ? PrintJobLogs(**cluster, target.name, choice, stop) : cluster.status();
  } else {
    const absl::StatusOr<std::string> root = ChooseRun(target.name, /*running=*/false);
    status = root.ok() ? PrintRunLogs(*root, choice, stop) : root.status();
  }
  return status.ok() ? kExitDone : Complain(status);
}

}  // namespace downpour::cli
