#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_TF_RECORD_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_TF_RECORD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/files/files.h"
#include "trainer/data/image.h"
#include "trainer/data/sample_source.h"

namespace downpour::data {

// A feature of a tf.train.Example, and the column that becomes of it.
struct TfRecordFeature {
  enum class Kind {
    kIntegers,  // int64_list -> kI64
    kFloats,    // float_list -> kF32
    kBytes,     // bytes_list with one element -> kU8
    kText,      // bytes_list with one element, UTF-8
    kImage,     // bytes_list with one element, JPEG or PNG -> kU8 [channels, *, *]
  };
  std::string name = {};
  Kind kind = Kind::kFloats;
  // Of kIntegers, kFloats and kBytes; empty: one number. The first extent may be kAnyExtent.
  std::vector<std::int64_t> shape = {};
  std::int64_t classes = 0;  // of kIntegers: they are in [0, classes); 0: no bound
  friend bool operator==(const TfRecordFeature&, const TfRecordFeature&) = default;
};

struct TfRecordOptions {
  ImageOptions image = {};
  // Others are ignored. Empty: those of the first record, sorted by name; numbers in the shape that they have there
  // ([] or [count]), bytes as an image if they begin like one, else as text if they are UTF-8, else refused.
  std::vector<TfRecordFeature> features = {};
  std::string cache_directory = {};  // of the index (index_file.h)
};

// Records that are tf.train.Example, not compressed. `path` is a file, a directory with files that have "tfrec" in
// their names, or a range of files, train-{00..09}.tfrecord. `files` must outlive the source. The lengths of records
// are checked when it is opened, unless an index is there already, and all of a record when it is read. kNotFound: no
// file or no record; kInvalidArgument: features that contradict themselves; kDataLoss, naming file, record (counted
// from 0 in its file) and byte: a checksum that is wrong, a file that ends within a record, no Example, a feature that
// is not there or is of another kind or size.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenTfRecord(const Files& files, const std::string& path,
                                                           const TfRecordOptions& options);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_TF_RECORD_H_
