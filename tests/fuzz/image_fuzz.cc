// JPEG and PNG images: what is decoded has the pixels that its shape promises, and no more than are allowed.
#include "tests/fuzz/fuzz_target.h"
#include "trainer/data/image.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const std::int64_t channels : {1, 3}) {
    const downpour::data::ImageOptions options = {.channels = channels, .most_pixels = 1 << 14};
    const auto image = downpour::data::DecodeImage({data, size}, options);
    if (!image.ok()) continue;
    const std::vector<std::int64_t>& shape = image->shape;
    downpour::fuzz::Require(shape.size() == 3 && shape[0] == channels, "the channels asked for");
    downpour::fuzz::Require(shape[1] * shape[2] <= options.most_pixels, "no more pixels than allowed");
    downpour::fuzz::Require(image->bytes.size() == static_cast<std::size_t>(channels * shape[1] * shape[2]),
                            "the shape holds the values");
  }
  return 0;
}
