#ifndef DOWNPOUR_TRAINER_DATA_ENCODING_H_
#define DOWNPOUR_TRAINER_DATA_ENCODING_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

// Numbers, little-endian, and texts behind each other: what the files of this directory are made of.
namespace downpour::data {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

class Encoder {
 public:
  template <typename Number>
  void Put(std::type_identity_t<Number> number) {
    static_assert(std::is_integral_v<Number>);
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  // Its length, a u32, and the text, which is shorter than 4 GiB.
  void PutText(absl::string_view text) {
    Put<std::uint32_t>(static_cast<std::uint32_t>(text.size()));
    bytes_.append(text.data(), text.size());
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Trusts no length: what is not there any more is false, and so is all that is asked for then.
class Decoder {
 public:
  explicit Decoder(absl::string_view bytes) : rest_(bytes) {}

  template <typename Number>
  bool Take(Number* number) {
    static_assert(std::is_integral_v<Number>);
    absl::string_view bytes;
    if (!TakeBytes(sizeof(Number), &bytes)) return false;
    std::memcpy(number, bytes.data(), sizeof(Number));
    return true;
  }
  bool TakeText(std::string* text) {
    std::uint32_t length = 0;
    absl::string_view bytes;
    if (!Take(&length) || !TakeBytes(length, &bytes)) return false;
    text->assign(bytes.data(), bytes.size());
    return true;
  }
  bool TakeBytes(std::uint64_t count, absl::string_view* bytes) {
    if (failed_ || count > rest_.size()) {
      failed_ = true;
      return false;
    }
    *bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return true;
  }
  absl::string_view rest() const { return rest_; }
  // Everything was there, and nothing is left.
  bool done() const { return !failed_ && rest_.empty(); }

 private:
  absl::string_view rest_;
  bool failed_ = false;
};

// FNV-1a of 64 bits: for names of files, whose content tells apart what has the same one.
inline std::uint64_t Fnv1a(absl::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<std::uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

inline absl::Span<const std::uint8_t> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
inline absl::string_view AsText(absl::Span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_ENCODING_H_
