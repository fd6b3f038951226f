#ifndef DOWNPOUR_TRAINER_CUDA_PLUGIN_TABLE_H_
#define DOWNPOUR_TRAINER_CUDA_PLUGIN_TABLE_H_

#include <cstdint>

// What libdownpour_cuda.so and the programs that load it agree on: plain structs and function pointers, so that neither
// side sees the other's libraries. Both come from one checkout; whoever changes a struct, or what a function does,
// raises kPluginVersion.
//
// Functions return 0 or the number of a CUDA error; error_text says it in words. They put work into `stream`, a
// cudaStream_t of the device that the calling thread uses (use_device), null being CUDA's default stream, and do not
// wait for it: what goes wrong in the work itself is returned by a later call, at the latest by synchronize. Pointers
// are to memory of the device, unless said otherwise, and belong to the caller, who leaves the memory alone until the
// work is done. Thread-safe, as CUDA is.
namespace downpour::cuda {

inline constexpr std::uint32_t kPluginVersion = 2;

// The number of CUDA's error for it.
inline constexpr int kOutOfMemory = 2;

// The numbers of core::FrameCodec.
inline constexpr std::int32_t kCodecFp32 = 1;
inline constexpr std::int32_t kCodecBf16 = 2;
inline constexpr std::int32_t kCodecInt8 = 3;
inline constexpr std::int32_t kCodecTopK = 4;
inline constexpr std::int32_t kCodecOneBit = 5;

// Of a gradient, without the residual.
struct GradientChecks {
  // In double, always in the same order: of each 256 values, lane l of 32 adds the squares of the values l, l + 32, ...
  // l + 224, and then the lanes are added 16 apart, 8, 4, 2, 1 apart. Of these sums, lane t of 256 adds those of the
  // blocks t, t + 256, ...; and then the lanes are added 128 apart, 64, ... 1 apart. Means nothing if not_finite != 0.
  double sum_of_squares;
  unsigned long long not_finite;  // how many values are infinite or NaN
};

static_assert(sizeof(GradientChecks) == 16);

// One gradient with error feedback: what is encoded is s = gradient + residual, as core::ErrorFeedback does it.
struct EncodeArguments {
  const float* gradient;   // `elements` of them
  const float* residual;   // likewise; null: there is none, s is the gradient as it is
  float* next;             // likewise: s less what the bytes decode to. May be `residual`; null: not wanted
  std::uint8_t* bytes;     // as many as the codec makes; aligned to 4 bytes
  std::uint64_t elements;  // at most 2^32 - 1
  std::uint64_t kept;      // of kCodecTopK: how many values are, from 1 to `elements`
  void* scratch;           // encode_scratch bytes, aligned to 256
  GradientChecks* checks;  // written, also for no elements
};

// sum = weight x values, or sum + weight x values, each rounded on its own.
struct SumArguments {
  float* sum;           // `elements` of them
  const float* values;  // likewise; does not overlap `sum`
  std::uint64_t elements;
  float weight;
  std::int32_t first;  // not 0: `sum` is not read
};

enum StepRule : std::int32_t { kSgdRule = 0, kMomentumRule = 1, kNesterovRule = 2, kAdamRule = 3, kBufferRule = 4 };

// What is the same for all tensors of a step; which number is used by which rule: optimizer_rules.h.
struct StepCoefficients {
  std::int32_t rule;  // a StepRule
  float rate, plain_rate, factor;
  float momentum;
  float beta1, rest1, beta2, rest2, epsilon, root_bias;
  double samples;
  bool operator==(const StepCoefficients&) const = default;
};

// `elements` floats behind each pointer; no two overlap, but `updated` may be `value`.
struct StepTensor {
  const float* value;
  const float* gradient;
  float* updated;  // the new value
  float* first;    // Momentum: the buffer. Adam: the average. Read and written; unused by SGD
  float* second;   // Adam: the average of squares. Unused by the others
  std::uint64_t elements;
  float decay;  // L2
  float lapse;  // AdamW's: rate x weight decay
};

struct SquaresRange {
  const float* values;  // `elements` of them
  std::uint64_t elements;
  double* partials;  // one for each 256 values, or less
  double* sum;       // of the squares, in the order of GradientChecks; written, also for no elements
};

struct PluginTable {
  std::uint32_t version;  // kPluginVersion
  std::uint32_t size;     // sizeof(PluginTable)

  const char* (*error_text)(int error);  // static

  // 0 devices come with an error that says why.
  int (*count_devices)(int* count);
  int (*use_device)(int device);  // of the calling thread, from here on
  int (*allocate)(void** memory, std::uint64_t bytes);
  int (*release)(void* memory);  // waits until the device is done with it; null is nothing
  // Each of `to` and `from` is memory of the device or of the host.
  int (*copy)(void* to, const void* from, std::uint64_t bytes, void* stream);
  int (*synchronize)(void* stream);

  int (*memory_info)(std::uint64_t* free, std::uint64_t* total);  // of the device, in bytes
  // Page-locked memory of the host, from and to which copies go on while the host does something else.
  int (*allocate_host)(void** memory, std::uint64_t bytes);
  int (*release_host)(void* memory);  // null is nothing

  // Of the device that the thread uses; neither it nor CUDA's default stream waits for the other.
  int (*create_stream)(void** stream);
  int (*destroy_stream)(void* stream);  // what is in it is done all the same

  // An event is a moment in a stream: that of its newest record_event. One that was not recorded is over.
  int (*create_event)(void** event, int timed);  // not 0: elapsed_ms may be asked of it
  int (*destroy_event)(void* event);
  int (*record_event)(void* event, void* stream);
  int (*wait_event)(void* stream, void* event);  // what is put into `stream` from now on waits for the event
  int (*query_event)(int* over, void* event);
  int (*elapsed_ms)(float* milliseconds, void* begin, void* end);  // both are over

  // Gradients. Bytes and `next` are those of trainer/core/codec, bit for bit, top-k included: the values kept are
  // chosen exactly, of equal magnitudes the first. But for NaN: one that arithmetic makes, or carries on, has another
  // sign and payload here than on a CPU. So where not_finite != 0, bytes are sound, but may be others if there is a
  // residual, and `next` is not to be used. An unknown codec, or a number out of range: cudaErrorInvalidValue.
  std::uint64_t (*encode_scratch)(std::int32_t codec, std::uint64_t elements);
  int (*encode)(std::int32_t codec, const EncodeArguments* arguments, void* stream);

  int (*sum)(const SumArguments* arguments, void* stream);

  // One step of an optimizer on any number of tensors, bit for bit that of trainer/core/optimizers. `tensors` is memory
  // of the host, read before this returns.
  int (*step)(const StepCoefficients* coefficients, const StepTensor* tensors, std::uint64_t count, void* stream);

  // All bytes become 0.
  int (*clear)(void* memory, std::uint64_t bytes, void* stream);
  // `ranges` is memory of the host, read before this returns.
  int (*sum_squares)(const SquaresRange* ranges, std::uint64_t count, void* stream);
  // `elements` values to bfloat16 and back, as trainer/core/codec/bf16.h has it. `to` and `from` do not overlap.
  int (*round_bf16)(const float* from, void* to, std::uint64_t elements, void* stream);
  int (*widen_bf16)(const void* from, float* to, std::uint64_t elements, void* stream);
};

// The one symbol of the library.
inline constexpr char kPluginSymbol[] = "downpour_cuda_table";
using PluginSymbol = const PluginTable* (*)();

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_PLUGIN_TABLE_H_
