#ifndef DOWNPOUR_TRAINER_CORE_SCHEDULES_PORTABLE_MATH_H_
#define DOWNPOUR_TRAINER_CORE_SCHEDULES_PORTABLE_MATH_H_

#include <cstdint>

// The same bits on every machine, as replicas need them: made of sums, products and quotients alone, which IEEE 754
// rounds in one way. Those of the C library differ in their last bit from one machine to another.
namespace downpour::core {

// By repeated squaring.
double WholePower(double base, std::uint64_t exponent);

// `base` greater than 0 and at most 1, `exponent` at least 0; to 1e-12 of it.
double Power(double base, double exponent);

// cos(pi x) of an x from 0 to 1; to 1e-15.
double CosineOfPi(double x);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_SCHEDULES_PORTABLE_MATH_H_
