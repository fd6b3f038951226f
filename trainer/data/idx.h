#ifndef DOWNPOUR_TRAINER_DATA_IDX_H_
#define DOWNPOUR_TRAINER_DATA_IDX_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

// The idx format of MNIST: big-endian u32 magic 0x000008DD (08: unsigned bytes, DD: number of dimensions), one
// big-endian u32 a dimension, then the values, row-major.
namespace downpour::data {

struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;
};

// Larger arrays are refused whatever their header says.
inline constexpr std::uint64_t kMaxIdxBytes = std::uint64_t{2} << 30;

// `file` is the content of an idx file, gzipped (recognised by its first two bytes) or plain. Pure; trusts no length:
// memory grows with the bytes that are really there, up to what the header announces. kDataLoss says what was found
// and what was expected, without a file name.
absl::StatusOr<IdxArray> ParseIdx(absl::Span<const std::uint8_t> file, int dimensions);

// The shape alone, with the errors of its header; `beginning` of a file is enough, gzipped or plain.
absl::StatusOr<std::vector<std::int64_t>> ParseIdxShape(absl::Span<const std::uint8_t> beginning, int dimensions);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_IDX_H_
