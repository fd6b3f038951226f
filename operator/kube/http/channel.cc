#include "operator/kube/http/channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <exception>
#include <optional>

#include "absl/status/status.h"
#include "boost/asio/ip/address.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ssl.hpp"
#include "operator/kube/http/tls.h"

namespace downpour::kube {
namespace {

namespace http = web::http;
namespace asio = boost::asio;

// So that a peer that vanished is noticed even where nothing is sent. A socket can be had before it connects only, and
// opened before that only if the address is known: names go without.
void KeepAlive(asio::ip::tcp::socket& socket, const std::optional<asio::ip::address>& literal) {
  boost::system::error_code ignored;
  if (!socket.is_open()) {
    if (!literal.has_value()) return;
    socket.open(literal->is_v6() ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), ignored);
  }
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  constexpr std::pair<int, int> kOptions[] = {{TCP_KEEPIDLE, 30}, {TCP_KEEPINTVL, 10}, {TCP_KEEPCNT, 3}};
  for (const auto& [option, value] : kOptions) {
    setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof(value));
  }
  // Where something was sent that nobody acknowledges, the kernel asks for much longer than anybody waits.
  constexpr unsigned kUnacknowledgedMilliseconds = 20'000;
  setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMilliseconds,
             sizeof(kUnacknowledgedMilliseconds));
}

}  // namespace

absl::StatusOr<HttpChannel> OpenChannel(const CredentialSource& source, const ServerAddress& server,
                                        Credentials credentials) {
  try {
    std::optional<asio::ip::address> literal;
    if (server.literal) literal = asio::ip::make_address(server.host);
    http::client::http_client_config config;
    // Its timer restarts at each read and is no limit at all: the asking thread keeps the time.
    config.set_timeout(std::chrono::hours(24));
    // One would carry the token to wherever it leads.
    config.set_max_redirects(0);
    config.set_validate_certificates(!source.insecure_skip_tls_verify());
    config.set_tlsext_sni_enabled(!server.literal || !source.tls_server_name().empty());
    config.set_ssl_context_callback([credentials](asio::ssl::context& context) { ConfigureTls(context, credentials); });
    if (const std::string proxy = source.proxy(); !proxy.empty()) {
      // Without options for its sockets: the library gives them before it connects, and as something else later.
      config.set_proxy(web::web_proxy(web::uri(proxy)));
    } else {
      config.set_nativehandle_options([tls = server.tls, literal](void* handle) {
        using Socket = asio::ip::tcp::socket;
        KeepAlive(tls ? static_cast<asio::ssl::stream<Socket&>*>(handle)->next_layer() : *static_cast<Socket*>(handle),
                  literal);
      });
    }
    std::vector<std::pair<std::string, std::string>> headers = source.impersonation();
    // The library takes the name that the certificate must have, and the one of SNI, from this header.
    if (server.tls && !source.tls_server_name().empty()) headers.emplace_back("Host", source.tls_server_name());
    auto client = std::make_shared<http::client::http_client>(web::uri(server.Uri()), config);
    return HttpChannel{std::move(credentials), std::move(headers), std::move(client)};
  } catch (const std::exception& error) {
    return absl::UnavailableError(error.what());
  }
}

bool SameConnection(const Credentials& a, const Credentials& b) {
  return a.certificate_authority == b.certificate_authority && a.client_certificate == b.client_certificate &&
         a.client_key == b.client_key;
}

}  // namespace downpour::kube
