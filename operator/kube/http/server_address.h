#ifndef DOWNPOUR_OPERATOR_KUBE_HTTP_SERVER_ADDRESS_H_
#define DOWNPOUR_OPERATOR_KUBE_HTTP_SERVER_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace downpour::kube {

// "https://host:port/path" in pieces.
struct ServerAddress {
  bool tls = true;
  std::string host;      // without brackets
  bool literal = false;  // `host` is an address, not a name
  std::string port;
  std::string path;  // empty, or begins with a slash; ends with none

  // The library looks for a name in brackets if IPv6 addresses have any; without, it finds host and port still.
  std::string Uri() const;
};

// Without a port, that of the scheme. kInvalidArgument says what is wrong. Pure.
absl::StatusOr<ServerAddress> ParseServerAddress(const std::string& text);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_HTTP_SERVER_ADDRESS_H_
