#include "operator/kube/leader_election.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "operator/kube/wait.h"

namespace downpour::kube {
namespace {

using Action = ElectionDecision::Action;

LeaseRecord ReadLease(const Json& object) {
  const ObjectMeta meta = ReadMeta(object);
  LeaseRecord record;
  record.holder = FindText(object, {"spec", "holderIdentity"});
  record.renew_time = FindText(object, {"spec", "renewTime"});
  record.resource_version = meta.resource_version;
  record.uid = meta.uid;
  const auto small = [&](std::string_view field) {
    return static_cast<int>(
        std::clamp<std::int64_t>(FindInteger(object, {"spec", field}).value_or(0), 0, 1'000'000'000));
  };
  record.lease_seconds = small("leaseDurationSeconds");
  record.transitions = small("leaseTransitions");
  return record;
}

// Whether its holder did something. Annotations and the like do not count.
bool SameClaim(const LeaseRecord& a, const LeaseRecord& b) {
  return a.holder == b.holder && a.renew_time == b.renew_time && a.transitions == b.transitions && a.uid == b.uid;
}

double UnixNow() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

}  // namespace

ElectionDecision DecideElection(const ElectionState& state, const LeaderElectionOptions& options, absl::Duration now) {
  if (state.leading) {
    if (state.seen.has_value() && state.seen->holder != options.identity) {
      return {Action::kLost, state.seen->holder.empty() ? "the lease has no holder any more"
                                                        : absl::StrCat("the lease is held by ", state.seen->holder)};
    }
    if (now - state.renewed_at >= options.renew_deadline) {
      return {Action::kLost,
              absl::StrCat("the lease was not renewed for ", absl::FormatDuration(options.renew_deadline))};
    }
    return {Action::kRenew, ""};
  }
  if (!state.seen.has_value()) return {Action::kWait, "the lease has not been read yet"};
  if (state.seen->resource_version.empty()) return {Action::kCreate, "there is no lease"};
  if (state.seen->holder.empty()) return {Action::kAcquire, "the lease was given back"};
  if (state.seen->holder == options.identity) return {Action::kAcquire, "the lease is ours from before"};
  const absl::Duration lease = state.seen->lease_seconds > 0 ? absl::Seconds(state.seen->lease_seconds) : options.lease;
  if (now - state.seen_since >= lease) {
    return {Action::kAcquire, absl::StrCat("the lease of ", state.seen->holder, " has expired")};
  }
  return {Action::kWait, absl::StrCat("the lease is held by ", state.seen->holder)};
}

class LeaderElector::Impl {
 public:
  Impl(LeaderElectionOptions options, std::unique_ptr<Client> client, std::function<void()> on_elected,
       std::function<void(const std::string& reason)> on_lost)
      : options_(std::move(options)),
        client_(std::move(client)),
        on_elected_(std::move(on_elected)),
        on_lost_(std::move(on_lost)),
        random_(std::random_device()()) {}

  ~Impl() {
    election_ = {};  // ends it
    watchdog_ = {};
    GiveBack();
  }

  void Start() {
    election_ = std::jthread([this](const std::stop_token& stop) { Elect(stop); });
    watchdog_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
  }

  bool leading() const {
    const std::lock_guard lock(mutex_);
    return state_.leading;
  }

  std::string holder() const {
    const std::lock_guard lock(mutex_);
    return state_.seen.has_value() ? state_.seen->holder : std::string();
  }

 private:
  void Elect(const std::stop_token& stop) {
    bool read = true;
    while (!stop.stop_requested()) {
      if (read) Read();
      read = Act();
      // Rivals that began together do not stay together.
      const double jitter = leading() ? 1 : 1 + std::uniform_real_distribution<double>(0, 0.2)(random_);
      if (!SleepFor(stop, options_.retry_period * jitter)) return;
    }
  }

  // A request may hang until its time-out; that leadership ends must not wait for it.
  void Watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      if (!state_.leading) {
        changed_.wait(lock, stop, [this] { return state_.leading; });
        continue;
      }
      const absl::Duration left = state_.renewed_at + options_.renew_deadline - MonotonicNow();
      if (left > absl::ZeroDuration()) {
        changed_.wait_until(lock, stop, DeadlineAfter(left), [] { return false; });
        continue;
      }
      LoseIfDecided(lock);
    }
  }

  // Calls on_lost, once, if leadership has ended. Unlocks for the call.
  void LoseIfDecided(std::unique_lock<std::mutex>& lock) {
    const ElectionDecision decision = DecideElection(state_, options_, MonotonicNow());
    if (decision.action != Action::kLost) return;
    state_.leading = false;
    lost_ = true;
    lock.unlock();
    on_lost_(decision.reason);
    lock.lock();
  }

  void Read() {
    const absl::StatusOr<Json> lease = client_->Get(kLeases, options_.namespace_name, options_.name);
    if (lease.ok()) return See(ReadLease(*lease));
    if (absl::IsNotFound(lease.status())) See({});
  }

  void See(const LeaseRecord& record) {
    std::unique_lock lock(mutex_);
    if (!state_.seen.has_value() || !SameClaim(*state_.seen, record)) state_.seen_since = MonotonicNow();
    state_.seen = record;
    LoseIfDecided(lock);
  }

  // True: the record must be read before the next decision.
  bool Act() {
    ElectionState state;
    {
      std::unique_lock lock(mutex_);
      if (lost_) return false;
      LoseIfDecided(lock);
      state = state_;
    }
    const absl::Duration start = MonotonicNow();
    absl::StatusOr<Json> stored;
    switch (DecideElection(state, options_, start).action) {
      case Action::kWait:
      case Action::kLost:
        return true;
      case Action::kCreate:
        stored = client_->Create(kLeases, options_.namespace_name,
                                 {{"apiVersion", kLeases.ApiVersion()},
                                  {"kind", kLeases.kind},
                                  {"metadata", {{"name", options_.name}, {"namespace", options_.namespace_name}}},
                                  {"spec", Claim(0)}});
        break;
      case Action::kAcquire:
        // As others do: what counts is how often the holder changed.
        stored = Patch(*state.seen, Claim(state.seen->transitions + (state.seen->holder == options_.identity ? 0 : 1)));
        break;
      case Action::kRenew:
        stored = Patch(*state.seen, {{"renewTime", FormatMicroTime(UnixNow())}});
        break;
    }
    // Not stored, or stored and the answer got lost: the record says.
    if (!stored.ok()) return true;
    Stored(ReadLease(*stored), start);
    return !leading();
  }

  Json Claim(int transitions) const {
    const std::string now = FormatMicroTime(UnixNow());
    return {{"holderIdentity", options_.identity},
            {"leaseDurationSeconds", std::max<std::int64_t>(1, absl::ToInt64Seconds(options_.lease))},
            {"acquireTime", now},
            {"renewTime", now},
            {"leaseTransitions", transitions}};
  }

  absl::StatusOr<Json> Patch(const LeaseRecord& seen, const Json& spec) {
    return client_->MergePatch(
        kLeases, options_.namespace_name, options_.name,
        {{"metadata", {{"uid", seen.uid}, {"resourceVersion", seen.resource_version}}}, {"spec", spec}});
  }

  void Stored(const LeaseRecord& record, absl::Duration start) {
    bool elected = false;
    {
      std::unique_lock lock(mutex_);
      state_.seen = record;
      state_.seen_since = MonotonicNow();
      if (lost_) return;  // while the request was on its way
      // Too old to begin with; it is taken again at the next turn.
      if (!state_.leading && MonotonicNow() - start >= options_.renew_deadline) return;
      state_.renewed_at = start;
      elected = !state_.leading;
      state_.leading = true;
      changed_.notify_all();
    }
    if (elected) on_elected_();
  }

  void GiveBack() {
    ElectionState state;
    {
      const std::lock_guard lock(mutex_);
      state = std::exchange(state_, {});
    }
    if (!state.leading || !state.seen.has_value()) return;
    const std::string now = FormatMicroTime(UnixNow());
    // Best effort: if it fails the lease expires.
    (void)Patch(*state.seen,
                {{"holderIdentity", ""}, {"leaseDurationSeconds", 1}, {"acquireTime", now}, {"renewTime", now}});
  }

  const LeaderElectionOptions options_;
  const std::unique_ptr<Client> client_;
  const std::function<void()> on_elected_;
  const std::function<void(const std::string& reason)> on_lost_;
  std::mt19937 random_;  // the election's thread alone
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  ElectionState state_;
  bool lost_ = false;
  std::jthread election_;
  std::jthread watchdog_;
};

LeaderElector::LeaderElector(LeaderElectionOptions options, std::unique_ptr<Client> client,
                             std::function<void()> on_elected, std::function<void(const std::string& reason)> on_lost)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(client), std::move(on_elected), std::move(on_lost))) {}

LeaderElector::~LeaderElector() = default;

void LeaderElector::Start() { impl_->Start(); }

bool LeaderElector::leading() const { return impl_->leading(); }

std::string LeaderElector::holder() const { return impl_->holder(); }

}  // namespace downpour::kube
