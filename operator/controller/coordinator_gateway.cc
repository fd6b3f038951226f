#include "operator/controller/coordinator_gateway.h"

#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "downpour/v1/control.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "operator/controller/objects.h"
#include "operator/controller/turn.h"
#include "operator/job/report.h"
#include "operator/kube/wait.h"
#include "proto/deadline.h"
#include "proto/member_channel.h"

namespace downpour::controller {
namespace {

// What a reconciler must hear of at once when it changes.
std::string Digest(const v1::ProgressReply& reply) {
  std::string digest = absl::StrCat(static_cast<int>(reply.phase()), "|", reply.view().generation(), "|",
                                    reply.parameters_lost(), "|", reply.message(), "|", reply.updates_applied() > 0);
  const v1::CheckpointProgress& checkpoint = reply.checkpoint();
  absl::StrAppend(&digest, "|", checkpoint.request(), "|", static_cast<int>(checkpoint.request_state()), "|",
                  checkpoint.newest(), "|", checkpoint.error(), "|", reply.restoration().checkpoint());
  absl::StrAppend(&digest, "|", static_cast<int>(reply.mode().mode()), ".", reply.mode().staleness(), ".",
                  reply.mode().updates_per_step());
  absl::StrAppend(&digest, "|", reply.stop_reason(), "|", reply.rate_reason(), "|", reply.best_epoch(), "|",
                  reply.best_path());
  const v1::ReplicationProgress& replication = reply.replication();
  absl::StrAppend(&digest, "|", replication.slices(), ".", replication.in_sync(), ".", replication.message(), "|");
  const v1::RingProgress& ring = reply.ring();
  absl::StrAppend(&digest, ring.members(), ".", ring.formed(), ".", ring.formed_count(), ".", ring.message(), "|");
  for (const std::uint32_t index : reply.placed_ps()) absl::StrAppend(&digest, index, ".");
  for (const v1::MemberProgress& member : reply.members()) {
    absl::StrAppend(&digest, "|", member.role(), member.index(), ".", member.process_incarnation());
  }
  return digest;
}

// What is kept of an answer, as there may be thousands: without the members' own figures.
v1::ProgressReply Condense(v1::ProgressReply reply) {
  google::protobuf::RepeatedPtrField<v1::MemberProgress> members;
  members.Swap(reply.mutable_members());
  v1::ProgressReply condensed = std::move(reply);
  for (const v1::MemberProgress& member : members) {
    v1::MemberProgress& kept = *condensed.add_members();
    kept.set_role(member.role());
    kept.set_index(member.index());
    kept.set_process_incarnation(member.process_incarnation());
  }
  return condensed;
}

class GrpcCoordinatorGateway final : public CoordinatorGateway {
 public:
  GrpcCoordinatorGateway(GatewayOptions options, std::function<void(const std::string&)> on_change)
      : options_(std::move(options)), on_change_(std::move(on_change)), thread_([this] { Run(); }) {}

  ~GrpcCoordinatorGateway() override {
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = true;
      wake_.Signal();
      for (const auto& [raw, call] : calls_) call->context.TryCancel();
    }
    thread_.join();
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](std::unordered_map<Call*, std::shared_ptr<Call>>* calls) { return calls->empty(); }, &calls_));
  }

  void Follow(const std::string& job_uid, const std::string& key, const std::string& address, Periods periods,
              v1::ProgressRequest question) override {
    std::string text = question.SerializeAsString();
    absl::MutexLock lock(&mutex_);
    Job& job = jobs_[job_uid];
    job.key = key;
    const bool tells_more = job.question_text != text;
    job.question = std::move(question);
    job.question_text = std::move(text);
    if (job.address != address) {
      Discard(std::move(job.stub));
      job.address = address;
      job.asking = false;  // a question under way goes to the one before
      job.digest.clear();  // whatever it answers is news
      Schedule(job_uid, job, kube::MonotonicNow());
    } else if (periods.ask >= 2 * job.periods.ask) {
      // Jobs that started together would be asked together, and written together, for ever.
      Schedule(job_uid, job, kube::MonotonicNow() + periods.ask * Phase(job_uid));
    }
    if (tells_more) Schedule(job_uid, job, kube::MonotonicNow());
    if (periods.ask < job.periods.ask) Schedule(job_uid, job, std::min(job.next, kube::MonotonicNow() + periods.ask));
    job.periods = periods;
  }

  void Forget(const std::string& job_uid) override {
    absl::MutexLock lock(&mutex_);
    const auto found = jobs_.find(job_uid);
    if (found == jobs_.end()) return;
    due_.erase({found->second.next, job_uid});
    Discard(std::move(found->second.stub));
    jobs_.erase(found);
  }

  std::optional<Answer> Latest(const std::string& job_uid) const override {
    absl::MutexLock lock(&mutex_);
    const auto found = jobs_.find(job_uid);
    return found == jobs_.end() ? std::nullopt : found->second.answer;
  }

  void Finish(api::Role role, const std::string& job_uid, const std::string& address) override {
    auto call = std::make_shared<Call>();
    Call* const raw = call.get();
    call->finish.set_job_uid(ProcessJobUid(job_uid));
    call->context.set_deadline(DeadlineIn(options_.deadline));
    {
      absl::MutexLock lock(&mutex_);
      if (stopped_) return;
      calls_.emplace(raw, call);
    }
    auto done = [this, raw](const grpc::Status&) { End(raw); };
    if (role == api::Role::kCoordinator) {
      call->coordinator = v1::Coordinator::NewStub(MakeMemberChannel(address));
      call->coordinator->async()->Finish(&raw->context, &raw->finish, &raw->finished, std::move(done));
    } else {
      call->ps = v1::ParameterServer::NewStub(MakeMemberChannel(address));
      call->ps->async()->Finish(&raw->context, &raw->finish, &raw->finished, std::move(done));
    }
    absl::MutexLock lock(&mutex_);
    Discard(std::move(call));
  }

 private:
  struct Job {
    std::string key;
    std::string address;
    Periods periods = {absl::InfiniteDuration(), absl::InfiniteDuration()};
    v1::ProgressRequest question;
    std::string question_text;                       // serialised: compared often
    std::shared_ptr<v1::Coordinator::Stub> stub;     // from the first question on: channels are expensive
    absl::Duration next = absl::InfiniteDuration();  // when it is asked; all times are of kube::MonotonicNow
    bool asking = false;
    std::optional<Answer> answer;
    std::string digest;
    absl::Duration told = -absl::InfiniteDuration();  // when on_change was called last
  };
  struct Call {
    grpc::ClientContext context;
    v1::ProgressRequest question;
    std::string question_text;  // as of the job when it was asked
    v1::ProgressReply reply;
    v1::FinishRequest finish;
    v1::FinishReply finished;
    std::shared_ptr<v1::Coordinator::Stub> coordinator;
    std::unique_ptr<v1::ParameterServer::Stub> ps;
  };

  void Schedule(const std::string& job_uid, Job& job, absl::Duration at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    due_.erase({job.next, job_uid});
    job.next = at;
    due_.insert({at, job_uid});
    wake_.Signal();
  }

  // To be destroyed on this object's own thread. gRPC ends its threads with the last channel and waits for them: one of
  // them, or whoever holds a lock that one of them wants, must not be the one that destroys it.
  void Discard(std::shared_ptr<void> holder) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (holder == nullptr) return;
    discarded_.push_back(std::move(holder));
    wake_.Signal();
  }

  // On a thread of gRPC.
  void End(Call* call) {
    absl::MutexLock lock(&mutex_);
    Discard(std::move(calls_.extract(call).mapped()));
    wake_.Signal();
  }

  void Run() {
    absl::MutexLock lock(&mutex_);
    while (!stopped_) {
      if (!discarded_.empty()) {
        std::vector<std::shared_ptr<void>> discarded = std::exchange(discarded_, {});
        mutex_.Unlock();
        discarded.clear();
        mutex_.Lock();
        continue;
      }
      const absl::Duration now = kube::MonotonicNow();
      const bool full = static_cast<int>(calls_.size()) >= options_.most_in_flight;
      if (due_.empty() || full) {
        wake_.WaitWithTimeout(&mutex_, absl::Seconds(1));
        continue;
      }
      const auto [at, job_uid] = *due_.begin();
      if (at > now) {
        wake_.WaitWithTimeout(&mutex_, std::min(at - now, absl::Seconds(1)));
        continue;
      }
      Job& job = jobs_.at(job_uid);
      Schedule(job_uid, job, now + job.periods.ask);
      if (!job.asking) Ask(job_uid, job);
    }
  }

  void Ask(const std::string& job_uid, Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto call = std::make_shared<Call>();
    if (job.stub == nullptr) job.stub = v1::Coordinator::NewStub(MakeMemberChannel(job.address));
    call->coordinator = job.stub;
    call->question = job.question;
    call->question_text = job.question_text;
    call->context.set_deadline(DeadlineIn(options_.deadline));
    Call* const raw = call.get();
    calls_.emplace(raw, std::move(call));
    job.asking = true;
    // gRPC calls back from a thread of its own, never from within this call.
    job.stub->async()->GetProgress(&raw->context, &raw->question, &raw->reply,
                                   [this, raw, job_uid](const grpc::Status& status) {
                                     Answered(job_uid, *raw, status);
                                     End(raw);
                                   });
  }

  void Answered(const std::string& job_uid, Call& call, const grpc::Status& status) {
    std::string key;
    {
      absl::MutexLock lock(&mutex_);
      const auto found = jobs_.find(job_uid);
      if (found == jobs_.end() || found->second.stub != call.coordinator) return;
      Job& job = found->second;
      job.asking = false;
      // What came up meanwhile is not told yet.
      if (job.question_text != call.question_text) {
        Schedule(job_uid, job, std::min(job.next, kube::MonotonicNow()));
      }
      if (!status.ok()) return;
      std::string digest = Digest(call.reply);
      const absl::Duration now = kube::MonotonicNow();
      const bool progressed =
          !job.answer.has_value() || job.answer->reply.updates_applied() != call.reply.updates_applied();
      if (digest != job.digest || (progressed && now - job.told >= job.periods.tell)) {
        job.told = now;
        key = job.key;
      }
      job.digest = std::move(digest);
      job.answer = Answer{Condense(std::move(call.reply)), options_.clock(), job::ToldBy(call.question)};
    }
    if (!key.empty()) on_change_(key);
  }

  const GatewayOptions options_;
  const std::function<void(const std::string&)> on_change_;
  mutable absl::Mutex mutex_;
  absl::CondVar wake_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::unordered_map<std::string, Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<absl::Duration, std::string>> due_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<Call*, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);  // under way
  std::vector<std::shared_ptr<void>> discarded_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace

std::unique_ptr<CoordinatorGateway> MakeCoordinatorGateway(GatewayOptions options,
                                                           std::function<void(const std::string& key)> on_change) {
  return std::make_unique<GrpcCoordinatorGateway>(std::move(options), std::move(on_change));
}

}  // namespace downpour::controller
