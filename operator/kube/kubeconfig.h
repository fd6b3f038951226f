#ifndef DOWNPOUR_OPERATOR_KUBE_KUBECONFIG_H_
#define DOWNPOUR_OPERATOR_KUBE_KUBECONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "operator/kube/credentials.h"
#include "operator/kube/file_credentials.h"

namespace downpour::kube {

// What a context of a kubeconfig says, as KubeconfigCredentials describes it. Reads the kubeconfig alone, not the files
// that it names, and runs nothing.
absl::StatusOr<CredentialSettings> ReadKubeconfig(const std::string& path, const std::string& context,
                                                  ExecPlugins plugins);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_KUBECONFIG_H_
