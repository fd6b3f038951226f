#ifndef DOWNPOUR_TRAINER_CORE_BUFFER_UPDATE_H_
#define DOWNPOUR_TRAINER_CORE_BUFFER_UPDATE_H_

#include <memory>

#include "trainer/core/optimizer.h"

namespace downpour::core {

// The update of a buffer (BatchNorm's running statistics): subtracts what was pushed, whatever the learning rate. A
// worker pushes the value that it computed with less its new one, so one worker's buffers are those of a sequential
// loop, and the moving averages of several workers add up.
std::unique_ptr<Optimizer> CreateBufferUpdate();

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_BUFFER_UPDATE_H_
