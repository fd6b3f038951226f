#ifndef DOWNPOUR_TRAINER_CUDA_OPTIMIZER_RULES_H_
#define DOWNPOUR_TRAINER_CUDA_OPTIMIZER_RULES_H_

#include <cmath>

#include "trainer/cuda/plugin_table.h"

// The update of one value, for the CPU and for the GPU: the formulas of trainer/core/optimizers in the same order of
// operations, which are to be compiled without fused multiply-add.
#if defined(__CUDACC__)
#define DOWNPOUR_ON_BOTH __host__ __device__ inline
#else
#define DOWNPOUR_ON_BOTH inline
#endif

namespace downpour::cuda {

struct Sgd {
  DOWNPOUR_ON_BOTH static float Update(const StepCoefficients& c, const StepTensor& t, float value, float gradient,
                                       float&, float&) {
    if (t.decay == 0) return value - c.plain_rate * gradient;
    return value - c.rate * (c.factor * gradient + t.decay * value);
  }
};

struct Momentum {
  DOWNPOUR_ON_BOTH static float Update(const StepCoefficients& c, const StepTensor& t, float value, float gradient,
                                       float& buffer, float&) {
    buffer = c.momentum * buffer + (c.factor * gradient + t.decay * value);
    return value - c.rate * buffer;
  }
};

struct Nesterov {
  DOWNPOUR_ON_BOTH static float Update(const StepCoefficients& c, const StepTensor& t, float value, float gradient,
                                       float& buffer, float&) {
    const float g = c.factor * gradient + t.decay * value;
    buffer = c.momentum * buffer + g;
    return value - c.rate * (g + c.momentum * buffer);
  }
};

// AdamW too, whose decay is the lapse.
struct Adam {
  DOWNPOUR_ON_BOTH static float Update(const StepCoefficients& c, const StepTensor& t, float value, float gradient,
                                       float& average, float& square) {
    const float g = c.factor * gradient + t.decay * value;
    average = c.beta1 * average + c.rest1 * g;
    square = c.beta2 * square + c.rest2 * g * g;
    const float step = c.rate * (average / (std::sqrt(square) * c.root_bias + c.epsilon));
    return value - (t.lapse * value + step);
  }
};

// Of a buffer, whose differences have been added up over so many samples (core/buffer_update.h).
struct BufferDifference {
  DOWNPOUR_ON_BOTH static float Update(const StepCoefficients& c, const StepTensor&, float value, float gradient,
                                       float&, float&) {
    return value - static_cast<float>(static_cast<double>(gradient) / c.samples);
  }
};

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_OPTIMIZER_RULES_H_
