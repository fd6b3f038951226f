#ifndef DOWNPOUR_TRAINER_CHECKPOINT_ABOUT_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_ABOUT_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace downpour::checkpoint {

// The same error, with what it is about before it: "SUBJECT: message".
inline absl::Status About(absl::string_view subject, const absl::Status& status) {
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat(subject, ": ", status.message()));
}

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_ABOUT_H_
