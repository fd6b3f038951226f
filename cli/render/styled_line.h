#ifndef DOWNPOUR_CLI_RENDER_STYLED_LINE_H_
#define DOWNPOUR_CLI_RENDER_STYLED_LINE_H_

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/render/format.h"

namespace downpour::cli {

// ANSI styles.
inline constexpr const char* kPlain = "";
inline constexpr const char* kBold = "1";
inline constexpr const char* kDim = "2";
inline constexpr const char* kGreen = "32";
inline constexpr const char* kYellow = "33";
inline constexpr const char* kRed = "31";
inline constexpr const char* kCyan = "36";

// A line that never gets wider than the terminal.
class Line {
 public:
  Line(std::size_t width, bool colour) : width_(width), colour_(colour) {}

  Line& Add(const std::string& text, const char* style = kPlain) {
    const std::string fitted = FitColumns(text, width_ - columns_);
    columns_ += Columns(fitted);
    text_ +=
        colour_ && *style != '\0' && !fitted.empty() ? absl::StrCat("\x1b[", style, "m", fitted, "\x1b[0m") : fitted;
    return *this;
  }
  // In a field of its own; longer text is cut.
  Line& AddLeft(const std::string& text, std::size_t field, const char* style = kPlain) {
    const std::string fitted = FitColumns(text, field);
    return Add(fitted, style).Add(std::string(field - Columns(fitted), ' '));
  }
  Line& AddRight(const std::string& text, std::size_t field, const char* style = kPlain) {
    const std::string fitted = FitColumns(text, field);
    return Add(std::string(field - Columns(fitted), ' ')).Add(fitted, style);
  }
  std::size_t left() const { return width_ - columns_; }
  std::string Take() { return text_ + "\n"; }

 private:
  const std::size_t width_;
  const bool colour_;
  std::size_t columns_ = 0;
  std::string text_;
};

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RENDER_STYLED_LINE_H_
