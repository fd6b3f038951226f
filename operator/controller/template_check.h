#ifndef DOWNPOUR_OPERATOR_CONTROLLER_TEMPLATE_CHECK_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_TEMPLATE_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "operator/controller/job_record.h"
#include "operator/controller/objects.h"
#include "operator/controller/obstacles.h"
#include "operator/kube/client.h"

namespace downpour::controller {

// What is wrong with the pod templates of one job: by our own rules, then by what the platform says, asked with dry
// runs before its first pod. Pods themselves are made without a look at fields that the server does not know: a job
// whose templates nobody has looked at must not begin. Not thread-safe.
class TemplateCheck {
 public:
  // Whether the job, which has not begun, is about to and has no verdict, or one that is to be looked at again.
  bool IsDue(const JobRecord& record, double now) const;
  // Whether Run asks the server; else it only notes that there is nothing to ask about.
  static bool Asks(const JobRecord& record);
  // Waits for the server. OK: there is a verdict. Otherwise there is none yet, and `starts` says what is in the way.
  absl::Status Run(const JobRecord& record, const PodOptions& options, kube::Client& client, Hold& starts, double now);

  // Whether there is a verdict on the newest specification.
  bool IsChecked(const JobRecord& record) const { return checked_ == record.meta.generation; }
  // The verdict: what we or the platform have against the templates; empty: nothing.
  const std::string& error() const { return error_; }
  // When to look again, as what it minds may be put right elsewhere (a priority class, say); absent: not by the clock.
  std::optional<absl::Duration> LookAgain() const;

 private:
  std::int64_t checked_ = 0;  // the newest generation on which there is a verdict
  std::string error_;
  double checked_at_ = 0;
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_TEMPLATE_CHECK_H_
