#include "operator/kube/exec_plugin.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/json_text.h"

namespace downpour::kube {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kLimit = absl::Seconds(30);  // nothing takes so long that is well
constexpr char kVersion[] = "client.authentication.k8s.io/v1";

ExecPlugin Shell(const std::string& script) {
  ExecPlugin plugin;
  plugin.where = "config: users[u].exec";
  plugin.api_version = kVersion;
  plugin.command = "sh";
  plugin.arguments = {"-c", script, "the shell", "an argument; exit 9"};
  return plugin;
}

std::string Printed(const std::string& status, const std::string& version = kVersion,
                    const std::string& kind = "ExecCredential") {
  return absl::StrCat(R"({"kind": ")", kind, R"(", "apiVersion": ")", version, R"(", "status": )", status, "}");
}

std::string PrintToken(const std::string& token) {
  return absl::StrCat("echo '", Printed(absl::StrCat(R"({"token": ")", token, R"("})")), "'");
}

std::string ErrorOf(const absl::StatusOr<ExecCredential>& credential) {
  EXPECT_TRUE(absl::IsUnauthenticated(credential.status())) << credential.status();
  return std::string(credential.status().message());
}

class ExecPluginTest : public ::testing::Test {
 protected:
  ExecPluginTest() {
    // Whoever runs the tests may have a terminal.
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    close(nothing);
  }

  std::string File(const std::string& name) const {
    return ::testing::TempDir() + absl::StrCat("exec-plugin-", getpid(), "-", name);
  }
};

TEST_F(ExecPluginTest, ReadsTokensAndCertificates) {
  const ExecPlugin plugin = Shell("");
  auto said = ParseExecCredential(plugin, Printed(R"({"token": "t", "expirationTimestamp": "1970-01-02T00:00:00Z"})"));
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(said->token, "t");
  EXPECT_EQ(said->expires, 86400);
  said = ParseExecCredential(plugin, Printed(R"({"clientCertificateData": "CERT", "clientKeyData": "KEY"})"));
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(said->client_certificate, "CERT");
  EXPECT_EQ(said->client_key, "KEY");
  EXPECT_FALSE(said->expires.has_value());
}

TEST_F(ExecPluginTest, RefusesWhatIsNoCredentialWithoutQuotingIt) {
  const ExecPlugin plugin = Shell("");
  for (const std::string& text :
       {std::string(), std::string("secret"), std::string("[\"secret\"]"), Printed("{}"), Printed("null"),
        Printed("\"secret\""), Printed(R"({"token": ""})"), Printed(R"({"token": ["secret"]})"),
        Printed(R"({"token": "secret"})", "client.authentication.k8s.io/v1beta1"),
        Printed(R"({"token": "secret"})", kVersion, "Secret"), Printed(R"({"clientKeyData": "secret"})"),
        Printed(R"({"token": "t", "clientCertificateData": "secret"})"),
        Printed(R"({"token": "secret", "expirationTimestamp": "tomorrow"})"), std::string(100'000, '[')}) {
    EXPECT_THAT(ErrorOf(ParseExecCredential(plugin, text)),
                AllOf(HasSubstr("config: users[u].exec: sh"), Not(HasSubstr("secret"))))
        << text.substr(0, 200);
  }
}

TEST_F(ExecPluginTest, TellsTheProgramWhatItNeedsToKnow) {
  const std::string file = File("told");
  setenv("OF_THIS_PROCESS", "something", /*overwrite=*/1);
  ExecPlugin plugin =
      Shell(absl::StrCat("echo \"$1|$REGION|$HOME|$OF_THIS_PROCESS\" > ", file, "; echo \"$KUBERNETES_EXEC_INFO\" >> ",
                         file, "; cat >> ", file, "; ", PrintToken("t")));
  plugin.environment = {{"REGION", "a b'c"}, {"HOME", "elsewhere"}};
  for (const bool told : {false, true}) {
    plugin.provide_cluster_info = told;
    const auto said = RunExecPlugin(plugin, {{"server", "https://example:6443"}}, kLimit);
    ASSERT_TRUE(said.ok()) << said.status();
    EXPECT_EQ(said->token, "t");
    std::ifstream stream(file);
    std::string line;
    std::getline(stream, line);
    EXPECT_EQ(line, "an argument; exit 9|a b'c|elsewhere|") << "of this process's it has what it is given";
    std::getline(stream, line);
    const auto info = ParseJson(line);
    ASSERT_TRUE(info.ok()) << line;
    EXPECT_EQ(FindText(*info, {"apiVersion"}), kVersion);
    EXPECT_EQ(FindText(*info, {"kind"}), "ExecCredential");
    EXPECT_EQ((*info)["spec"]["interactive"], false);
    EXPECT_EQ(FindText(*info, {"spec", "cluster", "server"}), told ? "https://example:6443" : "");
    EXPECT_FALSE(std::getline(stream, line)) << "its standard input is empty";
  }
  std::filesystem::remove(file);
}

TEST_F(ExecPluginTest, TheProgramInheritsNoConnections) {
  const int open_here = open("/dev/null", O_RDONLY);  // NOLINT(android-cloexec-open): that is what is tested
  ASSERT_GE(open_here, 0);
  const auto said = RunExecPlugin(
      Shell(absl::StrCat("[ -e /proc/self/fd/", open_here, " ] && exit 7; ", PrintToken("t"))), {}, kLimit);
  close(open_here);
  EXPECT_TRUE(said.ok()) << said.status();
}

TEST_F(ExecPluginTest, ReadsMoreThanAPipeHolds) {
  const auto said =
      RunExecPlugin(Shell(absl::StrCat("head -c 300000 /dev/zero | tr '\\0' ' '; ", PrintToken("t"))), {}, kLimit);
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(said->token, "t");
}

TEST_F(ExecPluginTest, SaysWhatWentWrong) {
  const auto error_of = [](const std::string& script, absl::Duration limit = kLimit) {
    return ErrorOf(RunExecPlugin(Shell(script), {}, limit));
  };
  EXPECT_THAT(error_of(PrintToken("secret") + "; exit 3"), AllOf(HasSubstr("exit code 3"), Not(HasSubstr("secret"))));
  EXPECT_THAT(error_of("kill -9 $$"), HasSubstr("signal 9"));
  EXPECT_THAT(error_of("true"), HasSubstr("did not print"));
  EXPECT_THAT(error_of("yes secret | head -c 3000000"),
              AllOf(HasSubstr("printed more than"), Not(HasSubstr("secret"))));
  EXPECT_THAT(error_of("exec sleep 1000", absl::Milliseconds(100)), HasSubstr("took too long"));
  EXPECT_THAT(error_of("exec >&-; exec sleep 1000", absl::Milliseconds(100)), HasSubstr("took too long"));

  ExecPlugin missing = Shell("");
  missing.command = "no-such-program-of-downpour";
  missing.install_hint = "get it at example.com";
  EXPECT_THAT(ErrorOf(RunExecPlugin(missing, {}, kLimit)),
              AllOf(HasSubstr("no-such-program-of-downpour cannot be started"), HasSubstr("get it at example.com")));
  ExecPlugin asks = Shell(PrintToken("t"));
  asks.interactive = ExecPlugin::Interactive::kAlways;
  EXPECT_THAT(ErrorOf(RunExecPlugin(asks, {}, kLimit)), HasSubstr("no terminal"));
}

}  // namespace
}  // namespace downpour::kube
