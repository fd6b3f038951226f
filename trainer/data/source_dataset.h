#ifndef DOWNPOUR_TRAINER_DATA_SOURCE_DATASET_H_
#define DOWNPOUR_TRAINER_DATA_SOURCE_DATASET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"
#include "trainer/data/sample_source.h"
#include "trainer/data/transforms/transform.h"

namespace downpour::data {

// A field of a data set: a column of its source, or several single numbers in a row, and what is made of it.
struct SourceField {
  using Step = std::function<absl::StatusOr<Transform>(const Column& column)>;

  std::string column = {};
  std::string name = {};  // empty: that of the column
  bool target = false;
  // Instead of `column`: one number each; the field is fp32 [columns]. It needs a name.
  std::vector<std::string> columns = {};
  // One after another. What is random is drawn by a step's number: fields whose steps of one number are the same are
  // transformed alike, as an image and its mask have to be. Empty ones do nothing.
  std::vector<Step> steps = {};
};

// What becomes of samples that are broken.
struct BadSamplePolicy {
  bool skip = false;
  std::uint64_t most = 0;  // that are skipped by this process, each counted once; one more is an error
};

// Without a word on fields: the columns with classes, and those called "label" or "target", are targets, all others
// inputs.
std::vector<SourceField> UsualFields(const std::vector<Column>& columns);

// Batches of a source; the samples of one are read and transformed by `threads` beside the caller's. kInvalidArgument:
// the columns do not make such fields; the message names the column. Fields of a batch are numbers, with one shape for
// all samples but for a first extent that may be kRagged.
absl::StatusOr<std::unique_ptr<Dataset>> MakeSourceDataset(std::shared_ptr<const SampleSource> source,
                                                           const std::vector<SourceField>& fields,
                                                           BadSamplePolicy policy, int threads);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_SOURCE_DATASET_H_
