#ifndef DOWNPOUR_TRAINER_CUDA_DEVICE_KERNELS_H_
#define DOWNPOUR_TRAINER_CUDA_DEVICE_KERNELS_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "trainer/core/frame.h"
#include "trainer/cuda/plugin_table.h"

namespace downpour::cuda {

// What is done with gradients and weights where they lie: in the memory of a GPU, or of the host. Both do the same, bit
// for bit (but for what plugin_table.h says of NaN). One object is used by one thread at a time.
//
// Pointers in arguments are to memory of the device, from Allocate or from elsewhere; who calls owns it and keeps it,
// and does not touch it, until Finish has returned: a GPU does things in the order in which they were asked for, but
// later. Errors: kInvalidArgument, with nothing done; kInternal, what CUDA says, of this call or of one before it.
//
// An event is a moment in what was asked for; it belongs to the caller, and to the object that made it.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  // Aligned to 256 bytes, its content is anything. kResourceExhausted: there is not so much; how much was asked for,
  // and what the device has.
  virtual absl::StatusOr<void*> Allocate(std::size_t bytes) = 0;
  // May wait for the device. From any thread, like FreeHost.
  virtual void Free(void* memory) = 0;
  // Page-locked memory of the host: a copy from or to it keeps nobody waiting. Otherwise as above.
  virtual absl::StatusOr<void*> AllocateHost(std::size_t bytes) = 0;
  virtual void FreeHost(void* memory) = 0;
  // Between device and host or within one of them.
  virtual absl::Status Copy(void* to, const void* from, std::size_t bytes) = 0;
  // All bytes become 0.
  virtual absl::Status Clear(void* memory, std::size_t bytes) = 0;
  // Waits until all that was asked for is done.
  virtual absl::Status Finish() = 0;

  // The device hangs: whoever gives something back would wait for it, so from now on all of it is left as it is.
  virtual void Abandon() = 0;

  virtual absl::StatusOr<void*> CreateEvent() = 0;
  virtual void DestroyEvent(void* event) = 0;
  // The event is over once all is done that was asked for by now.
  virtual absl::Status Record(void* event) = 0;
  virtual absl::StatusOr<bool> IsOver(void* event) = 0;
  // What is asked for from now on is done behind what `stream`, somebody else's of the same device, has by now.
  virtual absl::Status WaitFor(void* stream) = 0;

  // What EncodeArguments::scratch needs.
  virtual std::size_t ScratchBytes(core::FrameCodec codec, std::size_t elements) const = 0;
  // As core::EncodedBytes many bytes, for core::TopKCount `kept`.
  absl::Status Encode(core::FrameCodec codec, const EncodeArguments& arguments);
  absl::Status Sum(const SumArguments& arguments);
  // `tensors` is read before this returns. Coefficients: optimizer_step.h.
  absl::Status Step(const StepCoefficients& coefficients, absl::Span<const StepTensor> tensors);
  // `ranges` is read before this returns.
  absl::Status SumSquares(absl::Span<const SquaresRange> ranges);
  static std::size_t PartialsOf(std::size_t elements) { return (elements + 255) / 256; }  // SquaresRange::partials

 protected:
  // Of arguments that were checked.
  virtual absl::Status DoEncode(core::FrameCodec codec, const EncodeArguments& arguments) = 0;
  virtual absl::Status DoSum(const SumArguments& arguments) = 0;
  virtual absl::Status DoStep(const StepCoefficients& coefficients, absl::Span<const StepTensor> tensors) = 0;
  virtual absl::Status DoSumSquares(absl::Span<const SquaresRange> ranges) = 0;
};

// Of the host: trainer/core/codec, and the rules of optimizer_rules.h. All is done when a call returns.
std::unique_ptr<DeviceKernels> MakeHostKernels();

// Of a GPU, in `stream`, which belongs to the caller (null: CUDA's default stream). Each call makes `device` the one
// that the calling thread uses. kFailedPrecondition: there is no such device.
absl::StatusOr<std::unique_ptr<DeviceKernels>> MakePluginKernels(const PluginTable& table, int device, void* stream);
// Likewise, in a stream of their own.
absl::StatusOr<std::unique_ptr<DeviceKernels>> MakePluginKernels(const PluginTable& table, int device);

// Waits until the event is over. kDeadlineExceeded: that takes longer than `limit`; the device hangs, and is abandoned.
absl::Status Await(DeviceKernels& kernels, void* event, absl::Duration limit);

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_DEVICE_KERNELS_H_
