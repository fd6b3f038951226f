#include "trainer/cuda/device_kernels.h"

#include <chrono>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace downpour::cuda {
namespace {

// A thread that slept through a copy of microseconds would be late, and one that spins through a long one keeps a core.
constexpr absl::Duration kSpin = absl::Microseconds(50);
constexpr absl::Duration kSleep = absl::Microseconds(20);

template <typename T>
bool Aligned(const T* pointer, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(pointer) % to == 0;
}

}  // namespace

absl::Status DeviceKernels::Encode(core::FrameCodec codec, const EncodeArguments& arguments) {
  const EncodeArguments& a = arguments;
  if (codec == core::FrameCodec::kNone || codec > core::FrameCodec::kOneBit) {
    return absl::InvalidArgumentError(absl::StrCat("got codec ", static_cast<int>(codec), ", expected 1 to 5"));
  }
  if (a.elements > std::numeric_limits<std::uint32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got a gradient of ", a.elements, " values, expected 2^32 - 1 at most"));
  }
  if (a.checks == nullptr ||
      (a.elements != 0 && (a.gradient == nullptr || a.bytes == nullptr || a.scratch == nullptr))) {
    return absl::InvalidArgumentError("gradient, bytes, scratch or checks of a gradient are null");
  }
  if (!Aligned(a.bytes, 4) || !Aligned(a.scratch, 256)) {
    return absl::InvalidArgumentError("got bytes or scratch at an odd address, expected multiples of 4 and of 256");
  }
  if (codec == core::FrameCodec::kTopK && a.elements != 0 && (a.kept == 0 || a.kept > a.elements)) {
    return absl::InvalidArgumentError(absl::StrCat("got ", a.kept, " values to keep of ", a.elements));
  }
  return DoEncode(codec, arguments);
}

absl::Status DeviceKernels::Sum(const SumArguments& arguments) {
  if (arguments.elements != 0 && (arguments.sum == nullptr || arguments.values == nullptr)) {
    return absl::InvalidArgumentError("a vector of a sum is null");
  }
  return DoSum(arguments);
}

absl::Status DeviceKernels::Step(const StepCoefficients& coefficients, absl::Span<const StepTensor> tensors) {
  if (coefficients.rule < kSgdRule || coefficients.rule > kBufferRule) {
    return absl::InvalidArgumentError(absl::StrCat("got rule ", coefficients.rule, " for a step, expected 0 to 4"));
  }
  const bool remembers = coefficients.rule != kSgdRule && coefficients.rule != kBufferRule;
  for (const StepTensor& t : tensors) {
    if (t.elements == 0) continue;
    if (t.value == nullptr || t.gradient == nullptr || t.updated == nullptr || (remembers && t.first == nullptr) ||
        (coefficients.rule == kAdamRule && t.second == nullptr)) {
      return absl::InvalidArgumentError("a tensor of a step lacks a vector that its rule needs");
    }
  }
  return DoStep(coefficients, tensors);
}

absl::Status DeviceKernels::SumSquares(absl::Span<const SquaresRange> ranges) {
  for (const SquaresRange& range : ranges) {
    if (range.sum == nullptr || (range.elements != 0 && (range.values == nullptr || range.partials == nullptr))) {
      return absl::InvalidArgumentError("a range of squares lacks its values, its partial sums or its sum");
    }
  }
  return DoSumSquares(ranges);
}

absl::Status Await(DeviceKernels& kernels, void* event, absl::Duration limit) {
  const auto begun = std::chrono::steady_clock::now();
  for (;;) {
    const absl::StatusOr<bool> over = kernels.IsOver(event);
    if (!over.ok()) return over.status();
    if (*over) return absl::OkStatus();
    const absl::Duration waited = absl::FromChrono(std::chrono::steady_clock::now() - begun);
    if (waited >= limit) {
      kernels.Abandon();
      return absl::DeadlineExceededError(
          absl::StrCat("the device has not done its work within ", absl::FormatDuration(limit)));
    }
    if (waited > kSpin) absl::SleepFor(kSleep);
  }
}

}  // namespace downpour::cuda
