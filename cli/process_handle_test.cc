#include "cli/process_handle.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

pid_t StartSleeper() {
  const pid_t pid = fork();
  if (pid == 0) {
    while (true) pause();
  }
  return pid;
}

TEST(ProcessHandleTest, AnotherProcessOfTheNumberIsNotTaken) {
  const std::optional<std::uint64_t> ticks = StartTicks(getpid());
  ASSERT_TRUE(ticks.has_value());
  EXPECT_TRUE(OpenProcess(getpid(), *ticks).ok());
  EXPECT_TRUE(absl::IsNotFound(OpenProcess(getpid(), *ticks + 1).status()));
}

TEST(ProcessHandleTest, ASignalEndsItAndNobodyElseAfterIt) {
  const pid_t pid = StartSleeper();
  ASSERT_GT(pid, 0);
  const std::optional<std::uint64_t> ticks = StartTicks(pid);
  ASSERT_TRUE(ticks.has_value());
  const absl::StatusOr<FileDescriptor> process = OpenProcess(pid, *ticks);
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE(SignalProcess(process->get(), SIGKILL).ok());
  siginfo_t information{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &information, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(StartTicks(pid).has_value());  // ended, and not reaped
  EXPECT_TRUE(absl::IsNotFound(OpenProcess(pid, *ticks).status()));
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_TRUE(absl::IsNotFound(SignalProcess(process->get(), SIGKILL)));
  EXPECT_TRUE(absl::IsNotFound(OpenProcess(pid, *ticks).status()));
}

TEST(ProcessHandleTest, ThereIsNoSuchNumber) { EXPECT_FALSE(StartTicks(1 << 30).has_value()); }

}  // namespace
}  // namespace downpour::cli
