#include "trainer/core/job_uid.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace downpour::core {

absl::StatusOr<JobUid> ParseJobUid(const std::string& text) {
  const std::string digits = absl::StrReplaceAll(text, {{"-", ""}});
  const bool hexadecimal = digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  if (digits.size() != 32 || !hexadecimal) {
    return absl::InvalidArgumentError(absl::StrCat("job uid: must be 32 hexadecimal digits, got \"", text, "\""));
  }
  const std::string bytes = absl::HexStringToBytes(digits);
  JobUid uid;
  std::copy(bytes.begin(), bytes.end(), uid.begin());
  return uid;
}

}  // namespace downpour::core
