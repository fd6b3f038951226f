#include "trainer/model/copy_queue.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>

#include "absl/time/clock.h"

namespace downpour::model {
namespace {

// What is awaited is done long before, as a rule.
constexpr absl::Duration kSleep = absl::Microseconds(20);

class StreamMark final : public CopyQueue::Mark {
 public:
  explicit StreamMark(at::DeviceType device) : event(device) {}
  c10::Event event;
};

c10::Event& EventOf(CopyQueue::Mark* mark) { return static_cast<StreamMark*>(mark)->event; }
const c10::Event& EventOf(const CopyQueue::Mark& mark) { return static_cast<const StreamMark&>(mark).event; }

class StreamCopyQueue final : public CopyQueue {
 public:
  StreamCopyQueue(at::Device device, CopyMeter* meter)
      : device_(device), guard_(device.type()), stream_(guard_.getStreamFromGlobalPool(device, true)), meter_(meter) {}

  at::Device device() const override { return device_; }
  at::Tensor HostMemory(std::int64_t elements, at::ScalarType type) const override {
    return at::empty({elements}, at::TensorOptions().dtype(type).pinned_memory(true));
  }
  std::unique_ptr<Mark> NewMark() const override { return std::make_unique<StreamMark>(device_.type()); }

  void Copy(const at::Tensor& to, const at::Tensor& from) override {
    const at::NoGradGuard no_grad;
    const c10::StreamGuard guard(stream_);
    const auto copy = [&] { to.copy_(from, /*non_blocking=*/true); };
    // The device also puts in order there what it was given row-major.
    if (from.device().is_cpu()) {
      meter_->Measure(CopyMeter::Way::kToDevice, from.nbytes(), copy);
    } else {
      copy();
    }
  }
  void MarkCopies(Mark* mark) override { EventOf(mark).record(stream_); }
  void MarkComputing(Mark* mark) override { EventOf(mark).record(guard_.getStream(device_)); }
  void CopyBehind(const Mark& mark) override { EventOf(mark).block(stream_); }
  void ComputeBehind(const Mark& mark) override { EventOf(mark).block(guard_.getStream(device_)); }

  void Await(const Mark& mark, absl::Duration limit) const override {
    const auto begun = std::chrono::steady_clock::now();
    while (!EventOf(mark).query()) {
      const absl::Duration waited = absl::FromChrono(std::chrono::steady_clock::now() - begun);
      TORCH_CHECK(waited < limit, "the device has not made a copy within ", absl::FormatDuration(limit));
      absl::SleepFor(kSleep);
    }
  }

 private:
  const at::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream stream_;
  CopyMeter* const meter_;
};

}  // namespace

std::unique_ptr<CopyQueue> MakeCopyQueue(at::Device device, CopyMeter* meter) {
  return std::make_unique<StreamCopyQueue>(device, meter);
}

}  // namespace downpour::model
