#ifndef DOWNPOUR_OPERATOR_KUBE_TESTING_CREDENTIALS_FOLDER_H_
#define DOWNPOUR_OPERATOR_KUBE_TESTING_CREDENTIALS_FOLDER_H_

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "gtest/gtest.h"

namespace downpour::kube {

// A test with a folder for kubeconfigs and a service account, in an environment that names neither.
class CredentialsFolder : public ::testing::Test {
 protected:
  CredentialsFolder() {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) / ("credentials-" + std::to_string(getpid()) + test->name());
    std::filesystem::create_directories(folder_);
    for (const char* name : {"KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}) {
      const char* const value = std::getenv(name);
      before_[name] = value == nullptr ? "" : value;
      unsetenv(name);
    }
  }
  ~CredentialsFolder() override {
    for (const auto& [name, value] : before_) {
      if (value.empty()) {
        unsetenv(name.c_str());
      } else {
        setenv(name.c_str(), value.c_str(), 1);
      }
    }
    std::filesystem::remove_all(folder_);
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }

  // A kubeconfig with one of each; the lines belong to the cluster, the user and the context.
  std::string WriteConfig(const std::string& cluster, const std::string& user, const std::string& context = "",
                          const std::string& name = "config") {
    return Write(name,
                 "apiVersion: v1\nkind: Config\ncurrent-context: main\n"
                 "clusters:\n- name: c\n  cluster:\n    server: https://example:6443\n" +
                     Indent(cluster) + "users:\n- name: u\n  user:\n    ignored-field: 1\n" + Indent(user) +
                     "contexts:\n- name: main\n  context:\n    cluster: c\n    user: u\n" + Indent(context));
  }
  static std::string Indent(const std::string& lines) { return lines.empty() ? "" : "    " + lines + "\n"; }

  void ServiceAccount(const std::string& token) {
    const std::string folder = "var/run/secrets/kubernetes.io/serviceaccount/";
    Write(folder + "token", token);
    Write(folder + "ca.crt", "CA");
    Write(folder + "namespace", "team\n");
  }

  std::filesystem::path folder_;
  std::map<std::string, std::string> before_;
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_TESTING_CREDENTIALS_FOLDER_H_
