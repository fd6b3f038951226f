#ifndef DOWNPOUR_TRAINER_WIRE_TESTING_TEST_FRAMES_H_
#define DOWNPOUR_TRAINER_WIRE_TESTING_TEST_FRAMES_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "trainer/core/frame.h"
#include "trainer/wire/testing/event.h"
#include "trainer/wire/transport.h"

// What tests of transports exchange, and how they wait for it.
namespace downpour::wire {

// Bounds what a broken transport can make the test wait; nothing is expected to take it.
inline constexpr absl::Duration kLimit = absl::Seconds(30);

inline core::Frame FloatFrame(core::FrameKind kind, const std::shared_ptr<const std::vector<float>>& values) {
  core::Frame frame;
  frame.header.kind = kind;
  frame.header.type = core::DataType::kFloat32;
  frame.header.codec = core::FrameCodec::kFp32;
  frame.header.elements = static_cast<std::uint32_t>(values->size());
  frame.payload = core::Payload::OfFloats(*values, values);
  return frame;
}

inline std::vector<float> Floats(const core::Payload& payload) {
  std::vector<float> values;
  payload.ForEachFloats(
      [&](std::size_t, absl::Span<const float> run) { values.insert(values.end(), run.begin(), run.end()); });
  return values;
}

inline std::shared_ptr<const std::vector<float>> RandomValues(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  auto values = std::make_shared<std::vector<float>>(size);
  for (float& value : *values) value = static_cast<float>(random() % 100'000) / 7.0f;
  return values;
}

// Large and encoded: what the gRPC client's own thread sends.
inline core::Frame EncodedFrame() {
  core::Frame frame = FloatFrame(core::FrameKind::kPush, RandomValues(std::size_t{1} << 18, 1));
  frame.header.codec = core::FrameCodec::kBf16;
  frame.header.elements *= 2;
  return frame;
}

// Every frame as a reply with the same payload.
inline Frames Echo(Frames request) {
  for (core::Frame& frame : request) {
    frame.header.status =
        frame.header.status == core::ReplyStatus::kNone ? core::ReplyStatus::kApplied : frame.header.status;
    frame.header.kind = core::FrameKind::kReply;
    frame.header.record = core::RecordKind::kNone;
  }
  return request;
}

inline void EchoHandler(Frames request, const std::function<void(Frames)>& reply) { reply(Echo(std::move(request))); }

// The outcome of one exchange; fails the test if there is more than one.
class Outcome {
 public:
  std::function<void(absl::StatusOr<Frames>)> Callback() {
    return [this](absl::StatusOr<Frames> result) {
      EXPECT_FALSE(result_.has_value()) << "done was called twice";
      result_ = std::move(result);
      ready_.Notify();
    };
  }
  const absl::StatusOr<Frames>& Wait() {
    if (!ready_.WaitFor(kLimit)) result_ = absl::InternalError("the exchange never ended");
    return *result_;
  }
  bool HasEnded(absl::Duration within) { return ready_.WaitFor(within); }
  absl::StatusCode Code() { return Wait().status().code(); }
  // Lets go of the reply's payloads.
  void Drop() { result_->value().clear(); }

 private:
  std::optional<absl::StatusOr<Frames>> result_;
  Event ready_;
};

// Replies that a handler held back.
class HeldReplies {
 public:
  DataHandler Handler() {
    return [this](Frames request, std::function<void(Frames)> reply) {
      const std::lock_guard lock(mutex_);
      held_.emplace_back(std::move(request), std::move(reply));
      changed_.notify_all();
    };
  }
  using Held = std::pair<Frames, std::function<void(Frames)>>;
  std::vector<Held> WaitFor(std::size_t count) {
    std::unique_lock lock(mutex_);
    const auto enough = [this, count] { return held_.size() >= count; };
    EXPECT_TRUE(changed_.wait_for(lock, absl::ToChronoNanoseconds(kLimit), enough));
    return std::exchange(held_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Held> held_;
};

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_TESTING_TEST_FRAMES_H_
