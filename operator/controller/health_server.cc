#include "operator/controller/health_server.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::controller {

absl::StatusOr<std::unique_ptr<service::HttpServer>> StartHealthServer(const std::string& listen, HealthCheck healthy,
                                                                       HealthCheck ready) {
  const auto answer = [](HealthCheck check) {
    return [check = std::move(check)]() -> service::HttpServer::Answer {
      const std::string problem = check();
      if (problem.empty()) return {.body = "ok\n"};
      return {.status = 503, .body = problem + "\n"};
    };
  };
  auto server = service::HttpServer::Start(
      listen, {{"/healthz", answer(std::move(healthy))}, {"/readyz", answer(std::move(ready))}});
  if (server.ok()) return server;
  return absl::Status(server.status().code(), absl::StrCat("health: ", server.status().message()));
}

}  // namespace downpour::controller
