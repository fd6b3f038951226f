#ifndef DOWNPOUR_TRAINER_MODEL_SEEDED_DRAWS_H_
#define DOWNPOUR_TRAINER_MODEL_SEEDED_DRAWS_H_

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <cstdint>
#include <mutex>

namespace downpour::model {

// While one lives, what this thread draws from LibTorch's own generator of a device is a function of the seed: whatever
// networks draw comes from it. A CUDA device has one of its own. The CPU has one for the whole process, so one that is
// `alone` there keeps others waiting meanwhile.
class SeededDraws {
 public:
  SeededDraws(at::Device device, std::uint64_t seed, bool alone) {
    if (device.is_cpu() && alone) alone_ = std::unique_lock<std::mutex>(OfCpu());
    at::Generator generator =
        device.is_cpu() ? at::detail::getDefaultCPUGenerator() : at::globalContext().defaultGenerator(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed);
  }
  SeededDraws(const SeededDraws&) = delete;
  SeededDraws& operator=(const SeededDraws&) = delete;

 private:
  static std::mutex& OfCpu() {
    static std::mutex mutex;
    return mutex;
  }

  std::unique_lock<std::mutex> alone_;
};

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_SEEDED_DRAWS_H_
