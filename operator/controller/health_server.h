#ifndef DOWNPOUR_OPERATOR_CONTROLLER_HEALTH_SERVER_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_HEALTH_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/service/http_server.h"

namespace downpour::controller {

// Empty: well. Called from the server's thread.
using HealthCheck = std::function<std::string()>;

// Answers GET /healthz and /readyz with 200, or 503 and the reason. Addresses and errors as HttpServer's.
absl::StatusOr<std::unique_ptr<service::HttpServer>> StartHealthServer(const std::string& listen, HealthCheck healthy,
                                                                       HealthCheck ready);

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_HEALTH_SERVER_H_
