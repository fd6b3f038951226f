#ifndef DOWNPOUR_TRAINER_CHECKPOINT_BLOCK_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_BLOCK_H_

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "trainer/wire/crc32c.h"

// Blocks of a fixed length in files, whose last four bytes are the checksum of those before.
namespace downpour::checkpoint {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

inline absl::Span<const std::uint8_t> BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

inline absl::Span<const std::uint8_t> BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(float)};
}

inline absl::Span<std::uint8_t> MutableBytesOf(absl::Span<float> values) {
  return {reinterpret_cast<std::uint8_t*>(values.data()), values.size() * sizeof(float)};
}

template <std::size_t kBytes>
class Block {
 public:
  template <typename Number>
  void Put(std::size_t offset, Number value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof(value));
  }
  template <typename Number>
  Number Get(std::size_t offset) const {
    Number value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(value));
    return value;
  }
  void PutMagic(absl::string_view magic) { std::memcpy(bytes_.data(), magic.data(), magic.size()); }
  bool HasMagic(absl::string_view magic) const { return std::memcmp(bytes_.data(), magic.data(), magic.size()) == 0; }

  std::uint32_t Checksum() const { return wire::Crc32c(absl::MakeConstSpan(bytes_).first(kBytes - 4)); }
  void Seal() { Put(kBytes - 4, Checksum()); }
  bool IsWhole() const { return Get<std::uint32_t>(kBytes - 4) == Checksum(); }

  absl::Span<const std::uint8_t> bytes() const { return bytes_; }
  absl::Span<std::uint8_t> mutable_bytes() { return absl::MakeSpan(bytes_); }

 private:
  std::array<std::uint8_t, kBytes> bytes_{};
};

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_BLOCK_H_
