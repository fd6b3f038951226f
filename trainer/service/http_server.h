#ifndef DOWNPOUR_TRAINER_SERVICE_HTTP_SERVER_H_
#define DOWNPOUR_TRAINER_SERVICE_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace downpour::service {

// Answers GET of a few paths, for Prometheus and for probes, without TLS: the one place that knows Boost.Beast. One
// thread serves all connections, and none that is slow holds up the others; each ends with its answer or after seconds.
class HttpServer {
 public:
  struct Answer {
    int status = 200;
    std::string content_type = "text/plain; charset=utf-8";
    std::string body;
  };
  // Called from the server's thread; must not wait.
  using Handlers = std::map<std::string, std::function<Answer()>>;  // by path

  // Listens on host:port; port 0: any; host "[::]": all addresses, of IPv4 too, and of these alone where the kernel has
  // no IPv6. kInvalidArgument: not of that form. kUnavailable: the port is taken, say.
  // kResourceExhausted: no thread can be started.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen, Handlers handlers);
  // No handler runs after.
  ~HttpServer();

  // host:port with the port that it has.
  const std::string& address() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace downpour::service

#endif  // DOWNPOUR_TRAINER_SERVICE_HTTP_SERVER_H_
