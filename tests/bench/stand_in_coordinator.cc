// Answers for any number of coordinators at once, for the benchmark of the operator: jobs that train, one update every
// ten milliseconds, all members there. After SIGUSR1 they are done, some each second: their pods end on one machine.
// Ends on SIGTERM.
#include <csignal>

#include <cstdio>
#include <memory>
#include <string>
#include <unordered_set>

#include "CLI/CLI.hpp"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "downpour/v1/control.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace downpour {
namespace {

constexpr double kDoneASecond = 8;

class StandIn final : public v1::Coordinator::CallbackService {
 public:
  StandIn(int parameter_servers, int workers) : begun_(absl::Now()) {
    training_.set_phase(v1::PHASE_TRAINING);
    training_.mutable_view()->set_generation(1);
    training_.mutable_view()->set_incarnation(1);
    training_.mutable_view()->set_epoch(1);
    training_.set_epochs(1000);
    training_.set_updates_expected(1000000000);
    training_.set_samples_per_second(12345);
    AddMembers("ps", parameter_servers);
    AddMembers("worker", workers);
    done_ = training_;
    done_.set_phase(v1::PHASE_DONE);
    done_.set_updates_applied(training_.updates_expected());
  }

  grpc::ServerUnaryReactor* GetProgress(grpc::CallbackServerContext* context, const v1::ProgressRequest* request,
                                        v1::ProgressReply* reply) override {
    if (IsDone(request->job_uid())) {
      *reply = done_;
    } else {
      *reply = training_;
      reply->set_updates_applied(1 + static_cast<std::uint64_t>((absl::Now() - begun_) / absl::Milliseconds(10)));
      reply->set_loss(0.5);
    }
    return Answer(context);
  }

  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const v1::FinishRequest* /*request*/,
                                   v1::FinishReply* reply) override {
    reply->set_accepted(true);
    return Answer(context);
  }

  void SetFinished() {
    absl::MutexLock lock(&mutex_);
    finish_begun_ = absl::Now();
  }

 private:
  bool IsDone(const std::string& job_uid) {
    absl::MutexLock lock(&mutex_);
    if (done_jobs_.contains(job_uid)) return true;
    if (static_cast<double>(done_jobs_.size()) >= kDoneASecond * absl::ToDoubleSeconds(absl::Now() - finish_begun_)) {
      return false;
    }
    done_jobs_.insert(job_uid);
    return true;
  }

  static grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  void AddMembers(const char* role, int count) {
    for (int i = 0; i < count; ++i) {
      v1::MemberProgress& member = *training_.add_members();
      member.set_role(role);
      member.set_index(static_cast<std::uint32_t>(i));
      member.set_process_incarnation(1);
      member.set_state("computing");
      if (std::string(role) == "worker") {
        member.mutable_worker()->set_samples_per_second(1543);
        member.mutable_worker()->set_state("computing");
        member.mutable_worker()->set_device("cpu");
      }
    }
  }

  const absl::Time begun_;
  v1::ProgressReply training_, done_;
  absl::Mutex mutex_;
  absl::Time finish_begun_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::unordered_set<std::string> done_jobs_ ABSL_GUARDED_BY(mutex_);
};

int Main(int argc, char** argv) {
  CLI::App app{"Stands in for the coordinators of jobs."};
  std::string listen;
  int parameter_servers = 2;
  int workers = 8;
  app.add_option("--listen", listen)->required();
  app.add_option("--parameter-servers", parameter_servers)->capture_default_str();
  app.add_option("--workers", workers)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  for (const int signal : {SIGTERM, SIGINT}) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  StandIn service(parameter_servers, workers);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "stand_in_coordinator: cannot listen on %s\n", listen.c_str());
    return 1;
  }
  std::puts("listening");
  std::fflush(stdout);
  for (;;) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (signal != SIGUSR1) return 0;
    service.SetFinished();
  }
}

}  // namespace
}  // namespace downpour

// What CLI11 may throw while the options are declared would be a defect of ours: ending is right.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) { return downpour::Main(argc, argv); }
