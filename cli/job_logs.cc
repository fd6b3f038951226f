#include "cli/job_logs.h"

#include <atomic>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/clock.h"
#include "cli/job_view.h"
#include "cli/log_printer.h"
#include "cli/render/format.h"
#include "cli/thread.h"
#include "operator/kube/wait.h"
#include "operator/planner/context.h"

namespace downpour::cli {
namespace {

using controller::Pod;

constexpr absl::Duration kLookTime = absl::Seconds(1);
constexpr double kGiveUpSeconds = 60;
constexpr std::size_t kMostFollowed = 50;  // each has a connection and a thread

std::string NameOf(const Pod& pod) { return planner::InstanceName(pod.role, pod.index); }

bool IsChosen(const LogChoice& choice, const Pod& pod) {
  return (!choice.role.has_value() || pod.role == *choice.role) &&
         (!choice.index.has_value() || pod.index == *choice.index);
}

absl::StatusOr<std::vector<Pod>> ListChosen(Cluster& cluster, const controller::JobRecord& job,
                                            const LogChoice& choice) {
  absl::StatusOr<std::vector<Pod>> pods = cluster.ListPods(job);
  if (pods.ok()) std::erase_if(*pods, [&choice](const Pod& pod) { return !IsChosen(choice, pod); });
  return pods;
}

// One pod's log while it is followed.
class FollowedPod {
 public:
  FollowedPod(Cluster& cluster, Pod pod, std::optional<int> tail, LogPrinter& printer)
      : cluster_(cluster), pod_(std::move(pod)), tail_(tail), printer_(printer) {}

  // Looks whether there is something to read, with the newest of the pod; starts reading if so.
  absl::Status Tend(const Pod& pod) {
    if (reading_ || complete_ || pod.phase == "Pending") return absl::OkStatus();
    pod_ = pod;
    reading_ = true;
    absl::StatusOr<std::jthread> thread =
        StartThread<std::jthread>(absl::StrCat("the thread that reads the log of ", NameOf(pod)),
                                  [this](const std::stop_token& stop) { Read(stop); });
    if (!thread.ok()) {
      reading_ = false;
      return thread.status();
    }
    thread_ = *std::move(thread);
    return absl::OkStatus();
  }
  // The pod is gone: what was not read never will be.
  void GiveUp() {
    if (!reading_) complete_ = true;
  }
  bool complete() const { return complete_; }
  // Why it can never be read.
  absl::Status failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  void Read(const std::stop_token& stop) {
    // What was printed before a connection broke comes again, as the server only knows whole seconds.
    absl::Time newest;
    bool repeated = absl::ParseTime(absl::RFC3339_full, newest_, &newest, nullptr);
    kube::LogOptions options;
    options.follow = true;
    options.since_time = newest_;
    if (newest_.empty() && tail_.has_value()) options.tail_lines = *tail_;
    const absl::Status status =
        cluster_.ReadLog(pod_, options, stop, [&](std::string_view time, std::string_view line) {
          absl::Time moment;
          if (repeated &&
              absl::ParseTime(absl::RFC3339_full, absl::string_view(time.data(), time.size()), &moment, nullptr)) {
            if (moment <= newest) return true;
            repeated = false;
          }
          if (!time.empty()) newest_ = std::string(time);
          printer_.Print(NameOf(pod_), line);
          return true;
        });
    if (absl::IsPermissionDenied(status)) {
      const std::lock_guard lock(mutex_);
      failure_ = status;
    } else if ((absl::IsUnavailable(status) || absl::IsResourceExhausted(status)) && !complained_) {
      complained_ = true;
      std::cerr << absl::StrCat("downpour: ", NameOf(pod_), ": ", CleanLines(std::string(status.message())),
                                "; tries again\n")
                << std::flush;
    }
    // A log that ends before its pod is taken up again.
    if ((status.ok() && controller::HasEnded(pod_)) || absl::IsNotFound(status) || absl::IsPermissionDenied(status)) {
      complete_ = true;
    }
    reading_ = false;
  }

  Cluster& cluster_;
  Pod pod_;             // of the thread while it reads
  std::string newest_;  // likewise: the time of the line printed last
  bool complained_ = false;
  const std::optional<int> tail_;
  LogPrinter& printer_;
  std::atomic<bool> reading_{false};
  std::atomic<bool> complete_{false};
  std::mutex mutex_;
  absl::Status failure_;
  std::jthread thread_;  // last: it uses all the others
};

absl::Status Follow(Cluster& cluster, const std::string& name, const LogChoice& choice, LogPrinter& printer,
                    const std::stop_token& stop) {
  const std::stop_callback cancel(stop, [&cluster] { cluster.Stop(); });
  const SystemClock clock;
  std::map<std::string, std::unique_ptr<FollowedPod>> followed;  // by uid
  bool first = true;
  for (double answered = clock.Now();;) {
    const absl::StatusOr<controller::JobRecord> job = cluster.GetJob(name);
    absl::StatusOr<std::vector<Pod>> pods = job.ok() ? ListChosen(cluster, *job, choice) : job.status();
    if (stop.stop_requested()) return absl::OkStatus();
    const bool passes = absl::IsUnavailable(pods.status()) || absl::IsDeadlineExceeded(pods.status());
    if (!pods.ok() && (first || !passes || clock.Now() - answered > kGiveUpSeconds)) {
      return !first && absl::IsNotFound(pods.status()) ? absl::OkStatus() : pods.status();  // the job was deleted
    }
    if (pods.ok()) {
      answered = clock.Now();
      if (pods->size() > kMostFollowed) {
        return absl::InvalidArgumentError(absl::StrCat(name, " has ", pods->size(), " such pods; at most ",
                                                       kMostFollowed,
                                                       " can be followed: choose with --role and --index"));
      }
      std::map<std::string, const Pod*> there;
      for (const Pod& pod : *pods) there[pod.meta.uid] = &pod;
      for (const auto& [uid, pod] : there) {
        std::unique_ptr<FollowedPod>& one = followed[uid];
        // All of what came while somebody looks is of interest.
        if (one == nullptr) {
          one = std::make_unique<FollowedPod>(cluster, *pod, first ? choice.TailOfEach() : std::nullopt, printer);
        }
        if (absl::Status started = one->Tend(*pod); !started.ok()) return started;
      }
      bool complete = true;
      for (const auto& [uid, one] : followed) {
        if (there.count(uid) == 0) one->GiveUp();
        if (absl::Status failure = one->failure(); !failure.ok()) return failure;
        complete = complete && one->complete();
      }
      first = false;
      if (complete && !MakeJobOverview(*job, 0).running) return absl::OkStatus();
    }
    if (!std::cout || !kube::SleepFor(stop, kLookTime)) return absl::OkStatus();
  }
}

}  // namespace

absl::Status PrintJobLogs(Cluster& cluster, const std::string& name, const LogChoice& choice,
                          const std::stop_token& stop) {
  const std::optional<int> tail = choice.TailOfEach();
  LogPrinter printer(std::cout, /*names=*/!choice.one_member());
  if (choice.follow) return Follow(cluster, name, choice, printer, stop);

  const absl::StatusOr<controller::JobRecord> job = cluster.GetJob(name);
  if (!job.ok()) return job.status();
  const absl::StatusOr<std::vector<Pod>> pods = ListChosen(cluster, *job, choice);
  if (!pods.ok()) return pods.status();
  if (pods->empty()) {
    return absl::NotFoundError(absl::StrCat(name, " has no such pod now: downpour why ", name, " -n ",
                                            job->meta.namespace_name, " says what became of it"));
  }
  absl::Status failure;
  std::size_t read = 0;
  for (const Pod& pod : *pods) {
    kube::LogOptions options;
    if (tail.has_value()) options.tail_lines = *tail;
    const absl::Status status = cluster.ReadLog(pod, options, {}, [&](std::string_view, std::string_view line) {
      printer.Print(NameOf(pod), line);
      return true;
    });
    if (status.ok()) {
      ++read;
      continue;
    }
    failure = absl::Status(status.code(), absl::StrCat(NameOf(pod), " has no log: ", status.message()));
    if (absl::IsPermissionDenied(status)) break;  // nor of the others
    if (pods->size() > 1) Complain(failure);
  }
  return read == 0 || absl::IsPermissionDenied(failure) ? failure : absl::OkStatus();
}

}  // namespace downpour::cli
