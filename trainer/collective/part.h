#ifndef DOWNPOUR_TRAINER_COLLECTIVE_PART_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_PART_H_

#include <algorithm>
#include <cstddef>

namespace downpour::collective {

// The part of `count` values that one of `size` ranks sums and, where state is divided, owns: [begin, end). The parts
// follow each other, cover everything and differ by one value at most.
struct Part {
  std::size_t begin = 0;
  std::size_t end = 0;
};
inline Part PartOf(std::size_t count, int rank, int size) {
  const std::size_t at = static_cast<std::size_t>(rank);
  const std::size_t least = count / static_cast<std::size_t>(size);
  const std::size_t longer = count % static_cast<std::size_t>(size);
  const std::size_t begin = at * least + std::min(at, longer);
  return {begin, begin + least + (at < longer ? 1 : 0)};
}

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_PART_H_
