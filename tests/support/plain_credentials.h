#ifndef DOWNPOUR_TESTS_SUPPORT_PLAIN_CREDENTIALS_H_
#define DOWNPOUR_TESTS_SUPPORT_PLAIN_CREDENTIALS_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "operator/kube/credentials.h"

namespace downpour::kube {

// Credentials that a test holds in its hands. `refreshed` replaces the token at the first refresh, if it is not empty.
class PlainCredentials : public CredentialSource {
 public:
  explicit PlainCredentials(std::string server, Credentials credentials = {}, std::string refreshed = {},
                            std::string tls_server_name = {}, bool insecure = false)
      : server_(std::move(server)),
        credentials_(std::move(credentials)),
        refreshed_(std::move(refreshed)),
        tls_server_name_(std::move(tls_server_name)),
        insecure_(insecure) {}

  const std::string& server() const override { return server_; }
  const std::string& tls_server_name() const override { return tls_server_name_; }
  bool insecure_skip_tls_verify() const override { return insecure_; }
  const std::string& default_namespace() const override { return namespace_; }
  absl::StatusOr<Credentials> Get(bool refresh) override {
    if (refresh) ++refreshes_;
    Credentials credentials = credentials_;
    if (refreshes_ > 0 && !refreshed_.empty()) credentials.token = refreshed_;
    return credentials;
  }
  int refreshes() const { return refreshes_; }

 private:
  const std::string server_;
  const Credentials credentials_;
  const std::string refreshed_;
  const std::string tls_server_name_;
  const bool insecure_;
  const std::string namespace_ = "default";
  std::atomic<int> refreshes_{0};
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_TESTS_SUPPORT_PLAIN_CREDENTIALS_H_
