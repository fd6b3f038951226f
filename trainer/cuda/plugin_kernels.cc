#include <atomic>
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
  PluginKernels(const PluginKernels&) = delete;
  PluginKernels& operator=(const PluginKernels&) = delete;
  ~PluginKernels() override {
    if (waited_for_ != nullptr) DestroyEvent(waited_for_);
    if (owns_stream_) GiveBack([&] { return table_.destroy_stream(stream_); });
  }

  absl::Status UseOwnStream() {
    absl::Status created = Do("a stream", [&] { return table_.create_stream(&stream_); });
    owns_stream_ = created.ok();
    return created;
  }

  absl::StatusOr<void*> Allocate(std::size_t bytes) override {
    void* memory = nullptr;
    int error = table_.use_device(device_);
    if (error == 0) error = table_.allocate(&memory, bytes == 0 ? 1 : bytes);
    if (error == 0) return memory;
    if (error != kOutOfMemory) return StatusOf(table_, error, "memory");
    std::uint64_t free = 0, total = 0;
    const bool known = table_.memory_info(&free, &total) == 0;
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes of memory of GPU ", device_, ": ", table_.error_text(error),
                     known ? absl::StrCat("; ", free, " bytes of ", total, " are free") : ""));
  }
  void Free(void* memory) override {
    GiveBack([&] { return table_.release(memory); });
  }
  absl::StatusOr<void*> AllocateHost(std::size_t bytes) override {
    void* memory = nullptr;
    int error = table_.use_device(device_);
    if (error == 0) error = table_.allocate_host(&memory, bytes == 0 ? 1 : bytes);
    if (error == 0) return memory;
    if (error != kOutOfMemory) return StatusOf(table_, error, "page-locked memory");
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes of page-locked memory of the host: ", table_.error_text(error)));
  }
  void FreeHost(void* memory) override {
    GiveBack([&] { return table_.release_host(memory); });
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
  void Abandon() override { abandoned_ = true; }
  absl::StatusOr<void*> CreateEvent() override {
    void* event = nullptr;
    absl::Status created = Do("an event", [&] { return table_.create_event(&event, /*timed=*/0); });
    if (!created.ok()) return created;
    return event;
  }
  void DestroyEvent(void* event) override {
    GiveBack([&] { return table_.destroy_event(event); });
  }
  absl::Status Record(void* event) override {
    return Do("record", [&] { return table_.record_event(event, stream_); });
  }
  absl::StatusOr<bool> IsOver(void* event) override {
    int over = 0;
    absl::Status asked = Do("work", [&] { return table_.query_event(&over, event); });
    if (!asked.ok()) return asked;
    return over != 0;
  }
  absl::Status WaitFor(void* stream) override {
    if (waited_for_ == nullptr) {
      absl::StatusOr<void*> event = CreateEvent();
      if (!event.ok()) return event.status();
      waited_for_ = *event;
    }
    // Waits are for the moment that the event is at now, whatever is recorded later.
    return Do("wait", [&] {
      const int error = table_.record_event(waited_for_, stream);
      return error != 0 ? error : table_.wait_event(stream_, waited_for_);
    });
  }
  std::size_t ScratchBytes(FrameCodec codec, std::size_t elements) const override {
    return table_.encode_scratch(NumberOf(codec), elements);
  }

 private:
  absl::Status DoEncode(FrameCodec codec, const EncodeArguments& arguments) override {
    return Do("encode", [&] { return table_.encode(NumberOf(codec), &arguments, stream_); });
  }
  absl::Status DoSum(const SumArguments& arguments) override {
    return Do("sum", [&] { return table_.sum(&arguments, stream_); });
  }
  absl::Status DoStep(const StepCoefficients& coefficients, absl::Span<const StepTensor> tensors) override {
    return Do("step", [&] { return table_.step(&coefficients, tensors.data(), tensors.size(), stream_); });
  }

  absl::Status DoSumSquares(absl::Span<const SquaresRange> ranges) override {
    return Do("sum of squares", [&] { return table_.sum_squares(ranges.data(), ranges.size(), stream_); });
  }

  template <typename Call>
  void GiveBack(Call call) {
    if (abandoned_) return;
    // What this could say, the next call says too.
    if (table_.use_device(device_) == 0) (void)call();
  }

  template <typename Call>
  absl::Status Do(const char* doing, Call call) {
    int error = table_.use_device(device_);
    if (error == 0) error = call();
    return StatusOf(table_, error, doing);
  }

  const PluginTable& table_;
  const int device_;
  void* stream_;
  bool owns_stream_ = false;
  std::atomic<bool> abandoned_ = false;
  void* waited_for_ = nullptr;  // the event of WaitFor
};

absl::Status CheckDevice(const PluginTable& table, int device) {
  if (absl::Status found = CheckDevices(table); !found.ok()) return found;
  if (const int error = table.use_device(device); error != 0) {
    return absl::FailedPreconditionError(absl::StrCat("CUDA device ", device, ": ", table.error_text(error)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceKernels>> MakePluginKernels(const PluginTable& table, int device, void* stream) {
  if (absl::Status usable = CheckDevice(table, device); !usable.ok()) return usable;
  return std::make_unique<PluginKernels>(table, device, stream);
}

absl::StatusOr<std::unique_ptr<DeviceKernels>> MakePluginKernels(const PluginTable& table, int device) {
  if (absl::Status usable = CheckDevice(table, device); !usable.ok()) return usable;
  auto kernels = std::make_unique<PluginKernels>(table, device, nullptr);
  if (absl::Status created = kernels->UseOwnStream(); !created.ok()) return created;
  return kernels;
}

}  // namespace downpour::cuda
