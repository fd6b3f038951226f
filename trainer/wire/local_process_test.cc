// The transport over shared memory with the other end in a process of its own, which is killed or stopped.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/wire/shared_memory_transport.h"
#include "trainer/wire/testing/process_frames.h"
#include "trainer/wire/testing/shared_directory.h"
#include "trainer/wire/testing/test_frames.h"

extern char** environ;

namespace downpour::wire {
namespace {

constexpr char kAddress[] = "host:1";
constexpr int kNotHungMilliseconds = 60000;

class Peer {
 public:
  Peer(std::string role, std::string directory) {
    std::array<int, 2> to{}, from{};
    EXPECT_EQ(pipe2(to.data(), O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(from.data(), O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    std::string program = DOWNPOUR_LOCAL_PEER;
    std::string address = kAddress;
    char* const arguments[] = {program.data(), role.data(), directory.data(), address.data(), nullptr};
    EXPECT_EQ(posix_spawn(&process_, program.c_str(), &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() {
    Kill();
    close(to_);
    close(from_);
  }

  void WaitUntilReady() const {
    pollfd polled = {from_, POLLIN, 0};
    std::array<char, 16> line{};
    ASSERT_EQ(poll(&polled, 1, kNotHungMilliseconds), 1);
    ASSERT_GT(read(from_, line.data(), line.size()), 0) << "it ended";
  }
  void Signal(int signal) const { kill(process_, signal); }
  void Stop() const {
    Signal(SIGSTOP);
    int status = 0;
    EXPECT_EQ(waitpid(process_, &status, WUNTRACED), process_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  // How it ended, if it did before.
  int Kill() {
    if (process_ == 0) return 0;
    Signal(SIGCONT);
    Signal(SIGKILL);
    int status = 0;
    waitpid(std::exchange(process_, 0), &status, 0);
    return status;
  }

 private:
  pid_t process_ = 0;
  int to_ = -1;
  int from_ = -1;
};

bool WasKilled(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

class ProcessTest : public testing::Test {
 protected:
  std::unique_ptr<SharedMemoryDataClient> NewClient() {
    SharedMemoryClientOptions options;
    options.directory = directory_.path();
    options.job_uid = kProcessJob;
    options.rest = absl::ZeroDuration();
    return *MakeSharedMemoryDataClient(options);
  }
  std::unique_ptr<SharedMemoryServer> NewServer(DataHandler handler) {
    SharedMemoryServerOptions options;
    options.directory = directory_.path();
    options.job_uid = kProcessJob;
    options.address = kAddress;
    return *SharedMemoryServer::Start(options, std::move(handler));
  }

  const SharedDirectory directory_;
};

TEST_F(ProcessTest, AServerThatIsKilledAtAnyMomentEndsWhatIsInFlight) {
  std::mt19937 random(1);
  std::vector<Frames> kept;  // of servers that are gone
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    Peer server("server", directory_.path());
    server.WaitUntilReady();
    const auto client = NewClient();
    std::atomic<bool> failed{false};
    std::mutex mutex;
    std::vector<std::thread> threads;
    for (std::uint32_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::uint32_t i = 0; !failed; ++i) {
          Outcome outcome;
          client->Exchange(kAddress, {NumberedFrame(4 * i + thread)}, kLimit, outcome.Callback());
          if (outcome.Wait().ok()) {
            EXPECT_TRUE(IsNumbered(outcome.Wait()->front()));
            const std::lock_guard lock(mutex);
            if (kept.size() < 20) kept.push_back(*outcome.Wait());
          } else {
            EXPECT_EQ(outcome.Code(), absl::StatusCode::kUnavailable) << outcome.Wait().status();
            failed = true;
          }
        }
      });
    }
    absl::SleepFor(absl::Microseconds(random() % 10'000));
    EXPECT_TRUE(WasKilled(server.Kill()));
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_FALSE(kept.empty());
  for (const Frames& frames : kept) EXPECT_TRUE(IsNumbered(frames.front()));
}

TEST_F(ProcessTest, AClientThatIsKilledAtAnyMomentLeavesWhatItSent) {
  std::mutex mutex;
  std::vector<Frames> kept;
  std::atomic<int> wrong{0};
  const auto server = NewServer([&](Frames request, const std::function<void(Frames)>& reply) {
    if (!IsNumbered(request.front())) ++wrong;
    {
      const std::lock_guard lock(mutex);
      if (kept.size() % 10 != 9 || kept.size() > 100) kept.push_back(request);
      if (kept.size() > 200) kept.clear();
    }
    reply(Echo(std::move(request)));
  });
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    Peer client("client", directory_.path());
    client.WaitUntilReady();
    absl::SleepFor(absl::Microseconds(random() % 10'000));
    EXPECT_TRUE(WasKilled(client.Kill())) << "it found a wrong reply";
  }
  {
    const std::lock_guard lock(mutex);
    for (const Frames& frames : kept) EXPECT_TRUE(IsNumbered(frames.front()));
  }
  EXPECT_EQ(wrong.load(), 0);
  Outcome outcome;
  const auto client = NewClient();
  client->Exchange(kAddress, {NumberedFrame(1)}, kLimit, outcome.Callback());
  EXPECT_TRUE(outcome.Wait().ok()) << outcome.Wait().status();
}

TEST_F(ProcessTest, AStoppedServerCostsTheDeadlineAndGoesOnAfter) {
  Peer server("server", directory_.path());
  server.WaitUntilReady();
  const auto client = NewClient();
  Outcome before;
  client->Exchange(kAddress, {NumberedFrame(1)}, kLimit, before.Callback());
  ASSERT_TRUE(before.Wait().ok()) << before.Wait().status();
  server.Stop();
  std::vector<std::unique_ptr<Outcome>> outcomes;
  for (std::uint32_t i = 0; i < 200; ++i) {
    outcomes.push_back(std::make_unique<Outcome>());
    client->Exchange(kAddress, {NumberedFrame(i)}, absl::Milliseconds(200), outcomes.back()->Callback());
  }
  for (const auto& outcome : outcomes) {
    const absl::Status& status = outcome->Wait().status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status) || GoesAnotherWay(status)) << status;
  }
  server.Signal(SIGCONT);
  // Its late replies are given back, and no place is lost: again and again as much as there is space for.
  int served = 0;
  for (std::uint32_t i = 0; served < 500; ++i) {
    Outcome outcome;
    client->Exchange(kAddress, {NumberedFrame(i)}, kLimit, outcome.Callback());
    if (!outcome.Wait().ok() && GoesAnotherWay(outcome.Wait().status())) continue;
    ASSERT_TRUE(outcome.Wait().ok()) << outcome.Wait().status();
    ASSERT_TRUE(IsNumbered(outcome.Wait()->front()));
    ++served;
  }
}

TEST_F(ProcessTest, AStoppedClientHoldsNobodyUp) {
  const auto server = NewServer(EchoHandler);
  Peer stopped("client", directory_.path());
  stopped.WaitUntilReady();
  stopped.Stop();
  {
    const auto client = NewClient();
    for (std::uint32_t i = 0; i < 50; ++i) {
      Outcome outcome;
      client->Exchange(kAddress, {NumberedFrame(i)}, kLimit, outcome.Callback());
      ASSERT_TRUE(outcome.Wait().ok()) << outcome.Wait().status();
    }
  }
  stopped.Signal(SIGCONT);
  EXPECT_TRUE(WasKilled(stopped.Kill()));
}

TEST_F(ProcessTest, AServerMayEndWhileAClientIsStopped) {
  auto server = NewServer(EchoHandler);
  Peer stopped("client", directory_.path());
  stopped.WaitUntilReady();
  stopped.Stop();
  server.reset();
}

}  // namespace
}  // namespace downpour::wire
