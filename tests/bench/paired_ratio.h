#ifndef DOWNPOUR_TESTS_BENCH_PAIRED_RATIO_H_
#define DOWNPOUR_TESTS_BENCH_PAIRED_RATIO_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "absl/types/span.h"

// The ratio of two quantities that were measured in pairs, one right after the other.
namespace downpour::bench {

struct PairedRatio {
  double ratio = 0;  // geometric mean of the pairs' ratios
  double low = 0;    // 95 % confidence interval of it, by Student's t over the logarithms
  double high = 0;
};

// `ours` and `reference` are of one size, at least 2, and positive.
inline PairedRatio ComputePairedRatio(absl::Span<const double> ours, absl::Span<const double> reference) {
  // Two-sided 95 % quantiles for 1 to 30 degrees of freedom; beyond, the last one is a little too wide.
  constexpr std::array<double, 30> kQuantiles = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                                 2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                                 2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  const std::size_t pairs = ours.size();
  double mean = 0;
  for (std::size_t i = 0; i < pairs; ++i) mean += std::log(ours[i] / reference[i]) / static_cast<double>(pairs);
  double variance = 0;
  for (std::size_t i = 0; i < pairs; ++i) {
    const double deviation = std::log(ours[i] / reference[i]) - mean;
    variance += deviation * deviation / static_cast<double>(pairs - 1);
  }
  const double half =
      kQuantiles[std::min(pairs - 2, kQuantiles.size() - 1)] * std::sqrt(variance / static_cast<double>(pairs));
  return {std::exp(mean), std::exp(mean - half), std::exp(mean + half)};
}

}  // namespace downpour::bench

#endif  // DOWNPOUR_TESTS_BENCH_PAIRED_RATIO_H_
