#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/clock.h"
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/launch.h"
#include "cli/manifest_input.h"
#include "cli/model_check.h"
#include "cli/wake.h"

namespace downpour::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytesRead = std::uint64_t{256} << 20;  // a few seconds

absl::Status TryInTemporaryFolder(const api::TrainingJob& job) {
  absl::StatusOr<SignalWaiter> waiter = SignalWaiter::Create();
  if (!waiter.ok()) return waiter.status();
  const absl::StatusOr<std::string> config = MakeConfig(job, MakeJobUid(), "");
  if (!config.ok()) return config.status();
  std::error_code error;
  std::string folder = fs::temp_directory_path(error).string() + "/downpour-validate-XXXXXX";
  if (error || mkdtemp(folder.data()) == nullptr) return SystemError(errno, folder, "cannot be made");
  const auto remove = absl::MakeCleanup([&folder] {
    std::error_code ignored;  // of what is left in a folder for temporary files
    fs::remove_all(folder, ignored);
  });
  const std::string path = folder + "/config.json";
  if (absl::Status written = WriteFileDurably(path, *config); !written.ok()) return written;
  return TryModel(BinaryDirectory(), path, folder + "/check.log", 0, SystemClock(), *waiter);
}

// A model that no plan knows is tried where its file and the worker are on this machine.
void TryHere(const api::TrainingJob& job, std::vector<api::FieldError>* errors,
             std::vector<api::FieldError>* warnings) {
  const api::ModelSpec& model = job.spec.model;
  if (!NeedsTrial(model)) return;
  for (const auto& [field, path] : FilesOf(model)) {
    std::error_code error;
    if (fs::exists(path, error)) continue;
    warnings->push_back(
        {field, absl::StrCat("there is no ", path, " on this machine, so the model was not looked at")});
    return;
  }
  absl::Status tried = CheckBinaries(BinaryDirectory());
  if (tried.ok()) tried = CheckDataset(job);
  if (tried.ok()) tried = TryInTemporaryFolder(job);
  if (tried.ok()) return;
  if (absl::IsInvalidArgument(tried)) {
    errors->push_back(SplitPath("spec.model", std::string(tried.message())));
  } else {
    warnings->push_back({FilesOf(model).front().first, absl::StrCat("the model was not looked at: ", tried.message())});
  }
}

}  // namespace

int ValidateCommand(const std::string& file, const Overrides& overrides, bool json) {
  api::ParsedManifest manifest = LoadManifest(file, overrides);
  std::vector<api::FieldError> warnings;
  bool read_data = true;
  if (manifest.errors.empty()) {
    const std::uint64_t bytes = BytesToIndex(manifest.job.spec.dataset);
    read_data = bytes <= kMostBytesRead;
    manifest.errors = PlanErrors(manifest.job, read_data);
    warnings = FindWarnings(manifest.job.spec);
    if (!read_data) {
      warnings.push_back({"spec.dataset.path", absl::StrCat("to know its fields, ", bytes >> 20,
                                                            " MiB would have to be read: they were not, and whether "
                                                            "the model fits them was not looked at")});
    }
  }
  if (manifest.errors.empty() && read_data) TryHere(manifest.job, &manifest.errors, &warnings);
  if (json) {
    const auto list = [](const std::vector<api::FieldError>& found) {
      nlohmann::ordered_json items = nlohmann::ordered_json::array();
      for (const api::FieldError& one : found) items.push_back({{"path", one.path}, {"message", one.message}});
      return items;
    };
    const nlohmann::ordered_json document = {{"file", file},
                                             {"valid", manifest.errors.empty()},
                                             {"errors", list(manifest.errors)},
                                             {"warnings", list(warnings)}};
    std::cout << document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << std::endl;
  } else {
    for (const api::FieldError& error : manifest.errors) std::cerr << file << ": " << error.ToString() << '\n';
    for (const api::FieldError& warning : warnings) {
      std::cerr << file << ": warning: " << warning.ToString() << '\n';
    }
    if (manifest.errors.empty()) std::cout << file << ": valid" << std::endl;
  }
  return manifest.errors.empty() ? kExitDone : kExitBadInput;
}

}  // namespace downpour::cli
