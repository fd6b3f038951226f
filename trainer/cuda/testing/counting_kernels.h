#ifndef DOWNPOUR_TRAINER_CUDA_TESTING_COUNTING_KERNELS_H_
#define DOWNPOUR_TRAINER_CUDA_TESTING_COUNTING_KERNELS_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/cuda/device_kernels.h"

namespace downpour::cuda::testing {

// Those of the host, with one call that fails if it is wanted, and a device that hangs. Counts what was not given back.
class CountingKernels final : public DeviceKernels {
 public:
  struct Counts {
    std::atomic<int> held{0};  // memory of any kind, and events
    std::atomic<int> calls{0};
    int fails_at = -1;   // the call with this number, from 0 on
    bool stays = false;  // all behind it fail too
    bool hangs = false;
    std::atomic<bool> abandoned{false};
  };
  // `counts` outlives it.
  explicit CountingKernels(Counts* counts) : counts_(counts) {}

  absl::StatusOr<void*> Allocate(std::size_t bytes) override {
    if (Fails()) return absl::ResourceExhaustedError("planted: no memory");
    ++counts_->held;
    return host_->Allocate(bytes);
  }
  void Free(void* memory) override {
    if (memory != nullptr) --counts_->held;
    host_->Free(memory);
  }
  absl::StatusOr<void*> AllocateHost(std::size_t bytes) override { return Allocate(bytes); }
  void FreeHost(void* memory) override { Free(memory); }
  absl::Status Copy(void* to, const void* from, std::size_t bytes) override {
    return Fails() ? Planted() : host_->Copy(to, from, bytes);
  }
  absl::Status Clear(void* memory, std::size_t bytes) override {
    return Fails() ? Planted() : host_->Clear(memory, bytes);
  }
  absl::Status Finish() override { return Fails() ? Planted() : host_->Finish(); }
  void Abandon() override { counts_->abandoned = true; }
  absl::StatusOr<void*> CreateEvent() override {
    if (Fails()) return Planted();
    ++counts_->held;
    return host_->CreateEvent();
  }
  void DestroyEvent(void* event) override {
    --counts_->held;
    host_->DestroyEvent(event);
  }
  absl::Status Record(void* event) override { return Fails() ? Planted() : host_->Record(event); }
  absl::StatusOr<bool> IsOver(void* event) override {
    if (Fails()) return Planted();
    if (counts_->hangs) return false;
    return host_->IsOver(event);
  }
  absl::Status WaitFor(void* stream) override { return Fails() ? Planted() : host_->WaitFor(stream); }
  std::size_t ScratchBytes(core::FrameCodec codec, std::size_t elements) const override {
    return host_->ScratchBytes(codec, elements);
  }

 private:
  static absl::Status Planted() { return absl::InternalError("planted: the device is gone"); }
  bool Fails() {
    const int call = counts_->calls++;
    return call == counts_->fails_at || (counts_->stays && call > counts_->fails_at);
  }

  absl::Status DoEncode(core::FrameCodec codec, const EncodeArguments& arguments) override {
    return Fails() ? Planted() : host_->Encode(codec, arguments);
  }
  absl::Status DoSum(const SumArguments& arguments) override { return Fails() ? Planted() : host_->Sum(arguments); }
  absl::Status DoStep(const StepCoefficients& coefficients, absl::Span<const StepTensor> tensors) override {
    return Fails() ? Planted() : host_->Step(coefficients, tensors);
  }
  absl::Status DoSumSquares(absl::Span<const SquaresRange> ranges) override {
    return Fails() ? Planted() : host_->SumSquares(ranges);
  }

  Counts* const counts_;
  const std::unique_ptr<DeviceKernels> host_ = MakeHostKernels();
};

}  // namespace downpour::cuda::testing

#endif  // DOWNPOUR_TRAINER_CUDA_TESTING_COUNTING_KERNELS_H_
