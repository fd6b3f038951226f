#ifndef DOWNPOUR_PROTO_HOST_PORT_H_
#define DOWNPOUR_PROTO_HOST_PORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// HOST:PORT, of which IPv6 addresses need brackets to be told from their port. All that joins or splits one is here.
namespace downpour {

struct HostPort {
  std::string host;  // a name or an address, without brackets
  int port = 0;
};

// "[fd00::2]:80", "10.0.0.1:80", "name:80". kInvalidArgument: another form, an IPv6 address without brackets among
// them: nobody can tell whether "::1:80" has a port.
absl::StatusOr<HostPort> SplitHostPort(absl::string_view text);

// With brackets where the host is an IPv6 address.
std::string JoinHostPort(absl::string_view host, const absl::AlphaNum& port);

// For the flags of programs: what is wrong with an address to be called or, with port 0 for any, to listen on; empty:
// nothing.
std::string CheckPeerAddress(const std::string& text);
std::string CheckListenAddress(const std::string& text);
// With an address, or a name, alone.
std::string CheckHost(const std::string& text);

}  // namespace downpour

#endif  // DOWNPOUR_PROTO_HOST_PORT_H_
