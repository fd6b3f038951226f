#include "trainer/model/device_copies.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"

namespace downpour::model {
namespace {

// A thread that slept through a copy of microseconds would be late, and one that spins through a long one keeps a core.
constexpr absl::Duration kSpin = absl::Microseconds(50);
constexpr absl::Duration kSleep = absl::Microseconds(20);

}  // namespace

DeviceCopies::DeviceCopies(at::Device device, const std::vector<std::int64_t>& elements)
    : device_(device),
      stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true)),
      elements_(elements),
      host_(elements.size()) {}

void DeviceCopies::Start(std::size_t number, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (!host_[number].defined()) {
    host_[number] = at::empty({elements_[number]}, at::TensorOptions().dtype(at::kFloat).pinned_memory(true));
  }
  c10::Event computed(device_.type());
  computed.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  computed.block(stream_);
  Pending pending{number, tensor.detach(), c10::Event(device_.type())};
  {
    const c10::StreamGuard guard(stream_);
    // What has to be converted or put in order is so there, in memory of this stream.
    host_[number].view(tensor.sizes()).copy_(pending.source, /*non_blocking=*/true);
    pending.copied.record(stream_);
  }
  pending_.push_back(std::move(pending));
}

void DeviceCopies::Await(const c10::Event& event, absl::Duration limit) const {
  const auto begun = std::chrono::steady_clock::now();
  while (!event.query()) {
    const absl::Duration waited = absl::FromChrono(std::chrono::steady_clock::now() - begun);
    TORCH_CHECK(waited < limit, "the device has not computed a gradient within ", absl::FormatDuration(limit));
    if (waited > kSpin) absl::SleepFor(kSleep);
  }
}

std::optional<DeviceCopies::Copy> DeviceCopies::Next(absl::Duration limit) {
  if (next_ == pending_.size()) {
    pending_.clear();
    next_ = 0;
    return std::nullopt;
  }
  Pending& pending = pending_[next_];
  Await(pending.copied, limit);
  pending.source = at::Tensor();
  const at::Tensor& host = host_[pending.number];
  ++next_;
  return Copy{pending.number, {host.const_data_ptr<float>(), static_cast<std::size_t>(host.numel())}};
}

void DeviceCopies::Drop(absl::Duration limit) {
  const auto forget = absl::MakeCleanup([this] {
    pending_.clear();
    next_ = 0;
  });
  while (Next(limit).has_value()) {
  }
}

}  // namespace downpour::model
