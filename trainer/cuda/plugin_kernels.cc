#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/cuda/device_kernels.h"
#include "trainer/cuda/plugin.h"

namespace downpour::cuda {
namespace {

using core::FrameCodec;

constexpr std::int32_t NumberOf(FrameCodec codec) { return static_cast<std::int32_t>(codec); }
static_assert(NumberOf(FrameCodec::kFp32) == kCodecFp32 && NumberOf(FrameCodec::kBf16) == kCodecBf16 &&
              NumberOf(FrameCodec::kInt8) == kCodecInt8 && NumberOf(FrameCodec::kTopK) == kCodecTopK &&
              NumberOf(FrameCodec::kOneBit) == kCodecOneBit);

class PluginKernels final : public DeviceKernels {
 public:
  PluginKernels(const PluginTable& table, int device, void* stream) : table_(table), device_(device), stream_(stream) {}

  absl::StatusOr<void*> Allocate(std::size_t bytes) override {
    void* memory = nullptr;
    absl::Status done = Do("memory", [&] { return table_.allocate(&memory, bytes == 0 ? 1 : bytes); });
    if (!done.ok()) return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes of ", done.message()));
    return memory;
  }
  void Free(void* memory) override {
    // What this could say, the next call says too.
    (void)Do("free", [&] { return table_.release(memory); });
  }
  absl::Status Copy(void* to, const void* from, std::size_t bytes) override {
    return Do("copy", [&] { return table_.copy(to, from, bytes, stream_); });
  }
  absl::Status Clear(void* memory, std::size_t bytes) override {
    return Do("clear", [&] { return table_.clear(memory, bytes, stream_); });
  }
  absl::Status Finish() override {
    return Do("finish", [&] { return table_.synchronize(stream_); });
  }
  std::size_t ScratchBytes(FrameCodec codec, std::size_t elements) const override {
    return table_.encode_scratch(NumberOf(codec), elements);
  }

 private:
  absl::Status DoEncode(FrameCodec codec, const EncodeArguments& arguments) override {
    return Do("encode", [&] { return table_.encode(NumberOf(codec), &arguments, stream_); });
  }
  absl::Status DoStep(const StepCoefficients& coefficients, absl::Span<const StepTensor> tensors) override {
    return Do("step", [&] { return table_.step(&coefficients, tensors.data(), tensors.size(), stream_); });
  }

  absl::Status DoAccumulate(absl::Span<float> to, const float* from, float weight, bool add) override {
    return Do("accumulate",
              [&] { return table_.accumulate(to.data(), from, to.size(), weight, add ? 1 : 0, stream_); });
  }
  absl::Status DoSumSquares(absl::Span<const SquaresRange> ranges) override {
    return Do("sum of squares", [&] { return table_.sum_squares(ranges.data(), ranges.size(), stream_); });
  }

  template <typename Call>
  absl::Status Do(const char* doing, Call call) {
    int error = table_.use_device(device_);
    if (error == 0) error = call();
    return StatusOf(table_, error, doing);
  }

  const PluginTable& table_;
  const int device_;
  void* const stream_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceKernels>> MakePluginKernels(const PluginTable& table, int device, void* stream) {
  if (absl::Status found = CheckDevices(table); !found.ok()) return found;
  if (const int error = table.use_device(device); error != 0) {
    return absl::FailedPreconditionError(absl::StrCat("CUDA device ", device, ": ", table.error_text(error)));
  }
  return std::make_unique<PluginKernels>(table, device, stream);
}

}  // namespace downpour::cuda
