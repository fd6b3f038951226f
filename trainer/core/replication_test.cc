#include "trainer/core/replication.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "trainer/core/ps_replicas.h"
#include "trainer/core/testing/ps_messages.h"

namespace downpour::core {
namespace {

constexpr std::uint32_t kFollower = 1;  // the ps
constexpr std::uint64_t kReplica = 20;
constexpr std::size_t kRecordBytes = kElements * sizeof(float);
const absl::Status kNoAnswer = absl::DeadlineExceededError("no answer");

v1::View ViewWithPs(std::uint32_t epoch = 1, const std::string& address = "follower:1") {
  v1::View view = MakeView(1, 1, epoch);
  view.mutable_data()->set_sample_count(200);
  view.mutable_optimizer()->set_type(v1::MOMENTUM);
  view.mutable_optimizer()->set_momentum(0.9);
  for (std::uint32_t index = 0; index < 3; ++index) {
    v1::PsMember* member = view.add_ps();
    member->set_index(index);
    member->set_address(index == kFollower ? address : absl::StrCat("ps", index));
  }
  return view;
}

Frame Record(std::uint64_t sequence, std::uint32_t slice = 0) {
  Frame frame = Push(slice, kFirst, Verdict::kApply);
  frame.header.kind = FrameKind::kRecord;
  frame.header.record = RecordKind::kUpdate;
  frame.header.sequence = sequence;
  return frame;
}

class ReplicationTest : public ::testing::Test {
 protected:
  ReplicationTest() { Use({}); }
  void Use(const Replication::Options& options) {
    replication_ = std::make_unique<Replication>(options);
    replication_->SetView(ViewWithPs(), *ParseJobUid(kJobUid));
  }
  // A state of one vector, so of two parts.
  std::vector<ReplicationCall> Take() {
    return replication_->Take(now_, [this](std::uint32_t slice) -> std::optional<ReplicaCopy> {
      if (!has_state_) return std::nullopt;
      ReplicaCopy copy;
      copy.sequence = sequence_;
      copy.snapshot.number = slice;
      copy.snapshot.slice = {slice, 0, kElements};
      copy.snapshot.value = std::make_shared<const std::vector<float>>(kElements, 2.0F);
      copy.snapshot.table.set_slice(slice);
      return copy;
    });
  }
  ReplicationCall TakeOne() {
    std::vector<ReplicationCall> calls = Take();
    EXPECT_EQ(calls.size(), 1u);
    return calls.empty() ? ReplicationCall{} : calls[0];
  }
  void Append(std::uint64_t sequence, std::uint32_t slice = 0) {
    sequence_ = sequence;
    replication_->Append(slice, Record(sequence, slice));
  }
  static std::vector<Frame> Answers(const ReplicationCall& call, ReplyStatus status = ReplyStatus::kApplied) {
    std::vector<Frame> answers = call.frames;
    for (Frame& answer : answers) {
      const bool has = answer.header.kind == FrameKind::kRecord && status == ReplyStatus::kApplied;
      answer.header.kind = FrameKind::kReply;
      answer.header.status = status;
      if (!has) answer.header.sequence = 0;
      answer.payload = Payload();
    }
    return answers;
  }
  std::vector<std::uint32_t> Reply(const ReplicationCall& call) {
    return replication_->OnReply(call.call, Answers(call), now_);
  }
  static std::vector<std::uint64_t> Sequences(const ReplicationCall& call) {
    std::vector<std::uint64_t> sequences;
    sequences.reserve(call.frames.size());
    for (const Frame& frame : call.frames) sequences.push_back(frame.header.sequence);
    return sequences;
  }

  Time now_ = absl::Seconds(10);
  bool has_state_ = true;
  std::uint64_t sequence_ = 0;  // of the slices
  std::unique_ptr<Replication> replication_;
};

using Slices = std::vector<std::uint32_t>;
using Numbers = std::vector<std::uint64_t>;

TEST_F(ReplicationTest, AMessageIsNoLargerThanTheTransportTakesWithTheHeadersOfItsFrames) {
  replication_->Follow(0, kFollower, kReplica, /*has_all=*/true, 0);
  const Payload payload = Floats(std::vector<float>(1000));
  for (std::uint64_t sequence = 1; sequence <= 1200; ++sequence) {
    Frame record = Record(sequence);
    record.payload = payload;
    replication_->Append(0, std::move(record));
  }
  const ReplicationCall first = TakeOne();
  EXPECT_EQ(first.frames.size(), kMaxMessageBytes / (payload.size() + kFrameHeaderBytes));
  Reply(first);
  EXPECT_EQ(TakeOne().frames.size() + first.frames.size(), 1200u);
}

TEST_F(ReplicationTest, FirstComesTheCopyThenEveryRecordInOrder) {
  sequence_ = 3;
  EXPECT_FALSE(replication_->Wants(0));
  replication_->Follow(0, kFollower, kReplica, /*has_all=*/false, 3);
  EXPECT_TRUE(replication_->Wants(0));
  EXPECT_EQ(replication_->Followers(0), Numbers{kReplica});
  Append(4);
  EXPECT_EQ(replication_->log_bytes(), 0u) << "the copy will have it";
  EXPECT_EQ(replication_->held(0), UINT64_MAX) << "it is not waited for";

  const ReplicationCall first = TakeOne();
  EXPECT_EQ(first.address, "follower:1");
  EXPECT_GT(first.deadline, absl::ZeroDuration());
  ASSERT_EQ(first.frames.size(), 1u);
  const FrameHeader& header = first.frames[0].header;
  EXPECT_EQ(header.kind, FrameKind::kCopy);
  EXPECT_EQ(header.version, 0u);
  EXPECT_EQ(header.clock, 2u);
  EXPECT_EQ(header.sequence, 4u);
  EXPECT_EQ(header.replica, kReplica);
  EXPECT_EQ(header.job_uid, *ParseJobUid(kJobUid));
  EXPECT_EQ(header.generation, 1u);
  Append(5);
  EXPECT_EQ(replication_->log_bytes(), kRecordBytes) << "the copy is made";
  EXPECT_TRUE(Take().empty()) << "one call of a slice at a time";
  EXPECT_EQ(Reply(first), Slices{});
  const ReplicationCall second = TakeOne();
  ASSERT_EQ(second.frames.size(), 1u);
  EXPECT_EQ(second.frames[0].header.version, 1u);
  Append(6);
  EXPECT_EQ(replication_->held(0), UINT64_MAX);
  EXPECT_FALSE(replication_->AllHave(0, 4));
  EXPECT_EQ(Reply(second), Slices{0}) << "from now on it is waited for";
  EXPECT_EQ(replication_->held(0), 4u);
  EXPECT_TRUE(replication_->AllHave(0, 4));
  EXPECT_FALSE(replication_->level(0, kReplica)) << "what came during the copy is not there";
  EXPECT_GE(replication_->copied_bytes(), kRecordBytes);

  const ReplicationCall third = TakeOne();
  EXPECT_EQ(Sequences(third), (Numbers{5, 6}));
  EXPECT_EQ(third.frames[0].header.kind, FrameKind::kRecord);
  EXPECT_EQ(third.frames[0].header.replica, kReplica);
  Append(7);
  EXPECT_EQ(Reply(third), Slices{0});
  EXPECT_EQ(replication_->held(0), 6u);
  EXPECT_TRUE(replication_->level(0, kReplica)) << "what comes later is not answered before";
  EXPECT_FALSE(replication_->level(0, kReplica + 1));
  EXPECT_FALSE(replication_->level(1, kReplica));
  EXPECT_FALSE(replication_->AllHave(0, 7));
  Reply(TakeOne());
  EXPECT_TRUE(replication_->AllHave(0, 7));
  EXPECT_EQ(replication_->log_bytes(), 0u);
  EXPECT_EQ(replication_->logged_bytes(), 3 * kRecordBytes);
}

TEST_F(ReplicationTest, ACopyWaitsForTheStateAndOneFollowerOfAPsIsCopiedAtATime) {
  has_state_ = false;
  replication_->Follow(0, kFollower, kReplica, false, 0);
  replication_->Follow(1, kFollower, kReplica, false, 0);
  EXPECT_TRUE(Take().empty());
  EXPECT_GT(replication_->next_timer(), now_);
  EXPECT_LT(replication_->next_timer(), now_ + absl::Seconds(1));
  has_state_ = true;
  for (const std::uint32_t slice : {0u, 0u, 1u, 1u}) {
    const ReplicationCall call = TakeOne();
    ASSERT_EQ(call.frames.size(), 1u);
    EXPECT_EQ(call.frames[0].header.slice, slice);
    Reply(call);
  }
  EXPECT_TRUE(replication_->level(0, kReplica));
  EXPECT_TRUE(replication_->level(1, kReplica));
  EXPECT_TRUE(Take().empty());
  EXPECT_EQ(replication_->next_timer(), absl::InfiniteDuration()) << "nothing is left to be done";
}

TEST_F(ReplicationTest, RecordsThatComeMeanwhileGoTogether) {
  replication_->Follow(0, kFollower, kReplica, /*has_all=*/true, 0);
  EXPECT_TRUE(Take().empty());
  EXPECT_EQ(replication_->next_timer(), absl::InfiniteDuration()) << "it has all there is";
  EXPECT_EQ(replication_->held(0), 0u);
  EXPECT_TRUE(replication_->level(0, kReplica));
  Append(1);
  const ReplicationCall first = TakeOne();
  EXPECT_EQ(Sequences(first), Numbers{1});
  Append(2);
  Append(3);
  EXPECT_TRUE(Take().empty()) << "they could overtake the first";
  EXPECT_EQ(Reply(first), Slices{0});
  EXPECT_EQ(Sequences(TakeOne()), (Numbers{2, 3}));
}

TEST_F(ReplicationTest, SeveralSlicesGoInOneCallAndManyInSeveral) {
  for (std::uint32_t slice = 0; slice < 3; ++slice) {
    replication_->Follow(slice, kFollower, kReplica, true, 0);
    Append(1, slice);
  }
  const ReplicationCall call = TakeOne();
  ASSERT_EQ(call.frames.size(), 3u);
  EXPECT_EQ(Reply(call), (Slices{0, 1, 2}));

  Replication::Options options;
  options.message_bytes = kRecordBytes;
  options.calls_in_flight = 2;
  Use(options);
  for (std::uint32_t slice = 0; slice < 4; ++slice) {
    replication_->Follow(slice, kFollower, kReplica, true, 0);
    Append(1, slice);
    Append(2, slice);
  }
  std::vector<ReplicationCall> calls = Take();
  ASSERT_EQ(calls.size(), 2u) << "not more than that on their way to one ps";
  EXPECT_EQ(calls[0].frames.size(), 1u) << "it does not fit";
  EXPECT_NE(calls[0].frames[0].header.slice, calls[1].frames[0].header.slice);
  EXPECT_TRUE(Take().empty());
  Reply(calls[1]);
  EXPECT_EQ(Take().size(), 1u);
}

TEST_F(ReplicationTest, WhatIsLostIsSentAgainAfterABackOffThatGrows) {
  replication_->Follow(0, kFollower, kReplica, true, 0);
  Append(1);
  absl::Duration before = absl::ZeroDuration();
  for (int attempt = 0; attempt < 12; ++attempt) {
    const ReplicationCall call = TakeOne();
    EXPECT_EQ(Sequences(call), Numbers{1});
    EXPECT_EQ(replication_->OnReply(call.call, kNoAnswer, now_), Slices{});
    EXPECT_TRUE(Take().empty());
    const absl::Duration backoff = replication_->next_timer() - now_;
    EXPECT_GT(backoff, absl::ZeroDuration());
    EXPECT_GE(backoff, before);
    EXPECT_LE(backoff, absl::Milliseconds(250));
    now_ += backoff - absl::Nanoseconds(1);
    EXPECT_TRUE(Take().empty());
    now_ += absl::Nanoseconds(1);
    before = backoff;
  }
  EXPECT_GT(before, absl::Milliseconds(100));
  EXPECT_EQ(replication_->held(0), 0u);
  EXPECT_EQ(replication_->log_bytes(), kRecordBytes);
  EXPECT_EQ(Reply(TakeOne()), Slices{0});
  Append(2);
  Reply(TakeOne());
  EXPECT_TRUE(replication_->AllHave(0, 2)) << "no back-off is left";
}

TEST_F(ReplicationTest, AnAnswerThatDoesNotFitOrSaysNoHoldsNothing) {
  replication_->Follow(0, kFollower, kReplica, true, 0);
  Append(1);
  Append(2);
  const auto again = [this](const std::vector<Frame>& answers, const ReplicationCall& call) {
    replication_->OnReply(call.call, answers, now_);
    EXPECT_TRUE(Take().empty()) << "after a back-off";
    now_ += absl::Seconds(1);
  };
  ReplicationCall call = TakeOne();
  std::vector<Frame> answers = Answers(call);
  answers.pop_back();
  again(answers, call);
  EXPECT_EQ(replication_->held(0), 0u) << "one answer for two records";
  for (const ReplyStatus status : {ReplyStatus::kNotReady, ReplyStatus::kWrongOwner, ReplyStatus::kBehind,
                                   ReplyStatus::kCorrupt, ReplyStatus::kMalformed}) {
    call = TakeOne();
    EXPECT_EQ(Sequences(call), (Numbers{1, 2}));
    again(Answers(call, status), call);
    EXPECT_EQ(replication_->held(0), 0u);
  }
  // One of two is there.
  call = TakeOne();
  answers = Answers(call);
  answers[1].header.status = ReplyStatus::kCorrupt;
  answers[1].header.sequence = 0;
  again(answers, call);
  EXPECT_EQ(replication_->held(0), 1u);
  EXPECT_EQ(replication_->log_bytes(), kRecordBytes);
  call = TakeOne();
  EXPECT_EQ(Sequences(call), Numbers{2});
  // A replica cannot have what there is not.
  answers = Answers(call);
  answers[0].header.sequence = 99;
  replication_->OnReply(call.call, answers, now_);
  EXPECT_EQ(replication_->held(0), 2u);
}

TEST_F(ReplicationTest, APartOfACopyIsSentUntilItIsThere) {
  replication_->Follow(0, kFollower, kReplica, false, 0);
  for (const ReplyStatus status : {ReplyStatus::kMalformed, ReplyStatus::kBehind, ReplyStatus::kApplied}) {
    const ReplicationCall call = TakeOne();
    EXPECT_EQ(call.frames.at(0).header.version, 0u);
    replication_->OnReply(call.call, Answers(call, status), now_);
    now_ += absl::Seconds(1);
  }
  EXPECT_EQ(TakeOne().frames.at(0).header.version, 1u);
}

TEST_F(ReplicationTest, OfSeveralTheSlowestIsWaitedFor) {
  replication_->Follow(0, kFollower, kReplica, true, 0);
  replication_->Follow(0, 2, kReplica + 1, false, 0);
  EXPECT_EQ(replication_->Followers(0), (Numbers{kReplica, kReplica + 1}));
  Append(1);
  std::vector<ReplicationCall> calls = Take();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(Reply(calls[0]), Slices{0});
  EXPECT_EQ(replication_->held(0), 1u) << "the copy is not there";
  EXPECT_FALSE(replication_->AllHave(0, 1));
  EXPECT_EQ(replication_->log_bytes(), 0u) << "the copy has it";
  Reply(calls[1]);
  Reply(TakeOne());
  EXPECT_EQ(replication_->held(0), 1u);
  Append(2);
  calls = Take();
  ASSERT_EQ(calls.size(), 2u);
  Reply(calls[1]);
  EXPECT_EQ(replication_->held(0), 1u);
  EXPECT_EQ(replication_->log_bytes(), kRecordBytes) << "one needs it yet";
  EXPECT_EQ(Reply(calls[0]), Slices{0});
  EXPECT_EQ(replication_->held(0), 2u);
}

TEST_F(ReplicationTest, WhoFollowsNoMoreIsNotWaitedFor) {
  replication_->Follow(0, kFollower, kReplica, true, 0);
  replication_->Follow(0, 2, kReplica + 1, true, 0);
  Append(1);
  const std::vector<ReplicationCall> calls = Take();
  ASSERT_EQ(calls.size(), 2u);
  Reply(calls[1]);
  EXPECT_EQ(replication_->held(0), 0u);
  replication_->Unfollow(0, kReplica);
  EXPECT_EQ(replication_->held(0), 1u);
  EXPECT_EQ(replication_->log_bytes(), 0u);
  EXPECT_EQ(Reply(calls[0]), Slices{}) << "a late answer";
  EXPECT_TRUE(Take().empty());
  replication_->Unfollow(0, kReplica);
  replication_->Unfollow(5, kReplica);
  replication_->Unfollow(0, kReplica + 1);
  EXPECT_EQ(replication_->held(0), UINT64_MAX);
  EXPECT_TRUE(replication_->AllHave(0, 99)) << "nobody is left";
  EXPECT_FALSE(replication_->Wants(0));
  Append(2);
  EXPECT_EQ(replication_->log_bytes(), 0u);
}

TEST_F(ReplicationTest, ACopyThatIsGivenUpLetsTheNextBegin) {
  replication_->Follow(0, kFollower, kReplica, false, 0);
  replication_->Follow(1, kFollower, kReplica, false, 0);
  const ReplicationCall call = TakeOne();
  Append(1);
  replication_->Unfollow(0, kReplica);
  EXPECT_EQ(replication_->log_bytes(), 0u);
  EXPECT_EQ(TakeOne().frames.at(0).header.slice, 1u);
  EXPECT_EQ(Reply(call), Slices{});
}

TEST_F(ReplicationTest, AnotherViewIsTheStampOfWhatIsSentFromThenOn) {
  replication_->Follow(0, kFollower, kReplica, true, 0);
  Append(1);
  const ReplicationCall call = TakeOne();
  replication_->OnReply(call.call, kNoAnswer, now_);
  replication_->SetView(ViewWithPs(/*epoch=*/2, "elsewhere:2"), *ParseJobUid(kJobUid));
  replication_->Follow(0, kFollower, kReplica, true, 0);
  const ReplicationCall again = TakeOne();
  EXPECT_EQ(again.address, "elsewhere:2") << "at once, as it is another place";
  EXPECT_EQ(again.frames.at(0).header.epoch, 2u);
  EXPECT_EQ(Sequences(again), Numbers{1});
}

TEST_F(ReplicationTest, WhenAllIsForgottenLateAnswersSayNothing) {
  replication_->Follow(0, kFollower, kReplica, true, 0);
  Append(1);
  const ReplicationCall call = TakeOne();
  replication_->Clear();
  EXPECT_EQ(replication_->log_bytes(), 0u);
  EXPECT_FALSE(replication_->Wants(0));
  replication_->SetView(ViewWithPs(), *ParseJobUid(kJobUid));
  replication_->Follow(0, kFollower, kReplica, true, 0);
  EXPECT_EQ(Reply(call), Slices{});
  EXPECT_EQ(replication_->held(0), 0u);
  Append(1);
  EXPECT_NE(TakeOne().call, call.call);
}

// ---- between two ps, over a bad network

std::vector<std::string> BitsOf(const Replica& replica) {
  std::vector<std::string> parts;
  const absl::StatusOr<std::vector<Frame>> frames = CutCopy(replica.Export());
  if (!frames.ok()) return {frames.status().ToString()};
  for (const Frame& frame : *frames) {
    std::string& part = parts.emplace_back(absl::StrCat(frame.header.sequence, ":"));
    for (const auto& segment : frame.payload.segments()) part.append(segment.begin(), segment.end());
  }
  return parts;
}

class TwoPs {
 public:
  explicit TwoPs(std::uint32_t seed) : random_(seed) {
    v1::View view = ViewWithPs();
    for (auto& placement : *view.mutable_layout()) {
      placement.set_primary(0);
      placement.set_primary_replica(10);
      placement.set_joining(kFollower);
      placement.set_joining_replica(kReplica);
    }
    EXPECT_TRUE(primary_.Begin(view).ok());
    EXPECT_TRUE(follower_.Begin(view).ok());
    for (auto& [slice, entry] : primary_.entries()) {
      entry.replica.state().Initialise(Floats({1, 2, 3, static_cast<float>(slice)}));
      follows_[slice] = false;
      next_[slice] = 0;
    }
    Replication::Options options;
    options.message_bytes = kRecordBytes * (1 + Random(4));
    options.calls_in_flight = static_cast<int>(1 + Random(3));
    replication_ = std::make_unique<Replication>(options);
    replication_->SetView(view, *ParseJobUid(kJobUid));
  }

  std::uint32_t Random(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  void Act() {
    const std::uint32_t slice = Random(3);
    switch (Random(6)) {
      case 0:
        Follow(slice);
        break;
      case 1:
      case 2:
        DoRecord(slice);
        break;
      case 3:
        now_ += absl::Milliseconds(Random(100));
        break;
      default:
        Deliver(/*reliable=*/false);
        break;
    }
    Collect();
  }

  // Nothing is lost any more.
  void Settle() {
    for (const std::uint32_t slice : {0u, 1u, 2u}) Follow(slice);
    for (int step = 0; step < 2000; ++step) {
      Collect();
      if (calls_.empty() && replication_->next_timer() == absl::InfiniteDuration()) return;
      if (calls_.empty()) now_ = std::max(now_, replication_->next_timer());
      while (!calls_.empty()) Deliver(/*reliable=*/true);
    }
    FAIL() << "it does not come to rest";
  }

  void CheckAlike() {
    for (auto& [slice, entry] : primary_.entries()) {
      SCOPED_TRACE(absl::StrCat("slice ", slice));
      Replica& there = follower_.entries().at(slice).replica;
      // What is complete may be retired in one place only, which says the same.
      entry.replica.state().table().RetireComplete();
      there.state().table().RetireComplete();
      EXPECT_EQ(there.sequence(), entry.replica.sequence());
      EXPECT_TRUE(BitsOf(there) == BitsOf(entry.replica));
      EXPECT_EQ(replication_->held(slice), entry.replica.sequence());
      EXPECT_TRUE(replication_->level(slice, kReplica));
      EXPECT_TRUE(replication_->AllHave(slice, entry.replica.sequence()));
    }
    EXPECT_EQ(replication_->log_bytes(), 0u);
  }

 private:
  void Follow(std::uint32_t slice) {
    if (std::exchange(follows_[slice], true)) return;
    replication_->Follow(slice, kFollower, kReplica, false, primary_.Primary(slice)->replica.sequence());
  }

  void DoRecord(std::uint32_t slice) {
    Replica& replica = primary_.Primary(slice)->replica;
    const std::uint32_t next = next_[slice]++;
    Frame record = Push(slice, {0, next / 4, next % 4}, Random(5) == 0 ? Verdict::kSkip : Verdict::kApply,
                        static_cast<float>(Random(100)) / 8);
    record.header.kind = FrameKind::kRecord;
    record.header.record = RecordKind::kUpdate;
    record.header.sequence = replica.sequence() + 1;
    record.header.clock = replica.number();
    record.header.learning_rate = 0.01 * Random(10);
    ASSERT_TRUE(replica.Do(record).ok());
    replication_->Append(slice, std::move(record));
  }

  void Collect() {
    for (ReplicationCall& call : replication_->Take(
             now_, [this](std::uint32_t slice) { return std::optional(primary_.Primary(slice)->replica.Export()); })) {
      for (const ReplicationCall& other : calls_) {
        for (const Frame& a : call.frames) {
          for (const Frame& b : other.frames) EXPECT_NE(a.header.slice, b.header.slice) << "two calls of one slice";
        }
      }
      calls_.push_back(std::move(call));
    }
  }

  std::vector<Frame> Arrive(const ReplicationCall& call) {
    std::vector<Frame> answers;
    for (const Frame& frame : call.frames) {
      bool applied = false;
      answers.push_back(follower_.Take(frame, true, &applied));
    }
    return answers;
  }

  void Deliver(bool reliable) {
    if (!late_.empty() && Random(3) == 0) {  // long given up
      const std::size_t some = Random(static_cast<std::uint32_t>(late_.size()));
      Arrive(late_[some]);
      late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(some));
    }
    if (calls_.empty()) return;
    const std::size_t some = Random(static_cast<std::uint32_t>(calls_.size()));
    const ReplicationCall call = calls_[some];
    calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(some));
    const std::uint32_t fate = reliable ? 99 : Random(10);
    if (fate <= 1) {
      replication_->OnReply(call.call, kNoAnswer, now_);
      late_.push_back(call);
    } else if (fate == 2) {
      Arrive(call);
      replication_->OnReply(call.call, kNoAnswer, now_);
    } else {
      std::vector<Frame> answers = Arrive(call);
      if (fate == 3) answers = Arrive(call);  // twice
      if (fate == 4) {
        FrameHeader& one = answers[Random(static_cast<std::uint32_t>(answers.size()))].header;
        one.status = ReplyStatus::kCorrupt;
        one.sequence = 0;
      }
      replication_->OnReply(call.call, answers, now_);
      if (Random(4) == 0) {
        EXPECT_TRUE(replication_->OnReply(call.call, answers, now_).empty());
      }
    }
    for (const auto& [slice, entry] : primary_.entries()) {
      const std::uint64_t held = replication_->held(slice);
      if (held == UINT64_MAX) continue;
      EXPECT_LE(held, follower_.entries().at(slice).replica.sequence()) << "it is not held";
      EXPECT_GE(held, held_[slice]) << "what is held stays so";
      held_[slice] = held;
    }
  }

  std::mt19937 random_;
  PsReplicas primary_{0}, follower_{kFollower};
  std::unique_ptr<Replication> replication_;
  std::map<std::uint32_t, bool> follows_;
  std::map<std::uint32_t, std::uint32_t> next_;
  std::map<std::uint32_t, std::uint64_t> held_;
  std::vector<ReplicationCall> calls_, late_;
  Time now_ = absl::ZeroDuration();
};

TEST(ReplicationPropertyTest, TheFollowerEndsWithTheSameBitsWhateverIsLostOrComesTwice) {
  for (std::uint32_t seed = 0; seed < 150 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    TwoPs ps(seed);
    for (int step = 0; step < 120; ++step) ps.Act();
    ps.Settle();
    ps.CheckAlike();
  }
}

}  // namespace
}  // namespace downpour::core
