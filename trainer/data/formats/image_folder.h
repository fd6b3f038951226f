#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_IMAGE_FOLDER_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_IMAGE_FOLDER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/files/files.h"
#include "trainer/data/image.h"
#include "trainer/data/sample_source.h"

namespace downpour::data {

struct ImageFolderOptions {
  ImageOptions image = {};
  // The classes by their numbers: those of the training set, for a test set in which some may be missing. Empty: the
  // folders, sorted.
  std::vector<std::string> class_names = {};
};

// A folder a class in `path`, and at any depth below it its images: .jpg, .jpeg and .png, in any case. Other files are
// ignored. Columns: "image", u8 [channels, *, *]; "label", i64 [] below the number of classes, with their names. Images
// are read and decoded when they are asked for. Memory: their names. `files` must outlive the source. kNotFound: no
// image is there, or none of a class, what is there instead being told; kDataLoss: an image of no class.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenImageFolder(const Files& files, const std::string& path,
                                                              const ImageFolderOptions& options);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_IMAGE_FOLDER_H_
