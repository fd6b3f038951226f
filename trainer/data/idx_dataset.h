#ifndef DOWNPOUR_TRAINER_DATA_IDX_DATASET_H_
#define DOWNPOUR_TRAINER_DATA_IDX_DATASET_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace downpour::data {

// Images and their labels from train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte in `directory`, each gzipped (".gz") or plain; held in memory. Input "image": u8 [1, height,
// width]; target "label": i64 [] below 10. Errors name the file, what was found and what was expected: kNotFound
// (missing), kUnavailable (cannot be read), kDataLoss (bad magic, truncated, wrong count, trailing bytes, bad gzip,
// labels out of range, images and labels that disagree).
absl::StatusOr<std::unique_ptr<Dataset>> OpenIdxDataset(const std::string& directory, Split split);

// The fields of the training set, from the header of its images.
absl::StatusOr<SampleFields> ReadIdxFields(const std::string& directory);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_IDX_DATASET_H_
