#ifndef DOWNPOUR_TRAINER_CHECKPOINT_SAFETENSORS_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <functional>
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

// A file that is there, whole and under its name.
struct WrittenFile {
  std::string warning;  // why it might be lost if the machine stops now; empty: it is on the disk
};

// Writes a temporary file beside `path`, fsyncs it, renames it and fsyncs the directory: `path` is whole or absent.
// On failure (a full disk, say) the temporary file is removed and the error names `path` and what the system said; only
// if it is whole and cannot be renamed it stays, and the error says where. What a file system does not have is done
// without: fsync (EINVAL, ENOTSUP). A directory whose fsync fails otherwise is a warning: the file is there.
absl::StatusOr<WrittenFile> WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                                             const std::map<std::string, std::string>& metadata);

struct TensorShape {
  std::string name;
  std::vector<std::int64_t> shape;
};

// The same for values that are not all in memory at once: `values` hands them to its argument run by run, in the order
// of the tensors. What either answers ends it.
using ValueSink = std::function<absl::Status(absl::Span<const float>)>;
absl::StatusOr<WrittenFile> WriteSafetensors(const std::string& path, const std::vector<TensorShape>& tensors,
                                             const std::map<std::string, std::string>& metadata,
                                             const std::function<absl::Status(const ValueSink&)>& values);

// What a file begins with: the values of the tensors follow, one after another. kInvalidArgument: a name that appears
// twice or is not UTF-8, a shape that is none.
absl::StatusOr<std::string> EncodeSafetensorsHeader(const std::vector<TensorShape>& tensors,
                                                    const std::map<std::string, std::string>& metadata);

// Whether WriteSafetensors can write `path`: does with a small file beside it all that it will do, and removes it. A
// directory whose fsync fails is an error here. kFailedPrecondition: what trying again does not change (no such
// directory, no right, read-only, `path` is a directory, no rename); other codes: it may be otherwise later or
// elsewhere.
absl::Status CheckWritable(const std::string& path);

// OK, or kFailedPrecondition with what is not finite: how many values of how many tensors, and the first of these.
absl::Status CheckFinite(const std::vector<NamedTensor>& tensors);

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
