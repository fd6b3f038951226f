#include "operator/kube/http/server_address.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::kube {
namespace {

using ::testing::HasSubstr;

TEST(ServerAddressTest, TakesSchemeHostPortAndPathApart) {
  struct Case {
    const char* text;
    bool tls;
    const char* host;
    bool literal;
    const char* port;
    const char* path;
    const char* uri;
  };
  for (const Case& one : {
           Case{"https://example", true, "example", false, "443", "", "https://example:443"},
           Case{"http://example/", false, "example", false, "80", "", "http://example:80"},
           Case{"https://10.96.0.1:6443", true, "10.96.0.1", true, "6443", "", "https://10.96.0.1:6443"},
           Case{"https://[fd00::1]:6443", true, "fd00::1", true, "6443", "", "https://fd00::1:6443"},
           Case{"https://[::1]", true, "::1", true, "443", "", "https://::1:443"},
           Case{"https://rancher:8443/k8s/clusters/c-1//", true, "rancher", false, "8443", "/k8s/clusters/c-1",
                "https://rancher:8443/k8s/clusters/c-1"},
       }) {
    const auto server = ParseServerAddress(one.text);
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_EQ(server->tls, one.tls) << one.text;
    EXPECT_EQ(server->host, one.host) << one.text;
    EXPECT_EQ(server->literal, one.literal) << one.text;
    EXPECT_EQ(server->port, one.port) << one.text;
    EXPECT_EQ(server->path, one.path) << one.text;
    EXPECT_EQ(server->Uri(), one.uri) << one.text;
  }
}

TEST(ServerAddressTest, ErrorsSayWhatWasFound) {
  for (const auto& [text, why] : {std::pair{"", "https://"},
                                  {"ftp://host", "https://"},
                                  {"https://", "no host"},
                                  {"https://host:port", "port"},
                                  {"https://host:0", "port"},
                                  {"https://host:65536", "port"},
                                  {"http://[::1", "bracket"},
                                  {"http://[::1]6443", "bracket"}}) {
    const auto server = ParseServerAddress(text);
    EXPECT_TRUE(absl::IsInvalidArgument(server.status())) << text;
    EXPECT_THAT(std::string(server.status().message()), HasSubstr(why)) << text;
    EXPECT_THAT(std::string(server.status().message()), HasSubstr('"' + std::string(text) + '"'));
  }
}

}  // namespace
}  // namespace downpour::kube
