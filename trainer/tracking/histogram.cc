#include <algorithm>
#include <cstddef>
#include <utility>

#include "trainer/tracking/tracker.h"

namespace downpour::tracking {

Histogram MakeHistogram(std::string name, absl::Span<const double> values, int buckets) {
  Histogram histogram;
  histogram.name = std::move(name);
  histogram.min = *std::min_element(values.begin(), values.end());
  histogram.max = *std::max_element(values.begin(), values.end());
  const double width = (histogram.max - histogram.min) / buckets;
  for (int i = 1; i <= buckets; ++i) histogram.buckets.emplace_back(histogram.min + i * width, 0);
  histogram.buckets.back().first = histogram.max;  // whatever was rounded
  for (const double value : values) {
    histogram.sum += value;
    histogram.sum_squares += value * value;
    // The last bucket has its upper limit, too.
    const auto place = width > 0 ? static_cast<int>((value - histogram.min) / width) : 0;
    ++histogram.buckets[static_cast<std::size_t>(std::min(place, buckets - 1))].second;
  }
  return histogram;
}

}  // namespace downpour::tracking
