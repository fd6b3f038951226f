#include "cli/process_backend.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using ::testing::HasSubstr;

class ProcessBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/processes-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  ProcessSpec Shell(const std::string& script, int index = 0, int incarnation = 1) const {
    ProcessSpec spec;
    spec.index = index;
    spec.incarnation = incarnation;
    spec.command = {"/bin/sh", "-c", script};
    spec.log_path = folder + "/log-" + std::to_string(index);
    return spec;
  }

  std::string Log(int index = 0) const {
    std::ifstream file(folder + "/log-" + std::to_string(index));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  bool Eventually(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition()) {
      if (std::chrono::steady_clock::now() >= end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }

  Process WaitForEnd(LocalProcesses& processes) {
    EXPECT_TRUE(Eventually([&] {
      processes.Poll();
      return !processes.AnyRunning();
    }));
    return processes.List().at(0);
  }

  static bool Exists(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    const std::string stat{std::istreambuf_iterator<char>(file), {}};
    const std::size_t name_end = stat.rfind(") ");
    return name_end != std::string::npos && stat[name_end + 2] != 'Z';
  }

  SystemClock clock;
  std::string folder;
};

TEST_F(ProcessBackendTest, EndsHaveTheirCodesCausesAndLastLines) {
  struct Case {
    const char* script;
    int exit_code;
    const char* cause;
    const char* last_line;
  };
  const Case cases[] = {
      {"echo fine", 0, "finished", ""},
      {"echo first; echo 'the reason' >&2; echo; exit 3", 3, "exit code 3", "the reason"},
      {"exit 1", 1, "exit code 1", ""},
      {"printf unfinished; kill -9 $$", 137, "killed by signal 9 (Killed)", "unfinished"},
      {"kill -15 $$", 143, "killed by signal 15 (Terminated)", ""},
      {"yes 'a long log' | head -n 100000; echo last; exit 2", 2, "exit code 2", "last"},
  };
  int incarnation = 0;
  LocalProcesses processes(clock);
  for (const Case& expected : cases) {
    SCOPED_TRACE(expected.script);
    ASSERT_TRUE(processes.Start(Shell(expected.script, 0, ++incarnation)).ok());
    const Process ended = WaitForEnd(processes);
    EXPECT_EQ(ended.exit_code, expected.exit_code);
    EXPECT_EQ(EndCause(ended), expected.cause);
    EXPECT_EQ(ended.last_log_line, expected.last_line) << "an earlier incarnation's line does not count";
    EXPECT_GE(*ended.finished_time, ended.created_time);
    EXPECT_EQ(processes.List().size(), 1u) << "the newest incarnation stands for its index";
  }
  std::size_t headers = 0;
  for (const absl::string_view line : absl::StrSplit(Log(), '\n')) {
    if (line.substr(0, 5) == "==== ") ++headers;
  }
  EXPECT_EQ(headers, std::size(cases)) << "the log is appended to";
}

TEST_F(ProcessBackendTest, StopIsGentleThenForced) {
  LocalProcesses processes(clock);
  ASSERT_TRUE(processes.Start(Shell("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done", 0)).ok());
  ASSERT_TRUE(processes.Start(Shell("trap '' TERM; echo ready; while :; do sleep 0.01; done", 1)).ok());
  ASSERT_TRUE(Eventually([&] { return Log(1).find("ready") != std::string::npos; }));
  ASSERT_TRUE(Eventually([&] { return Log(0).find("ready") != std::string::npos; }));
  EXPECT_FALSE(processes.NextDeadline().has_value());
  processes.StopAll(0.2);
  EXPECT_TRUE(processes.NextDeadline().has_value());
  WaitForEnd(processes);
  const std::vector<Process> ended = processes.List();
  EXPECT_EQ(ended[0].exit_code, 0);
  EXPECT_THAT(Log(0), HasSubstr("bye"));
  EXPECT_EQ(ended[1].exit_code, 137);
  EXPECT_EQ(EndCause(ended[1]), "stopped");
  EXPECT_FALSE(processes.NextDeadline().has_value());
}

TEST_F(ProcessBackendTest, APausedProcessIsKilledToo) {
  LocalProcesses processes(clock);
  ASSERT_TRUE(processes.Start(Shell("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done")).ok());
  ASSERT_TRUE(Eventually([&] { return Log().find("ready") != std::string::npos; }));
  kill(processes.List()[0].pid, SIGSTOP);
  processes.StopAll(0.05);
  EXPECT_EQ(WaitForEnd(processes).exit_code, 137);
}

TEST_F(ProcessBackendTest, WhatAProcessStartedGoesWithIt) {
  pid_t orphan = 0;
  const auto find_orphan = [&] {
    const std::string log = Log();
    const std::size_t at = log.find("child ");
    orphan = at == std::string::npos ? 0 : std::atoi(log.c_str() + at + 6);
    return orphan > 0 && log.find('\n', at) != std::string::npos;
  };
  const char kScript[] = "(trap '' TERM; while :; do sleep 0.05; done) & echo child $!;";
  {
    LocalProcesses processes(clock);
    ASSERT_TRUE(processes.Start(Shell(std::string(kScript) + "exit 0")).ok());
    ASSERT_TRUE(Eventually(find_orphan));
    WaitForEnd(processes);
    EXPECT_TRUE(Eventually([&] { return !Exists(orphan); })) << "its leader ended by itself";
    std::filesystem::remove(folder + "/log-0");

    ASSERT_TRUE(processes.Start(Shell(std::string(kScript) + "wait", 0, 2)).ok());
    ASSERT_TRUE(Eventually(find_orphan));
    EXPECT_TRUE(Exists(orphan));
  }
  EXPECT_TRUE(Eventually([&] { return !Exists(orphan); })) << "the destructor kills the group";
}

TEST_F(ProcessBackendTest, ChildrenHaveAGroupNoInputNoOtherDescriptorsAndNoBlockedSignals) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigaddset(&blocked, SIGCHLD);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
  ASSERT_EQ(dup2(STDERR_FILENO, 77), 77);  // as a library would that forgets O_CLOEXEC
  LocalProcesses processes(clock);
  ASSERT_TRUE(processes
                  .Start(Shell("read line; echo read $?; echo group $(cut -d' ' -f5 /proc/$$/stat) $$; "
                               "test -e /proc/$$/fd/77; echo descriptor $?; "
                               "echo mask $(grep SigBlk /proc/$$/status | cut -f2)"))
                  .ok());
  const pid_t pid = processes.List()[0].pid;
  WaitForEnd(processes);
  close(77);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_THAT(Log(), HasSubstr("read 1\n"));
  EXPECT_THAT(Log(), HasSubstr("group " + std::to_string(pid) + " " + std::to_string(pid) + "\n"));
  EXPECT_THAT(Log(), HasSubstr("descriptor 1\n"));
  EXPECT_THAT(Log(), HasSubstr("mask 0000000000000000\n"));
}

TEST_F(ProcessBackendTest, ChildrenIgnoreWhatTheirParentWasToldToIgnoreButTheWishToStop) {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) std::signal(signal, SIG_IGN);
  LocalProcesses processes(clock);
  const absl::Status started =
      processes.Start(Shell("printf 'ignored %x\\n' $((0x$(grep SigIgn /proc/$$/status | cut -f2) & 0x7fffffff))"));
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  ASSERT_TRUE(started.ok());
  WaitForEnd(processes);
  EXPECT_THAT(Log(), HasSubstr("\nignored 3\n")) << "SIGHUP and SIGINT";
}

TEST_F(ProcessBackendTest, WhatCannotBeStartedIsAnError) {
  LocalProcesses processes(clock);
  ProcessSpec spec = Shell("");
  spec.command = {"/nowhere/downpour-server"};
  const absl::Status missing = processes.Start(spec);
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/nowhere/downpour-server"));
  spec = Shell("sleep 100");
  spec.log_path = "/nowhere/log";
  EXPECT_TRUE(absl::IsNotFound(processes.Start(spec)));
  ASSERT_TRUE(processes.Start(Shell("sleep 100")).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(processes.Start(Shell("sleep 100", 0, 2))));
  EXPECT_EQ(processes.List().size(), 1u);
}

}  // namespace
}  // namespace downpour::cli
