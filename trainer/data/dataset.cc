#include "trainer/data/dataset.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/idx_dataset.h"

namespace downpour::data {

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetSpec& spec, Split split) {
  if (spec.format == "IDX") return OpenIdxDataset(spec.directory, split);
  return absl::UnimplementedError(absl::StrCat("data set format \"", spec.format, "\" is not supported; known: IDX"));
}

}  // namespace downpour::data
