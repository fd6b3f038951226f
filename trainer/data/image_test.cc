#include "trainer/data/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include <jpeglib.h>  // needs <cstdio>

#include "absl/strings/str_cat.h"

namespace downpour::data {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

Value MakeImage(std::int64_t channels, std::int64_t height, std::int64_t width, const Bytes& pixels) {
  const auto* const first = reinterpret_cast<const std::byte*>(pixels.data());
  return {{channels, height, width}, {first, first + pixels.size()}};
}

Value RandomImage(std::mt19937_64& random, std::int64_t channels, std::int64_t height, std::int64_t width) {
  Bytes pixels(static_cast<std::size_t>(channels * height * width));
  for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random());
  return MakeImage(channels, height, width, pixels);
}

// Colours that change slowly, so that JPEG keeps them.
Value SmoothImage(std::int64_t channels, std::int64_t height, std::int64_t width) {
  Bytes pixels;
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        pixels.push_back(static_cast<std::uint8_t>(40 + 60 * c + y + x));
      }
    }
  }
  return MakeImage(channels, height, width, pixels);
}

Bytes Pixels(const Value& image) {
  const auto* const first = reinterpret_cast<const std::uint8_t*>(image.bytes.data());
  return {first, first + image.bytes.size()};
}

int LargestDifference(const Value& a, const Value& b) {
  EXPECT_EQ(a.shape, b.shape);
  int largest = 0;
  for (std::size_t i = 0; i < std::min(a.bytes.size(), b.bytes.size()); ++i) {
    largest = std::max(largest, std::abs(std::to_integer<int>(a.bytes[i]) - std::to_integer<int>(b.bytes[i])));
  }
  return largest;
}

ImageOptions Channels(std::int64_t channels) { return {.channels = channels}; }

std::string MessageOf(const Bytes& bytes, const ImageOptions& options = {}) {
  const absl::StatusOr<Value> image = DecodeImage(bytes, options);
  EXPECT_TRUE(absl::IsDataLoss(image.status())) << image.status();
  return std::string(image.status().message());
}

// What no encoder of ours makes.
class PngWriter {
 public:
  PngWriter() : bytes_{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'} {}

  PngWriter& Header(std::uint32_t width, std::uint32_t height, int depth, int color_type, bool interlaced = false) {
    std::string data;
    for (const std::uint32_t extent : {width, height}) AppendNumber(extent, &data);
    for (const int byte : {depth, color_type, 0, 0, interlaced ? 1 : 0}) data.push_back(static_cast<char>(byte));
    return Chunk("IHDR", data);
  }
  PngWriter& Chunk(const std::string& type, const std::string& data) {
    std::string chunk = type + data;
    std::string number;
    AppendNumber(static_cast<std::uint32_t>(data.size()), &number);
    AppendNumber(static_cast<std::uint32_t>(
                     crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(chunk.size()))),
                 &chunk);
    for (const char c : number + chunk) bytes_.push_back(static_cast<std::uint8_t>(c));
    return *this;
  }
  // Rows with the byte of their filter before them.
  PngWriter& Data(const std::string& rows) {
    std::string packed(compressBound(rows.size()), 0);
    uLongf size = packed.size();
    EXPECT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()),
                       rows.size()),
              Z_OK);
    packed.resize(size);
    return Chunk("IDAT", packed);
  }
  Bytes End() { return Chunk("IEND", "").bytes_; }

 private:
  static void AppendNumber(std::uint32_t number, std::string* to) {
    for (int shift = 24; shift >= 0; shift -= 8) to->push_back(static_cast<char>(number >> shift));
  }

  Bytes bytes_;
};

std::string Text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

// JPEG as libjpeg can make it.
Bytes WriteJpeg(int components, J_COLOR_SPACE colors, const Bytes& interleaved, int height, int width,
                void (*configure)(j_compress_ptr)) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);  // ends the process
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_height = static_cast<JDIMENSION>(height);
  info.image_width = static_cast<JDIMENSION>(width);
  info.input_components = components;
  info.in_color_space = colors;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  configure(&info);
  jpeg_start_compress(&info, TRUE);
  Bytes pixels = interleaved;
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = pixels.data() + static_cast<std::size_t>(info.next_scanline) * width * components;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  Bytes result(bytes, bytes + size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return result;
}

TEST(ImageTest, PngKeepsEveryPixel) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    const std::int64_t channels = seed % 2 == 0 ? 1 : 3;
    const Value image = RandomImage(random, channels, 1 + random() % 40, 1 + random() % 40);
    const auto bytes = EncodePng(image);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_TRUE(BeginsLikeImage(*bytes));
    const auto read = DecodeImage(*bytes, Channels(channels));
    ASSERT_TRUE(read.ok()) << read.status() << ", seed " << seed;
    EXPECT_EQ(read->shape, image.shape) << "seed " << seed;
    EXPECT_EQ(read->bytes, image.bytes) << "seed " << seed;
  }
}

TEST(ImageTest, JpegKeepsWhatChangesSlowly) {
  for (const std::int64_t channels : {1, 3}) {
    const Value image = SmoothImage(channels, 37, 50);
    const auto bytes = EncodeJpeg(image, 95);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_TRUE(BeginsLikeImage(*bytes));
    const auto read = DecodeImage(*bytes, Channels(channels));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_LE(LargestDifference(*read, image), 8);
  }
}

TEST(ImageTest, GreyAndColoursAreMadeOfEachOther) {
  const Value grey = MakeImage(1, 1, 2, {10, 200});
  EXPECT_EQ(Pixels(*DecodeImage(*EncodePng(grey), Channels(3))), (Bytes{10, 200, 10, 200, 10, 200}));
  const Value colours = MakeImage(3, 1, 4, {255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255});
  EXPECT_EQ(Pixels(*DecodeImage(*EncodePng(colours), Channels(1))), (Bytes{76, 150, 29, 255}));
  const auto from_grey = DecodeImage(*EncodeJpeg(SmoothImage(1, 16, 16), 100), Channels(3));
  ASSERT_TRUE(from_grey.ok()) << from_grey.status();
  EXPECT_EQ(from_grey->shape, (std::vector<std::int64_t>{3, 16, 16}));
  const auto from_colours = DecodeImage(*EncodeJpeg(MakeImage(3, 8, 8, Bytes(192, 90)), 100), Channels(1));
  ASSERT_TRUE(from_colours.ok()) << from_colours.status();
  EXPECT_THAT(Pixels(*from_colours), Each(90));
}

TEST(ImageTest, ReadsEveryKindOfPng) {
  const auto grey = [](const Bytes& bytes) {
    const auto image = DecodeImage(bytes, Channels(1));
    EXPECT_TRUE(image.ok()) << image.status();
    return image.ok() ? Pixels(*image) : Bytes();
  };
  const auto colours = [](const Bytes& bytes) {
    const auto image = DecodeImage(bytes, Channels(3));
    EXPECT_TRUE(image.ok()) << image.status();
    return image.ok() ? Pixels(*image) : Bytes();
  };
  EXPECT_EQ(grey(PngWriter().Header(8, 1, 1, 0).Data(Text({0, 0b01010011})).End()),
            (Bytes{0, 255, 0, 255, 0, 0, 255, 255}));
  EXPECT_EQ(grey(PngWriter().Header(2, 1, 4, 0).Data(Text({0, 0xf3})).End()), (Bytes{255, 51}));
  EXPECT_EQ(grey(PngWriter().Header(2, 1, 16, 0).Data(Text({0, 1, 200, 250, 255})).End()), (Bytes{1, 250}))
      << "the upper 8 bits";
  EXPECT_EQ(colours(PngWriter().Header(1, 1, 16, 2).Data(Text({0, 1, 0, 2, 0, 3, 255})).End()), (Bytes{1, 2, 3}));
  EXPECT_EQ(grey(PngWriter().Header(2, 1, 8, 4).Data(Text({0, 7, 0, 8, 255})).End()), (Bytes{7, 8})) << "grey, alpha";
  EXPECT_EQ(colours(PngWriter().Header(1, 1, 8, 6).Data(Text({0, 1, 2, 3, 0})).End()), (Bytes{1, 2, 3})) << "alpha";
  const std::string palette = Text({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(colours(PngWriter().Header(2, 1, 8, 3).Chunk("PLTE", palette).Data(Text({0, 1, 0})).End()),
            (Bytes{4, 1, 5, 2, 6, 3}));
  EXPECT_EQ(
      colours(
          PngWriter().Header(2, 1, 8, 3).Chunk("PLTE", palette).Chunk("tRNS", Text({0})).Data(Text({0, 1, 0})).End()),
      (Bytes{4, 1, 5, 2, 6, 3}))
      << "a palette with a colour that is seen through";
  EXPECT_EQ(grey(PngWriter().Header(1, 1, 8, 0).Chunk("gAMA", Text({0, 0, 0, 100})).Data(Text({0, 77})).End()),
            (Bytes{77}))
      << "pixels are given as they are stored";
  // Adam7 of 3 x 3: pass 1 has (0, 0), pass 4 (0, 2), pass 5 (2, 0) and (2, 2), pass 6 (0, 1) and (2, 1), pass 7 row 1.
  EXPECT_EQ(grey(PngWriter().Header(3, 3, 8, 0, true).Data(Text({0, 1, 0, 3, 0, 7, 9, 0, 2, 0, 8, 0, 4, 5, 6})).End()),
            (Bytes{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(ImageTest, ReadsEveryKindOfJpeg) {
  const Bytes red_green = {200, 30, 40, 200, 30, 40};
  const auto progressive = DecodeImage(
      WriteJpeg(3, JCS_RGB, red_green, 1, 2, [](j_compress_ptr info) { jpeg_simple_progression(info); }), Channels(3));
  ASSERT_TRUE(progressive.ok()) << progressive.status();
  EXPECT_LE(LargestDifference(*progressive, MakeImage(3, 1, 2, {200, 200, 30, 30, 40, 40})), 3);
  // Adobe's mark is what libjpeg writes with CMYK; without it the values are ink.
  const Bytes inks = {255, 128, 0, 255};
  const auto adobe = DecodeImage(WriteJpeg(4, JCS_CMYK, inks, 1, 1, [](j_compress_ptr /*info*/) {}), Channels(3));
  ASSERT_TRUE(adobe.ok()) << adobe.status();
  EXPECT_LE(LargestDifference(*adobe, MakeImage(3, 1, 1, {255, 128, 0})), 3);
  const auto plain = DecodeImage(
      WriteJpeg(4, JCS_CMYK, {0, 127, 255, 0}, 1, 1, [](j_compress_ptr info) { info->write_Adobe_marker = FALSE; }),
      Channels(3));
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_LE(LargestDifference(*plain, MakeImage(3, 1, 1, {255, 128, 0})), 3);
}

TEST(ImageTest, AnImageThatEndsEarlyIsAnError) {
  const Value image = SmoothImage(3, 24, 24);
  const Bytes progressive = WriteJpeg(3, JCS_RGB, Pixels(image), 24, 24,  // other pixels, but as many
                                      [](j_compress_ptr info) { jpeg_simple_progression(info); });
  for (const Bytes& bytes : {*EncodePng(image), *EncodeJpeg(image, 90), progressive}) {
    ASSERT_TRUE(DecodeImage(bytes, {}).ok());
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const auto cut = DecodeImage(absl::MakeConstSpan(bytes).first(size), {});
      ASSERT_TRUE(absl::IsDataLoss(cut.status())) << size << " of " << bytes.size() << " bytes: " << cut.status();
    }
  }
}

TEST(ImageTest, DamageIsAnErrorOrAnotherImage) {
  const Value image = SmoothImage(3, 16, 16);
  for (const Bytes& bytes : {*EncodePng(image), *EncodeJpeg(image, 90)}) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      std::mt19937_64 random(seed);
      Bytes damaged = bytes;
      damaged[random() % damaged.size()] ^= static_cast<std::uint8_t>(1U << random() % 8);
      const auto read = DecodeImage(damaged, {.channels = 3, .most_pixels = 1 << 16});
      if (read.ok()) {
        EXPECT_EQ(static_cast<std::int64_t>(read->bytes.size()), read->shape[0] * read->shape[1] * read->shape[2]);
      } else {
        EXPECT_TRUE(absl::IsDataLoss(read.status())) << read.status() << ", seed " << seed;
      }
    }
  }
}

TEST(ImageTest, ErrorsSayWhatWasFound) {
  const Bytes jpeg = *EncodeJpeg(SmoothImage(3, 16, 16), 90);
  const auto with = [](Bytes bytes, std::size_t at, const Bytes& patch) {
    std::copy(patch.begin(), patch.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
    return bytes;
  };
  const auto marker = [&jpeg](std::uint8_t code) {
    for (std::size_t i = 0;; ++i) {
      if (jpeg.at(i) == 0xff && jpeg.at(i + 1) == code) return i;
    }
  };
  const std::size_t frame = marker(0xc0);  // precision at 4, height at 5, width at 7
  const std::size_t scan = marker(0xda);

  EXPECT_EQ(MessageOf({}), "is empty, expected a JPEG or PNG image");
  EXPECT_EQ(MessageOf({'G', 'I', 'F', '8', '9', 'a'}),
            "begins with the bytes 47494638, expected a JPEG (ffd8ff) or PNG (89504e47) image");
  EXPECT_EQ(MessageOf(Bytes(jpeg.begin(), jpeg.end() - 40)),
            "is a JPEG image that cannot be read, expected a sound one: Premature end of JPEG file");
  EXPECT_EQ(MessageOf(with(jpeg, frame + 5, {0xff, 0xdc, 0xff, 0xdc})),
            "is a JPEG image of 65500 x 65500 pixels (width x height), expected 67108864 at most");
  EXPECT_EQ(MessageOf(with(jpeg, frame + 4, {12})),
            "is a JPEG image that cannot be read, expected a sound one: Unsupported JPEG data precision 12");
  EXPECT_EQ(MessageOf(with(jpeg, frame + 5, {0, 0})),
            "is a JPEG image that cannot be read, expected a sound one: Empty JPEG image (DNL not supported)");
  EXPECT_EQ(MessageOf(with(jpeg, frame, {0xff, 0xc3})),
            "is a JPEG image that cannot be read, expected a sound one: Unsupported JPEG process: SOF type 0xc3");
  EXPECT_EQ(
      MessageOf(with(jpeg, scan + 14, {0xff, 0xd9})),
      "is a JPEG image that cannot be read, expected a sound one: Corrupt JPEG data: premature end of data segment");
  EXPECT_EQ(MessageOf(*EncodeJpeg(SmoothImage(1, 10, 11), 90), {.channels = 3, .most_pixels = 109}),
            "is a JPEG image of 11 x 10 pixels (width x height), expected 109 at most");

  EXPECT_EQ(MessageOf(PngWriter().Header(900'000, 1'000'000, 16, 6).Data("").End()),
            "is a PNG image of 900000 x 1000000 pixels (width x height), expected 67108864 at most");
  EXPECT_EQ(MessageOf(PngWriter().Header(2'000'000'000, 1, 8, 0).Data("").End()),
            "is a PNG image that cannot be read, expected a sound one: Invalid IHDR data");
  EXPECT_EQ(MessageOf(PngWriter().Header(4, 4, 8, 0).Data(Text({0, 1, 2, 3, 4})).End()),
            "is a PNG image that cannot be read, expected a sound one: Not enough image data");
  EXPECT_EQ(MessageOf(PngWriter().Header(1, 1, 8, 3).Data(Text({0, 0})).End()),
            "is a PNG image that cannot be read, expected a sound one: IDAT: Missing PLTE before IDAT");
  const Bytes png = *EncodePng(SmoothImage(1, 4, 4));
  EXPECT_EQ(MessageOf(Bytes(png.begin(), png.end() - 1)),
            "is a PNG image that cannot be read, expected a sound one: ends before its last chunk does");
  EXPECT_EQ(MessageOf(with(png, png.size() - 14, {0, 0})),
            "is a PNG image that cannot be read, expected a sound one: IDAT: CRC error");
}

// Each scan costs a few bytes and goes over the whole image.
TEST(ImageTest, ScansAreLimited) {
  const Bytes jpeg = WriteJpeg(3, JCS_RGB, Bytes(3 * 64, 100), 8, 8, [](j_compress_ptr info) {
    static jpeg_scan_info scans[3] = {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
    info->scan_info = scans;
    info->num_scans = 3;
  });
  ASSERT_TRUE(DecodeImage(jpeg, {}).ok()) << DecodeImage(jpeg, {}).status();
  std::size_t last = jpeg.size() - 2;
  while (jpeg[last] != 0xff || jpeg[last + 1] != 0xda) --last;
  Bytes many(jpeg.begin(), jpeg.end() - 2);
  for (int i = 0; i < 1000; ++i)
    many.insert(many.end(), jpeg.begin() + static_cast<std::ptrdiff_t>(last), jpeg.end() - 2);
  many.insert(many.end(), jpeg.end() - 2, jpeg.end());
  EXPECT_EQ(MessageOf(many), "is a JPEG image that cannot be read, expected a sound one: more than 500 scans");
}

// Pictures from cameras and editors have them, and every pixel is there.
TEST(ImageTest, BytesTooManyBeforeAMarkerAreNoDamage) {
  Bytes jpeg = *EncodeJpeg(SmoothImage(3, 16, 16), 90);
  const auto expected = DecodeImage(jpeg, {});
  jpeg.insert(jpeg.end() - 2, {0, 0, 0});
  const auto read = DecodeImage(jpeg, {});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->bytes, expected->bytes);
}

TEST(ImageTest, OptionsAndImagesThatAreNoneAreRefused) {
  EXPECT_EQ(CheckOptions({.channels = 2}).message(), "channels of images: 2, expected 1 or 3");
  EXPECT_EQ(CheckOptions({.channels = 1, .most_pixels = 0}).message(),
            "most pixels of an image: 0, expected 1 at least");
  EXPECT_TRUE(absl::IsInvalidArgument(DecodeImage({}, Channels(4)).status()));
  const Value two = MakeImage(2, 1, 1, {1, 2});
  EXPECT_EQ(EncodePng(two).status().message(), "an image of [2, 1, 1] in 2 bytes, expected u8 [1 or 3, height, width]");
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeJpeg(two, 90).status()));
  const Value wide = MakeImage(1, 1, 70'000, Bytes(70'000));
  EXPECT_THAT(std::string(EncodeJpeg(wide, 90).status().message()), HasSubstr("cannot be made a JPEG image: "));
}

}  // namespace
}  // namespace downpour::data
