#include "operator/kube/credentials.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "operator/kube/file_credentials.h"
#include "operator/kube/kubeconfig.h"
#include "proto/host_port.h"

namespace downpour::kube {
namespace {

constexpr char kServiceAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount";

}  // namespace

absl::StatusOr<std::unique_ptr<CredentialSource>> InClusterCredentials(const std::string& root) {
  const std::string host = Environment("KUBERNETES_SERVICE_HOST");
  const std::string port = Environment("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return absl::FailedPreconditionError(
        "not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set");
  }
  CredentialSettings settings;
  settings.server = absl::StrCat("https://", JoinHostPort(host, port));
  const std::string folder = root + kServiceAccount;
  settings.token.file = folder + "/token";
  settings.certificate_authority.file = folder + "/ca.crt";
  const absl::StatusOr<std::string> namespace_name = ReadCredentialFile(folder + "/namespace");
  if (!namespace_name.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("not in a cluster: ", namespace_name.status().message()));
  }
  settings.default_namespace = std::string(absl::StripAsciiWhitespace(*namespace_name));
  return MakeFileCredentials(std::move(settings));
}

absl::StatusOr<std::unique_ptr<CredentialSource>> KubeconfigCredentials(const std::string& path,
                                                                        const std::string& context, ExecPlugins plugins,
                                                                        std::function<double()> clock) {
  absl::StatusOr<CredentialSettings> settings = ReadKubeconfig(path, context, plugins);
  if (!settings.ok()) return settings.status();
  return MakeFileCredentials(*std::move(settings), std::move(clock));
}

absl::StatusOr<std::unique_ptr<CredentialSource>> FindCredentials(const std::string& kubeconfig,
                                                                  const std::string& context) {
  if (kubeconfig.empty() && context.empty() && !Environment("KUBERNETES_SERVICE_HOST").empty()) {
    return InClusterCredentials();
  }
  return KubeconfigCredentials(kubeconfig, context);
}

}  // namespace downpour::kube
