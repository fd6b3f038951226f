#include "trainer/core/schedules/portable_math.h"

#include <cmath>

namespace downpour::core {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kLn2 = 0.69314718055994530942;
constexpr double kSquareRootOfHalf = 0.70710678118654752440;

// With x = m 2^e, m about 1: ln m = 2 artanh((m - 1) / (m + 1)), whose series has terms of at most 0.03^n.
double Logarithm(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // exact
  if (mantissa < kSquareRootOfHalf) {
    mantissa *= 2;
    --exponent;
  }
  const double ratio = (mantissa - 1) / (mantissa + 1);
  double sum = 0;
  for (int n = 12; n >= 0; --n) sum = sum * ratio * ratio + 1.0 / (2 * n + 1);
  return exponent * kLn2 + 2 * ratio * sum;
}

// Of an x that is not above 0: 2^k times the series of what is left, which is at most 0.35.
double Exponential(double x) {
  if (x < -1000) return 0;
  const double k = std::floor(x / kLn2 + 0.5);
  const double rest = x - k * kLn2;
  double sum = 1;
  for (int n = 16; n >= 1; --n) sum = 1 + sum * rest / n;
  return std::ldexp(sum, static_cast<int>(k));
}

}  // namespace

double WholePower(double base, std::uint64_t exponent) {
  double power = 1;
  for (; exponent != 0; exponent >>= 1, base *= base) {
    if ((exponent & 1) != 0) power *= base;
  }
  return power;
}

double Power(double base, double exponent) { return Exponential(exponent * Logarithm(base)); }

// cos(pi x) = sin(pi (1/2 - x)), by the series of the sine up to the power 23 of at most pi / 2.
double CosineOfPi(double x) {
  const double angle = kPi * (0.5 - x);
  double sum = 1;
  for (int n = 11; n >= 1; --n) sum = 1 - angle * angle / (2 * n * (2 * n + 1)) * sum;
  return angle * sum;
}

}  // namespace downpour::core
