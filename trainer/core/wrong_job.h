#ifndef DOWNPOUR_TRAINER_CORE_WRONG_JOB_H_
#define DOWNPOUR_TRAINER_CORE_WRONG_JOB_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "trainer/core/time.h"

namespace downpour::core {

// Whether to go on asking a coordinator that says that it is another job's. The address of one that is gone may be
// given to somebody else while its name still leads there, for as long as names are cached; so that is no answer, for a
// while. Not thread-safe.
class WrongJob {
 public:
  static constexpr absl::Duration kPatience = absl::Minutes(2);

  // It said so at `now`. kFailedPrecondition: nobody else has answered for kPatience.
  absl::Status OnWrongJob(Time now) {
    if (!since_.has_value()) since_ = now;
    if (now - *since_ < kPatience) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("the coordinator's address is that of another job, for ",
                                                      absl::FormatDuration(kPatience), " now"));
  }
  // Ours has answered.
  void Forget() { since_.reset(); }

 private:
  std::optional<Time> since_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_WRONG_JOB_H_
