#include "proto/host_port.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour {
namespace {

using ::testing::HasSubstr;

TEST(HostPortTest, WhatIsJoinedIsSplitAgain) {
  for (const std::string host : {"::1", "fd00::2", "::", "fe80::1%eth0", "10.0.0.1", "name", "a-b.c.svc"}) {
    const std::string joined = JoinHostPort(host, 7070);
    const absl::StatusOr<HostPort> split = SplitHostPort(joined);
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_EQ(split->host, host);
    EXPECT_EQ(split->port, 7070);
  }
  EXPECT_EQ(JoinHostPort("fd00::2", 7070), "[fd00::2]:7070");
  EXPECT_EQ(JoinHostPort("[fd00::2]", "7070"), "[fd00::2]:7070");
  EXPECT_EQ(JoinHostPort("10.0.0.1", 0), "10.0.0.1:0");
}

TEST(HostPortTest, AnIpv6AddressWithoutBracketsIsRefusedWithTheWayOut) {
  for (const std::string text : {"::1:17071", "fd00::2", ":::80"}) {
    const absl::Status status = SplitHostPort(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"" + text + "\": an IPv6 address must be in brackets"));
  }
}

TEST(HostPortTest, WhatIsNeitherIsRefused) {
  for (const std::string text :
       {"",      "name",    "name:",          ":80",    "name:80x",  "name:-1", "name:65536",    "name:99999999999",
        "[::1]", "[::1]80", "[::1:80",        "[::1]:", "[name]:80", "[]:80",   "[10.0.0.1]:80", "]:1",
        "[",     ":",       "http://name:80", "a b:1",  "[[::1]]:80"}) {
    EXPECT_FALSE(SplitHostPort(text).ok()) << text;
  }
}

TEST(HostPortTest, FlagsOfPrograms) {
  EXPECT_EQ(CheckListenAddress("[::]:0"), "");
  EXPECT_EQ(CheckPeerAddress("[::1]:17071"), "");
  EXPECT_THAT(CheckPeerAddress("[::1]:0"), HasSubstr("port 0"));
  EXPECT_THAT(CheckPeerAddress("::1:17071"), HasSubstr("brackets"));
  for (const std::string host : {"::1", "fd00::2", "10.0.0.1", "name"}) EXPECT_EQ(CheckHost(host), "");
  for (const std::string host : {"[::1]", "10.0.0.1:80", "", "a:b"}) EXPECT_NE(CheckHost(host), "") << host;
}

}  // namespace
}  // namespace downpour
