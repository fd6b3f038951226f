#ifndef DOWNPOUR_TRAINER_CUDA_DEVICE_MEMORY_H_
#define DOWNPOUR_TRAINER_CUDA_DEVICE_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "trainer/cuda/device_kernels.h"

namespace downpour::cuda {

// So many values of a type in memory of `kernels`, which outlives this; their content is anything. May be empty.
template <typename T>
class DeviceMemory {
 public:
  DeviceMemory() = default;
  static absl::StatusOr<DeviceMemory> Allocate(DeviceKernels* kernels, std::size_t count) {
    const absl::StatusOr<void*> memory = kernels->Allocate(count * sizeof(T));
    if (!memory.ok()) return memory.status();
    return DeviceMemory(kernels, static_cast<T*>(*memory), count);
  }
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(kernels_, other.kernels_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceMemory() {
    if (kernels_ != nullptr) kernels_->Free(data_);
  }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  DeviceMemory(DeviceKernels* kernels, T* data, std::size_t size) : kernels_(kernels), data_(data), size_(size) {}

  DeviceKernels* kernels_ = nullptr;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_DEVICE_MEMORY_H_
