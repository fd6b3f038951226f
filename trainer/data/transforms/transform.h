#ifndef DOWNPOUR_TRAINER_DATA_TRANSFORMS_TRANSFORM_H_
#define DOWNPOUR_TRAINER_DATA_TRANSFORMS_TRANSFORM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/deferred.h"
#include "trainer/data/random.h"
#include "trainer/data/sample_source.h"
#include "trainer/data/vocabulary.h"

// Steps between what is stored and what a model is given, one a file. An image is u8 [channels, height, width], its
// height and width perhaps kAnyExtent. What is random is drawn from the numbers of the sample in its update, so that
// whoever runs the update again draws the same; in evaluation nothing is random.
//
// Each of these functions takes the column that it is to be for. kInvalidArgument: it is not for such a one: what it is
// for, and what it was given.
namespace downpour::data {

// Of values of one column. Thread-safe. `random`: null in evaluation. kDataLoss: this value cannot be transformed.
struct Transform {
  Column output;                                                            // what becomes of the column
  std::function<absl::StatusOr<Value>(Value value, Random* random)> apply;  // empty: nothing is done
  bool random = false;                                                      // it draws
  std::optional<BatchStep> batched = std::nullopt;                          // the same, for a whole minibatch
};

// To height x width, bilinear between the middles of pixels, without smoothing, as Keras's and TensorFlow's resize is
// by default; in fixed point, so that it is the same everywhere.
absl::StatusOr<Transform> Resize(const Column& column, std::int64_t height, std::int64_t width);

// The middle height x width of an image that is at least as large.
absl::StatusOr<Transform> CenterCrop(const Column& column, std::int64_t height, std::int64_t width);

// Some height x width of an image with `padding` black pixels around it; the middle in evaluation.
absl::StatusOr<Transform> RandomCrop(const Column& column, std::int64_t height, std::int64_t width,
                                     std::int64_t padding);

// Left for right, with this probability.
absl::StatusOr<Transform> RandomFlip(const Column& column, double probability);

// Brightness, contrast (about the mean of the image's luma) and saturation times a factor each, uniform in
// [1 - amount, 1 + amount], in this order; rounded to u8 once. Of 3 channels, or of 1 without saturation.
absl::StatusOr<Transform> ColorJitter(const Column& column, double brightness, double contrast, double saturation);

// (value - mean) / deviation as fp32, of u8 after a division by 255. One mean and deviation for all, or one for each
// channel (the first extent).
absl::StatusOr<Transform> Normalise(const Column& column, std::vector<float> mean, std::vector<float> deviation);

// A label below `classes` becomes fp32 [classes], 1 at the label and 0 elsewhere. 0: as many as the column has.
absl::StatusOr<Transform> OneHot(const Column& column, std::int64_t classes);

// Text becomes i32 [*], the numbers of its first `max_length` words (0: of all); one without words has that of an
// unknown one.
absl::StatusOr<Transform> Tokenise(const Column& column, std::shared_ptr<const Vocabulary> vocabulary,
                                   std::int64_t max_length);

// To another type of number. A value that it does not hold is kDataLoss, but fp32 holds integers rounded.
absl::StatusOr<Transform> Cast(const Column& column, ElementType type);

// One integer that is in [0, classes); another is kDataLoss.
absl::StatusOr<Transform> LimitClasses(const Column& column, std::int64_t classes);

// For transforms of images: kInvalidArgument unless it is one.
absl::Status CheckImage(const Column& column, const char* transform);

// "u8 [3, *, *]", "text"
std::string TypeText(const Column& column);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_TRANSFORMS_TRANSFORM_H_
