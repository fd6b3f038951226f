#ifndef DOWNPOUR_TESTS_SIMULATION_RANDOM_H_
#define DOWNPOUR_TESTS_SIMULATION_RANDOM_H_

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace downpour::simulation {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t Below(std::uint64_t bound) {
    return std::uniform_int_distribution<std::uint64_t>(0, bound - 1)(engine_);
  }
  int Between(int low, int high) { return low + static_cast<int>(Below(static_cast<std::uint64_t>(high - low + 1))); }
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(engine_); }
  bool Chance(double probability) { return Uniform() < probability; }
  absl::Duration Delay(absl::Duration low, absl::Duration high) { return low + (high - low) * Uniform(); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_RANDOM_H_
