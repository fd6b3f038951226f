// Stands in for downpour-server and downpour-worker in tests of the command: speaks enough of the protocol to be
// started, asked, finished and killed, and trains nothing. Who is a member is known from the processes' files of their
// metrics addresses, which here hold their numbers.
//
// DOWNPOUR_FAKE, words separated by commas, makes it misbehave:
//   endless        the job never gets beyond its middle
//   long           the job takes more answers than a test asks for
//   refuse-input   workers end with exit code 2
//   crash          each first incarnation of a worker ends with exit code 3
//   fail           the coordinator reports that the job failed
//   stubborn       workers ignore SIGTERM
//   fork           workers start a child each, whose number is appended to the file "children" in the run folder
//   deaf           workers do not hear that the job is over
//   duplicate      the ps, or the workers of a job without, applied an update twice
//   mute           likewise: they say nothing of what they applied
//   behind         worker-1 of a job without parameter servers lacks the last epoch
#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "downpour/v1/control.grpc.pb.h"
#include "proto/member_channel.h"

namespace {

namespace fs = std::filesystem;
namespace v1 = downpour::v1;

constexpr int kAnswers = 8;  // until the job is trained
constexpr int kManyAnswers = 4000;
constexpr int kPollMilliseconds = 20;
constexpr int kFarewellMilliseconds = 300;

std::map<std::string, std::string> options;
v1::TrainingConfig config;

bool Misbehaves(const std::string& how) {
  const char* words = std::getenv("DOWNPOUR_FAKE");
  const std::vector<std::string> list = absl::StrSplit(words == nullptr ? "" : words, ',');
  return std::find(list.begin(), list.end(), how) != list.end();
}

fs::path Root() { return fs::path(options["config"]).parent_path(); }

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteAtomically(const fs::path& path, const std::string& content) {
  const fs::path temporary = path.string() + "." + std::to_string(getpid());
  std::ofstream(temporary) << content << '\n';
  fs::rename(temporary, path);
}

bool Alive(int pid) {
  const std::string stat = Read("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat[name_end + 2] != 'Z';
}

std::uint64_t SampleCount() {
  const std::string header = Read(config.dataset().path() + "/train-labels-idx1-ubyte").substr(0, 8);
  std::uint64_t count = 0;
  for (std::size_t i = 4; i < header.size(); ++i) count = count * 256 + static_cast<unsigned char>(header[i]);
  return count;
}

std::uint64_t UpdatesPerEpoch() { return (SampleCount() + config.batch_size() - 1) / config.batch_size(); }

std::atomic<bool> finished = false;

class Coordinator final : public v1::Coordinator::Service {
 public:
  grpc::Status GetProgress(grpc::ServerContext*, const v1::ProgressRequest* request,
                           v1::ProgressReply* reply) override {
    if (request->job_uid() != config.job_uid()) return {grpc::FAILED_PRECONDITION, "not my job"};
    AddMembers(*reply);
    const bool complete = ps_ == static_cast<int>(config.ps_replicas()) && workers_ > 0;
    // Kept in a file, as a replaced coordinator learns from the ps how far the job is.
    const fs::path progress = Root() / "fake-progress";
    const int most = Misbehaves("long") ? kManyAnswers : kAnswers;
    int answers = std::atoi(Read(progress).c_str());
    if (complete && answers < most && !(Misbehaves("endless") && answers >= most / 2)) {
      WriteAtomically(progress, std::to_string(++answers));
    }
    const std::uint64_t expected = UpdatesPerEpoch() * config.epochs();
    const std::uint64_t applied = expected * static_cast<std::uint64_t>(answers) / most;
    reply->set_phase(answers == 0 ? v1::PHASE_STARTING : answers == most ? v1::PHASE_DONE : v1::PHASE_TRAINING);
    if (Misbehaves("fail") && answers > 2) {
      reply->set_phase(v1::PHASE_FAILED);
      reply->set_message("the fake coordinator was told to fail");
    }
    reply->mutable_view()->set_generation(1);
    if (config.has_all_reduce()) {
      v1::RingProgress& ring = *reply->mutable_ring();
      ring.set_members(static_cast<std::uint32_t>(workers_));
      ring.set_wanted(config.workers());
      ring.set_formed(workers_ > 0);
      ring.set_updates_per_step(config.workers());
    }
    reply->set_ps_expected(config.ps_replicas());
    reply->set_epochs(config.epochs());
    reply->set_updates_per_epoch(UpdatesPerEpoch());
    reply->set_samples_per_epoch(SampleCount());
    reply->set_updates_expected(expected);
    reply->set_updates_applied(applied);
    reply->set_epochs_done(static_cast<std::uint32_t>(applied / UpdatesPerEpoch()));
    reply->set_samples_done(applied * config.batch_size());
    reply->set_samples_per_second(1000);
    reply->set_loss(2.0 / (1 + answers));
    if (applied > 0) reply->set_first_update_milliseconds(1);
    for (std::uint32_t epoch = 1; epoch <= reply->epochs_done(); ++epoch) {
      v1::Evaluation* const evaluation = reply->add_evaluations();
      evaluation->set_dataset_epoch(epoch);
      evaluation->set_accuracy(0.5 + 0.1 * epoch);
      for (const auto& [name, value] :
           {std::pair("Accuracy", evaluation->accuracy()), std::pair("Top5Accuracy", 1.0)}) {
        v1::Metric* const metric = evaluation->add_metrics();
        metric->set_name(name);
        metric->set_value(value);
      }
      evaluation->set_loss(1.0 / epoch);
      evaluation->set_samples(100);
    }
    if (reply->phase() == v1::PHASE_DONE) {
      const std::string model = config.output_directory() + "/model.safetensors";
      WriteAtomically(model, "a model");
      reply->set_model_path(model);
    }
    return grpc::Status::OK;
  }

  grpc::Status SyncWorker(grpc::ServerContext*, const v1::WorkerSyncRequest*, v1::WorkerSyncReply* reply) override {
    reply->set_status(finished ? v1::SYNC_FINISHED : v1::SYNC_OK);
    return grpc::Status::OK;
  }

  grpc::Status Finish(grpc::ServerContext*, const v1::FinishRequest*, v1::FinishReply* reply) override {
    reply->set_accepted(true);
    finished = true;
    return grpc::Status::OK;
  }

 private:
  void AddMembers(v1::ProgressReply& reply) {
    ps_ = 0;
    workers_ = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(Root() / "metrics")) {
      const std::string name = entry.path().filename();
      const std::size_t dash = name.rfind('-');
      const std::string role = name.substr(0, dash);
      if ((role != "ps" && role != "worker") || name.find('.') != std::string::npos) continue;
      std::istringstream identity(Read(entry.path()));
      int pid = 0;
      std::uint32_t incarnation = 0;
      if (!(identity >> pid >> incarnation) || !Alive(pid)) continue;
      ++(role == "ps" ? ps_ : workers_);
      v1::MemberProgress* const member = reply.add_members();
      member->set_role(role);
      member->set_index(static_cast<std::uint32_t>(std::atoi(name.c_str() + dash + 1)));
      member->set_process_incarnation(incarnation);
      member->set_state("computing");
    }
  }

  int ps_ = 0;
  int workers_ = 0;
};

// Also of a worker without parameter servers, which has both slices of the model.
class ParameterServer final : public v1::ParameterServer::Service {
 public:
  grpc::Status ReadLedger(grpc::ServerContext*, const v1::LedgerRequest*, v1::LedgerReply* reply) override {
    if (Misbehaves("mute")) return {grpc::StatusCode::UNAVAILABLE, "the fake ps was told to be mute"};
    reply->set_job_uid(config.job_uid());
    reply->mutable_stamp()->set_generation(1);
    reply->set_ps_index(static_cast<std::uint32_t>(std::stoi(options["index"])));
    v1::DataPlan& data = *reply->mutable_data();
    data.set_sample_count(SampleCount());
    data.set_batch_size(config.batch_size());
    data.set_updates_per_shard(4);
    data.set_epochs(config.epochs());
    const bool ring = config.has_all_reduce();
    const std::uint32_t epochs = config.epochs() - (ring && Misbehaves("behind") && reply->ps_index() == 1 ? 1 : 0);
    for (std::uint32_t number = ring ? 0 : reply->ps_index(); number <= (ring ? 1 : reply->ps_index()); ++number) {
      v1::SliceLedger* const slice = reply->add_slices();
      slice->set_slice(number);
      slice->set_watermark(epochs);
      slice->set_version(UpdatesPerEpoch() * epochs + (Misbehaves("duplicate") ? 1 : 0));
    }
    return grpc::Status::OK;
  }

  grpc::Status Finish(grpc::ServerContext*, const v1::FinishRequest*, v1::FinishReply* reply) override {
    reply->set_accepted(true);
    finished = true;
    return grpc::Status::OK;
  }
};

// True once SIGTERM came; waits one interval at most.
bool Terminated(int signals) {
  pollfd descriptor{signals, POLLIN, 0};
  return poll(&descriptor, 1, kPollMilliseconds) > 0;
}

std::unique_ptr<grpc::Server> Listen(grpc::Service& service) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(options["listen"], grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server != nullptr) WriteAtomically(options["address-file"], "127.0.0.1:" + std::to_string(port));
  return server;
}

int Serve(grpc::Service& service, int signals) {
  const std::unique_ptr<grpc::Server> server = Listen(service);
  if (server == nullptr) return 1;
  while (!finished && !Terminated(signals)) {
  }
  if (finished) poll(nullptr, 0, kFarewellMilliseconds);  // workers hear of it at their next call
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  return 0;
}

int Work(int signals) {
  if (Misbehaves("fork")) {
    const pid_t child = fork();
    if (child == 0) {
      while (true) pause();
    }
    std::ofstream(Root() / "children", std::ios::app) << child << std::endl;
  }
  if (Misbehaves("crash") && options["incarnation"] == "1") {
    std::cerr << "the fake worker was told to crash" << std::endl;
    return 3;
  }
  ParameterServer tables;
  std::unique_ptr<grpc::Server> server;
  if (config.has_all_reduce()) {
    server = Listen(tables);
    if (server == nullptr || options["ring-listen"].empty()) return 1;
  }
  while (Misbehaves("stubborn") || !Terminated(signals)) {
    if (Misbehaves("stubborn")) poll(nullptr, 0, kPollMilliseconds);
    std::string address = Read(options["coordinator"].substr(1));
    if (address.empty()) continue;
    address.pop_back();
    const auto stub = v1::Coordinator::NewStub(downpour::MakeMemberChannel(address));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
    v1::WorkerSyncReply reply;
    if (!stub->SyncWorker(&context, {}, &reply).ok() || Misbehaves("deaf")) continue;
    if (reply.status() == v1::SYNC_FINISHED) break;
  }
  return 0;
}

}  // namespace

int main(int count, char** values) {
  int next = 1;
  const std::string program = fs::path(values[0]).filename();
  std::string role = program == "downpour-worker" ? "worker" : "";
  if (role.empty() && count > 1) role = values[next++];
  for (; next + 1 < count; next += 2) options[std::string(values[next]).substr(2)] = values[next + 1];

  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != std::stoi(options["parent"])) return 1;
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  const int signals = signalfd(-1, &blocked, SFD_CLOEXEC);

  if (!google::protobuf::util::JsonStringToMessage(Read(options["config"]), &config).ok()) return 2;
  if (role == "worker" && Misbehaves("refuse-input")) {  // it never becomes a member
    std::cerr << "train-images-idx3-ubyte: bad magic number" << std::endl;
    return 2;
  }
  WriteAtomically(options["metrics-address-file"], std::to_string(getpid()) + " " + options["incarnation"]);
  if (role == "worker") return Work(signals);
  if (role == "ps") {
    ParameterServer service;
    return Serve(service, signals);
  }
  Coordinator service;
  return Serve(service, signals);
}
