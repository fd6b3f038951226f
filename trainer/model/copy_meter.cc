#include "trainer/model/copy_meter.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace downpour::model {
namespace {

c10::Stream CurrentStream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

void CopyMeter::Collect(Way way) {
  std::deque<Span>& spans = UnderWay(way);
  while (!spans.empty() && spans.front().end.query()) {
    const Span& span = spans.front();
    const double seconds = 1e-3 * span.begin.elapsedTime(span.end);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      DeviceTraffic::Copies& copies = way == Way::kToDevice ? traffic_.to_device : traffic_.from_device;
      copies.seconds += seconds;
      copies.bytes += span.bytes;
    }
    over_.push_back(std::move(spans.front()));
    spans.pop_front();
  }
}

CopyMeter::Span CopyMeter::Begin(std::size_t bytes) {
  if (over_.empty()) {
    // The flag asks for events that have a time.
    over_.push_back({c10::Event(device_.type(), c10::EventFlag::BACKEND_DEFAULT),
                     c10::Event(device_.type(), c10::EventFlag::BACKEND_DEFAULT), 0});
  }
  Span span = std::move(over_.back());
  over_.pop_back();
  span.bytes = bytes;
  span.begin.record(CurrentStream(device_));
  return span;
}

void CopyMeter::End(Way way, Span span) {
  span.end.record(CurrentStream(device_));
  UnderWay(way).push_back(std::move(span));
}

DeviceTraffic CopyMeter::traffic() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return traffic_;
}

}  // namespace downpour::model
