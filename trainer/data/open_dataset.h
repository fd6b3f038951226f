#ifndef DOWNPOUR_TRAINER_DATA_OPEN_DATASET_H_
#define DOWNPOUR_TRAINER_DATA_OPEN_DATASET_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"
#include "trainer/data/dataset_spec.h"
#include "trainer/data/files/files.h"
#include "trainer/data/sample_source.h"

namespace downpour::data {

// What needs Apache Arrow: given by programs that have it, so that others can open all else. Empty: it is not there.
struct ArrowReaders {
  std::function<bool(const std::string& path)> is_remote;
  std::function<absl::StatusOr<std::unique_ptr<Files>>(const std::string& uri)> open_files;
  std::function<absl::StatusOr<std::unique_ptr<SampleSource>>(const Files& files, const std::string& path,
                                                              const std::vector<std::string>& columns)>
      open_parquet;
};

// | format         | samples                                             | test set                          |
// |----------------|-----------------------------------------------------|-----------------------------------|
// | IDX            | idx_dataset.h                                       | of the format                     |
// | CIFAR10, CIFAR100 | formats/cifar.h                                  | of the format                     |
// | ImageFolder    | formats/image_folder.h                              | test_path, or what is held out    |
// | CSV            | formats/csv_source.h                                | likewise                          |
// | Text           | formats/text_source.h                               | likewise                          |
// | NPY            | formats/npy_source.h                                | likewise                          |
// | SafeTensors    | formats/safetensors_source.h                        | likewise                          |
// | Parquet        | formats/parquet_source.h                            | likewise                          |
// | TFRecord       | formats/tf_record.h                                 | likewise                          |
// | WebDataset     | formats/web_dataset.h                               | likewise                          |
// | Synthetic      | synthetic.h                                         | of the kind                       |
//
// The classes of a test set are those of its training set, and so are the words of a vocabulary, which is built of the
// training set once and kept in the directory for caches; without one it is built whenever a set is opened. Errors are
// those of the formats, and begin with the file or, where the manifest contradicts itself or the files, with the path
// of the field in it. kUnimplemented: a format that is not known, or that needs what `arrow` has not.
struct Datasets {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;  // null where none is asked for
};
absl::StatusOr<Datasets> OpenDatasets(const DatasetSpec& spec, bool with_test, const ArrowReaders& arrow = {});

// One of them. With a cache for remote files, no other may be open in the meantime.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetSpec& spec, Split split,
                                                     const ArrowReaders& arrow = {});

// The fields alone, of the training set. Of IDX and Synthetic without reading what they hold.
absl::StatusOr<SampleFields> ReadFields(const DatasetSpec& spec, const ArrowReaders& arrow = {});

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_OPEN_DATASET_H_
