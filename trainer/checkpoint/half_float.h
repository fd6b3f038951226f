#ifndef DOWNPOUR_TRAINER_CHECKPOINT_HALF_FLOAT_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_HALF_FLOAT_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace downpour::checkpoint {

// The value of an IEEE 754 binary16, which a float holds exactly; infinities and NaN stay what they are.
inline float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000U} << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1f;
  const std::uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign == 0 ? magnitude : -magnitude;
  }
  const std::uint32_t wide_exponent = exponent == 0x1f ? 0xff : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide_exponent << 23 | fraction << 13);
}

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_HALF_FLOAT_H_
