#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_CIFAR_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_CIFAR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"
#include "trainer/data/files/files.h"
#include "trainer/data/sample_source.h"

// The binary versions of CIFAR-10 and CIFAR-100. Read by ranges: memory does not depend on the number of samples.
namespace downpour::data {

struct CifarOptions {
  Split split = Split::kTrain;  // of a directory
};

// `path` is a directory, in or below which data_batch_*.bin or test_batch.bin lie, or one such file. Columns: "image",
// u8 [3, 32, 32]; "label", i64 [] below 10, with the names of batches.meta.txt if it lies beside them. `files` must
// outlive the source. kNotFound: there is none; kDataLoss: a size that is not that of whole samples, another number of
// names.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenCifar10(const Files& files, const std::string& path,
                                                          const CifarOptions& options);

// Likewise of train.bin and test.bin. Columns: "image"; "label", the fine one, below 100, with the names of
// fine_label_names.txt; "coarse_label" below 20, with those of coarse_label_names.txt.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenCifar100(const Files& files, const std::string& path,
                                                           const CifarOptions& options);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_CIFAR_H_
