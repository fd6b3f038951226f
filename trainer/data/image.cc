#include "trainer/data/image.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include <jpeglib.h>  // needs <cstdio>

#include <jerror.h>  // needs jpeglib.h
#include <png.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/data/load_times.h"

namespace downpour::data {
namespace {

using Bytes = absl::Span<const std::uint8_t>;

constexpr std::array<std::uint8_t, 3> kJpegMagic = {0xff, 0xd8, 0xff};
constexpr std::array<std::uint8_t, 8> kPngMagic = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
// Each scan of a JPEG goes over all of its pixels, and costs a few bytes of the file.
constexpr int kMostScans = 500;

// Both libraries end what they do by a function that must not return. Ours jumps back to whoever called the library, so
// between setjmp and the last call of the library in that function no object with a destructor may be made.
struct Escape {
  std::jmp_buf jump = {};
  std::array<char, JMSG_LENGTH_MAX> message = {};
};

[[noreturn]] void Leave(Escape* escape, const char* message) {
  std::snprintf(escape->message.data(), escape->message.size(), "%s", message);
  std::longjmp(escape->jump, 1);
}

[[noreturn]] void LeaveJpeg(j_common_ptr info) {
  char message[JMSG_LENGTH_MAX];
  info->err->format_message(info, message);
  Leave(static_cast<Escape*>(info->client_data), message);
}

// With a warning libjpeg goes on, and fills in what it cannot read. Some say nothing of the pixels.
void HeedJpegWarning(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_ICC:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL:
      return;
    default:
      LeaveJpeg(info);
  }
}

void LimitScans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  char message[JMSG_LENGTH_MAX];
  std::snprintf(message, sizeof(message), "more than %d scans", kMostScans);
  Leave(static_cast<Escape*>(info->client_data), message);
}

// Pixels are interleaved in what decoders read and encoders write.
class JpegDecoder {
 public:
  explicit JpegDecoder(Bytes bytes) : bytes_(bytes) {}
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // False: message() says why.
  bool ReadHeader(std::int64_t channels) {
    if (setjmp(escape_.jump) != 0) return false;
    info_.err = jpeg_std_error(&handlers_);
    handlers_.error_exit = LeaveJpeg;
    handlers_.emit_message = HeedJpegWarning;
    info_.client_data = &escape_;
    jpeg_create_decompress(&info_);
    progress_.progress_monitor = LimitScans;
    info_.progress = &progress_;
    jpeg_mem_src(&info_, bytes_.data(), bytes_.size());
    jpeg_read_header(&info_, TRUE);
    const bool four = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = four ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_calc_output_dimensions(&info_);
    return true;
  }
  // Each row goes to `row`, and is then given to take(y), while it is in the cache.
  template <typename Take>
  bool ReadRows(std::uint8_t* row, const Take& take) {
    if (setjmp(escape_.jump) != 0) return false;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      const std::int64_t y = info_.output_scanline;
      if (jpeg_read_scanlines(&info_, &row, 1) == 1) take(y);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  std::int64_t height() const { return info_.output_height; }
  std::int64_t width() const { return info_.output_width; }
  std::int64_t channels() const { return info_.output_components; }
  // Adobe stores what is left of the light, the standard the ink.
  bool stores_ink() const { return !info_.saw_Adobe_marker; }
  const char* message() const { return escape_.message.data(); }

 private:
  const Bytes bytes_;
  Escape escape_;
  jpeg_error_mgr handlers_ = {};
  jpeg_progress_mgr progress_ = {};
  jpeg_decompress_struct info_ = {};
};

[[noreturn]] void LeavePng(png_structp png, const char* message) {
  Leave(static_cast<Escape*>(png_get_error_ptr(png)), message);
}

void IgnorePngWarning(png_structp /*png*/, const char* /*message*/) {}  // never of the pixels

class PngDecoder {
 public:
  explicit PngDecoder(Bytes bytes) : bytes_(bytes) {}
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  // False: message() says why.
  bool ReadHeader() {
    if (setjmp(escape_.jump) != 0) return false;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &escape_, LeavePng, IgnorePngWarning);
    if (png_ == nullptr) return false;
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return false;
    png_set_read_fn(png_, this, Take);
    png_read_info(png_, info_);
    png_set_expand(png_);  // palettes, fewer than 8 bits
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  // `rows` has height() pointers to room for width() pixels.
  bool ReadPixels(png_bytepp rows) {
    if (setjmp(escape_.jump) != 0) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

  std::int64_t height() const { return png_get_image_height(png_, info_); }
  std::int64_t width() const { return png_get_image_width(png_, info_); }
  std::int64_t channels() const { return png_get_channels(png_, info_); }
  const char* message() const { return escape_.message[0] == 0 ? "no memory" : escape_.message.data(); }

 private:
  static void Take(png_structp png, png_bytep to, std::size_t count) {
    auto* const self = static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (count > self->bytes_.size() - self->taken_) png_error(png, "ends before its last chunk does");
    std::memcpy(to, self->bytes_.data() + self->taken_, count);
    self->taken_ += count;
  }

  const Bytes bytes_;
  std::size_t taken_ = 0;
  Escape escape_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

absl::Status Unreadable(const char* format, const char* message) {
  return absl::DataLossError(
      absl::StrCat("is a ", format, " image that cannot be read, expected a sound one: ", message));
}

absl::Status CheckExtents(const char* format, std::int64_t height, std::int64_t width, const ImageOptions& options) {
  // Each has less than 32 bits.
  if (height * width <= options.most_pixels) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("is a %s image of %d x %d pixels (width x height), expected %d at most",
                                             format, width, height, options.most_pixels));
}

Value MakeImage(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return {{channels, height, width}, std::vector<std::byte>(static_cast<std::size_t>(channels * height * width))};
}

// A row of `width` interleaved pixels with `stored` channels (1 or 3) becomes row `y` of each plane of an image.
void ToPlanes(const std::uint8_t* from, std::int64_t stored, std::int64_t y, Value* image) {
  const std::int64_t channels = image->shape[0];
  const auto width = static_cast<std::size_t>(image->shape[2]);
  const std::size_t plane = static_cast<std::size_t>(image->shape[1]) * width;
  auto* const to = reinterpret_cast<std::uint8_t*>(image->bytes.data()) + static_cast<std::size_t>(y) * width;
  if (stored == 1) {
    for (std::int64_t c = 0; c < channels; ++c) std::copy_n(from, width, to + c * plane);
  } else if (channels == 3) {
    for (std::size_t i = 0; i < width; ++i) {
      to[i] = from[3 * i];
      to[plane + i] = from[3 * i + 1];
      to[2 * plane + i] = from[3 * i + 2];
    }
  } else {  // the luma of BT.601, as JPEG has it
    for (std::size_t i = 0; i < width; ++i) {
      to[i] = static_cast<std::uint8_t>(
          (19595U * from[3 * i] + 38470U * from[3 * i + 1] + 7471U * from[3 * i + 2] + 32768U) >> 16U);
    }
  }
}

// Cyan, magenta, yellow and black, interleaved, become red, green and blue in their place.
void MixInks(std::uint8_t* values, std::size_t count, bool stores_ink) {
  const unsigned flip = stores_ink ? 255 : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned light = values[4 * i + 3] ^ flip;
    for (std::size_t c = 0; c < 3; ++c) {
      values[3 * i + c] = static_cast<std::uint8_t>(((values[4 * i + c] ^ flip) * light + 127) / 255);
    }
  }
}

absl::StatusOr<Value> DecodeJpeg(Bytes bytes, const ImageOptions& options) {
  JpegDecoder decoder(bytes);
  if (!decoder.ReadHeader(options.channels)) return Unreadable("JPEG", decoder.message());
  const std::int64_t height = decoder.height();
  const std::int64_t width = decoder.width();
  if (absl::Status status = CheckExtents("JPEG", height, width, options); !status.ok()) return status;
  const std::int64_t stored = decoder.channels();
  Value image = MakeImage(options.channels, height, width);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(width * stored));
  const auto take = [&](std::int64_t y) {
    if (stored == 4) MixInks(row.data(), static_cast<std::size_t>(width), decoder.stores_ink());
    ToPlanes(row.data(), std::min<std::int64_t>(stored, 3), y, &image);
  };
  if (!decoder.ReadRows(row.data(), take)) return Unreadable("JPEG", decoder.message());
  return image;
}

absl::StatusOr<Value> DecodePng(Bytes bytes, const ImageOptions& options) {
  PngDecoder decoder(bytes);
  if (!decoder.ReadHeader()) return Unreadable("PNG", decoder.message());
  const std::int64_t height = decoder.height();
  const std::int64_t width = decoder.width();
  if (absl::Status status = CheckExtents("PNG", height, width, options); !status.ok()) return status;
  const std::int64_t stored = decoder.channels();
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(height * width * stored));
  std::vector<png_bytep> rows(static_cast<std::size_t>(height));
  for (std::int64_t y = 0; y < height; ++y) rows[y] = pixels.data() + y * width * stored;
  if (!decoder.ReadPixels(rows.data())) return Unreadable("PNG", decoder.message());
  Value image = MakeImage(options.channels, height, width);
  for (std::int64_t y = 0; y < height; ++y) ToPlanes(rows[y], stored, y, &image);
  return image;
}

template <std::size_t count>
bool BeginsWith(Bytes bytes, const std::array<std::uint8_t, count>& magic) {
  return bytes.size() >= count && std::equal(magic.begin(), magic.end(), bytes.begin());
}

// Interleaved.
absl::StatusOr<std::vector<std::uint8_t>> Interleave(const Value& image) {
  const std::vector<std::int64_t>& shape = image.shape;
  const bool fits = shape.size() == 3 && (shape[0] == 1 || shape[0] == 3) && shape[1] > 0 && shape[2] > 0 &&
                    static_cast<std::uint64_t>(shape[0] * shape[1] * shape[2]) == image.bytes.size();
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrFormat("an image of %s in %d bytes, expected u8 [1 or 3, height, width]",
                                                      ShapeText(shape), image.bytes.size()));
  }
  const std::size_t plane = static_cast<std::size_t>(shape[1] * shape[2]);
  std::vector<std::uint8_t> pixels(image.bytes.size());
  for (std::int64_t c = 0; c < shape[0]; ++c) {
    for (std::size_t i = 0; i < plane; ++i) {
      pixels[i * shape[0] + c] = std::to_integer<std::uint8_t>(image.bytes[c * plane + i]);
    }
  }
  return pixels;
}

class JpegEncoder {
 public:
  JpegEncoder() = default;
  ~JpegEncoder() {
    jpeg_destroy_compress(&info_);
    if (bytes_ != first_bytes_.data()) std::free(bytes_);  // malloc is how libjpeg makes more room
  }
  JpegEncoder(const JpegEncoder&) = delete;
  JpegEncoder& operator=(const JpegEncoder&) = delete;

  // False: message() says why.
  bool Encode(std::uint8_t* pixels, std::int64_t channels, std::int64_t height, std::int64_t width, int quality) {
    if (setjmp(escape_.jump) != 0) return false;
    info_.err = jpeg_std_error(&handlers_);
    handlers_.error_exit = LeaveJpeg;
    info_.client_data = &escape_;
    jpeg_create_compress(&info_);
    jpeg_mem_dest(&info_, &bytes_, &size_);
    info_.image_width = static_cast<JDIMENSION>(width);
    info_.image_height = static_cast<JDIMENSION>(height);
    info_.input_components = static_cast<int>(channels);
    info_.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info_);
    jpeg_set_quality(&info_, quality, TRUE);
    jpeg_start_compress(&info_, TRUE);
    while (info_.next_scanline < info_.image_height) {
      JSAMPROW row = pixels + std::size_t{info_.next_scanline} * info_.image_width * info_.input_components;
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }

  std::vector<std::uint8_t> bytes() const { return {bytes_, bytes_ + size_}; }
  const char* message() const { return escape_.message.data(); }

 private:
  Escape escape_;
  jpeg_error_mgr handlers_ = {};
  jpeg_compress_struct info_ = {};
  // After an error libjpeg leaves bytes_ as it was, and so never as what it has freed.
  std::array<unsigned char, 4096> first_bytes_;
  unsigned char* bytes_ = first_bytes_.data();
  unsigned long size_ = first_bytes_.size();
};

}  // namespace

absl::Status CheckOptions(const ImageOptions& options) {
  if (options.channels != 1 && options.channels != 3) {
    return absl::InvalidArgumentError(absl::StrFormat("channels of images: %d, expected 1 or 3", options.channels));
  }
  if (options.most_pixels < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("most pixels of an image: %d, expected 1 at least", options.most_pixels));
  }
  return absl::OkStatus();
}

Column ImageColumn(std::string name, const ImageOptions& options) {
  Column column;
  column.name = std::move(name);
  column.type = ElementType::kU8;
  column.shape = {options.channels, kAnyExtent, kAnyExtent};
  return column;
}

bool BeginsLikeImage(Bytes bytes) { return BeginsWith(bytes, kJpegMagic) || BeginsWith(bytes, kPngMagic); }

absl::StatusOr<Value> DecodeImage(Bytes bytes, const ImageOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  const DecodeTimer timer;
  if (BeginsWith(bytes, kJpegMagic)) return DecodeJpeg(bytes, options);
  if (BeginsWith(bytes, kPngMagic)) return DecodePng(bytes, options);
  if (bytes.empty()) return absl::DataLossError("is empty, expected a JPEG or PNG image");
  const Bytes first = bytes.first(std::min<std::size_t>(bytes.size(), 4));
  return absl::DataLossError(
      absl::StrCat("begins with the bytes ",
                   absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(first.data()), first.size())),
                   ", expected a JPEG (ffd8ff) or PNG (89504e47) image"));
}

absl::StatusOr<std::vector<std::uint8_t>> EncodeJpeg(const Value& image, int quality) {
  absl::StatusOr<std::vector<std::uint8_t>> pixels = Interleave(image);
  if (!pixels.ok()) return pixels.status();
  JpegEncoder encoder;
  if (!encoder.Encode(pixels->data(), image.shape[0], image.shape[1], image.shape[2], quality)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot be made a JPEG image: ", encoder.message()));
  }
  return encoder.bytes();
}

absl::StatusOr<std::vector<std::uint8_t>> EncodePng(const Value& image) {
  const absl::StatusOr<std::vector<std::uint8_t>> pixels = Interleave(image);
  if (!pixels.ok()) return pixels.status();
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.shape[2]);
  png.height = static_cast<png_uint_32>(image.shape[1]);
  png.format = image.shape[0] == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  std::vector<std::uint8_t> bytes(PNG_IMAGE_PNG_SIZE_MAX(png));
  png_alloc_size_t size = bytes.size();
  if (png_image_write_to_memory(&png, bytes.data(), &size, 0, pixels->data(), 0, nullptr) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot be made a PNG image: ", png.message));
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace downpour::data
