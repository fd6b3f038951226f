#ifndef DOWNPOUR_OPERATOR_KUBE_EXEC_PLUGIN_H_
#define DOWNPOUR_OPERATOR_KUBE_EXEC_PLUGIN_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "operator/kube/object.h"

namespace downpour::kube {

// A program that a kubeconfig names and that prints credentials: client.authentication.k8s.io, v1 and v1beta1.
struct ExecPlugin {
  enum class Interactive { kNever, kIfAvailable, kAlways };

  std::string where;  // "FILE: users[NAME].exec", for errors
  std::string api_version;
  std::string command;  // a path, or a name that PATH finds
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  // all of it, but for what it is told of the request
  std::string install_hint;                        // for whoever lacks the program
  Interactive interactive = Interactive::kIfAvailable;
  bool provide_cluster_info = false;
};

struct ExecCredential {
  std::string token;                           // empty: none
  std::string client_certificate, client_key;  // PEM; both or neither
  std::optional<double> expires;               // seconds since 1970; absent: not by the clock
};

// How long a program may take: more where somebody may be asked at a terminal.
inline constexpr absl::Duration kPluginLimit = absl::Minutes(1);
inline constexpr absl::Duration kInteractivePluginLimit = absl::Minutes(5);

// Runs the program, without a shell, and reads what it prints. Its standard error is that of this process; its standard
// input is a terminal's, if this process has one and the plug-in may ask, else empty. `cluster`: what it is told of the
// cluster, if it is to be told. Blocking; thread-safe. kUnauthenticated, always: it is not there, it failed, it took
// longer than `limit` (it is killed then), or printed something else. No error quotes what it printed.
absl::StatusOr<ExecCredential> RunExecPlugin(const ExecPlugin& plugin, const Json& cluster, absl::Duration limit);

// What such a program printed. Pure.
absl::StatusOr<ExecCredential> ParseExecCredential(const ExecPlugin& plugin, std::string_view text);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_EXEC_PLUGIN_H_
