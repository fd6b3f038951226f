#ifndef DOWNPOUR_TRAINER_WIRE_TESTING_PROCESS_FRAMES_H_
#define DOWNPOUR_TRAINER_WIRE_TESTING_PROCESS_FRAMES_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/core/frame.h"

// Frames whose values follow from their header, so that memory that was used anew too early shows.
namespace downpour::wire {

inline constexpr char kProcessJob[] = "00112233445566778899aabbccddeeff";

inline core::Frame NumberedFrame(std::uint32_t number) {
  const auto values = std::make_shared<std::vector<float>>(std::size_t{10'000} + number % 7 * 40'000,
                                                           static_cast<float>(number % 1000));
  core::Frame frame;
  frame.header.kind = core::FrameKind::kPush;
  frame.header.type = core::DataType::kFloat32;
  frame.header.codec = core::FrameCodec::kFp32;
  frame.header.elements = static_cast<std::uint32_t>(values->size());
  frame.header.slice = number;
  frame.payload = core::Payload::OfFloats(*values, values);
  return frame;
}

inline bool IsNumbered(const core::Frame& frame) {
  const float expected = static_cast<float>(frame.header.slice % 1000);
  std::size_t count = 0;
  frame.payload.ForEachFloats([&](std::size_t, absl::Span<const float> values) {
    count += static_cast<std::size_t>(std::count(values.begin(), values.end(), expected));
  });
  return count == 10'000 + frame.header.slice % 7 * 40'000;
}

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_TESTING_PROCESS_FRAMES_H_
