#include "trainer/core/checkpoint_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace downpour::core {

std::string CheckpointName(std::uint32_t cut, std::uint64_t generation, std::uint32_t incarnation,
                           const std::string& job_uid) {
  const std::string digits = absl::AsciiStrToLower(absl::StrReplaceAll(job_uid, {{"-", ""}}));
  return absl::StrFormat("cut-%010d-g%d-i%d-%s", cut, generation, incarnation, digits.substr(0, 8));
}

}  // namespace downpour::core
