#include "trainer/service/http_server.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/host_port.h"
#include "trainer/service/metrics.h"

namespace {

std::atomic<bool> kernel_has_ipv6 = true;

}  // namespace

// In place of the system's, for the libraries too.
extern "C" int socket(int family, int type, int protocol) noexcept {
  static const auto next = reinterpret_cast<int (*)(int, int, int)>(dlsym(RTLD_NEXT, "socket"));
  if (family != AF_INET6 || kernel_has_ipv6) return next(family, type, protocol);
  errno = EAFNOSUPPORT;
  return -1;
}

namespace downpour::service {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A connection; -1: nobody listens there.
int Connect(const std::string& host, int port) {
  sockaddr_storage address = {};
  socklen_t size = 0;
  if (host.find(':') != std::string::npos) {
    auto* const six = reinterpret_cast<sockaddr_in6*>(&address);
    six->sin6_port = htons(static_cast<std::uint16_t>(port));
    inet_pton(AF_INET6, host.c_str(), &six->sin6_addr);
    size = sizeof *six;
    address.ss_family = AF_INET6;
  } else {
    auto* const four = reinterpret_cast<sockaddr_in*>(&address);
    four->sin_port = htons(static_cast<std::uint16_t>(port));
    inet_pton(AF_INET, host.c_str(), &four->sin_addr);
    size = sizeof *four;
    address.ss_family = AF_INET;
  }
  const int connection = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(connection, reinterpret_cast<sockaddr*>(&address), size) == 0) return connection;
  close(connection);
  return -1;
}

// What is answered there; empty: nobody listens.
std::string Ask(const std::string& host, int port, const std::string& request) {
  const int connection = Connect(host, port);
  if (connection < 0) return "";
  EXPECT_EQ(send(connection, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t count; (count = recv(connection, buffer, sizeof buffer, 0)) > 0;) {
    answer.append(buffer, static_cast<std::size_t>(count));
  }
  close(connection);
  return answer;
}

std::string Get(const std::string& host, int port, const std::string& path = "/metrics") {
  return Ask(host, port, "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
}

int PortOf(const std::string& address) {
  const absl::StatusOr<HostPort> split = SplitHostPort(address);
  EXPECT_TRUE(split.ok()) << split.status();
  return split.ok() ? split->port : 0;
}

bool MachineHasIpv6() {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool bound = probe >= 0 && bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  if (probe >= 0) close(probe);
  return bound;
}

HttpServer::Handlers Seven() {
  return {{"/metrics", [] { return HttpServer::Answer{.body = "seven 7\n"}; }},
          {"/sick", [] { return HttpServer::Answer{.status = 503, .body = "not yet\n"}; }}};
}

TEST(HttpServerTest, AllAddressesAreThoseOfBothKinds) {
  if (!MachineHasIpv6()) GTEST_SKIP() << "this machine has no IPv6";
  const auto server = HttpServer::Start("[::]:0", Seven());
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT((*server)->address(), StartsWith("[::]:"));
  const int port = PortOf((*server)->address());
  EXPECT_THAT(Get("127.0.0.1", port), HasSubstr("seven 7"));
  EXPECT_THAT(Get("::1", port), HasSubstr("seven 7"));
}

TEST(HttpServerTest, AllAddressesAreThoseOfIpv4WhereTheKernelHasNoOthers) {
  kernel_has_ipv6 = false;
  const auto server = HttpServer::Start("[::]:0", Seven());
  kernel_has_ipv6 = true;
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(Get("127.0.0.1", PortOf((*server)->address())), HasSubstr("seven 7"));
}

TEST(HttpServerTest, OneAddressIsNoOther) {
  if (!MachineHasIpv6()) GTEST_SKIP() << "this machine has no IPv6";
  const auto six = HttpServer::Start("[::1]:0", Seven());
  ASSERT_TRUE(six.ok()) << six.status();
  EXPECT_THAT(Get("::1", PortOf((*six)->address())), HasSubstr("seven 7"));
  EXPECT_EQ(Get("127.0.0.1", PortOf((*six)->address())), "");
  const auto four = HttpServer::Start("localhost:0", Seven());
  ASSERT_TRUE(four.ok()) << four.status();
}

TEST(HttpServerTest, AnswersWhatItIsAsked) {
  const auto server = HttpServer::Start("127.0.0.1:0", Seven());
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = PortOf((*server)->address());
  EXPECT_THAT(Get("127.0.0.1", port), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Get("127.0.0.1", port, "/metrics?x=1"), HasSubstr("seven 7"));
  EXPECT_THAT(Get("127.0.0.1", port, "/sick"), StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(Get("127.0.0.1", port, "/sick"), HasSubstr("not yet"));
  EXPECT_THAT(Get("127.0.0.1", port, "/"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask("127.0.0.1", port, "PUT /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), StartsWith("HTTP/1.1 405"));
  EXPECT_EQ(Ask("127.0.0.1", port, std::string(100'000, 'x') + "\r\n\r\n"), "") << "no HTTP";
}

TEST(HttpServerTest, WhoSaysNothingHoldsUpNobody) {
  const auto server = HttpServer::Start("127.0.0.1:0", Seven());
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = PortOf((*server)->address());
  std::vector<int> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(Connect("127.0.0.1", port));
  EXPECT_THAT(Get("127.0.0.1", port), HasSubstr("seven 7"));
  for (const int connection : silent) {
    char byte = 0;
    EXPECT_EQ(recv(connection, &byte, 1, 0), 0) << "it is closed in the end";
    close(connection);
  }
}

TEST(HttpServerTest, AnAddressOnWhichItCannotListenIsNamed) {
  EXPECT_EQ(HttpServer::Start("::1:17071", Seven()).status().code(), absl::StatusCode::kInvalidArgument);
  const auto first = HttpServer::Start("127.0.0.1:0", Seven());
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = HttpServer::Start((*first)->address(), Seven()).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.message()), HasSubstr("cannot listen on " + (*first)->address()));
}

TEST(MetricsTest, AreServedInPrometheusFormat) {
  Metrics metrics;
  metrics.SetGauge("seven", "Seven.", {}, 7);
  const absl::StatusOr<std::string> address = metrics.Serve("127.0.0.1:0");
  ASSERT_TRUE(address.ok()) << address.status();
  const std::string answer = Get("127.0.0.1", PortOf(*address));
  EXPECT_THAT(answer, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(answer, HasSubstr("# TYPE seven gauge\nseven 7\n"));
}

}  // namespace
}  // namespace downpour::service
