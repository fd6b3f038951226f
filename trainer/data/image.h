#ifndef DOWNPOUR_TRAINER_DATA_IMAGE_H_
#define DOWNPOUR_TRAINER_DATA_IMAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/data/sample_source.h"

// JPEG and PNG images and their pixels, u8 [channels, height, width]. What libjpeg and libpng are behind. Thread-safe.
namespace downpour::data {

struct ImageOptions {
  std::int64_t channels = 3;                          // 1: grey, 3: red, green, blue
  std::int64_t most_pixels = std::int64_t{64} << 20;  // height times width; an image may claim any
  friend bool operator==(const ImageOptions&, const ImageOptions&) = default;
};

// kInvalidArgument: these are no such options.
absl::Status CheckOptions(const ImageOptions& options);

// The column of images of any height and width.
Column ImageColumn(std::string name, const ImageOptions& options);

// Whether these are the first bytes of an image that DecodeImage knows.
bool BeginsLikeImage(absl::Span<const std::uint8_t> bytes);

// The pixels as they are stored, turned by no EXIF and corrected by no gamma or colour profile. Of 16 bits the upper 8
// are taken, alpha is dropped, grey and colours are made of each other as `channels` wants. kDataLoss: another format,
// more pixels than `options` allow, or an image that is damaged or ends early, however much of it could be shown.
// Memory: twice the pixels; of a progressive JPEG four times.
absl::StatusOr<Value> DecodeImage(absl::Span<const std::uint8_t> bytes, const ImageOptions& options);

// Of u8 [1 or 3, height, width]; kInvalidArgument: of something else, or too large for the format. `quality` is 1 to
// 100; JPEG loses something at any.
absl::StatusOr<std::vector<std::uint8_t>> EncodeJpeg(const Value& image, int quality);
absl::StatusOr<std::vector<std::uint8_t>> EncodePng(const Value& image);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_IMAGE_H_
