#ifndef DOWNPOUR_OPERATOR_CONTROLLER_HEALTH_SERVER_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_HEALTH_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace downpour::controller {

// Answers GET /healthz and /readyz with 200, or 503 and the reason. The one place that knows civetweb.
class HealthServer {
 public:
  // Empty: well. Called from threads of the server's.
  using Check = std::function<std::string()>;

  // kUnavailable: the port is taken, say.
  static absl::StatusOr<std::unique_ptr<HealthServer>> Start(const std::string& listen, Check healthy, Check ready);
  ~HealthServer();

 private:
  class Impl;
  explicit HealthServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_HEALTH_SERVER_H_
