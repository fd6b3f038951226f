#ifndef DOWNPOUR_TRAINER_DATA_RANDOM_H_
#define DOWNPOUR_TRAINER_DATA_RANDOM_H_

#include <cstdint>

namespace downpour::data {

// SplitMix64 (Steele, Lea and Flood 2014): the same numbers on every machine.
class Random {
 public:
  // Numbers that are a function of all three.
  Random(std::uint64_t seed, std::uint64_t purpose, std::uint64_t number)
      : state_(Mix(Mix(Mix(seed) + purpose) + number)) {}

  std::uint64_t Next() {
    const std::uint64_t value = Mix(state_);
    state_ += kIncrement;
    return value;
  }

  // Uniform in [least, most], which are at most 2^32 numbers.
  std::int64_t Between(std::int64_t least, std::int64_t most) {
    const std::uint64_t count = static_cast<std::uint64_t>(most - least) + 1;
    return least + static_cast<std::int64_t>((Next() >> 32) * count >> 32);
  }

  // Uniform in [0, 1).
  double Fraction() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  static constexpr std::uint64_t kIncrement = 0x9e3779b97f4a7c15u;
  static std::uint64_t Mix(std::uint64_t value) {
    value += kIncrement;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
  }

  std::uint64_t state_;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_RANDOM_H_
