#ifndef DOWNPOUR_TRAINER_CUDA_TESTING_EMULATED_CUDA_H_
#define DOWNPOUR_TRAINER_CUDA_TESTING_EMULATED_CUDA_H_

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

// As much of CUDA as trainer/cuda/kernels uses, on the CPU: what a kernel computes, where its threads wait for each
// other and what goes through shared memory. A block is run after the other, its threads in turns, in an order that is
// another one with each block: a kernel that forgot to wait finds what it wanted not there. It says nothing of speed,
// of memory that a device cannot reach, or of the compiler for devices. One thread at a time.

#define __global__
#define __host__
#define __device__
#define __shared__ static

struct dim3 {  // NOLINT(readability-identifier-naming): as CUDA has it, like all that follows
  explicit dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  unsigned x, y, z;
};
// Of the thread that is run.
extern dim3 threadIdx, blockIdx, gridDim;

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorNotReady = 600 };
enum : unsigned { cudaHostAllocPortable = 1, cudaStreamNonBlocking = 1 };
enum : unsigned { cudaEventDefault = 0, cudaEventDisableTiming = 2 };
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
using cudaStream_t = struct Stream*;
using cudaEvent_t = std::chrono::steady_clock::time_point*;

namespace downpour::cuda::emulated {

// Runs a kernel: body() by each thread of each block of the grid.
cudaError_t Run(dim3 grid, unsigned threads, const std::function<void()>& body);

// Waits until all threads of the block are here, or have ended.
void WaitForBlock();
// What each lane of this warp gave, once all have.
struct Lanes {
  std::uint64_t values[32];
};
Lanes Exchange(std::uint64_t value);

}  // namespace downpour::cuda::emulated

inline void __syncthreads() { downpour::cuda::emulated::WaitForBlock(); }

template <typename T>
T __shfl_xor_sync(unsigned /*mask*/, T value, unsigned apart) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  const auto lanes = downpour::cuda::emulated::Exchange(bits);
  std::memcpy(&value, &lanes.values[(threadIdx.x % 32) ^ apart], sizeof(value));
  return value;
}

inline unsigned __ballot_sync(unsigned /*mask*/, bool bit) {
  const auto lanes = downpour::cuda::emulated::Exchange(bit ? 1 : 0);
  unsigned word = 0;
  for (unsigned lane = 0; lane < 32; ++lane) word |= static_cast<unsigned>(lanes.values[lane]) << lane;
  return word;
}

inline int __popc(unsigned word) { return __builtin_popcount(word); }

template <typename T, typename U>
T atomicAdd(T* to, U value) {
  const T before = *to;
  *to = static_cast<T>(before + value);
  return before;
}

template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : error == cudaErrorInvalidValue ? "invalid argument" : "out of memory";
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidValue; }
inline cudaError_t cudaMalloc(void** memory, std::uint64_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory == nullptr && bytes != 0 ? cudaErrorMemoryAllocation : cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::uint64_t bytes, cudaMemcpyKind, cudaStream_t) {
  if (bytes != 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* memory, int value, std::uint64_t bytes, cudaStream_t) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{1} << 30;
  return cudaSuccess;
}
inline cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) { return cudaMalloc(memory, bytes); }
inline cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
// All is done when a call returns.
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new std::chrono::steady_clock::time_point();
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  *event = std::chrono::steady_clock::now();
  return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(*end - *begin).count();
  return cudaSuccess;
}

#endif  // DOWNPOUR_TRAINER_CUDA_TESTING_EMULATED_CUDA_H_
