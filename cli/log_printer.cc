#include "cli/log_printer.h"

#include <algorithm>

#include "cli/render/format.h"

namespace downpour::cli {

void LogPrinter::Print(std::string_view name, std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (names_) {
    width_ = std::max(width_, name.size());
    out_ << CleanText(name) << std::string(width_ - name.size(), ' ') << " | ";
  }
  // At once: who follows a log wants each line when it comes.
  out_ << line << '\n' << std::flush;
}

}  // namespace downpour::cli
