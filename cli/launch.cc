#include "cli/launch.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "operator/job/training_config.h"

namespace downpour::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kServerProgram[] = "downpour-server";
constexpr char kEphemeral[] = "127.0.0.1:0";

std::string Absolute(const std::string& path) { return fs::absolute(path).lexically_normal().string(); }

// What is in it, whoever reads it says.
absl::Status CheckPresent(const char* field, const std::string& path) {
  if (path.empty() || path.find("://") != std::string::npos || path.find('{') != std::string::npos) {
    return absl::OkStatus();  // none, elsewhere, or a range of files
  }
  std::error_code error;
  if (fs::exists(path, error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", path, ": ", error ? error.message() : "there is no such file or directory"));
}

}  // namespace

std::string MakeJobUid() {
  std::random_device device;
  std::string uid;
  for (int word = 0; word < 4; ++word) absl::StrAppendFormat(&uid, "%08x", device());
  return uid;
}

std::string BinaryDirectory() {
  const char* chosen = std::getenv("DOWNPOUR_BINARY_DIR");
  if (chosen != nullptr && *chosen != '\0') return Absolute(chosen);
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().string();
}

absl::Status CheckBinaries(const std::string& binary_directory) {
  for (const char* program : {kServerProgram, kWorkerProgram}) {
    const std::string path = absl::StrCat(binary_directory, "/", program);
    if (access(path.c_str(), X_OK) != 0) return SystemError(errno, path, "cannot be run");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> MakeConfig(const api::TrainingJob& job, const std::string& job_uid,
                                       const std::string& output_directory) {
  const auto absolute = [](const std::string& path) { return path.empty() ? path : Absolute(path); };
  v1::TrainingConfig config = job::ToTrainingConfig(job, job_uid, absolute(output_directory));
  const auto in_place = [&absolute](const std::string& path) {
    return path.find("://") == std::string::npos ? absolute(path) : path;
  };
  v1::DatasetConfig& dataset = *config.mutable_dataset();
  dataset.set_path(in_place(dataset.path()));
  dataset.set_test_path(in_place(dataset.test_path()));
  dataset.set_cache_directory(absolute(dataset.cache_directory()));
  v1::ModelConfig& model = *config.mutable_model();
  if (model.has_plugin()) model.mutable_plugin()->set_path(absolute(model.plugin().path()));
  model.set_torch_script(absolute(model.torch_script()));
  if (model.has_initial_weights()) {
    model.mutable_initial_weights()->set_path(absolute(model.initial_weights().path()));
  }
  if (config.has_checkpoint()) {
    v1::CheckpointConfig& checkpoint = *config.mutable_checkpoint();
    checkpoint.set_uri(in_place(checkpoint.uri()));
    checkpoint.set_resume_uri(in_place(checkpoint.resume_uri()));
  }
  if (config.tracking().has_tensorboard()) {
    v1::TensorBoardConfig& tensorboard = *config.mutable_tracking()->mutable_tensorboard();
    tensorboard.set_directory(absolute(tensorboard.directory()));
  }
  return job::TrainingConfigToJson(config);
}

ProcessSpec MakeProcessSpec(const RunPaths& paths, const std::string& binary_directory, pid_t parent,
                            api::Strategy strategy, bool shared_memory, api::Role role, int index, int incarnation) {
  const std::string name = ProcessName(role, index);
  const bool worker = role == api::Role::kWorker;
  ProcessSpec spec;
  spec.role = role;
  spec.index = index;
  spec.incarnation = incarnation;
  spec.log_path = paths.Log(name);
  spec.command = {absl::StrCat(binary_directory, "/", worker ? kWorkerProgram : kServerProgram)};
  const auto add = [&spec](std::initializer_list<std::string> arguments) {
    spec.command.insert(spec.command.end(), arguments);
  };
  if (!worker) add({role == api::Role::kCoordinator ? "coordinator" : "ps"});
  add({"--config", paths.Config(), "--incarnation", absl::StrCat(incarnation)});
  if (role != api::Role::kCoordinator) {
    add({"--index", absl::StrCat(index), "--coordinator",
         absl::StrCat("@", paths.Address(ProcessName(api::Role::kCoordinator, 0)))});
  }
  const bool ring = worker && strategy == api::Strategy::kAllReduce;
  if (!worker || ring) add({"--listen", kEphemeral, "--address-file", paths.Address(name)});
  if (ring) add({"--ring-listen", kEphemeral});
  const bool has_data = role != api::Role::kCoordinator && strategy == api::Strategy::kParameterServer;
  if (has_data && shared_memory) add({"--local-data", paths.LocalData()});
  add({"--metrics-listen", kEphemeral, "--metrics-address-file", paths.MetricsAddress(name)});
  add({"--parent", absl::StrCat(parent)});
  return spec;
}

absl::Status CheckDataset(const api::TrainingJob& job) {
  if (job.spec.dataset.synthetic.has_value()) return absl::OkStatus();  // nothing to read
  if (job.spec.dataset.format != "IDX") {
    if (absl::Status train = CheckPresent("spec.dataset.path", job.spec.dataset.path); !train.ok()) return train;
    return CheckPresent("spec.dataset.testPath", job.spec.dataset.test_path);
  }
  const std::string& path = job.spec.dataset.path;
  const std::string field = absl::StrCat("spec.dataset.path: ", path);
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ",
                                                   error                     ? error.message()
                                                   : fs::exists(path, error) ? "is no directory"
                                                                             : "there is no such directory"));
  }
  std::vector<std::string> names = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
  if (job.spec.training.evaluate) names.insert(names.end(), {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"});
  for (const std::string& name : names) {
    const std::string plain = absl::StrCat(path, "/", name);
    const std::string zipped = plain + ".gz";
    if (!fs::is_regular_file(plain, error) && !fs::is_regular_file(zipped, error)) {
      return absl::InvalidArgumentError(absl::StrCat(field, ": holds neither ", name, " nor ", name, ".gz"));
    }
    const std::string& present = fs::is_regular_file(plain, error) ? plain : zipped;
    if (access(present.c_str(), R_OK) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec.dataset.path: ", SystemError(errno, present, "cannot be read").message()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFreeSpace(const std::string& directory, std::uint64_t needed) {
  const absl::StatusOr<std::uint64_t> free = FreeBytes(directory);
  if (!free.ok()) return free.status();
  if (*free >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(directory, ": the disk has ", *free >> 20, " MiB left, a run needs ", needed >> 20, " MiB"));
}

}  // namespace downpour::cli
