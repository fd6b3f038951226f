#include "operator/controller/health_server.h"

#include <exception>
#include <utility>

#include "CivetServer.h"
#include "absl/strings/str_cat.h"

namespace downpour::controller {
namespace {

class Handler final : public CivetHandler {
 public:
  explicit Handler(HealthServer::Check check) : check_(std::move(check)) {}
  bool handleGet(CivetServer*, mg_connection* connection) override {
    const std::string problem = check_();
    const std::string body = problem.empty() ? "ok\n" : problem + "\n";
    const std::string response = absl::StrCat(
        "HTTP/1.1 ", problem.empty() ? "200 OK" : "503 Service Unavailable",
        "\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
    mg_write(connection, response.data(), response.size());
    return true;
  }

 private:
  const HealthServer::Check check_;
};

}  // namespace

class HealthServer::Impl {
 public:
  Impl(const std::string& listen, Check healthy, Check ready)
      : healthy_(std::move(healthy)),
        ready_(std::move(ready)),
        server_({"listening_ports", listen, "num_threads", "2", "request_timeout_ms", "5000"}) {
    server_.addHandler("/healthz", healthy_);
    server_.addHandler("/readyz", ready_);
  }

 private:
  Handler healthy_, ready_;
  CivetServer server_;
};

absl::StatusOr<std::unique_ptr<HealthServer>> HealthServer::Start(const std::string& listen, Check healthy,
                                                                  Check ready) {
  try {
    return std::unique_ptr<HealthServer>(
        new HealthServer(std::make_unique<Impl>(listen, std::move(healthy), std::move(ready))));
  } catch (const std::exception&) {  // its text names the library's classes, not the reason
    return absl::UnavailableError(absl::StrCat("health: cannot listen on ", listen, ": is the port in use?"));
  }
}

HealthServer::HealthServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HealthServer::~HealthServer() = default;

}  // namespace downpour::controller
