#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_SAFETENSORS_SOURCE_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_SAFETENSORS_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/files/files.h"
#include "trainer/data/sample_source.h"

namespace downpour::data {

struct SafetensorsOptions {
  std::vector<std::string> tensors;  // those that are columns, in this order; empty: all, in the order of their values
};

// A safetensors file as data: a column each tensor, of which the first dimension is the samples. dtypes BOOL, U8, I8,
// U16, I16, U32, I32, U64, I64, F16, BF16, F32 and F64. The values stay in the file. Only the header is held in memory,
// at most 100 MB of it. kUnimplemented: another dtype; kInvalidArgument: options that the file does not fit. Must not
// outlive `files`.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenSafetensors(const Files& files, const std::string& path,
                                                              const SafetensorsOptions& options);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_SAFETENSORS_SOURCE_H_
