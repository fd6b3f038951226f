#ifndef DOWNPOUR_CLI_COORDINATOR_LINK_H_
#define DOWNPOUR_CLI_COORDINATOR_LINK_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "downpour/v1/control.pb.h"

namespace downpour::cli {

// Asks the coordinator for progress without ever blocking its caller. Not thread-safe.
class CoordinatorLink {
 public:
  virtual ~CoordinatorLink() = default;

  // Sends a question. False, and nothing is sent: one is under way, or its answer was not taken yet.
  virtual bool Ask(const v1::ProgressRequest& question) = 0;
  // The answer to the last question, once; absent: none came yet. An error says why there is none.
  virtual std::optional<absl::StatusOr<v1::ProgressReply>> Take() = 0;
  // A descriptor that becomes readable when Take has something; -1: there is none.
  virtual int wake_descriptor() const = 0;
  // The coordinator was replaced: the next question goes to the address that the file names then.
  virtual void Reset() = 0;
};

// Over gRPC, to the address in a file, which is read again after each failure. Each question has a deadline, and is
// asked on a thread of the link's. The link does not wait for that thread when it goes: a question under way is
// cancelled and left to itself. kResourceExhausted: there was no thread.
absl::StatusOr<std::unique_ptr<CoordinatorLink>> MakeCoordinatorLink(const std::string& address_file);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_COORDINATOR_LINK_H_
