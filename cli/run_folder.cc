#include "cli/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "operator/api/manifest.h"

namespace downpour::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kMaxRunNumber = 1000000;
constexpr std::uint64_t kAddressLimit = 4096;

// The number behind "<job name>-" in a run folder's name.
std::optional<int> RunNumber(const std::string& folder, const std::string& job_name) {
  absl::string_view rest = folder;
  int number = 0;
  if (!absl::ConsumePrefix(&rest, absl::StrCat(job_name, "-")) || !absl::SimpleAtoi(rest, &number) || number < 1) {
    return std::nullopt;
  }
  return number;
}

absl::StatusOr<std::string> MakeNumberedDirectory(const std::string& runs, const std::string& job_name) {
  if (const absl::Status status = MakeDirectories(runs); !status.ok()) return status;
  int highest = 0;
  std::error_code error;
  for (fs::directory_iterator entry(runs, error), end; !error && entry != end; entry.increment(error)) {
    highest = std::max(highest, RunNumber(entry->path().filename().string(), job_name).value_or(0));
  }
  if (error) return SystemError(error.value(), runs, "cannot be listed");
  // Another run may take the number at the same moment: making the directory decides.
  for (int number = highest + 1; number < kMaxRunNumber; ++number) {
    const std::string path = absl::StrCat(runs, "/", job_name, "-", number);
    if (mkdir(path.c_str(), 0777) == 0) return path;
    if (errno != EEXIST) return SystemError(errno, path, "cannot be created");
  }
  return absl::ResourceExhaustedError(absl::StrCat(runs, ": holds too many runs of ", job_name));
}

absl::Status MakeEmptyDirectory(const std::string& directory) {
  if (absl::Status status = MakeDirectories(directory); !status.ok()) return status;
  std::error_code error;
  const bool empty = fs::is_empty(directory, error);
  if (error) return SystemError(error.value(), directory, "cannot be listed");
  if (!empty)
    return absl::AlreadyExistsError(absl::StrCat(directory, ": is not empty; a run needs a folder of its own"));
  return absl::OkStatus();
}

template <typename T>
std::optional<T> Optional(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  return found->get<T>();
}

json ProcessToJson(const Process& process) {
  json object = {{"name", process.name},
                 {"role", api::ToString(process.role)},
                 {"index", process.index},
                 {"incarnation", process.incarnation},
                 {"pid", process.pid},
                 {"startTime", process.created_time},
                 {"startTicks", process.start_ticks},
                 {"log", process.log_path},
                 {"stopRequested", process.stop_requested}};
  if (process.finished_time.has_value()) {
    object["finishTime"] = *process.finished_time;
    object["exitCode"] = process.exit_code;
    object["signal"] = process.signal;
    object["endCause"] = EndCause(process);
  }
  return object;
}

absl::StatusOr<api::Role> RoleFromString(const std::string& text) {
  for (const api::Role role : {api::Role::kCoordinator, api::Role::kParameterServer, api::Role::kWorker}) {
    if (api::ToString(role) == text) return role;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown role ", text));
}

// May throw json::exception.
absl::StatusOr<Process> ProcessFromJson(const json& object) {
  const absl::StatusOr<api::Role> role = RoleFromString(object.at("role").get<std::string>());
  if (!role.ok()) return role.status();
  Process process;
  process.role = *role;
  process.index = object.at("index").get<int>();
  process.incarnation = object.at("incarnation").get<int>();
  process.name = ProcessName(process.role, process.index);
  process.uid = ProcessUid(process.role, process.index, process.incarnation);
  process.pid = object.at("pid").get<int>();
  process.start_ticks = object.value("startTicks", std::uint64_t{0});  // an earlier version did not write it
  process.created_time = object.at("startTime").get<double>();
  process.log_path = object.at("log").get<std::string>();
  process.stop_requested = object.value("stopRequested", false);
  process.finished_time = Optional<double>(object, "finishTime");
  process.exit_code = object.value("exitCode", 0);
  process.signal = object.value("signal", 0);
  return process;
}

}  // namespace

std::string RunPaths::Log(const std::string& name) const { return root + "/logs/" + name + ".log"; }
std::string RunPaths::Address(const std::string& name) const { return root + "/addresses/" + name; }
std::string RunPaths::MetricsAddress(const std::string& name) const { return root + "/metrics/" + name; }

absl::StatusOr<RunFolder> RunFolder::Create(const std::string& directory, const std::string& runs,
                                            const std::string& job_name) {
  // Before anything is made, as it is written; below, as the links in it lead.
  std::error_code error;
  const fs::path wanted = fs::absolute(directory.empty() ? runs : directory, error);
  if (error) return SystemError(error.value(), directory, "cannot be resolved");
  if (absl::Status status = CheckUtf8Path(wanted.string()); !status.ok()) return status;
  if (absl::Status status = CheckUtf8Path(fs::weakly_canonical(wanted, error).string()); !status.ok()) return status;
  RunPaths paths;
  const bool existed = !directory.empty() && fs::exists(wanted, error);
  if (directory.empty()) {
    absl::StatusOr<std::string> made = MakeNumberedDirectory(runs, job_name);
    if (!made.ok()) return made.status();
    paths.root = *std::move(made);
  } else {
    if (absl::Status status = MakeEmptyDirectory(directory); !status.ok()) return status;
    paths.root = directory;
  }
  paths.root = fs::canonical(paths.root, error).string();
  if (error) return SystemError(error.value(), paths.root, "cannot be resolved");

  FileDescriptor lock(open(paths.root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.valid()) return SystemError(errno, paths.root, "cannot be opened");
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return SystemError(errno, paths.root, "is used by another run");
  for (const char* name : {"/logs", "/addresses", "/metrics"}) {
    if (absl::Status status = MakeDirectories(paths.root + name); !status.ok()) return status;
  }
  return RunFolder(std::move(paths), !existed, std::move(lock));
}

void RunFolder::Discard() {
  std::error_code ignored;
  std::vector<fs::path> contents;
  for (fs::directory_iterator entry(paths_.root, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    contents.push_back(entry->path());
  }
  for (const fs::path& path : contents) fs::remove_all(path, ignored);
  if (made_) fs::remove(paths_.root, ignored);
}

bool RunIsHeld(const std::string& root) {
  const FileDescriptor directory(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return directory.valid() && flock(directory.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

bool IsRunFolder(const std::string& directory) {
  std::error_code error;
  return fs::is_regular_file(directory + "/job.json", error);
}

std::vector<std::string> ListRuns(const std::string& runs) {
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator entry(runs, error), end; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    std::error_code ignored;
    const fs::file_time_type made = fs::last_write_time(path + "/job.json", ignored);
    if (!ignored) found.emplace_back(made, path);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  paths.reserve(found.size());
  for (auto& [made, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::string RunStateToJson(const RunState& state) {
  json processes = json::array();
  for (const Process& process : state.processes) processes.push_back(ProcessToJson(process));
  const json document = {{"jobUid", state.job_uid},
                         {"startTime", state.start_time},
                         {"status", json::parse(api::StatusToJson(state.status))},
                         {"processes", std::move(processes)}};
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

absl::StatusOr<RunState> RunStateFromJson(const std::string& text) {
  try {
    const json document = json::parse(text);
    RunState state;
    state.job_uid = document.at("jobUid").get<std::string>();
    state.start_time = document.at("startTime").get<double>();
    absl::StatusOr<api::TrainingJobStatus> status = api::StatusFromJson(document.at("status").dump());
    if (!status.ok()) return status.status();
    state.status = *std::move(status);
    for (const json& object : document.at("processes")) {
      absl::StatusOr<Process> process = ProcessFromJson(object);
      if (!process.ok()) return process.status();
      state.processes.push_back(*std::move(process));
    }
    return state;
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not a run's status: ", error.what()));
  }
}

absl::StatusOr<std::string> ReadAddress(const std::string& address_file) {
  absl::StatusOr<std::string> text = ReadFile(address_file, kAddressLimit);
  if (!text.ok()) return text.status();
  absl::StripAsciiWhitespace(&*text);
  if (text->empty()) return absl::NotFoundError(absl::StrCat(address_file, ": is empty"));
  return text;
}

}  // namespace downpour::cli
