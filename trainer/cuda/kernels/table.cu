#include "trainer/cuda/kernels/bf16.cuh"
#include "trainer/cuda/kernels/gradient_block.cuh"
#include "trainer/cuda/kernels/optimizers.cuh"
#include "trainer/cuda/kernels/squares.cuh"
#include "trainer/cuda/kernels/sum.cuh"
#include "trainer/cuda/plugin_table.h"

// What the library has to offer.
namespace downpour::cuda {
namespace {

static_assert(kOutOfMemory == cudaErrorMemoryAllocation);

cudaStream_t StreamOf(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t EventOf(void* event) { return static_cast<cudaEvent_t>(event); }

std::uint64_t EncodeScratch(std::int32_t codec, std::uint64_t elements) {
  return codec == kCodecTopK ? TopKScratch(elements) : PartialsBytes(elements);
}

int MemoryInfo(std::uint64_t* free, std::uint64_t* total) {
  std::size_t free_bytes = 0, total_bytes = 0;
  const cudaError_t error = cudaMemGetInfo(&free_bytes, &total_bytes);
  *free = free_bytes;
  *total = total_bytes;
  return error;
}

int QueryEvent(int* over, void* event) {
  const cudaError_t error = cudaEventQuery(EventOf(event));
  *over = error == cudaSuccess ? 1 : 0;
  return error == cudaErrorNotReady ? cudaSuccess : error;
}

int Encode(std::int32_t codec, const EncodeArguments* arguments, void* stream) {
  if (arguments->elements > 0xffffffff) return cudaErrorInvalidValue;
  switch (codec) {
    case kCodecFp32:
      return EncodeFp32(*arguments, StreamOf(stream));
    case kCodecBf16:
      return EncodeBf16(*arguments, StreamOf(stream));
    case kCodecInt8:
      return EncodeInt8(*arguments, StreamOf(stream));
    case kCodecOneBit:
      return EncodeOneBit(*arguments, StreamOf(stream));
    case kCodecTopK:
      if (arguments->elements != 0 && (arguments->kept == 0 || arguments->kept > arguments->elements)) break;
      return EncodeTopK(*arguments, StreamOf(stream));
    default:
      break;
  }
  return cudaErrorInvalidValue;
}

constexpr PluginTable kTable = {
    .version = kPluginVersion,
    .size = sizeof(PluginTable),
    .error_text = [](int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); },
    .count_devices = [](int* count) -> int {
      *count = 0;
      return cudaGetDeviceCount(count);
    },
    .use_device = [](int device) -> int { return cudaSetDevice(device); },
    .allocate = [](void** memory, std::uint64_t bytes) -> int { return cudaMalloc(memory, bytes); },
    .release = [](void* memory) -> int { return cudaFree(memory); },
    .copy = [](void* to, const void* from, std::uint64_t bytes, void* stream) -> int {
      return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, StreamOf(stream));
    },
    .synchronize = [](void* stream) -> int { return cudaStreamSynchronize(StreamOf(stream)); },
    .memory_info = &MemoryInfo,
    .allocate_host = [](void** memory, std::uint64_t bytes) -> int {
      return cudaHostAlloc(memory, bytes, cudaHostAllocPortable);
    },
    .release_host = [](void* memory) -> int { return cudaFreeHost(memory); },
    .create_stream = [](void** stream) -> int {
      return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(stream), cudaStreamNonBlocking);
    },
    .destroy_stream = [](void* stream) -> int { return cudaStreamDestroy(StreamOf(stream)); },
    .create_event = [](void** event, int timed) -> int {
      return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event),
                                      timed != 0 ? cudaEventDefault : cudaEventDisableTiming);
    },
    .destroy_event = [](void* event) -> int { return cudaEventDestroy(EventOf(event)); },
    .record_event = [](void* event, void* stream) -> int { return cudaEventRecord(EventOf(event), StreamOf(stream)); },
    .wait_event = [](void* stream, void* event) -> int {
      return cudaStreamWaitEvent(StreamOf(stream), EventOf(event), 0);
    },
    .query_event = &QueryEvent,
    .elapsed_ms = [](float* milliseconds, void* begin, void* end) -> int {
      return cudaEventElapsedTime(milliseconds, EventOf(begin), EventOf(end));
    },
    .encode_scratch = &EncodeScratch,
    .encode = &Encode,
    .sum = [](const SumArguments* arguments, void* stream) -> int { return AddTo(*arguments, StreamOf(stream)); },
    .step = [](const StepCoefficients* coefficients, const StepTensor* tensors, std::uint64_t count,
               void* stream) -> int { return StepTensors(*coefficients, tensors, count, StreamOf(stream)); },
    .clear = [](void* memory, std::uint64_t bytes, void* stream) -> int {
      return cudaMemsetAsync(memory, 0, bytes, StreamOf(stream));
    },
    .sum_squares = [](const SquaresRange* ranges, std::uint64_t count, void* stream) -> int {
      return SumSquares(ranges, count, StreamOf(stream));
    },
    .round_bf16 = [](const float* from, void* to, std::uint64_t elements, void* stream) -> int {
      return RoundBf16(from, static_cast<std::uint16_t*>(to), elements, StreamOf(stream));
    },
    .widen_bf16 = [](const void* from, float* to, std::uint64_t elements, void* stream) -> int {
      return WidenBf16(static_cast<const std::uint16_t*>(from), to, elements, StreamOf(stream));
    },
};

}  // namespace
}  // namespace downpour::cuda

extern "C" __attribute__((visibility("default"))) const downpour::cuda::PluginTable* downpour_cuda_table() {
  return &downpour::cuda::kTable;
}
