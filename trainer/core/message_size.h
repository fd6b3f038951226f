#ifndef DOWNPOUR_TRAINER_CORE_MESSAGE_SIZE_H_
#define DOWNPOUR_TRAINER_CORE_MESSAGE_SIZE_H_

#include <cstddef>

#include "trainer/core/frame.h"

namespace downpour::core {

// Whether a message of so many frames is as long as its sender wants it at most, by its payload, and as the transport
// takes it, by its payload and the headers of its frames.
constexpr bool FitsMessage(std::size_t frames, std::size_t payload_bytes, std::size_t payload_limit) {
  return payload_bytes <= payload_limit && payload_bytes + frames * kFrameHeaderBytes <= kMaxMessageBytes;
}

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_MESSAGE_SIZE_H_
