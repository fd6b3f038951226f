#ifndef DOWNPOUR_TRAINER_CUDA_DEVICE_ERROR_FEEDBACK_H_
#define DOWNPOUR_TRAINER_CUDA_DEVICE_ERROR_FEEDBACK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "trainer/core/codec/gradient_encoder.h"
#include "trainer/cuda/device_kernels.h"

namespace downpour::cuda {

// The encoder of gradients that are on a device: the bytes and residuals of core::ErrorFeedback, bit for bit. An update
// is Begin, Start of each slice when its gradient is complete, Await of each; what has arrived is what Encode gives
// out. A residual is in the memory of the device, and so is what follows it if the step is taken; bytes are copied into
// page-locked memory of the host, which is not written while anybody has it as a payload. The work is done by the
// kernels, in the order of Start.
//
// Begin, Start, Await and Finish are called by one thread at a time, the rest by any. After an error of theirs nothing
// is to be begun any more.
class DeviceErrorFeedback final : public core::GradientEncoder {
 public:
  // `limit`: what takes longer is a device that hangs.
  DeviceErrorFeedback(const core::CodecOptions& options, std::shared_ptr<DeviceKernels> kernels, absl::Duration limit);
  DeviceErrorFeedback(const DeviceErrorFeedback&) = delete;
  DeviceErrorFeedback& operator=(const DeviceErrorFeedback&) = delete;
  ~DeviceErrorFeedback() override;

  struct Slice {
    std::uint32_t elements = 0;
    bool plain = false;  // travels in fp32 and has no residual, whatever the codec
    friend bool operator==(const Slice& a, const Slice& b) { return a.elements == b.elements && a.plain == b.plain; }
  };
  // An update of these begins; what was started before is waited for, and no step was taken with it. Where a slice is
  // another than before, its residual is gone. Takes the memory that is wanting. kResourceExhausted: there is not so
  // much; how much all of it is, and what of it could not be had.
  absl::Status Begin(absl::Span<const Slice> slices);
  // `gradient`: in the memory of the device, complete in the order of the kernels; read until Await has returned.
  // `flush`: as of Encode. A plain slice may be started again after Await.
  absl::Status Start(std::uint32_t slice, const float* gradient, bool flush);

  struct Arrived {
    GradientChecks checks;
    core::Payload payload;
  };
  // Of a slice that was started. kDeadlineExceeded: it takes longer than the limit.
  absl::StatusOr<Arrived> Await(std::uint32_t slice);
  // Waits for all that was started.
  absl::Status Finish();

  // Of a slice that Await has returned; `gradient` has no part in it, nor has `flush`, which Start knew.
  core::EncodedGradient Encode(std::uint32_t slice, std::uint32_t elements, const core::Payload& gradient,
                               bool flush) override;
  void Keep(std::uint32_t slice) override;
  void Undo(std::uint32_t slice) override;
  void Forget(std::uint32_t slice) override;
  void Clear() override;
  // Whether one is kept, though it may be zero.
  bool HasResidual() const override;

 private:
  // Of the host, page-locked: the checks, and then the bytes.
  struct HostMemory {
    std::shared_ptr<std::uint8_t> memory;
    std::size_t size = 0;
  };
  struct Entry {
    Slice slice;
    bool exact = false;            // plain, or no smaller in the codec
    void* residuals = nullptr;     // two vectors on the device, one behind the other; null if exact
    void* arrived = nullptr;       // an event
    std::vector<HostMemory> host;  // usually one
    HostMemory* newest = nullptr;  // of them; null: nothing was started
    core::FrameCodec codec{};      // of what was started last
  };
  // What the updates of a slice have come to.
  struct State {
    int kept = 0;  // which of the two vectors is the residual
    bool has_residual = false;
    bool arrived = false;
    bool sent = false;  // somebody has asked for it
    core::EncodedGradient gradient = {};
  };

  absl::Status Prepare(const Slice& slice, Entry* entry);
  // What is larger stays.
  absl::Status Grow(std::size_t bytes, void** memory, std::size_t* size);
  void Release(Entry& entry);
  absl::StatusOr<HostMemory*> FreeHostMemory(std::size_t bytes, Entry* entry);

  const core::CodecOptions options_;
  const std::shared_ptr<DeviceKernels> kernels_;
  const absl::Duration limit_;

  // Of the thread that computes.
  std::vector<Entry> entries_;
  void* bytes_ = nullptr;  // on the device, of one slice at a time: the checks, and then the bytes
  std::size_t bytes_size_ = 0;
  void* scratch_ = nullptr;
  std::size_t scratch_size_ = 0;
  void* last_ = nullptr;  // the event that is over when all is done; null: nothing is under way

  mutable absl::Mutex mutex_;
  std::vector<State> states_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_DEVICE_ERROR_FEEDBACK_H_
