#ifndef DOWNPOUR_OPERATOR_KUBE_CREDENTIALS_H_
#define DOWNPOUR_OPERATOR_KUBE_CREDENTIALS_H_

#include <memory>
#include <string>

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
  // Reads the files again if they are older than a minute or `refresh` is true (the server answered 401).
  // kUnauthenticated names the file.
  virtual absl::StatusOr<Credentials> Get(bool refresh) = 0;
};

// The service account of the pod that this process runs in. kFailedPrecondition: not in a cluster. `root`: where
// /var/run/secrets/... begins, for tests.
absl::StatusOr<std::unique_ptr<CredentialSource>> InClusterCredentials(const std::string& root = "");

// A kubeconfig: `path` or, if that is empty, $KUBECONFIG (a list separated by colons, merged, the first wins) or
// ~/.kube/config. `context` empty: the current one. Errors name the file and the field. Exec plug-ins, auth providers
// and proxies are refused with "not supported".
absl::StatusOr<std::unique_ptr<CredentialSource>> KubeconfigCredentials(const std::string& path = "",
                                                                        const std::string& context = "");

// In the cluster if the environment says so and neither a path nor a context is given, else the kubeconfig.
absl::StatusOr<std::unique_ptr<CredentialSource>> FindCredentials(const std::string& kubeconfig = "",
                                                                  const std::string& context = "");

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_CREDENTIALS_H_
