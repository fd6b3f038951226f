#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_TESTING_TAR_BUILDER_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_TESTING_TAR_BUILDER_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace downpour::data {

// A tar archive, entry by entry.
class TarBuilder {
 public:
  TarBuilder& File(const std::string& name, const std::string& content) { return Entry('0', name, content); }
  // Name and prefix are cut to the length of their fields.
  TarBuilder& Entry(char type, const std::string& name, const std::string& content, const std::string& prefix = "") {
    return Header(type, name, absl::StrFormat("%011o", content.size()), prefix).Blocks(content);
  }
  // Alone: `size` is the text in its field.
  TarBuilder& Header(char type, const std::string& name, const std::string& size, const std::string& prefix = "") {
    std::string header(512, '\0');
    const auto put = [&header](std::size_t at, const std::string& text, std::size_t most) {
      std::copy_n(text.begin(), std::min(text.size(), most), header.begin() + static_cast<std::ptrdiff_t>(at));
    };
    put(0, name, 100);
    put(100, "0000644", 8);
    put(124, size, 12);
    put(136, "00000000000", 12);
    header[156] = type;
    put(257, absl::StrCat("ustar", std::string(1, '\0'), "00"), 8);
    put(345, prefix, 155);
    put(148, std::string(8, ' '), 8);
    std::uint64_t sum = 0;
    for (const char c : header) sum += static_cast<std::uint8_t>(c);
    put(148, absl::StrFormat("%06o", sum) + '\0', 7);
    bytes_ += header;
    return *this;
  }
  // Padded to whole blocks.
  TarBuilder& Blocks(const std::string& content) {
    bytes_ += content;
    bytes_.resize((bytes_.size() + 511) / 512 * 512, '\0');
    return *this;
  }
  TarBuilder& Pax(const std::string& key, const std::string& value) {
    // The length counts itself.
    const std::size_t rest = key.size() + value.size() + 3;
    std::size_t length = rest + 1;
    while (rest + absl::StrCat(length).size() != length) ++length;
    return Entry('x', "pax", absl::StrCat(length, " ", key, "=", value, "\n"));
  }
  const std::string& bytes() const { return bytes_; }
  std::string End() const { return bytes_ + std::string(1024, '\0'); }

 private:
  std::string bytes_;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_TESTING_TAR_BUILDER_H_
