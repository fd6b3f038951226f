#ifndef DOWNPOUR_TRAINER_CORE_BITMAP_H_
#define DOWNPOUR_TRAINER_CORE_BITMAP_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace downpour::core {

// A fixed number of bits; on the wire bit i is bit i % 8 of byte i / 8 and missing trailing bytes are zero.
class Bitmap {
 public:
  Bitmap() = default;
  explicit Bitmap(std::uint32_t size, bool value = false)
      : size_(size), bytes_((std::size_t{size} + 7) / 8, value ? '\xff' : '\0') {
    Trim();
  }
  // Bits beyond `size` are dropped, missing ones are zero.
  static Bitmap FromBytes(std::uint32_t size, std::string_view bytes) {
    Bitmap result(size);
    std::copy_n(bytes.begin(), std::min(bytes.size(), result.bytes_.size()), result.bytes_.begin());
    result.Trim();
    return result;
  }

  std::uint32_t size() const { return size_; }
  const std::string& bytes() const { return bytes_; }
  bool Test(std::uint32_t bit) const {
    return bit < size_ && ((static_cast<unsigned char>(bytes_[bit / 8]) >> (bit % 8)) & 1u) != 0;
  }
  void Set(std::uint32_t bit) { bytes_[bit / 8] = static_cast<char>(bytes_[bit / 8] | (1 << (bit % 8))); }
  std::uint32_t Count() const {
    std::uint32_t count = 0;
    for (char byte : bytes_) count += static_cast<std::uint32_t>(std::popcount(static_cast<unsigned char>(byte)));
    return count;
  }
  bool All() const {
    const auto whole = bytes_.begin() + static_cast<std::ptrdiff_t>(size_ / 8);
    return std::all_of(bytes_.begin(), whole, [](char byte) { return byte == '\xff'; }) &&
           (size_ % 8 == 0 || bytes_.back() == static_cast<char>((1 << (size_ % 8)) - 1));
  }
  // Both of one size.
  void And(const Bitmap& other) {
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(bytes_[i] & other.bytes_[i]);
  }

 private:
  void Trim() {
    if (size_ % 8 != 0 && !bytes_.empty()) bytes_.back() = static_cast<char>(bytes_.back() & ((1 << (size_ % 8)) - 1));
  }

  std::uint32_t size_ = 0;
  std::string bytes_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_BITMAP_H_
