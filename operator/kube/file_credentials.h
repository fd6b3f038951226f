#ifndef DOWNPOUR_OPERATOR_KUBE_FILE_CREDENTIALS_H_
#define DOWNPOUR_OPERATOR_KUBE_FILE_CREDENTIALS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "operator/kube/credentials.h"
#include "operator/kube/exec_plugin.h"

// For credentials.cc and what it is made of; others use credentials.h.
namespace downpour::kube {

// A value that is given, or the file that it is in.
struct Material {
  std::string value;
  std::string file;
  bool given() const { return !value.empty() || !file.empty(); }
};

// Everything that one source knows.
struct CredentialSettings {
  std::string server;
  std::string tls_server_name;
  bool insecure_skip_tls_verify = false;
  std::string default_namespace = "default";
  std::string proxy;
  std::vector<std::pair<std::string, std::string>> impersonation;
  Material certificate_authority, client_certificate, client_key, token;
  std::optional<ExecPlugin> plugin;  // in place of the last three
};

// The whole file. Errors name it: kNotFound; kUnavailable: it cannot be read; kResourceExhausted: more than 4 MiB.
absl::StatusOr<std::string> ReadCredentialFile(const std::string& path);

// A variable of this process; empty: it has none.
std::string Environment(const char* name);

// Reads the files that the settings name, and runs their plug-in, as CredentialSource::Get says. `clock`: seconds since
// 1970; empty: the system's.
std::unique_ptr<CredentialSource> MakeFileCredentials(CredentialSettings settings, std::function<double()> clock = {});

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_FILE_CREDENTIALS_H_
