#ifndef DOWNPOUR_CLI_LOG_PRINTER_H_
#define DOWNPOUR_CLI_LOG_PRINTER_H_

#include <cstddef>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>

namespace downpour::cli {

// Prints lines of logs, of several members with their names before them: "worker-0 | ...". Thread-safe.
class LogPrinter {
 public:
  // `names`: whether the lines carry them. `out` must outlive this.
  LogPrinter(std::ostream& out, bool names) : out_(out), names_(names) {}

  void Print(std::string_view name, std::string_view line);

 private:
  std::ostream& out_;
  const bool names_;
  std::mutex mutex_;
  std::size_t width_ = 0;  // of the longest name until now
};

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_LOG_PRINTER_H_
