#include "operator/kube/http/server_address.h"

#include <algorithm>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/ip/address.hpp"

namespace downpour::kube {

std::string ServerAddress::Uri() const { return absl::StrCat(tls ? "https" : "http", "://", host, ":", port, path); }

absl::StatusOr<ServerAddress> ParseServerAddress(const std::string& text) {
  const auto bad = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat("address of the API server \"", text, "\": ", why));
  };
  ServerAddress server;
  std::string_view rest = text;
  if (rest.starts_with("http://")) {
    server.tls = false;
    rest.remove_prefix(7);
  } else if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
  } else {
    return bad("must begin with https:// or http://");
  }
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  server.path = std::string(rest.substr(slash));
  while (server.path.ends_with('/')) server.path.pop_back();
  rest = rest.substr(0, slash);
  std::size_t port_mark;
  if (rest.starts_with('[')) {
    const std::size_t bracket = rest.find(']');
    if (bracket == std::string_view::npos) return bad("a bracket is not closed");
    server.host = std::string(rest.substr(1, bracket - 1));
    if (bracket + 1 < rest.size() && rest[bracket + 1] != ':') return bad("expected a port behind the bracket");
    port_mark = bracket + 1;
  } else {
    port_mark = std::min(rest.find(':'), rest.size());
    server.host = std::string(rest.substr(0, port_mark));
  }
  server.port = port_mark < rest.size() ? std::string(rest.substr(port_mark + 1)) : server.tls ? "443" : "80";
  int port;
  if (server.host.empty()) return bad("has no host");
  if (!absl::SimpleAtoi(server.port, &port) || port < 1 || port > 65535) return bad("has no valid port");
  boost::system::error_code error;
  boost::asio::ip::make_address(server.host, error);
  server.literal = !error;
  return server;
}

}  // namespace downpour::kube
