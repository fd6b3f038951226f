#include "proto/host_port.h"

#include <arpa/inet.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace downpour {
namespace {

// A zone may follow: "fe80::1%eth0".
bool IsIpv6(absl::string_view host) {
  in6_addr address = {};
  return inet_pton(AF_INET6, std::string(host.substr(0, host.find('%'))).c_str(), &address) == 1;
}

std::string Check(const std::string& text, int smallest_port) {
  const absl::StatusOr<HostPort> address = SplitHostPort(text);
  if (!address.ok()) return std::string(address.status().message());
  if (address->port < smallest_port) return absl::StrCat("\"", text, "\": nobody can be called at port 0");
  return "";
}

}  // namespace

absl::StatusOr<HostPort> SplitHostPort(absl::string_view text) {
  const auto bad = [text](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\": ", why));
  };
  const std::size_t mark = text.rfind(':');
  const bool brackets = absl::StartsWith(text, "[");
  if (mark == absl::string_view::npos || (brackets && (mark == 0 || text[mark - 1] != ']'))) {
    return bad("must be HOST:PORT");
  }
  const absl::string_view host = brackets ? text.substr(1, mark - 2) : text.substr(0, mark);
  if (brackets && !IsIpv6(host)) return bad("there is no IPv6 address in the brackets");
  if (!brackets && absl::StrContains(host, ":")) {
    return bad("an IPv6 address must be in brackets before its port, as in [::1]:80");
  }
  if (host.empty()) return bad("has no host; must be HOST:PORT");
  if (host.find_first_of(" /@[]") != absl::string_view::npos) return bad("must be HOST:PORT");
  int port = 0;
  const absl::string_view digits = text.substr(mark + 1);
  if (digits.empty() || digits.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(digits, &port) || port > 65535) {
    return bad("the port must be a number up to 65535");
  }
  return HostPort{std::string(host), port};
}

std::string JoinHostPort(absl::string_view host, const absl::AlphaNum& port) {
  const bool brackets = absl::StrContains(host, ":") && !absl::StartsWith(host, "[");
  return absl::StrCat(brackets ? "[" : "", host, brackets ? "]" : "", ":", port);
}

std::string CheckPeerAddress(const std::string& text) { return Check(text, 1); }

std::string CheckListenAddress(const std::string& text) { return Check(text, 0); }

std::string CheckHost(const std::string& text) {
  if (IsIpv6(text)) return "";
  const absl::StatusOr<HostPort> split = SplitHostPort(absl::StrCat(text, ":1"));
  return split.ok() && split->host == text ? "" : absl::StrCat("\"", text, "\": must be a host alone");
}

}  // namespace downpour
