#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/core/codec/bf16.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/codec/int8.h"
#include "trainer/core/codec/one_bit.h"
#include "trainer/core/codec/top_k.h"
#include "trainer/core/optimizers/kernel.h"
#include "trainer/cuda/device_kernels.h"
#include "trainer/cuda/optimizer_rules.h"

namespace downpour::cuda {
namespace {

using core::FrameCodec;

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kLanes = 32;
constexpr std::size_t kThreads = 256;

// Lanes are added half of them apart, a quarter of them, ... 1 apart.
template <std::size_t kCount>
double AddLanes(std::array<double, kCount>& lanes) {
  for (std::size_t apart = kCount / 2; apart > 0; apart /= 2) {
    for (std::size_t lane = 0; lane < apart; ++lane) lanes[lane] += lanes[lane + apart];
  }
  return lanes[0];
}

// In the order that GradientChecks says.
DOWNPOUR_KERNEL double SumOfSquares(absl::Span<const float> gradient) {
  std::array<double, kThreads> blocks{};
  for (std::size_t block = 0; block * core::kCodecBlock < gradient.size(); ++block) {
    const absl::Span<const float> values = gradient.subspan(block * core::kCodecBlock, core::kCodecBlock);
    std::array<double, kLanes> lanes{};
    for (std::size_t begin = 0; begin < values.size(); begin += kLanes) {
      const std::size_t count = std::min(kLanes, values.size() - begin);
      DOWNPOUR_INDEPENDENT_STEPS
      for (std::size_t lane = 0; lane < count; ++lane) {
        lanes[lane] += double{values[begin + lane]} * double{values[begin + lane]};
      }
    }
    blocks[block % kThreads] += AddLanes(lanes);
  }
  return AddLanes(blocks);
}

GradientChecks Check(absl::Span<const float> gradient) {
  GradientChecks checks{};
  checks.sum_of_squares = SumOfSquares(gradient);
  for (const float value : gradient) {
    checks.not_finite += (std::bit_cast<std::uint32_t>(value) & 0x7f800000) == 0x7f800000 ? 1 : 0;
  }
  return checks;
}

DOWNPOUR_KERNEL void SumOf(const SumArguments a) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < a.elements; ++i) {
    const float part = a.weight * a.values[i];
    a.sum[i] = a.first != 0 ? part : a.sum[i] + part;
  }
}

// Writes the bytes; the sums become what is not in them.
void EncodeLeavingRest(FrameCodec codec, const EncodeArguments& a, absl::Span<float> sums) {
  switch (codec) {
    case FrameCodec::kNone:
      return;
    case FrameCodec::kFp32:
      std::memcpy(a.bytes, sums.data(), sums.size() * sizeof(float));
      std::fill(sums.begin(), sums.end(), 0.0f);
      return;
    case FrameCodec::kBf16:
      return core::EncodeBf16LeavingRest(sums, a.bytes);
    case FrameCodec::kInt8:
      return core::EncodeInt8LeavingRest(sums, a.bytes);
    case FrameCodec::kTopK:
    case FrameCodec::kOneBit: {
      const bool top_k = codec == FrameCodec::kTopK;
      const std::size_t bytes = top_k ? a.kept * core::kTopKPairBytes : core::OneBitBytes(sums.size());
      top_k ? core::EncodeTopK(sums, a.kept, a.bytes) : core::EncodeOneBit(sums, a.bytes);
      std::vector<float> decoded(sums.size());
      core::Decode(codec, core::Payload({{a.bytes, bytes}}, nullptr), absl::MakeSpan(decoded));
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] -= decoded[i];
      return;
    }
  }
}

template <typename Rule>
void StepOne(const StepCoefficients& coefficients, const StepTensor& tensor, bool has_first, bool has_second) {
  float none = 0;
  for (std::size_t i = 0; i < tensor.elements; ++i) {
    tensor.updated[i] = Rule::Update(coefficients, tensor, tensor.value[i], tensor.gradient[i],
                                     has_first ? tensor.first[i] : none, has_second ? tensor.second[i] : none);
  }
}

class HostKernels final : public DeviceKernels {
 public:
  absl::StatusOr<void*> Allocate(std::size_t bytes) override {
    // Its size must be a multiple of the alignment.
    void* const memory =
        std::aligned_alloc(kAlignment, std::max<std::size_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment);
    if (memory == nullptr)
      return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes of memory: there is not so much"));
    return memory;
  }
  void Free(void* memory) override { std::free(memory); }
  absl::Status Copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes != 0) std::memmove(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status Clear(void* memory, std::size_t bytes) override {
    if (bytes != 0) std::memset(memory, 0, bytes);
    return absl::OkStatus();
  }
  absl::Status Finish() override { return absl::OkStatus(); }
  absl::StatusOr<void*> AllocateHost(std::size_t bytes) override { return Allocate(bytes); }
  void FreeHost(void* memory) override { Free(memory); }
  void Abandon() override {}
  absl::StatusOr<void*> CreateEvent() override { return new char; }
  void DestroyEvent(void* event) override { delete static_cast<char*>(event); }
  absl::Status Record(void* /*event*/) override { return absl::OkStatus(); }
  absl::StatusOr<bool> IsOver(void* /*event*/) override { return true; }
  absl::Status WaitFor(void* /*stream*/) override { return absl::OkStatus(); }
  std::size_t ScratchBytes(FrameCodec /*codec*/, std::size_t /*elements*/) const override { return 1; }

 private:
  absl::Status DoEncode(FrameCodec codec, const EncodeArguments& a) override {
    const absl::Span<const float> gradient(a.gradient, a.elements);
    *a.checks = Check(gradient);
    if (gradient.empty()) return absl::OkStatus();
    std::vector<float> sums(gradient.begin(), gradient.end());
    if (a.residual != nullptr) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += a.residual[i];
    }
    EncodeLeavingRest(codec, a, absl::MakeSpan(sums));
    if (a.next != nullptr) std::copy(sums.begin(), sums.end(), a.next);
    return absl::OkStatus();
  }

  absl::Status DoSum(const SumArguments& a) override {
    SumOf(a);
    return absl::OkStatus();
  }

  absl::Status DoStep(const StepCoefficients& coefficients, absl::Span<const StepTensor> tensors) override {
    for (const StepTensor& tensor : tensors) {
      switch (static_cast<StepRule>(coefficients.rule)) {
        case kSgdRule:
          StepOne<Sgd>(coefficients, tensor, false, false);
          break;
        case kMomentumRule:
          StepOne<Momentum>(coefficients, tensor, true, false);
          break;
        case kNesterovRule:
          StepOne<Nesterov>(coefficients, tensor, true, false);
          break;
        case kAdamRule:
          StepOne<Adam>(coefficients, tensor, true, true);
          break;
        case kBufferRule:
          StepOne<BufferDifference>(coefficients, tensor, false, false);
          break;
      }
    }
    return absl::OkStatus();
  }

  absl::Status DoSumSquares(absl::Span<const SquaresRange> ranges) override {
    for (const SquaresRange& range : ranges) *range.sum = SumOfSquares({range.values, range.elements});
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<DeviceKernels> MakeHostKernels() { return std::make_unique<HostKernels>(); }

}  // namespace downpour::cuda
