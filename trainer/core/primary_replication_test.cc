#include "trainer/core/primary_replication.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "trainer/core/testing/ps_messages.h"

namespace downpour::core {
namespace {

constexpr std::uint64_t kStandby = 9;  // the replica
constexpr std::uint64_t kOther = kWorker + 1;
using Told = std::vector<std::pair<std::uint64_t, ReplyStatus>>;

// Slices 0 and 1 are here, and have replicas at another ps.
class PrimaryReplicationTest : public ::testing::Test {
 protected:
  static v1::View ViewOf(std::uint32_t epoch, const std::function<void(v1::SlicePlacement*)>& place) {
    v1::View view = MakeView(1, 1, epoch);
    view.set_mode_epoch(1);
    AddTwoPs(&view);
    for (const int slice : {0, 1}) place(view.mutable_layout(slice));
    return view;
  }
  static v1::View Protected(std::uint32_t epoch = 1) {
    return ViewOf(epoch, [](v1::SlicePlacement* placement) {
      placement->set_standby(1);
      placement->set_standby_replica(kStandby);
    });
  }
  static v1::View Joining(std::uint32_t epoch = 1) {
    return ViewOf(epoch, [](v1::SlicePlacement* placement) {
      placement->set_joining(1);
      placement->set_joining_replica(kStandby);
    });
  }
  static v1::View Alone(std::uint32_t epoch) {
    return ViewOf(epoch, [](v1::SlicePlacement*) {});
  }

  void Begin(const v1::View& view) {
    ASSERT_TRUE(here_.Begin(view).ok());
    ASSERT_TRUE(there_.Begin(view).ok());
    for (PsReplicas* replicas : {&here_, &there_}) {
      for (auto& [slice, entry] : replicas->entries()) {
        if (entry.counted()) entry.replica.state().Initialise(WithFloats(Frame(), 0).payload);
      }
    }
    replication_.Begin(view, &told_);
    replication_.SetFollowers(view);
  }
  void Change(const v1::View& view) {
    const std::vector<std::uint32_t> before = here_.primaries();
    ASSERT_TRUE(here_.Change(view).ok());
    ASSERT_TRUE(there_.Change(view).ok());
    replication_.Change(view, before, &told_);
    replication_.SetFollowers(view);
  }
  Replica& Here(std::uint32_t slice) { return here_.Primary(slice)->replica; }
  Replica& There(std::uint32_t slice) { return there_.entries().at(slice).replica; }
  // The next update of the slice.
  void Update(std::uint32_t slice) {
    const auto done = static_cast<std::uint32_t>(Here(slice).state().version());
    Frame record = Push(slice, {done / 12, done / 4 % 3, done % 4}, Verdict::kApply);
    record.header.learning_rate = 1;
    ASSERT_TRUE(replication_.Record(*here_.Primary(slice), RecordKind::kUpdate, std::move(record)).ok());
  }
  // With the status APPLIED of each of the slices, of which it says all that is there.
  void Answer(std::uint64_t call, const std::vector<std::uint32_t>& slices) {
    DataReply reply{call, {}};
    PrimaryReplication::Needs needs;
    for (const std::uint32_t slice : slices) {
      reply.frames.push_back(ReplyTo(MakeFrame(FrameKind::kPush, slice).header, ReplyStatus::kApplied));
      if (replication_.released(slice) < Here(slice).sequence()) needs[slice] = Here(slice).sequence();
    }
    replication_.Answer(std::move(reply), std::move(needs), &told_);
  }
  // All that is to be sent arrives, and so do the answers.
  void Ship() {
    for (;;) {
      const std::vector<ReplicationCall> calls = replication_.Take(now_, cut_);
      if (calls.empty()) return;
      for (const ReplicationCall& call : calls) {
        EXPECT_EQ(call.address, "ps1");
        std::vector<Frame> answers;
        for (const Frame& frame : call.frames) {
          bool applied = false;
          answers.push_back(there_.Take(frame, /*mine=*/true, &applied));
          cuts_.push_back(frame.header.cut);
        }
        replication_.OnReply(call.call, answers, now_, &told_);
      }
    }
  }
  // What was told since: of each reply its first frame.
  Told Tell() {
    Told told;
    for (const DataReply& reply : std::exchange(told_, {})) {
      told.emplace_back(reply.call, reply.frames.at(0).header.status);
    }
    return told;
  }
  std::uint64_t LogBytes() const {
    v1::PsStats stats;
    replication_.Describe(&stats);
    return stats.log_bytes();
  }

  Time now_ = absl::Seconds(5);
  std::uint32_t cut_ = 0;
  std::vector<std::uint32_t> cuts_;  // of frames sent
  PsReplicas here_{0};
  PsReplicas there_{1};
  PrimaryReplication replication_{&here_, *ParseJobUid(kJobUid)};
  std::vector<DataReply> told_;
};

TEST_F(PrimaryReplicationTest, WhatIsSaidOfARecordWaitsForTheStandby) {
  ASSERT_NO_FATAL_FAILURE(Begin(Protected()));
  Answer(1, {0, 1});
  EXPECT_EQ(Tell(), (Told{{1, ReplyStatus::kApplied}})) << "there is nothing to wait for";
  Update(0);
  Answer(2, {1});
  EXPECT_EQ(Tell(), (Told{{2, ReplyStatus::kApplied}})) << "of another slice";
  Answer(3, {1, 0});
  EXPECT_EQ(Tell(), Told{});
  Ship();
  EXPECT_EQ(Tell(), (Told{{3, ReplyStatus::kApplied}}));
  EXPECT_EQ(There(0).sequence(), 1u);
  EXPECT_EQ(*There(0).state().value(), *Here(0).state().value());
  EXPECT_EQ(LogBytes(), 0u);
}

TEST_F(PrimaryReplicationTest, OfALagSoManyRecordsAreSaidEarlier) {
  v1::View view = Protected();
  view.set_replication_lag(1);
  ASSERT_NO_FATAL_FAILURE(Begin(view));
  EXPECT_EQ(replication_.released(0), 1u);
  Update(0);
  Answer(1, {0});
  EXPECT_EQ(Tell(), (Told{{1, ReplyStatus::kApplied}}));
  Update(0);
  Answer(2, {0});
  EXPECT_EQ(Tell(), Told{});
  Ship();
  EXPECT_EQ(Tell(), (Told{{2, ReplyStatus::kApplied}}));
  EXPECT_EQ(replication_.released(0), 3u);
  EXPECT_EQ(replication_.released(kForeignSlice), UINT64_MAX) << "nobody follows it";
}

TEST_F(PrimaryReplicationTest, AStandbyThatTheViewHasNotIsWaitedForUntilItCounts) {
  ASSERT_NO_FATAL_FAILURE(Begin(Protected()));
  Update(0);
  Answer(1, {0});
  ASSERT_NO_FATAL_FAILURE(Change(Alone(2)));
  Answer(2, {0});
  EXPECT_EQ(Tell(), Told{});
  replication_.Commit(&told_);
  EXPECT_EQ(Tell(), (Told{{1, ReplyStatus::kApplied}, {2, ReplyStatus::kApplied}}));
  Update(0);
  Answer(3, {0});
  EXPECT_EQ(Tell(), (Told{{3, ReplyStatus::kApplied}}));
  EXPECT_EQ(LogBytes(), 0u);
}

TEST_F(PrimaryReplicationTest, WhatWaitsForASliceThatHasGoneIsDeniedAndAllOfAHistoryThatIsOverRefused) {
  ASSERT_NO_FATAL_FAILURE(Begin(Protected()));
  for (const std::uint32_t slice : {0u, 1u}) {
    Update(slice);
    Answer(10 + slice, {slice});
  }
  v1::View moved = Protected(2);
  moved.mutable_layout(0)->set_primary(1);
  moved.mutable_layout(0)->set_primary_replica(kStandby);
  moved.mutable_layout(0)->clear_standby();
  moved.mutable_layout(0)->clear_standby_replica();
  ASSERT_NO_FATAL_FAILURE(Change(moved));
  EXPECT_EQ(Tell(), (Told{{10, ReplyStatus::kWrongOwner}}));
  ASSERT_NO_FATAL_FAILURE(Begin(Protected()));
  EXPECT_EQ(Tell(), (Told{{11, ReplyStatus::kRefused}}));
  EXPECT_EQ(LogBytes(), 0u);
  Ship();
  EXPECT_EQ(There(1).sequence(), 0u) << "what was on its way is of the history before";
}

TEST_F(PrimaryReplicationTest, WhoJoinsGetsACopyWithTheCutAndThenEveryRecord) {
  ASSERT_NO_FATAL_FAILURE(Begin(Joining()));
  Update(0);
  EXPECT_TRUE(replication_.JoiningAreSettled(Joining())) << "the copy will have it";
  EXPECT_EQ(LogBytes(), 0u);
  Answer(1, {0});
  EXPECT_EQ(Tell(), (Told{{1, ReplyStatus::kApplied}})) << "it is not waited for before it has its copy";
  v1::DirectReply reply;
  replication_.Describe(Joining(), &reply);
  ASSERT_EQ(reply.replicas_size(), 2);
  EXPECT_FALSE(reply.replicas(0).level());
  EXPECT_EQ(reply.replicas(0).replica(), kStandby);
  cut_ = 6;
  Ship();
  EXPECT_EQ(cuts_.at(0), 6u);
  EXPECT_TRUE(replication_.JoiningAreSettled(Joining()));
  reply.Clear();
  replication_.Describe(Joining(), &reply);
  EXPECT_TRUE(reply.replicas(0).level());
  EXPECT_FALSE(reply.replicas(0).frozen());
  EXPECT_EQ(*There(0).state().value(), *Here(0).state().value());
  Update(0);
  EXPECT_FALSE(replication_.JoiningAreSettled(Joining()));
  Ship();
  EXPECT_TRUE(replication_.JoiningAreSettled(Joining()));
  EXPECT_EQ(There(0).sequence(), 2u);
}

TEST_F(PrimaryReplicationTest, WhatIsFrozenIsSaidToBeOnceTheOthersHaveAll) {
  ASSERT_NO_FATAL_FAILURE(Begin(Protected()));
  Update(0);
  v1::View view = Protected(2);
  view.mutable_layout(0)->set_frozen(true);
  ASSERT_NO_FATAL_FAILURE(Change(view));
  for (const bool there : {false, true}) {
    v1::DirectReply reply;
    replication_.Describe(view, &reply);
    ASSERT_EQ(reply.replicas_size(), 1);
    EXPECT_EQ(reply.replicas(0).slice(), 0u);
    EXPECT_EQ(reply.replicas(0).frozen(), there);
    Ship();
  }
}

TEST_F(PrimaryReplicationTest, TheLogIsFullForSlicesThatSomebodyFollows) {
  v1::View view = Protected();
  view.mutable_layout(1)->clear_standby();
  view.mutable_layout(1)->clear_standby_replica();
  ASSERT_NO_FATAL_FAILURE(Begin(view));
  constexpr std::uint64_t kBytes = kElements * sizeof(float);
  EXPECT_FALSE(replication_.LogIsFull(0, 0));
  Update(0);
  EXPECT_FALSE(replication_.LogIsFull(0, kBytes));
  EXPECT_TRUE(replication_.LogIsFull(0, kBytes - 1));
  EXPECT_FALSE(replication_.LogIsFull(1, 0)) << "nothing is kept of it";
  Ship();
  EXPECT_FALSE(replication_.LogIsFull(0, 0));
}

TEST_F(PrimaryReplicationTest, AnotherStepWidthIsARecordOfEverySliceThatHasAnother) {
  ASSERT_NO_FATAL_FAILURE(Begin(Protected()));
  const auto sequences = [this] { return std::pair(Here(0).sequence(), Here(1).sequence()); };
  using Two = std::pair<std::uint64_t, std::uint64_t>;
  replication_.SetStepWidth(3);
  EXPECT_EQ(sequences(), (Two{1, 1}));
  replication_.SetStepWidth(3);
  EXPECT_EQ(sequences(), (Two{1, 1}));
  Ship();
  EXPECT_EQ(There(1).state().step_width(), 3u);
}

TEST_F(PrimaryReplicationTest, PulledValuesAreKeptOfLiveSessionsForOptimizersThatNeedThem) {
  LiveSessions live;
  v1::DirectRequest members;
  members.set_members_version(1);
  members.add_sessions(kWorker);
  ASSERT_TRUE(live.Take(members).has_value());
  v1::View view = Protected();
  view.mutable_tensors(1)->set_kind(v1::BUFFER);
  for (const bool needed : {false, true}) {
    SCOPED_TRACE(needed);
    if (needed) {
      view.mutable_optimizer()->set_type(v1::DELAY_COMPENSATED_SGD);
      view.mutable_optimizer()->set_lambda(0.25);
    }
    ASSERT_NO_FATAL_FAILURE(Begin(view));
    for (const std::uint32_t slice : {0u, 1u, 0u}) replication_.KeepPulled(*here_.Primary(slice), kWorker, live);
    replication_.KeepPulled(*here_.Primary(0), kOther, live);
    EXPECT_EQ(Here(0).sequence(), needed ? 1u : 0u) << "once, and not of a session that is over";
    EXPECT_EQ(Here(1).sequence(), 0u) << "of a buffer";
    EXPECT_EQ(Here(0).keeps(kWorker), needed);
  }
  Ship();
  EXPECT_TRUE(There(0).keeps(kWorker));
  here_.Primary(0)->frozen = true;
  replication_.ForgetPulled(kWorker);
  EXPECT_TRUE(Here(0).keeps(kWorker)) << "it stays as it is";
  here_.Primary(0)->frozen = false;
  replication_.ForgetPulledOfOthers(live);
  EXPECT_TRUE(Here(0).keeps(kWorker));
  replication_.ForgetPulledOfOthers(LiveSessions());
  EXPECT_FALSE(Here(0).keeps(kWorker));
  replication_.KeepPulled(*here_.Primary(0), kWorker, live);
  replication_.ForgetPulled(kOther);
  EXPECT_TRUE(Here(0).keeps(kWorker));
  replication_.ForgetPulled(0);
  EXPECT_FALSE(Here(0).keeps(kWorker));
  Ship();
  EXPECT_FALSE(There(0).keeps(kWorker));
  EXPECT_EQ(There(0).sequence(), Here(0).sequence());
}

}  // namespace
}  // namespace downpour::core
