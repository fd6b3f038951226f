#ifndef DOWNPOUR_TRAINER_CHECKPOINT_SAFETENSORS_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

// The safetensors format (fp32 only): u64 little-endian header length, JSON header padded with spaces to 8 bytes, data.
namespace downpour::checkpoint {

struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  absl::Span<const float> values;
};

// Writes a temporary file beside `path`, fsyncs it, renames it and fsyncs the directory: `path` is whole or absent.
// On failure (a full disk, say) the temporary file is removed and the error names `path` and what the system said.
absl::Status WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata);

struct LoadedTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

struct LoadedFile {
  std::map<std::string, LoadedTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Trusts nothing: header length capped at 100 MB and at the file, offsets contiguous and in range, sizes
// overflow-checked.
absl::StatusOr<LoadedFile> ReadSafetensors(const std::string& path);
absl::StatusOr<LoadedFile> ParseSafetensors(absl::Span<const std::uint8_t> bytes);

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_SAFETENSORS_H_
