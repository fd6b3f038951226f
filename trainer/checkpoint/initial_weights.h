#ifndef DOWNPOUR_TRAINER_CHECKPOINT_INITIAL_WEIGHTS_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_INITIAL_WEIGHTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

// A safetensors file that a model begins with (spec.model.initialWeights): a warm start, or fine-tuning.
namespace downpour::checkpoint {

struct WantedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  bool may_be_integer = false;  // a buffer that is no float, as num_batches_tracked of BatchNorm
};

struct InitialWeights {
  std::map<std::string, std::vector<float>> values;  // of those that are wanted and there, row-major
  std::vector<std::string> missing;                  // wanted and not there, in their order
  std::vector<std::string> unexpected;               // there and not wanted, in the order of the file
  std::uint32_t crc32c = 0;                          // of the whole file
};

// Whether the file can be read and has only tensors of F32, F16, BF16, F64 (and I64, I32 for what may be an integer).
// Reads only its header. Errors begin with the path. kNotFound, kPermissionDenied, ...: as the system says;
// kInvalidArgument: no safetensors file, or another type.
absl::Status CheckInitialWeights(const std::string& path);

// Reads what is wanted, one tensor after another, as float32. Besides the errors of CheckInitialWeights
// kInvalidArgument, with the name, what was found and what was expected: another shape, a type that the tensor does not
// take, a value that is not finite; where `strict`, names that are missing or unexpected, the first ten of both.
absl::StatusOr<InitialWeights> ReadInitialWeights(const std::string& path, absl::Span<const WantedTensor> wanted,
                                                  bool strict);

// "2 missing (a, b), 1 unexpected (c)": the first ten of both; empty: the names are the same.
std::string NameDifference(const InitialWeights& weights);

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_INITIAL_WEIGHTS_H_
