#ifndef DOWNPOUR_TRAINER_DATA_SYNTHETIC_H_
#define DOWNPOUR_TRAINER_DATA_SYNTHETIC_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"
#include "trainer/data/dataset_spec.h"

// Generated data, for trying things out: nothing is downloaded or stored. A sample is a function of seed, split and
// index, computed when it is read, with the same bits on every machine. Training and test samples differ, but follow
// the same patterns. Labels are balanced: that of a sample is its index modulo the number of classes.
//
// | kind   | input                                | default       | target                                        |
// |--------|--------------------------------------|---------------|-----------------------------------------------|
// | Images | image: u8 [channels, height, width]  | [3, 32, 32]   | label: i64 [], 10 classes                     |
// | Text   | words: i32 [*], 20 to 100 words      | below 10,000  | label: i64 [], 2 classes                      |
// | Speech | frames: fp32 [frames, values]        | [11, 40]      | label: i64 [], 8,192 classes                  |
// | Radar  | frames: fp32 [frames, height, width] | [12, 96, 96]  | next: fp32 [1, height, width], what follows   |
//
// By default there are 10,000 samples, 1,000 test samples, and the seed is 1.
//
// - Images: each class has a smooth pattern for each channel, random values at 6 x 6 points and bilinear in between. A
//   sample shows it with a contrast of 0.75 to 1.25, moved by up to a twentieth of the extent, under uniform noise of
//   up to 64 of 255.
// - Text: lengths are uniform. A quarter of the words, drawn at random, are of the up to 50 that the class favours, the
//   others of all words after Zipf's law (the smaller the more frequent). The favoured words of a class are no other's,
//   and rare otherwise. Word 0 is never used: it is the padding of a batch.
// - Speech: each class has a smooth trajectory, random values in [-2, 2) at 4 moments and 8 of the values, bilinear in
//   between; uniform noise of up to 1 is added.
// - Radar: 3 to 6 soft round blobs, each with a radius of an eighth to a quarter of the shorter side, an opacity of
//   0.25 to 0.75 and a constant velocity, with which it moves by up to a quarter of the extent until the image that
//   follows; no middle leaves the image. Blobs lie over one another as half-transparent sheets: values are in [0, 1).
//
// What classic methods make of them, by synthetic_test, at the default shapes, on 1,000 test samples (Radar: 100):
//
// - Images, 2,000 training samples: the nearest mean of a class is right in at least 99 of 100 cases.
// - Text, 2,000, of 2 and of 4 classes: naive Bayes, 95 of 100.
// - Speech, 1,000, of 500 classes: the nearest training sample, 95 of 100.
// - Radar, 100: one linear filter, of 3 x 3 pixels in each of the last six images, has at most a fiftieth of the
//   squared error that taking the last image for the next has. The pixels at the border are left out.
//
// A sample took 4 us of a core (Images), 0.3 us (Text), 0.7 us (Speech) and 70 us (Radar); a large batch of Radar
// takes several times as long, as its memory is touched for the first time.
namespace downpour::data {

// What a sample of `spec` consists of. Nothing is generated. kInvalidArgument names the field
// by its path in the manifest, what was found and what is expected; a field that the kind does not have is refused.
absl::StatusOr<SampleFields> SyntheticFields(const SyntheticSpec& spec);

// With the same errors.
absl::StatusOr<std::unique_ptr<Dataset>> MakeSyntheticDataset(const SyntheticSpec& spec, Split split);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_SYNTHETIC_H_
