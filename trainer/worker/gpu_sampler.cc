#include "trainer/worker/gpu_sampler.h"

#include <set>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "spdlog/spdlog.h"

namespace downpour::worker {
namespace {

constexpr absl::Duration kPatience = absl::Milliseconds(500);

absl::StatusOr<std::unique_ptr<cuda::GpuMonitor>> MonitorOf(const std::vector<int>& devices) {
  std::vector<std::string> uuids;
  for (const int device : devices) {
    absl::StatusOr<std::string> uuid = cuda::DeviceUuid(device);
    if (!uuid.ok()) return uuid.status();
    uuids.push_back(*std::move(uuid));
  }
  return cuda::LoadNvml(uuids);
}

}  // namespace

struct GpuSampler::State {
  void Run(std::size_t gpus, const MakeMonitor& make, const Tell& tell);
  void Loop(std::size_t gpus, const MakeMonitor& make, const Tell& tell);
  // False: it is of no use any more.
  bool Wait();
  bool Take(std::vector<cuda::GpuReading> readings);
  bool stopped() {
    absl::MutexLock lock(&mutex);
    return stop;
  }

  absl::Mutex mutex;
  bool asked ABSL_GUARDED_BY(mutex) = false;  // and not answered
  int missed ABSL_GUARDED_BY(mutex) = 0;      // asked for meanwhile
  bool stop ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  std::vector<cuda::GpuReading> newest ABSL_GUARDED_BY(mutex);
};

bool GpuSampler::State::Wait() {
  absl::MutexLock lock(&mutex);
  const auto wanted = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex) { return asked || stop; };
  mutex.Await(absl::Condition(&wanted));  // whoever owns the sampler ends it
  return !stop;
}

bool GpuSampler::State::Take(std::vector<cuda::GpuReading> readings) {
  absl::MutexLock lock(&mutex);
  newest = std::move(readings);
  asked = false;
  missed = 0;
  return !stop;
}

void GpuSampler::State::Loop(std::size_t gpus, const MakeMonitor& make, const Tell& tell) {
  // The library is loaded when it is first needed, which takes a while.
  if (!Wait()) return;
  const absl::StatusOr<std::unique_ptr<cuda::GpuMonitor>> monitor = make();
  if (stopped()) return;
  if (!monitor.ok()) return tell(absl::StrCat("no metrics of GPUs: ", monitor.status().message()));
  std::set<std::pair<std::size_t, std::string>> told;
  while (Wait()) {
    std::vector<cuda::GpuReading> readings;
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) readings.push_back((*monitor)->Read(gpu));
    std::vector<std::string> news;
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
      for (const cuda::GpuReading::Missing& missing : readings[gpu].missing) {
        if (!told.emplace(gpu, missing.what).second) continue;
        news.push_back(absl::StrCat("no metric of GPU ", gpu, ", ", missing.what, ": ", missing.why));
      }
    }
    if (stopped()) return;
    for (const std::string& one : news) tell(one);
    if (!Take(std::move(readings))) return;
  }
}

void GpuSampler::State::Run(std::size_t gpus, const MakeMonitor& make, const Tell& tell) {
  Loop(gpus, make, tell);
  absl::MutexLock lock(&mutex);
  ended = true;
}

GpuSampler::GpuSampler(std::size_t gpus, MakeMonitor make, Tell tell) : state_(std::make_shared<State>()) {
  std::thread([state = state_, gpus, make = std::move(make), tell = std::move(tell)] {
    state->Run(gpus, make, tell);
  }).detach();
}

GpuSampler::~GpuSampler() {
  absl::MutexLock lock(&state_->mutex);
  state_->stop = true;
  state_->mutex.AwaitWithTimeout(absl::Condition(&state_->ended), kPatience);
}

void GpuSampler::Ask() {
  absl::MutexLock lock(&state_->mutex);
  if (state_->asked) ++state_->missed;
  if (state_->missed >= kMostMissed) state_->newest.clear();
  state_->asked = true;
}

std::vector<cuda::GpuReading> GpuSampler::Newest() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->newest;
}

bool GpuSampler::WaitForReading(absl::Duration limit) const {
  State& state = *state_;
  absl::MutexLock lock(&state.mutex);
  const auto made = [&state]() ABSL_SHARED_LOCKS_REQUIRED(state.mutex) { return !state.asked || state.ended; };
  return state.mutex.AwaitWithTimeout(absl::Condition(&made), limit);
}

std::unique_ptr<GpuSampler> SampleGpus(const std::vector<int>& devices) {
  if (devices.empty()) return nullptr;
  return std::make_unique<GpuSampler>(
      devices.size(), [devices] { return MonitorOf(devices); },
      [](const std::string& news) { spdlog::warn("{}", news); });
}

}  // namespace downpour::worker
