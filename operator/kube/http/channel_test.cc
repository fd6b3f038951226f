#include "operator/kube/http/channel.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/http/testing/tls_server.h"
#include "operator/kube/http_transport.h"
#include "tests/support/plain_credentials.h"

namespace downpour::kube {
namespace {

using ::testing::HasSubstr;

// Takes one connection after another to where it is told.
class TunnelProxy {
 public:
  TunnelProxy() {
    int port = 0;
    listener_ = Listen(&port);
    url_ = absl::StrCat("http://127.0.0.1:", port);
    thread_ = std::thread([this] { Run(); });
  }
  ~TunnelProxy() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  const std::string& url() const { return url_; }
  std::string target() {
    const std::lock_guard lock(mutex_);
    return target_;
  }

 private:
  void Run() {
    for (;;) {
      const int inner = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (inner < 0) return;
      const int outer = Follow(inner);
      const std::string answer =
          outer < 0 ? "HTTP/1.1 502 Bad Gateway\r\n\r\n" : "HTTP/1.1 200 Connection established\r\n\r\n";
      if (write(inner, answer.data(), answer.size()) > 0 && outer >= 0) Relay(inner, outer);
      close(inner);
      if (outer >= 0) close(outer);
    }
  }

  // A connection to the port of loopback that the request "CONNECT 127.0.0.1:PORT" names; -1: none.
  int Follow(int inner) {
    std::string request;
    char byte;
    while (!request.ends_with("\r\n\r\n") && read(inner, &byte, 1) == 1) request += byte;
    const std::string line = request.substr(0, request.find("\r\n"));
    {
      const std::lock_guard lock(mutex_);
      target_ = line;
    }
    const std::string begin = "CONNECT 127.0.0.1:";
    if (!line.starts_with(begin)) return -1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(line.c_str() + begin.size())));
    const int outer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(outer, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return outer;
    close(outer);
    return -1;
  }

  static void Relay(int inner, int outer) {
    for (;;) {
      pollfd entries[] = {{inner, POLLIN, 0}, {outer, POLLIN, 0}};
      if (poll(entries, 2, -1) < 0) return;
      for (int side = 0; side < 2; ++side) {
        if (entries[side].revents == 0) continue;
        char bytes[4096];
        const ssize_t count = read(entries[side].fd, bytes, sizeof(bytes));
        if (count <= 0 || write(entries[1 - side].fd, bytes, static_cast<std::size_t>(count)) != count) return;
      }
    }
  }

  int listener_;
  std::string url_;
  std::mutex mutex_;
  std::string target_;
  std::thread thread_;
};

class BehindAProxy final : public PlainCredentials {
 public:
  BehindAProxy(std::string server, std::string certificate_authority, std::string proxy)
      : PlainCredentials(std::move(server), {std::move(certificate_authority), "", "", ""}), proxy_(std::move(proxy)) {}
  std::string proxy() const override { return proxy_; }

 private:
  const std::string proxy_;
};

TEST(HttpChannelTest, GoesThroughAProxy) {
  const Certificate authority = MakeCertificate("authority", "", nullptr);
  const TlsServer server(MakeCertificate("server", "IP:127.0.0.1", &authority), nullptr);
  TunnelProxy proxy;
  const auto transport = MakeHttpTransport(std::make_shared<BehindAProxy>(server.url(), authority.Pem(), proxy.url()));
  HttpRequest request;
  request.path = "/";
  const auto response = transport->Exchange(request, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->body, "nobody");
  EXPECT_THAT(proxy.target(), HasSubstr("CONNECT " + server.url().substr(std::string("https://").size())));
}

}  // namespace
}  // namespace downpour::kube
