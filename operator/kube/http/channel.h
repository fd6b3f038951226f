#ifndef DOWNPOUR_OPERATOR_KUBE_HTTP_CHANNEL_H_
#define DOWNPOUR_OPERATOR_KUBE_HTTP_CHANNEL_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cpprest/http_client.h"
#include "operator/kube/credentials.h"
#include "operator/kube/http/server_address.h"

namespace downpour::kube {

// A client of the library, which has the connections, and what each request says of who asks.
struct HttpChannel {
  Credentials credentials;
  std::vector<std::pair<std::string, std::string>> headers;
  std::shared_ptr<web::http::client::http_client> client;
};

// Connects to nothing yet. kUnavailable: the library will not have it.
absl::StatusOr<HttpChannel> OpenChannel(const CredentialSource& source, const ServerAddress& server,
                                        Credentials credentials);

// Connections that were made with the one do for the other.
bool SameConnection(const Credentials& a, const Credentials& b);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_HTTP_CHANNEL_H_
