#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_WEB_DATASET_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_WEB_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/files/files.h"
#include "trainer/data/image.h"
#include "trainer/data/sample_source.h"

namespace downpour::data {

struct WebDatasetOptions {
  ImageOptions image = {};
  // Of the entries that are read, of jpg, jpeg, png, cls and txt; others are ignored. Empty: all of these, others being
  // errors.
  std::vector<std::string> extensions = {};
  std::int64_t classes = 0;          // of the labels; 0: no bound
  std::string cache_directory = {};  // of the index (index_file.h)
};

// Samples in tar archives: entries behind each other whose names are the same up to the first dot behind the last
// slash. What is behind it, in any case, says what they hold. `path` is an archive, a directory with .tar files, or a
// range of archives, train-{0000..0009}.tar. Columns, those that the first sample has, and every sample has the same:
// "image", u8 [channels, *, *], of .jpg, .jpeg or .png; "label", i64 [], of .cls, a decimal number; "text" of .txt.
// `files` must outlive the source. kNotFound: no archive; kDataLoss, naming the archive and the byte: what tar.h says,
// an entry that is neither read nor ignored, a sample with two of a column or without one.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenWebDataset(const Files& files, const std::string& path,
                                                             const WebDatasetOptions& options);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_WEB_DATASET_H_
