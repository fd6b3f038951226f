#ifndef DOWNPOUR_OPERATOR_KUBE_CREDENTIALS_H_
#define DOWNPOUR_OPERATOR_KUBE_CREDENTIALS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace downpour::kube {

// What one connection needs, as it is now. PEM texts.
struct Credentials {
  std::string certificate_authority;           // empty: the system's
  std::string client_certificate, client_key;  // empty: none
  std::string token;                           // bearer; empty: none
};

// Where the server is, and the credentials, which may change while the process runs. Thread-safe.
class CredentialSource {
 public:
  virtual ~CredentialSource() = default;
  virtual const std::string& server() const = 0;           // "https://host:port"
  virtual const std::string& tls_server_name() const = 0;  // empty: the host of `server`
  virtual bool insecure_skip_tls_verify() const = 0;
  virtual const std::string& default_namespace() const = 0;
  virtual std::string proxy() const { return {}; }  // "http://host:port"; empty: none
  // Headers by which each request acts as somebody else.
  virtual std::vector<std::pair<std::string, std::string>> impersonation() const { return {}; }
  // Reads the files again if they are older than a minute or `refresh` is true (the server answered 401), and asks a
  // plug-in again if what it said has expired or `refresh` is true. Others that call meanwhile wait for its answer,
  // which is theirs. kUnauthenticated names the file.
  virtual absl::StatusOr<Credentials> Get(bool refresh) = 0;
};

// The service account of the pod that this process runs in. kFailedPrecondition: not in a cluster. `root`: where
// /var/run/secrets/... begins, for tests.
absl::StatusOr<std::unique_ptr<CredentialSource>> InClusterCredentials(const std::string& root = "");

// Whether the program that a kubeconfig names may be run for credentials.
enum class ExecPlugins { kRefuse, kRun };

// A kubeconfig: `path` or, if that is empty, $KUBECONFIG (a list separated by colons, merged, the first wins) or
// ~/.kube/config. `context` empty: the current one. Errors name the file and the field. Auth providers, passwords,
// proxies other than http://HOST:PORT and acting as more than a user, a uid and one group are refused with "not
// supported"; so is a plug-in that must not be run, which kPermissionDenied tells. Runs nothing yet; a plug-in will
// have the environment that this process has now. `clock`: seconds since 1970; empty: the system's.
absl::StatusOr<std::unique_ptr<CredentialSource>> KubeconfigCredentials(const std::string& path = "",
                                                                        const std::string& context = "",
                                                                        ExecPlugins plugins = ExecPlugins::kRefuse,
                                                                        std::function<double()> clock = {});

// In the cluster if the environment says so and neither a path nor a context is given, else the kubeconfig, without
// plug-ins.
absl::StatusOr<std::unique_ptr<CredentialSource>> FindCredentials(const std::string& kubeconfig = "",
                                                                  const std::string& context = "");

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_CREDENTIALS_H_
