#ifndef DOWNPOUR_TRAINER_CHECKPOINT_SAFETENSORS_HEADER_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

// What a safetensors file begins with, whatever its tensors are of: models (safetensors.h) and data
// (trainer/data/formats/safetensors_source.h) have it in common.
namespace downpour::checkpoint {

inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;
inline constexpr std::uint64_t kSafetensorsLengthBytes = 8;  // of the header's length, with which a file begins
inline constexpr const char* kSafetensorsMetadata = "__metadata__";

struct TensorPlace {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // from the start of the file
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorPlace> tensors;  // in the order of their values, which cover the rest of the file
  std::map<std::string, std::string> metadata;
};

// The number of bytes of `shape`, or nothing where it overflows.
bool SafetensorsByteCount(const std::vector<std::int64_t>& shape, std::uint64_t element_bytes, std::uint64_t* bytes);

// `text`: the JSON, behind which the file has so many bytes of data. `bytes_of_dtype` answers how many bytes an element
// has, or an error, which is answered with the tensor's name before it. Pure; trusts nothing: kDataLoss says what is
// wrong, without a file name.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    absl::Span<const std::uint8_t> text, std::uint64_t data_bytes,
    const std::function<absl::StatusOr<std::uint64_t>(const std::string& dtype)>& bytes_of_dtype);

// That of a file of so many `bytes`, which `stream` is at the beginning of; it is behind the header then. `read` gets
// all that was read, if it is not null. kDataLoss: the file has none; the stream fails: it could not be read.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(
    std::istream& stream, std::uint64_t bytes,
    const std::function<absl::StatusOr<std::uint64_t>(const std::string& dtype)>& bytes_of_dtype,
    std::vector<std::uint8_t>* read = nullptr);

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_SAFETENSORS_HEADER_H_
