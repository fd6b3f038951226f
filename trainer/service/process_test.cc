#include "trainer/service/process.h"

#include <csignal>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "gmock/gmock.h"
#include "grpc/support/log.h"
#include "gtest/gtest.h"

namespace downpour::service {
namespace {

using ::testing::HasSubstr;

constexpr char kVariable[] = "DOWNPOUR_PROCESS_TEST_CONFIG";

TEST(ProcessTest, TheConfigurationMayStandInTheEnvironment) {
  setenv(kVariable, R"({"jobUid": "abc", "psReplicas": 2, "epochs": 1, "batchSize": 8})", 1);
  const absl::StatusOr<v1::TrainingConfig> config = ReadConfig(std::string("env:") + kVariable);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->ps_replicas(), 2u);
}

TEST(ProcessTest, AConfigurationThatIsMissingOrWrongIsNamed) {
  unsetenv(kVariable);
  const std::string source = std::string("env:") + kVariable;
  absl::Status status = ReadConfig(source).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(kVariable));
  setenv(kVariable, R"({"jobUid": "abc", "epochs": 1, "batchSize": 8})", 1);
  status = ReadConfig(source).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), source + ": psReplicas: must be set");
  status = ReadConfig("/nowhere/config.json").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/config.json"));
}

// In a child, as it changes the process.
TEST(ProcessTest, ASignalThatIsIgnoredFromTheStartIsNotWaitedFor) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_IGN);
        BlockSignals();
        sigset_t blocked;
        pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
        std::_Exit(sigismember(&blocked, SIGTERM) + 2 * sigismember(&blocked, SIGINT));
      },
      ::testing::ExitedWithCode(1), "");
}

TEST(ProcessTest, ALackOfThreadsOrMemoryIsTheLastLineAndNoAbort) {
  EXPECT_EXIT(
      {
        StartLogging("test");
        std::thread([] {
          throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
        }).join();
      },
      ::testing::ExitedWithCode(kExitFailure), "a thread cannot be started: Resource temporarily unavailable\n$");
  EXPECT_EXIT(
      {
        StartLogging("test");
        std::thread([] { throw std::bad_alloc(); }).join();
      },
      ::testing::ExitedWithCode(kExitFailure), "out of memory\n$");
  EXPECT_EXIT(
      {
        StartLogging("test");
        gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);  // as grpc_init does
        gpr_log(GPR_ERROR, "pthread_create failed: %s", "Resource temporarily unavailable");
      },
      ::testing::ExitedWithCode(kExitFailure), "a thread cannot be started: Resource temporarily unavailable\n$");
  EXPECT_EXIT(
      {
        StartLogging("test");
        GoOnWithoutNewThreads();
        gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
        gpr_log(GPR_ERROR, "pthread_create failed: %s", "Resource temporarily unavailable");
        std::_Exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(ProcessTest, AnotherExceptionAbortsWithItsReasonLast) {
  EXPECT_EXIT(
      {
        StartLogging("test");
        std::thread([] { throw std::logic_error("a defect"); }).join();
      },
      ::testing::KilledBySignal(SIGABRT), "a defect\n$");
}

}  // namespace
}  // namespace downpour::service
