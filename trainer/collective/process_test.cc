// Members in processes of their own, of which one is killed or stopped.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

extern char** environ;

namespace downpour::collective {
namespace {

// Reaching it is a hang.
constexpr int kNotHungMilliseconds = 60000;

class Rank {
 public:
  Rank() {
    int to[2], from[2];
    EXPECT_EQ(pipe2(to, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(from, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    std::string program = DOWNPOUR_COLLECTIVE_RANK;
    char* const arguments[] = {program.data(), nullptr};
    EXPECT_EQ(posix_spawn(&process_, program.c_str(), &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
    port_ = Answer().substr(5);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    Signal(SIGKILL);
    waitpid(process_, nullptr, 0);
    close(to_);
    close(from_);
  }

  std::string store() const { return absl::StrCat("127.0.0.1:", port_); }
  void Signal(int signal) const { kill(process_, signal); }

  void Say(const std::string& line) const {
    const std::string text = line + "\n";
    EXPECT_EQ(write(to_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  // The next line; empty: there is none, or it does not come.
  std::string Answer() {
    for (;;) {
      const std::size_t end = said_.find('\n');
      if (end != std::string::npos) {
        const std::string line = said_.substr(0, end);
        said_.erase(0, end + 1);
        return line;
      }
      pollfd polled = {from_, POLLIN, 0};
      char buffer[4096];
      const ssize_t got = poll(&polled, 1, kNotHungMilliseconds) > 0 ? read(from_, buffer, sizeof(buffer)) : 0;
      if (got <= 0) return "";
      said_.append(buffer, static_cast<std::size_t>(got));
    }
  }

  // What comes after the rounds of a loop.
  std::string End() {
    std::string line = Answer();
    while (line == "round") line = Answer();
    return line;
  }

 private:
  pid_t process_ = 0;
  int to_ = -1;
  int from_ = -1;
  std::string port_;
  std::string said_;
};

using Ranks = std::vector<std::unique_ptr<Rank>>;

Ranks NewRanks(int size) {
  Ranks ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(std::make_unique<Rank>());
  return ranks;
}

void Form(const std::vector<Rank*>& ranks, const std::string& view) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank]->Say(absl::StrCat("form ", view, " ", rank, " ", ranks.size(), " ", ranks[0]->store(), " 30"));
  }
  for (Rank* const rank : ranks) ASSERT_EQ(rank->Answer(), "formed OK");
}

void ExpectThatTheyAddUp(const std::vector<Rank*>& ranks) {
  for (Rank* const rank : ranks) rank->Say("start 1000");
  for (Rank* const rank : ranks) EXPECT_EQ(rank->Answer(), "started OK");
  for (Rank* const rank : ranks) rank->Say("wait 30");
  for (Rank* const rank : ranks) {
    EXPECT_EQ(rank->Answer(), absl::StrCat("waited OK ", ranks.size() * (ranks.size() + 1) / 2));
  }
}

TEST(ProcessTest, TheOthersOfAKilledRankGoOnWithoutIt) {
  for (int round = 0; round < 6; ++round) {
    Ranks ranks = NewRanks(3);
    ASSERT_NO_FATAL_FAILURE(Form({ranks[0].get(), ranks[1].get(), ranks[2].get()}, "one"));
    for (const auto& rank : ranks) rank->Say(absl::StrCat("loop ", round % 2 == 0 ? 1000 : 2000000, " 60"));
    const std::size_t victim = static_cast<std::size_t>(round % 3);
    for (int i = 0; i <= round; ++i) ASSERT_EQ(ranks[victim]->Answer(), "round");
    ranks[victim]->Signal(SIGKILL);
    std::vector<Rank*> left;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank != victim) left.push_back(ranks[rank].get());
    }
    for (Rank* const rank : left) EXPECT_EQ(rank->End(), "ended UNAVAILABLE");
    ASSERT_NO_FATAL_FAILURE(Form(left, "two"));
    ExpectThatTheyAddUp(left);
  }
}

TEST(ProcessTest, ThoseWhoWaitForAKilledRankAreTold) {
  Ranks ranks = NewRanks(4);
  ASSERT_NO_FATAL_FAILURE(Form({ranks[0].get(), ranks[1].get(), ranks[2].get(), ranks[3].get()}, "one"));
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ranks[rank]->Say("start 500000");
    EXPECT_EQ(ranks[rank]->Answer(), "started OK");
    ranks[rank]->Say("wait 60");
  }
  ranks[3]->Signal(SIGKILL);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(absl::StartsWith(ranks[rank]->Answer(), "waited UNAVAILABLE"));
  }
}

TEST(ProcessTest, TheOthersOfAStoppedRankGoOnWithoutItAndItIsTold) {
  Ranks ranks = NewRanks(3);
  ASSERT_NO_FATAL_FAILURE(Form({ranks[0].get(), ranks[1].get(), ranks[2].get()}, "one"));
  for (const auto& rank : ranks) rank->Say("loop 300000 3");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(ranks[2]->Answer(), "round");
  ranks[2]->Signal(SIGSTOP);
  std::vector<std::string> ends;
  for (std::size_t rank = 0; rank < 2; ++rank) ends.push_back(ranks[rank]->End());
  // Who exceeds its limit first leaves the group, and that the other may see first.
  EXPECT_THAT(ends, testing::Contains("ended DEADLINE_EXCEEDED"));
  EXPECT_THAT(ends, testing::Each(testing::AnyOf("ended DEADLINE_EXCEEDED", "ended UNAVAILABLE")));
  ASSERT_NO_FATAL_FAILURE(Form({ranks[0].get(), ranks[1].get()}, "two"));
  ExpectThatTheyAddUp({ranks[0].get(), ranks[1].get()});
  ranks[2]->Signal(SIGCONT);
  EXPECT_THAT(ranks[2]->End(), testing::AnyOf("ended DEADLINE_EXCEEDED", "ended UNAVAILABLE"));
  ASSERT_NO_FATAL_FAILURE(Form({ranks[2].get(), ranks[0].get(), ranks[1].get()}, "three"));
  ExpectThatTheyAddUp({ranks[2].get(), ranks[0].get(), ranks[1].get()});
}

TEST(ProcessTest, AStoppedRankZeroHoldsNobodyPastTheLimitOfAForming) {
  Ranks ranks = NewRanks(2);
  ranks[0]->Signal(SIGSTOP);
  ranks[1]->Say(absl::StrCat("form v 1 2 ", ranks[0]->store(), " 0.3"));
  EXPECT_EQ(ranks[1]->Answer(), "formed DEADLINE_EXCEEDED");
  ranks[0]->Signal(SIGCONT);
  ASSERT_NO_FATAL_FAILURE(Form({ranks[0].get(), ranks[1].get()}, "w"));
  ExpectThatTheyAddUp({ranks[0].get(), ranks[1].get()});
}

}  // namespace
}  // namespace downpour::collective
