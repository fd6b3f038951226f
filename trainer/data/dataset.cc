#include "trainer/data/dataset.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/idx_dataset.h"
#include "trainer/data/synthetic.h"

namespace downpour::data {
namespace {

absl::Status Unknown(const DatasetSpec& spec) {
  return absl::UnimplementedError(
      absl::StrCat("data set format \"", spec.format, "\" is not supported; known: IDX, Synthetic"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetSpec& spec, Split split) {
  if (spec.format == "IDX") return OpenIdxDataset(spec.directory, split);
  if (spec.format == "Synthetic") return MakeSyntheticDataset(spec.synthetic, split);
  return Unknown(spec);
}

absl::StatusOr<SampleFields> ReadFields(const DatasetSpec& spec) {
  if (spec.format == "IDX") return ReadIdxFields(spec.directory);
  if (spec.format == "Synthetic") return SyntheticFields(spec.synthetic);
  return Unknown(spec);
}

}  // namespace downpour::data
