#include "operator/kube/leader_election.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "operator/kube/http_transport.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/plain_credentials.h"

namespace downpour::kube {
namespace {

using Action = ElectionDecision::Action;
using End = FakeApiServer::Reaction::End;

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr absl::Duration kNow = absl::Hours(5);

LeaderElectionOptions Options(const std::string& identity) {
  LeaderElectionOptions options;
  options.namespace_name = "team";
  options.identity = identity;
  options.lease = absl::Seconds(15);
  options.renew_deadline = absl::Seconds(10);
  options.retry_period = absl::Seconds(2);
  return options;
}

LeaseRecord HeldBy(const std::string& holder, int lease_seconds = 15) {
  LeaseRecord record;
  record.holder = holder;
  record.renew_time = "t";
  record.resource_version = "7";
  record.uid = "u";
  record.lease_seconds = lease_seconds;
  return record;
}

ElectionDecision Decide(const ElectionState& state, absl::Duration now = kNow) {
  return DecideElection(state, Options("me"), now);
}

TEST(DecideElection, WaitsUntilItHasRead) { EXPECT_EQ(Decide({}).action, Action::kWait); }

TEST(DecideElection, CreatesWhatIsNotThere) {
  ElectionState state;
  state.seen = LeaseRecord{};
  EXPECT_EQ(Decide(state).action, Action::kCreate);
}

TEST(DecideElection, TakesWhatWasGivenBackAndWhatIsItsOwn) {
  ElectionState state;
  state.seen_since = kNow;
  for (const char* holder : {"", "me"}) {
    state.seen = HeldBy(holder);
    EXPECT_EQ(Decide(state).action, Action::kAcquire) << holder;
  }
}

TEST(DecideElection, CountsExpiryFromWhenTheRecordLastChanged) {
  ElectionState state;
  state.seen = HeldBy("other", 15);
  state.seen_since = kNow;
  EXPECT_EQ(Decide(state, kNow + absl::Milliseconds(14'999)).action, Action::kWait);
  EXPECT_EQ(Decide(state, kNow + absl::Seconds(15)).action, Action::kAcquire);
  state.seen = HeldBy("other", 60);
  EXPECT_EQ(Decide(state, kNow + absl::Seconds(59)).action, Action::kWait) << "the holder's own duration counts";
  state.seen = HeldBy("other", 0);
  EXPECT_EQ(Decide(state, kNow + absl::Seconds(14)).action, Action::kWait);
  EXPECT_EQ(Decide(state, kNow + absl::Seconds(15)).action, Action::kAcquire);
}

TEST(DecideElection, ALeaderRenewsUntilItCannot) {
  ElectionState state;
  state.seen = HeldBy("me");
  state.leading = true;
  state.renewed_at = kNow;
  EXPECT_EQ(Decide(state, kNow + absl::Milliseconds(9'999)).action, Action::kRenew);
  EXPECT_EQ(Decide(state, kNow + absl::Seconds(10)).action, Action::kLost);
  for (const char* holder : {"", "other"}) {
    state.seen = HeldBy(holder);
    EXPECT_EQ(Decide(state).action, Action::kLost) << holder;
    EXPECT_NE(Decide(state).reason, "");
  }
}

// Processes with clocks that begin anywhere and requests that take any time, or are stored without an answer: no two
// ever lead at once.
TEST(DecideElection, NoTwoLeadAtOnce) {
  constexpr int kProcesses = 3;
  struct Process {
    ElectionState state;
    absl::Duration origin;
    absl::Duration asleep_until;
    bool lost = false;
    // A write that the server has yet to see, and when it does.
    std::optional<LeaseRecord> write;
    std::string write_version;
    absl::Duration write_at, write_began;
    bool answered = true;
    int lives = 0;
  };
  int elected = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
    LeaseRecord stored;  // what the server has
    int version = 0;
    std::vector<Process> processes(kProcesses);
    for (Process& process : processes) process.origin = absl::Seconds(pick(100'000));
    const auto identity = [&](std::size_t i) { return absl::StrCat("process-", i, "-", processes[i].lives); };
    for (int tick = 0; tick < 3000; ++tick) {
      const absl::Duration time = absl::Milliseconds(100) * tick;
      for (std::size_t i = 0; i < processes.size(); ++i) {
        Process& process = processes[i];
        const LeaderElectionOptions options = Options(identity(i));
        const absl::Duration now = process.origin + time;
        if (process.write.has_value() && time >= process.write_at) {
          const bool stores = process.write_version == stored.resource_version;
          if (stores) {
            stored = *process.write;
            stored.resource_version = std::to_string(++version);
            stored.uid = "u";
          }
          process.write.reset();
          if (stores && process.answered) {
            process.state.seen = stored;
            process.state.seen_since = now;
            if (process.state.leading || now - process.write_began < options.renew_deadline) {
              if (!process.state.leading) ++elected;
              process.state.leading = true;
              process.state.renewed_at = process.write_began;
            }
          }
        }
        // As the watchdog does, at any time.
        if (process.state.leading && DecideElection(process.state, options, now).action == Action::kLost) {
          ++process.lives;
          process.state = {};
          process.write.reset();
          continue;
        }
        if (process.write.has_value() || time < process.asleep_until) continue;
        process.asleep_until = time + absl::Seconds(2) + absl::Milliseconds(pick(pick(20) == 0 ? 20'000 : 400));
        const bool reads = !process.state.leading || pick(10) == 0;
        if (reads && pick(5) != 0) {
          const auto& seen = process.state.seen;
          if (!seen.has_value() || seen->holder != stored.holder || seen->renew_time != stored.renew_time) {
            process.state.seen_since = now;
          }
          process.state.seen = stored;
        }
        const Action action = DecideElection(process.state, options, now).action;
        if (action == Action::kWait || action == Action::kLost) continue;
        process.write = HeldBy(options.identity);
        process.write->renew_time = absl::StrCat(i, "@", tick);
        process.write_version = process.state.seen->resource_version;
        process.write_began = now;
        process.write_at = time + absl::Milliseconds(pick(10) == 0 ? pick(5'000) : pick(300));
        process.answered = pick(10) != 0;
      }
      int leaders = 0;
      for (std::size_t i = 0; i < processes.size(); ++i) {
        const ElectionState& state = processes[i].state;
        const absl::Duration now = processes[i].origin + time;
        if (state.leading && DecideElection(state, Options(identity(i)), now).action != Action::kLost) ++leaders;
      }
      ASSERT_LE(leaders, 1) << "seed " << seed << ", tick " << tick;
    }
  }
  EXPECT_GT(elected, 600) << "the simulation elects leaders at all";
}

// What an elector said, for waiting.
class Heard {
 public:
  void Say(const std::string& text) {
    const std::lock_guard lock(mutex_);
    said_[text] += 1;
    changed_.notify_all();
  }
  bool WaitFor(const std::string& text) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(kPatience), [&] { return said_[text] > 0; });
  }
  int Count(const std::string& text) {
    const std::lock_guard lock(mutex_);
    return said_[text];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int> said_;
};

class LeaderElectorTest : public ::testing::Test {
 protected:
  // Periods in the proportions of the defaults.
  std::unique_ptr<LeaderElector> Elector(const std::string& identity, absl::Duration lease = absl::Milliseconds(1500)) {
    LeaderElectionOptions options = Options(identity);
    options.lease = lease;
    options.renew_deadline = lease * 2 / 3;
    options.retry_period = absl::Milliseconds(20);
    auto client = std::make_unique<Client>(MakeHttpTransport(std::make_shared<PlainCredentials>(server_.Start())),
                                           ClientOptions{.timeout = options.renew_deadline / 2});
    auto elector = std::make_unique<LeaderElector>(
        options, std::move(client), [this, identity] { heard_.Say(identity + " leads"); },
        [this, identity](const std::string&) { heard_.Say(identity + " lost"); });
    elector->Start();
    return elector;
  }
  std::string Holder() const {
    const auto lease = server_.Get(kLeases, "team", "downpour-operator");
    return lease.has_value() ? FindText(*lease, {"spec", "holderIdentity"}) : "no lease";
  }

  FakeApiServer server_;
  Heard heard_;
};

TEST_F(LeaderElectorTest, LeadsRenewsAndGivesBack) {
  auto elector = Elector("a");
  ASSERT_TRUE(heard_.WaitFor("a leads"));
  EXPECT_TRUE(elector->leading());
  EXPECT_EQ(elector->holder(), "a");
  EXPECT_EQ(Holder(), "a");
  ASSERT_TRUE(server_.WaitForRequests("PATCH", "leases/downpour-operator", 3, kPatience));
  const Json lease = *server_.Get(kLeases, "team", "downpour-operator");
  EXPECT_TRUE(ParseTime(FindText(lease, {"spec", "renewTime"})).has_value());
  EXPECT_EQ(FindText(lease, {"spec", "renewTime"}).size(), std::string("2026-01-01T00:00:00.000000Z").size());
  elector.reset();
  EXPECT_EQ(Holder(), "");
  EXPECT_EQ(FindInteger(*server_.Get(kLeases, "team", "downpour-operator"), {"spec", "leaseDurationSeconds"}), 1);
  EXPECT_EQ(heard_.Count("a lost"), 0);
}

TEST_F(LeaderElectorTest, TheSecondTakesOverWhenTheFirstGivesBack) {
  auto first = Elector("a");
  ASSERT_TRUE(heard_.WaitFor("a leads"));
  auto second = Elector("b");
  ASSERT_TRUE(server_.WaitForRequests("GET", "leases/downpour-operator", 4, kPatience));
  EXPECT_FALSE(second->leading());
  EXPECT_EQ(second->holder(), "a");
  first.reset();
  ASSERT_TRUE(heard_.WaitFor("b leads"));
  EXPECT_EQ(FindInteger(*server_.Get(kLeases, "team", "downpour-operator"), {"spec", "leaseTransitions"}), 1);
}

TEST_F(LeaderElectorTest, TakesALeaseThatNobodyRenews) {
  server_.Put(kLeases, {{"metadata", {{"name", "downpour-operator"}, {"namespace", "team"}}},
                        {"spec",
                         {{"holderIdentity", "dead"},
                          {"leaseDurationSeconds", 1},
                          {"renewTime", "2099-01-01T00:00:00.000000Z"},
                          {"leaseTransitions", 4}}}});
  auto elector = Elector("a");
  ASSERT_TRUE(heard_.WaitFor("a leads")) << "the clock of the dead does not count";
  EXPECT_EQ(FindInteger(*server_.Get(kLeases, "team", "downpour-operator"), {"spec", "leaseTransitions"}), 5);
}

TEST_F(LeaderElectorTest, LosesToASilentServer) {
  auto elector = Elector("a", absl::Milliseconds(600));
  ASSERT_TRUE(heard_.WaitFor("a leads"));
  server_.Inject("", "", FakeApiServer::End(End::kHang), -1);
  ASSERT_TRUE(heard_.WaitFor("a lost"));
  EXPECT_FALSE(elector->leading());
  elector.reset();
  EXPECT_EQ(heard_.Count("a lost"), 1);
  EXPECT_EQ(Holder(), "a") << "what is lost is not given back";
}

TEST_F(LeaderElectorTest, LosesToAnotherHolder) {
  auto elector = Elector("a");
  ASSERT_TRUE(heard_.WaitFor("a leads"));
  server_.Modify(kLeases, "team", "downpour-operator", [](Json& lease) { lease["spec"]["holderIdentity"] = "b"; });
  ASSERT_TRUE(heard_.WaitFor("a lost"));
  elector.reset();
  EXPECT_EQ(Holder(), "b");
}

TEST_F(LeaderElectorTest, SurvivesConflictsAndErrors) {
  auto elector = Elector("a", absl::Seconds(15));
  ASSERT_TRUE(heard_.WaitFor("a leads"));
  server_.Inject("PATCH", "", FakeApiServer::Refuse(409, "Conflict", "x"), 3);
  server_.Inject("GET", "", FakeApiServer::Refuse(500, "InternalError", "x"), 2);
  server_.Modify(kLeases, "team", "downpour-operator", [](Json& lease) { lease["metadata"]["labels"] = {{"a", "b"}}; });
  const int before = server_.CountRequests("PATCH", "");
  ASSERT_TRUE(server_.WaitForRequests("PATCH", "", before + 8, kPatience));
  EXPECT_TRUE(elector->leading());
  EXPECT_EQ(heard_.Count("a lost"), 0);
  EXPECT_EQ(heard_.Count("a leads"), 1);
}

}  // namespace
}  // namespace downpour::kube
