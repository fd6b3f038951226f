#include "trainer/core/ps.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/testing/ps_messages.h"

namespace downpour::core {
namespace {

class PsTest : public ::testing::Test {
 protected:
  explicit PsTest(std::size_t pending_bytes_limit = std::size_t{1} << 20) {
    PsOptions options;
    options.job_uid = kJobUid;
    options.session = kPsSession;
    options.pending_bytes_limit = pending_bytes_limit;
    options.has_store = true;
    ps_ = *PsCore::Create(options);
  }

  // Installs the view, lets the worker in and gives every slice here the value 0.
  void Begin() {
    ASSERT_EQ(ps_->OnDirect(MakeDirective(MakeView(), {kWorker}, 1), absl::ZeroDuration()).status(), v1::SYNC_OK);
    Initialise();
  }
  void Initialise(std::uint64_t generation = 1) {
    for (const std::uint32_t slice : {0u, 1u}) {
      Frame frame = WithFloats(MakeFrame(FrameKind::kInitialise, slice), 0);
      frame.header.generation = generation;
      ASSERT_EQ(SendOne(frame), ReplyStatus::kApplied);
    }
    ASSERT_TRUE(ps_->initialised());
  }

  using Replies = std::vector<PsCore::DataReply>;
  Replies Send(PsCore::CallId call, std::vector<Frame> frames) {
    Replies replies;
    ps_->OnData(call, std::move(frames), &replies);
    return replies;
  }
  // A call that is answered at once.
  Frame Ask(const Frame& frame) {
    Replies replies = Send(1000, {frame});
    EXPECT_EQ(replies.size(), 1u);
    EXPECT_EQ(replies.back().call, 1000u);
    EXPECT_EQ(replies.back().frames.size(), 1u);
    return replies.back().frames.front();
  }
  ReplyStatus SendOne(const Frame& frame) { return Ask(frame).header.status; }
  std::vector<float> Value(std::uint32_t slice) const { return *ps_->value(slice); }
  std::string Ledger() const { return ps_->ReadLedger().SerializeAsString(); }

  std::unique_ptr<PsCore> ps_;
};

std::vector<float> All(float value) { return std::vector<float>(kElements, value); }

TEST_F(PsTest, EveryRefusalHasItsReasonAndChangesNothing) {
  EXPECT_EQ(SendOne(Push(0, kFirst, Verdict::kApply)), ReplyStatus::kBehind) << "no view yet";
  ASSERT_EQ(ps_->OnDirect(MakeDirective(MakeView(), {kWorker}, 1), absl::ZeroDuration()).status(), v1::SYNC_OK);
  EXPECT_EQ(SendOne(Push(0, kFirst, Verdict::kApply)), ReplyStatus::kNotReady);
  EXPECT_EQ(SendOne(MakeFrame(FrameKind::kPull, 0)), ReplyStatus::kNotReady);
  // Views of later epochs than the first.
  ASSERT_EQ(ps_->OnDirect(MakeDirective(MakeView(2, 1, 5), {kWorker}, 2), absl::ZeroDuration()).status(), v1::SYNC_OK);
  const auto current = [](Frame frame) {
    frame.header.generation = 2;
    frame.header.epoch = 5;
    return frame;
  };
  for (const std::uint32_t slice : {0u, 1u}) {
    Frame frame = current(WithFloats(MakeFrame(FrameKind::kInitialise, slice), 3));
    Frame narrow = frame;
    narrow.header.codec = FrameCodec::kTopK;  // of as many bytes
    EXPECT_EQ(SendOne(narrow), ReplyStatus::kMalformed);
    ASSERT_EQ(SendOne(frame), ReplyStatus::kApplied);
    EXPECT_EQ(SendOne(frame), ReplyStatus::kDuplicate) << "the first value counts";
  }

  struct Case {
    const char* name;
    std::function<void(Frame&)> spoil;
    ReplyStatus expected;
  };
  const Case cases[] = {
      {"another job", [](Frame& frame) { frame.header.job_uid[3] ^= 1; }, ReplyStatus::kRefused},
      {"an older generation", [](Frame& frame) { frame.header.generation = 1; }, ReplyStatus::kRefused},
      {"a newer generation", [](Frame& frame) { frame.header.generation = 3; }, ReplyStatus::kBehind},
      {"a session that is not live", [](Frame& frame) { frame.header.session = 6; }, ReplyStatus::kRefused},
      {"an older epoch", [](Frame& frame) { frame.header.epoch = 4; }, ReplyStatus::kStaleView},
      {"a newer epoch", [](Frame& frame) { frame.header.epoch = 6; }, ReplyStatus::kBehind},
      {"a wrong checksum", [](Frame& frame) { frame.header.status = ReplyStatus::kCorrupt; }, ReplyStatus::kCorrupt},
      {"no such slice", [](Frame& frame) { frame.header.slice = 3; }, ReplyStatus::kMalformed},
      {"another's slice", [](Frame& frame) { frame.header.slice = kForeignSlice; }, ReplyStatus::kWrongOwner},
      {"no such dataset epoch",
       [](Frame& frame) {
         frame.header.update = {2, 0, 0};
       },
       ReplyStatus::kMalformed},
      {"no such data shard",
       [](Frame& frame) {
         frame.header.update = {0, 3, 0};
       },
       ReplyStatus::kMalformed},
      {"no such update",
       [](Frame& frame) {
         frame.header.update = {0, 0, 4};
       },
       ReplyStatus::kMalformed},
      {"too short",
       [](Frame& frame) {
         frame.payload = Floats({1, 2, 3});
       },
       ReplyStatus::kMalformed},
      {"too long",
       [](Frame& frame) {
         frame.payload = Floats({1, 2, 3, 4, 5});
       },
       ReplyStatus::kMalformed},
      {"a payload of no codec", [](Frame& frame) { frame.header.codec = FrameCodec::kNone; }, ReplyStatus::kMalformed},
      {"a payload of another codec's size", [](Frame& frame) { frame.header.codec = FrameCodec::kBf16; },
       ReplyStatus::kMalformed},
      {"a step without a gradient", [](Frame& frame) { frame.payload = Payload(); }, ReplyStatus::kMalformed},
      {"a reply", [](Frame& frame) { frame.header.kind = FrameKind::kReply; }, ReplyStatus::kMalformed},
  };
  const std::string before = Ledger();
  for (const Case& refused : cases) {
    SCOPED_TRACE(refused.name);
    for (const Verdict verdict : {Verdict::kApply, Verdict::kPending}) {
      Frame frame = current(Push(0, kFirst, verdict));
      refused.spoil(frame);
      const Frame reply = Ask(frame);
      EXPECT_EQ(reply.header.status, refused.expected);
      EXPECT_EQ(reply.header.kind, FrameKind::kReply);
      EXPECT_EQ(reply.payload.size(), 0u);
      EXPECT_EQ(Ledger(), before);
      EXPECT_EQ(Value(0), All(3));
      EXPECT_EQ(ps_->pending_bytes(), 0u);
    }
  }
  EXPECT_EQ(SendOne(current(VerdictFrame(kFirst, Verdict::kPending))), ReplyStatus::kMalformed);
  EXPECT_EQ(SendOne(current(Push(0, kFirst, Verdict::kApply))), ReplyStatus::kApplied);
}

TEST_F(PsTest, GradientsAreDecoded) {
  Begin();
  const std::vector<float> gradient = {-1, 0.5f, 0, 2};
  std::uint32_t group = 0;
  for (const FrameCodec codec :
       {FrameCodec::kFp32, FrameCodec::kBf16, FrameCodec::kInt8, FrameCodec::kTopK, FrameCodec::kOneBit}) {
    std::vector<std::uint8_t> bytes(EncodedBytes(codec, 0.5, kElements));
    Encode(codec, 0.5, gradient, bytes.data());
    std::vector<float> expected = Value(0);
    std::vector<float> step(kElements);
    ASSERT_TRUE(Decode(codec, Payload({absl::MakeConstSpan(bytes)}, nullptr), absl::MakeSpan(step)));
    for (std::uint32_t i = 0; i < kElements; ++i) expected[i] -= step[i];
    Frame push = Push(0, {0, 0, 0}, Verdict::kApply);
    push.header.update = {group / 4, 0, group % 4};
    ++group;
    push.header.codec = codec;
    push.payload = OwningPayload(std::move(bytes));
    EXPECT_EQ(SendOne(push), ReplyStatus::kApplied);
    EXPECT_EQ(Value(0), expected);
  }
}

// Whether the verdict is known or comes later: nothing of it takes effect.
TEST_F(PsTest, WhatDoesNotDecodeIsMalformed) {
  Begin();
  const std::pair<FrameCodec, std::vector<std::uint8_t>> payloads[] = {
      {FrameCodec::kInt8, {0, 0, 0xc0, 0x7f, 1, 2, 3, 4}},       // a scale of NaN
      {FrameCodec::kInt8, {0, 0, 0x80, 0x7f, 1, 2, 3, 4}},       // infinity
      {FrameCodec::kTopK, {4, 0, 0, 0, 0, 0, 0x80, 0x3f}},       // an index out of range
      {FrameCodec::kOneBit, {0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0}},  // a mean of NaN
      {FrameCodec::kOneBit, {0, 0, 0, 0, 0, 0, 0, 0, 0x10}},     // a fifth value
  };
  const std::string before = Ledger();
  for (const auto& [codec, bytes] : payloads) {
    Frame push = Push(0, kFirst, Verdict::kPending);
    push.header.codec = codec;
    push.payload = OwningPayload(bytes);
    EXPECT_TRUE(Send(1, {push}).empty());
    const Replies replies = Send(2, {VerdictFrame(kFirst, Verdict::kApply)});
    ASSERT_EQ(replies.size(), 2u);
    EXPECT_EQ(replies[0].frames[0].header.status, ReplyStatus::kMalformed);
    push.header.verdict = Verdict::kApply;
    EXPECT_EQ(SendOne(push), ReplyStatus::kMalformed);
    EXPECT_EQ(Ledger(), before);
    EXPECT_EQ(Value(0), All(0));
    // So that the next pending push waits again.
    EXPECT_EQ(SendOne(VerdictFrame(kSecond, Verdict::kApply)), ReplyStatus::kApplied);
  }
}

TEST_F(PsTest, ValuesComeInBf16WhereTheyAreAskedForSo) {
  Begin();
  EXPECT_EQ(SendOne(Push(0, kFirst, Verdict::kApply, 1.0f / 3)), ReplyStatus::kApplied);
  for (const bool push : {false, true}) {
    Frame frame = push ? Push(0, kFirst, Verdict::kApply) : MakeFrame(FrameKind::kPull, 0);
    frame.header.want_value = push;
    frame.header.want_bf16 = true;
    const Frame reply = Ask(frame);
    EXPECT_EQ(reply.header.codec, FrameCodec::kBf16);
    EXPECT_FALSE(reply.header.want_bf16);
    EXPECT_EQ(reply.header.elements, kElements);
    std::vector<float> values(kElements);
    ASSERT_TRUE(Decode(FrameCodec::kBf16, reply.payload, absl::MakeSpan(values)));
    EXPECT_EQ(values, All(0.333984375f));
  }
  EXPECT_EQ(Value(0), All(1.0f / 3));
}

TEST_F(PsTest, AnUpdateIsAppliedOnceHoweverOftenAndInWhateverOrderItComes) {
  Begin();
  for (int repeat = 0; repeat < 5; ++repeat) {
    for (const UpdateId& update : {kSecond, kFirst, UpdateId{1, 2, 3}}) {
      const ReplyStatus status = SendOne(Push(0, update, Verdict::kApply));
      EXPECT_EQ(status, repeat == 0 ? ReplyStatus::kApplied : ReplyStatus::kDuplicate);
    }
    EXPECT_EQ(Value(0), All(3));
    EXPECT_EQ(Value(1), All(0));
  }
  // A skipped update is recorded as applied, without a step; its gradient need not come.
  Frame skipped = Push(0, {0, 1, 0}, Verdict::kSkip);
  skipped.payload = Payload();
  EXPECT_EQ(SendOne(skipped), ReplyStatus::kApplied);
  EXPECT_EQ(SendOne(Push(0, {0, 1, 0}, Verdict::kApply)), ReplyStatus::kDuplicate);
  EXPECT_EQ(Value(0), All(3));
  const v1::SliceLedger ledger = ps_->ReadLedger().slices(0);
  EXPECT_EQ(ledger.version(), 4u);
  EXPECT_EQ(ledger.skipped(), 1u);
  EXPECT_EQ(ps_->stats().skipped(), 1u);
}

TEST_F(PsTest, RetiredUpdatesStayDuplicates) {
  Begin();
  for (std::uint32_t group = 0; group < 4; ++group) {
    for (const std::uint32_t slice : {0u, 1u}) {
      EXPECT_EQ(SendOne(Push(slice, {0, 0, group}, Verdict::kApply)), ReplyStatus::kApplied);
    }
    v1::DirectRequest directive = MakeDirective(MakeView(), {kWorker}, 1);
    const std::uint64_t looked_at = ps_->tables_looked_at();
    directive.add_retire();  // dataset epoch 0, data shard 0
    v1::DirectReply reply = ps_->OnDirect(directive, absl::ZeroDuration());
    ASSERT_EQ(reply.shards_size(), 1);
    EXPECT_EQ(reply.shards(0).complete(), group == 3);
    EXPECT_FALSE(reply.shards(0).inspected());
    EXPECT_EQ(ps_->tables_looked_at() - looked_at, group == 3 ? 2u : 0u) << "only to retire it";
    directive.clear_retire();
    directive.add_inspect();
    reply = ps_->OnDirect(directive, absl::ZeroDuration());
    EXPECT_EQ(reply.shards(0).complete(), group == 3);
    if (group == 3) continue;
    EXPECT_TRUE(reply.shards(0).inspected());
    EXPECT_EQ(Bitmap::FromBytes(4, reply.shards(0).applied()).Count(), group + 1);
  }
  for (std::uint32_t group = 0; group < 4; ++group) {
    EXPECT_EQ(SendOne(Push(0, {0, 0, group}, Verdict::kApply)), ReplyStatus::kDuplicate);
  }
  EXPECT_EQ(Value(0), All(4));
}

// Two slices of one checkpoint that were cut at different moments: one before, one behind the end of an epoch.
TEST_F(PsTest, WhatIsCompleteIsKnownOfRestoredSlicesToo) {
  v1::View view = MakeView();
  view.mutable_restore()->set_checkpoint("cut-1");
  ASSERT_EQ(ps_->OnDirect(MakeDirective(view, {kWorker}, 1), absl::ZeroDuration()).status(), v1::SYNC_OK);
  ASSERT_TRUE(ps_->HasStoreWork());
  ASSERT_EQ(ps_->TakeRestore()->slices, (std::vector<std::uint32_t>{0, 1}));
  for (const std::uint32_t slice : {0u, 1u}) {
    SliceSnapshot snapshot;
    snapshot.number = slice;
    snapshot.value = std::make_shared<std::vector<float>>(kElements);
    snapshot.optimizer.type = "SGD";
    v1::EpochTable* epoch = nullptr;
    if (slice == 0) {
      snapshot.table.set_watermark(1);
    } else {
      epoch = snapshot.table.add_epochs();
      epoch->set_retired(std::string(1, '\x05'));  // shards 0 and 2; 1 is whole but for one update
      v1::ShardTable* open = epoch->add_open();
      open->set_shard(1);
      open->set_applied(std::string(1, '\x07'));
    }
    ASSERT_TRUE(ps_->OnSliceRestored(1, snapshot).ok());
  }
  ps_->OnRestored(1, absl::OkStatus());
  ASSERT_TRUE(ps_->initialised());
  const auto complete = [&](std::uint32_t shard) {
    v1::DirectRequest directive = MakeDirective(view, {kWorker}, 1);
    directive.add_retire()->set_shard(shard);
    return ps_->OnDirect(directive, absl::ZeroDuration()).shards(0).complete();
  };
  EXPECT_TRUE(complete(0));
  EXPECT_FALSE(complete(1));
  EXPECT_EQ(SendOne(Push(1, {0, 1, 3}, Verdict::kApply)), ReplyStatus::kApplied);
  EXPECT_TRUE(complete(1));
  EXPECT_TRUE(complete(2));
}

// A worker may push with a number that an older coordinator told it, before the new one orders a cut of the same
// number.
TEST_F(PsTest, ACutThatAPushWasAheadOfFails) {
  const auto order = [&](std::uint32_t cut) {
    v1::DirectRequest directive = MakeDirective(MakeView(), {kWorker}, 1);
    directive.set_sequence(cut);
    directive.mutable_cut()->set_cut(cut);
    return ps_->OnDirect(directive, absl::ZeroDuration()).cut();
  };
  Begin();
  Frame push = Push(0, kFirst, Verdict::kApply);
  push.header.cut = 2;
  ASSERT_EQ(SendOne(push), ReplyStatus::kApplied);
  EXPECT_EQ(ps_->MakeRegistration().highest_cut(), 2u);
  EXPECT_EQ(order(2).error(), "ps-0 has seen cut 2");
  EXPECT_EQ(order(3).error(), "");
}

// Two workers train, and the one may be no update ahead of the other.
class PsWithABoundTest : public PsTest {
 protected:
  static constexpr std::uint64_t kOther = kWorker + 1;

  PsWithABoundTest() {
    view_.set_mode(v1::BOUNDED_STALENESS);
    v1::DirectRequest directive = MakeDirective(view_, {kWorker, kOther}, 1);
    for (const std::uint64_t session : {kWorker, kOther}) directive.add_training(session);
    EXPECT_EQ(ps_->OnDirect(directive, absl::ZeroDuration()).status(), v1::SYNC_OK);
    Initialise();
  }
  static Frame WantingPush(std::uint64_t session, const UpdateId& update, std::uint64_t clock) {
    Frame push = Push(0, update, Verdict::kApply);
    push.header.session = session;
    push.header.want_value = true;
    push.header.clock = clock;
    return push;
  }
  static Frame Pull(std::uint64_t clock) {
    Frame pull = MakeFrame(FrameKind::kPull, 0);
    pull.header.begins_update = true;
    pull.header.clock = clock;
    return pull;
  }

  v1::View view_ = MakeView();
};

TEST_F(PsWithABoundTest, WhoIsAheadGetsItsValueOnceTheSlowestIsThere) {
  const Frame ahead = Ask(WantingPush(kWorker, kFirst, 1));
  EXPECT_EQ(ahead.header.status, ReplyStatus::kApplied);
  EXPECT_EQ(ahead.payload.size(), 0u) << "it may not begin another one yet";
  EXPECT_TRUE(Send(7, {Pull(1)}).empty());
  EXPECT_EQ(SendOne(MakeFrame(FrameKind::kPull, 0)), ReplyStatus::kValue) << "a task waits for nobody";
  // It asks again after its deadline: of both calls the newer one waits.
  const Replies again = Send(8, {Pull(1)});
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].call, 7u);
  EXPECT_EQ(again[0].frames[0].header.status, ReplyStatus::kSuperseded);
  const Replies replies = Send(9, {WantingPush(kOther, kSecond, 1)});
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].call, 9u);
  EXPECT_GT(replies[0].frames[0].payload.size(), 0u);
  EXPECT_EQ(replies[1].call, 8u);
  EXPECT_EQ(replies[1].frames[0].header.status, ReplyStatus::kValue);
  EXPECT_EQ(replies[1].frames[0].header.version, 2u) << "the value of now";
  EXPECT_EQ(replies[1].frames[0].header.clock, 1u);
}

TEST_F(PsWithABoundTest, APullWaitsForNobodyWhoIsOverOrIdle) {
  for (const bool over : {false, true}) {
    const std::uint64_t clock = over ? 2 : 1;
    ASSERT_EQ(SendOne(WantingPush(kWorker, over ? kSecond : kFirst, clock)), ReplyStatus::kApplied);
    ASSERT_TRUE(Send(clock, {Pull(clock)}).empty());
    v1::DirectRequest directive = MakeDirective(view_, {}, over ? 4 : 2);
    directive.set_members_since(over ? 3 : 1);
    if (over) {
      directive.add_ended(kOther);
    } else {
      directive.add_sessions(kOther);
    }
    ps_->OnDirect(directive, absl::ZeroDuration());
    const Replies replies = ps_->TakeOwedReplies();
    ASSERT_EQ(replies.size(), 1u);
    EXPECT_EQ(replies[0].frames[0].header.status, ReplyStatus::kValue);
    // Trains again.
    directive = MakeDirective(view_, {kOther}, 3);
    directive.set_members_since(2);
    directive.add_training(kOther);
    ps_->OnDirect(directive, absl::ZeroDuration());
  }
}

TEST_F(PsWithABoundTest, PullsOfASessionThatIsOverAreRefused) {
  ASSERT_EQ(SendOne(WantingPush(kWorker, kFirst, 1)), ReplyStatus::kApplied);
  ASSERT_TRUE(Send(7, {Pull(1)}).empty());
  v1::DirectRequest directive = MakeDirective(view_, {}, 2);
  directive.set_members_since(1);
  directive.add_ended(kWorker);
  ps_->OnDirect(directive, absl::ZeroDuration());
  const Replies replies = ps_->TakeOwedReplies();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].frames[0].header.status, ReplyStatus::kRefused);
}

TEST_F(PsTest, PendingPushesWaitForTheVerdict) {
  Begin();
  for (const Verdict verdict : {Verdict::kApply, Verdict::kSkip}) {
    const bool applies = verdict == Verdict::kApply;
    const UpdateId update = applies ? kFirst : kSecond;
    const float expected = 1;  // the second is skipped
    EXPECT_TRUE(Send(1, {Push(0, update, Verdict::kPending)}).empty());
    EXPECT_TRUE(Send(2, {Push(1, update, Verdict::kPending)}).empty());
    EXPECT_EQ(ps_->pending_bytes(), 2 * kElements * sizeof(float));
    EXPECT_EQ(Value(0), All(applies ? 0 : 1));
    EXPECT_FALSE(applies && Ask(MakeFrame(FrameKind::kPull, 0)).header.version != 0) << "a value before the verdict";
    const Replies replies = Send(3, {VerdictFrame(update, verdict)});
    ASSERT_EQ(replies.size(), 3u);
    for (const PsCore::DataReply& reply : replies) {
      ASSERT_EQ(reply.frames.size(), 1u);
      EXPECT_EQ(reply.frames[0].header.status, ReplyStatus::kApplied);
    }
    EXPECT_EQ(ps_->pending_bytes(), 0u);
    EXPECT_EQ(Value(0), All(expected));
    EXPECT_EQ(Value(1), All(expected));
  }
  EXPECT_EQ(ps_->ReadLedger().slices(0).skipped(), 1u);
}

TEST_F(PsTest, APushWithItsVerdictDecidesTheOnesThatWait) {
  Begin();
  EXPECT_TRUE(Send(1, {Push(0, kFirst, Verdict::kPending)}).empty());
  EXPECT_EQ(Send(2, {Push(1, kFirst, Verdict::kApply)}).size(), 2u);
  EXPECT_EQ(Value(0), All(1));
  EXPECT_EQ(Value(1), All(1));
}

TEST_F(PsTest, APendingPushOvertakenByItsVerdictIsCarriedOutAtOnce) {
  Begin();
  for (const Verdict verdict : {Verdict::kApply, Verdict::kSkip}) {
    const UpdateId update = verdict == Verdict::kApply ? kFirst : kSecond;
    EXPECT_EQ(SendOne(VerdictFrame(update, verdict)), ReplyStatus::kApplied);
    EXPECT_EQ(SendOne(Push(0, update, Verdict::kPending)), ReplyStatus::kApplied);
    EXPECT_EQ(Value(0), All(1));
    EXPECT_EQ(SendOne(Push(0, update, Verdict::kPending)), ReplyStatus::kDuplicate);
  }
  EXPECT_TRUE(Send(9, {Push(0, {0, 0, 2}, Verdict::kPending)}).empty()) << "the verdict on another update says nothing";
}

TEST_F(PsTest, PendingPushesOfAnEarlierUpdateAreSuperseded) {
  Begin();
  EXPECT_TRUE(Send(1, {Push(0, kFirst, Verdict::kPending), Push(1, kFirst, Verdict::kPending)}).empty());
  const Replies replies = Send(2, {Push(0, kSecond, Verdict::kPending)});
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].call, 1u);
  ASSERT_EQ(replies[0].frames.size(), 2u);
  for (const Frame& frame : replies[0].frames) EXPECT_EQ(frame.header.status, ReplyStatus::kSuperseded);
  EXPECT_EQ(ps_->pending_bytes(), kElements * sizeof(float));
  EXPECT_EQ(Send(3, {VerdictFrame(kSecond, Verdict::kApply)}).size(), 2u);
  EXPECT_EQ(Value(0), All(1));
  EXPECT_EQ(Value(1), All(0));
  EXPECT_EQ(SendOne(Push(1, kFirst, Verdict::kApply)), ReplyStatus::kApplied) << "it was not recorded";
}

Frame WithFactor(Frame frame, float factor) {
  frame.header.factor = factor;
  return frame;
}

TEST_F(PsTest, TheFactorOfTheVerdictIsThatOfAllPushesOfTheUpdate) {
  Begin();
  // One waits for a frame with the verdict.
  EXPECT_TRUE(Send(1, {Push(0, kFirst, Verdict::kPending, 8)}).empty());
  EXPECT_EQ(Send(2, {WithFactor(VerdictFrame(kFirst, Verdict::kApply), 0.25f)}).size(), 2u);
  EXPECT_EQ(Value(0), All(2));
  // One is overtaken by it.
  EXPECT_EQ(SendOne(Push(1, kFirst, Verdict::kPending, 8)), ReplyStatus::kApplied);
  EXPECT_EQ(Value(1), All(2));
  // One waits for a push that has it.
  EXPECT_TRUE(Send(3, {Push(0, kSecond, Verdict::kPending, 8)}).empty());
  EXPECT_EQ(Send(4, {WithFactor(Push(1, kSecond, Verdict::kApply, 8), 0.5f)}).size(), 2u);
  EXPECT_EQ(Value(0), All(6));
  EXPECT_EQ(Value(1), All(6));
  // The next update has its own.
  EXPECT_EQ(SendOne(Push(0, {0, 0, 2}, Verdict::kApply, 8)), ReplyStatus::kApplied);
  EXPECT_EQ(Value(0), All(14));
  EXPECT_EQ(SendOne(WithFactor(Push(1, {0, 0, 2}, Verdict::kApply, 8), 0)), ReplyStatus::kApplied);
  EXPECT_EQ(Value(1), All(6));
  for (const float factor : {-0.5f, 1.5f, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(SendOne(WithFactor(Push(0, {0, 0, 3}, Verdict::kApply), factor)), ReplyStatus::kMalformed);
    EXPECT_EQ(SendOne(WithFactor(VerdictFrame({0, 0, 3}, Verdict::kApply), factor)), ReplyStatus::kMalformed);
  }
}

// Mode Synchronous with two updates a step: those of group g of the data shards 0 and 1.
class SynchronousPsTest : public PsTest {
 protected:
  static constexpr std::uint64_t kOther = kWorker + 1;

  SynchronousPsTest() {
    view_.set_mode(v1::SYNCHRONOUS);
    view_.set_updates_per_step(2);
    EXPECT_EQ(ps_->OnDirect(MakeDirective(view_, {kWorker, kOther}, 1), absl::ZeroDuration()).status(), v1::SYNC_OK);
    Initialise();
  }
  static Frame Of(std::uint32_t slice, const UpdateId& update) { return Push(slice, update, Verdict::kApply); }
  static Frame Pull(std::uint32_t slice, const UpdateId& update) {
    Frame pull = MakeFrame(FrameKind::kPull, slice);
    pull.header.begins_update = true;
    pull.header.update = update;
    return pull;
  }
  float ValueOf(const Frame& reply) {
    float value = -1;
    reply.payload.ForEachFloats([&value](std::size_t, absl::Span<const float> run) { value = run[0]; });
    return value;
  }

  v1::View view_ = MakeView();
};

TEST_F(SynchronousPsTest, AnUpdateBeginsWithTheValueOfItsStep) {
  EXPECT_EQ(Ask(Pull(0, {0, 0, 0})).header.status, ReplyStatus::kValue);
  EXPECT_EQ(SendOne(Of(0, {0, 0, 0})), ReplyStatus::kApplied);
  EXPECT_TRUE(Send(7, {Pull(0, {0, 0, 1})}).empty());
  EXPECT_EQ(SendOne(MakeFrame(FrameKind::kPull, 0)), ReplyStatus::kValue) << "a task waits for nobody";
  Frame wanting = Of(0, {0, 1, 0});
  wanting.header.want_value = true;
  const Replies replies = Send(8, {wanting});
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[1].call, 7u);
  const Frame& value = replies[1].frames[0];
  EXPECT_EQ(value.header.status, ReplyStatus::kValue);
  EXPECT_EQ(ValueOf(value), 1) << "two updates, one step";
  EXPECT_EQ(value.header.update, (UpdateId{0, 0, 1})) << "the slice is at the second step";

  // The other slice has nothing of the first step: who runs it again there begins with what was there then.
  const Frame late = Ask(Pull(0, {0, 1, 0}));
  EXPECT_EQ(ValueOf(late), 0);
  EXPECT_EQ(late.header.update, (UpdateId{0, 0, 1}));
  EXPECT_EQ(ValueOf(Ask(Pull(1, {0, 1, 0}))), 0);
  EXPECT_EQ(SendOne(Of(0, {0, 1, 0})), ReplyStatus::kDuplicate);
  EXPECT_EQ(SendOne(Pull(0, {9, 0, 0})), ReplyStatus::kMalformed) << "the plan has no such update";
}

// Its value may be that of the next point: what is computed with it is no part of the evaluation that is over.
TEST_F(PsTest, WhoIsLateWithAnEvaluationBeginsNothing) {
  v1::View view = MakeView();
  view.set_mode(v1::SANDBLASTER);
  view.mutable_optimizer()->Clear();
  view.mutable_optimizer()->set_type(v1::LBFGS);
  view.mutable_optimizer()->set_history(2);
  v1::DirectRequest directive = MakeDirective(view, {kWorker}, 1);
  ASSERT_EQ(ps_->OnDirect(directive, absl::ZeroDuration()).status(), v1::SYNC_OK);
  Initialise();
  const auto pull = [this](const UpdateId& update) {
    Frame frame = MakeFrame(FrameKind::kPull, 0);
    frame.header.begins_update = true;
    frame.header.update = update;
    return SendOne(frame);
  };
  for (std::uint32_t shard = 0; shard < 3; ++shard) {
    for (std::uint32_t group = 0; group < 4; ++group) {
      EXPECT_EQ(pull({0, shard, group}), ReplyStatus::kValue);
      for (const std::uint32_t slice : {0u, 1u}) {
        EXPECT_EQ(SendOne(Push(slice, {0, shard, group}, Verdict::kApply)), ReplyStatus::kApplied);
      }
    }
    directive.add_retire()->set_shard(shard);
  }
  EXPECT_EQ(pull({0, 2, 3}), ReplyStatus::kValue) << "it is done, and the point still the same";
  directive.set_watermark(1);
  ASSERT_EQ(ps_->OnDirect(directive, absl::ZeroDuration()).status(), v1::SYNC_OK);
  EXPECT_EQ(pull({0, 2, 3}), ReplyStatus::kSuperseded);
  EXPECT_EQ(pull({1, 0, 0}), ReplyStatus::kValue);
  EXPECT_EQ(pull({2, 0, 0}), ReplyStatus::kMalformed);
  EXPECT_EQ(SendOne(MakeFrame(FrameKind::kPull, 0)), ReplyStatus::kValue) << "a task is about the newest";
}

// A norm that was clipped says nothing of the running statistics of a network.
TEST_F(SynchronousPsTest, TheFactorIsNotOfBuffers) {
  view_.mutable_tensors(1)->set_kind(v1::BUFFER);
  view_.mutable_stamp()->set_generation(2);
  ASSERT_EQ(ps_->OnDirect(MakeDirective(view_, {kWorker, kOther}, 1), absl::ZeroDuration()).status(), v1::SYNC_OK);
  for (const std::uint32_t slice : {0u, 1u}) {
    const auto of_now = [](Frame frame) {
      frame.header.generation = 2;
      frame.header.factor = 0.5;
      return frame;
    };
    SendOne(of_now(WithFloats(MakeFrame(FrameKind::kInitialise, slice), 0)));
    for (const std::uint32_t shard : {0u, 1u}) {
      EXPECT_EQ(SendOne(of_now(Of(slice, {0, shard, 0}))), ReplyStatus::kApplied);
    }
    EXPECT_EQ(Value(slice), All(slice == 0 ? 0.5f : 1.0f));
  }
}

TEST_F(SynchronousPsTest, WhoseOtherExecutionCameFirstIsInTheSnapshotAllTheSame) {
  v1::DirectRequest directive = MakeDirective(view_, {kWorker, kOther}, 1);
  directive.set_sequence(1);
  directive.mutable_cut()->set_cut(1);
  ps_->OnDirect(directive, absl::ZeroDuration());
  Frame behind = Of(0, {0, 0, 0});
  behind.header.cut = 1;
  behind.header.session = kOther;
  EXPECT_EQ(SendOne(behind), ReplyStatus::kApplied);
  EXPECT_EQ(Ask(Pull(0, {0, 0, 0})).header.cut, 1u) << "who begins with this is behind the cut";
  EXPECT_EQ(SendOne(Of(0, {0, 0, 0})), ReplyStatus::kDuplicate);
  directive.set_sequence(2);
  directive.mutable_cut()->set_sealed(true);
  ps_->OnDirect(directive, absl::ZeroDuration());
  const absl::StatusOr<SliceSnapshot> snapshot = ps_->TakeSnapshot(1, 0);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ(snapshot->table.version(), 1u);
  EXPECT_EQ(snapshot->optimizer.vectors.size(), 1u) << "what has arrived of the step";
}

// The history goes on, in another mode: what was on its way comes too late, what has arrived is there.
TEST_F(SynchronousPsTest, AnotherModeBeginsWithWhatIsThere) {
  v1::DirectRequest cut = MakeDirective(view_, {kWorker, kOther}, 1);
  cut.set_sequence(1);
  cut.mutable_cut()->set_cut(1);
  ps_->OnDirect(cut, absl::ZeroDuration());
  EXPECT_EQ(SendOne(Of(0, {0, 0, 0})), ReplyStatus::kApplied);
  EXPECT_EQ(Value(0), All(0));
  ASSERT_TRUE(Send(7, {Pull(0, {0, 0, 1})}).empty());
  ASSERT_TRUE(Send(8, {Push(0, {0, 1, 0}, Verdict::kPending)}).empty());

  v1::View bounded = MakeView(1, 1, 2);
  bounded.set_mode(v1::BOUNDED_STALENESS);
  v1::DirectRequest directive = MakeDirective(bounded, {kWorker, kOther}, 1);
  for (const std::uint64_t session : {kWorker, kOther}) directive.add_training(session);
  EXPECT_EQ(ps_->OnDirect(directive, absl::ZeroDuration()).members_version(), 1u);
  EXPECT_EQ(ps_->TakeOwedReplies().size(), 2u) << "a pull and a push that waited";
  EXPECT_EQ(Value(0), All(1)) << "half of a step is a step";
  EXPECT_EQ(ps_->ReadLedger().slices(0).version(), 1u);
  EXPECT_FALSE(ps_->TakeCutToWrite().has_value()) << "the cut is given up";

  EXPECT_EQ(SendOne(Of(0, {0, 1, 0})), ReplyStatus::kStaleView);
  const auto of_now = [](Frame frame) {
    frame.header.epoch = 2;
    return frame;
  };
  EXPECT_EQ(SendOne(of_now(Of(0, {0, 0, 0}))), ReplyStatus::kDuplicate);
  Frame ahead = of_now(Of(0, {0, 1, 0}));
  ahead.header.clock = 1;
  EXPECT_EQ(SendOne(ahead), ReplyStatus::kApplied);
  EXPECT_EQ(Value(0), All(2));
  Frame pull = of_now(Pull(0, {0, 1, 1}));
  pull.header.clock = 1;
  EXPECT_TRUE(Send(9, {pull}).empty()) << "the other one is waited for";

  // Steps again: those of the first one are on this slice, on the other none is.
  v1::View steps = view_;
  steps.mutable_stamp()->set_epoch(3);
  steps.set_mode_epoch(3);
  ps_->OnDirect(MakeDirective(steps, {kWorker, kOther}, 1), absl::ZeroDuration());
  const auto of_then = [](Frame frame) {
    frame.header.epoch = 3;
    return frame;
  };
  EXPECT_EQ(ValueOf(Ask(of_then(Pull(0, {0, 0, 0})))), 2) << "all that is there";
  EXPECT_EQ(SendOne(of_then(Of(1, {0, 0, 0}))), ReplyStatus::kApplied);
  EXPECT_TRUE(Send(10, {of_then(Pull(1, {0, 0, 1}))}).empty());
  EXPECT_EQ(SendOne(of_then(Of(0, {0, 0, 0}))), ReplyStatus::kDuplicate);
}

class PsWithLittleMemoryTest : public PsTest {
 protected:
  PsWithLittleMemoryTest() : PsTest(kElements * sizeof(float)) {}
};

TEST_F(PsWithLittleMemoryTest, PendingPushesBeyondTheLimitAreSentBack) {
  Begin();
  EXPECT_TRUE(Send(1, {Push(0, kFirst, Verdict::kPending)}).empty());
  EXPECT_EQ(SendOne(Push(1, kFirst, Verdict::kPending)), ReplyStatus::kSuperseded);
  EXPECT_EQ(ps_->pending_bytes(), kElements * sizeof(float));
  EXPECT_EQ(Send(2, {VerdictFrame(kFirst, Verdict::kApply)}).size(), 2u);
  EXPECT_EQ(ps_->pending_bytes(), 0u);
  EXPECT_EQ(SendOne(Push(1, kFirst, Verdict::kPending)), ReplyStatus::kApplied) << "the verdict is known now";
  EXPECT_EQ(Value(0), All(1));
  EXPECT_EQ(Value(1), All(1));
}

TEST_F(PsTest, AnEndedSessionIsRefusedAndItsPendingPushesAreReleased) {
  Begin();
  EXPECT_TRUE(Send(1, {Push(0, kFirst, Verdict::kPending)}).empty());
  ps_->OnDirect(MakeDirective(MakeView(), {9}, 2), absl::ZeroDuration());
  const Replies owed = ps_->TakeOwedReplies();
  ASSERT_EQ(owed.size(), 1u);
  EXPECT_EQ(owed[0].frames[0].header.status, ReplyStatus::kRefused);
  EXPECT_EQ(ps_->pending_bytes(), 0u);
  EXPECT_EQ(SendOne(Push(0, kFirst, Verdict::kApply)), ReplyStatus::kRefused);
  EXPECT_EQ(SendOne(VerdictFrame(kFirst, Verdict::kApply)), ReplyStatus::kRefused);
  // A directive that was overtaken does not bring it back.
  ps_->OnDirect(MakeDirective(MakeView(), {kWorker}, 1), absl::ZeroDuration());
  EXPECT_EQ(SendOne(Push(0, kFirst, Verdict::kApply)), ReplyStatus::kRefused);
  EXPECT_EQ(Value(0), All(0));
}

TEST_F(PsTest, ADifferenceCountsIfItBeginsWithAListThatWasHere) {
  constexpr std::uint64_t kAfter = 9;
  Begin();  // version 1
  const auto direct = [this](std::uint32_t incarnation, std::uint64_t since, std::uint64_t version,
                             std::vector<std::uint64_t> sessions, const std::vector<std::uint64_t>& ended) {
    v1::DirectRequest directive = MakeDirective(MakeView(1, incarnation), std::move(sessions), version);
    directive.set_members_since(since);
    for (const std::uint64_t session : ended) directive.add_ended(session);
    return ps_->OnDirect(directive, absl::ZeroDuration()).members_version();
  };
  const auto accepted = [this] {
    std::set<std::uint64_t> sessions;
    for (const std::uint64_t session : {kWorker, kAfter}) {
      Frame push = Push(0, kFirst, Verdict::kApply);
      push.header.session = session;
      if (SendOne(push) != ReplyStatus::kRefused) sessions.insert(session);
    }
    return sessions;
  };
  EXPECT_EQ(direct(1, /*since=*/2, 3, {kAfter}, {kWorker}), 1u) << "version 2 was never here";
  EXPECT_EQ(accepted(), std::set<std::uint64_t>{kWorker});
  EXPECT_EQ(direct(1, /*since=*/1, 2, {kAfter}, {}), 2u);
  EXPECT_EQ(accepted(), (std::set<std::uint64_t>{kWorker, kAfter}));
  EXPECT_EQ(direct(1, /*since=*/1, 3, {kAfter}, {kWorker}), 3u) << "as the answer before was lost";
  EXPECT_EQ(accepted(), std::set<std::uint64_t>{kAfter});
  EXPECT_EQ(direct(1, /*since=*/1, 2, {kAfter}, {}), 3u) << "it was overtaken";
  EXPECT_EQ(direct(1, /*since=*/3, 3, {}, {}), 3u);
  EXPECT_EQ(accepted(), std::set<std::uint64_t>{kAfter});

  // Another coordinator counts from the beginning, and says all of it first.
  EXPECT_EQ(direct(2, /*since=*/3, 4, {}, {kAfter}), 0u);
  EXPECT_EQ(accepted(), std::set<std::uint64_t>{kAfter});
  EXPECT_EQ(direct(2, /*since=*/0, 2, {kWorker}, {}), 2u);
  EXPECT_EQ(accepted(), std::set<std::uint64_t>{kWorker});
}

TEST_F(PsTest, TheValueInAReplyIsNotChangedByLaterPushes) {
  Begin();
  std::vector<Frame> held;
  for (std::uint32_t i = 0; i < 8; ++i) {
    const UpdateId update{i / 4, 0, i % 4};
    Frame push = Push(0, update, Verdict::kApply);
    push.header.want_value = true;
    push.header.version = i;
    held.push_back(Ask(push));
    if (i % 3 == 2) held.erase(held.begin());  // so that buffers are used again
    for (const Frame& reply : held) {
      std::size_t floats = 0;
      reply.payload.ForEachFloats([&](std::size_t, absl::Span<const float> run) {
        for (const float value : run) EXPECT_EQ(value, static_cast<float>(reply.header.version));
        floats += run.size();
      });
      EXPECT_EQ(floats, kElements);
    }
  }
  EXPECT_EQ(Value(0), All(8));
}

TEST_F(PsTest, AnOlderCoordinatorIsRefused) {
  Begin();
  ASSERT_EQ(ps_->OnDirect(MakeDirective(MakeView(1, 3), {kWorker}, 1), absl::ZeroDuration()).status(), v1::SYNC_OK);
  const std::string before = Ledger();
  for (const std::uint32_t incarnation : {1u, 2u}) {
    const v1::DirectReply reply = ps_->OnDirect(MakeDirective(MakeView(2, incarnation), {}, 100), absl::ZeroDuration());
    EXPECT_EQ(reply.status(), v1::SYNC_SESSION_ENDED);
  }
  EXPECT_EQ(Ledger(), before);
  EXPECT_EQ(ps_->MakeRegistration().highest_incarnation(), 3u);
  EXPECT_EQ(SendOne(Push(0, kFirst, Verdict::kApply)), ReplyStatus::kApplied) << "the session lives on";

  // From the answer to its registration on, too.
  v1::RegisterPsReply newer;
  newer.set_status(v1::SYNC_WAIT);
  newer.set_incarnation(4);
  ASSERT_TRUE(ps_->OnRegisterReply(newer, absl::ZeroDuration()).ok());
  EXPECT_EQ(ps_->OnDirect(MakeDirective(MakeView(1, 3), {kWorker}, 2), absl::ZeroDuration()).status(),
            v1::SYNC_SESSION_ENDED);

  v1::DirectRequest other_job = MakeDirective(MakeView(1, 4), {}, 1);
  other_job.set_job_uid("ff112233445566778899aabbccddeeff");
  EXPECT_EQ(ps_->OnDirect(other_job, absl::ZeroDuration()).status(), v1::SYNC_WRONG_JOB);
  v1::DirectRequest other_process = MakeDirective(MakeView(1, 4), {}, 1);
  other_process.set_session(kPsSession + 1);
  EXPECT_EQ(ps_->OnDirect(other_process, absl::ZeroDuration()).status(), v1::SYNC_REFUSED);
}

TEST_F(PsTest, AnotherJobsCoordinatorIsNotHeardAndNotAskedForEver) {
  Begin();
  v1::RegisterPsReply stranger;
  stranger.set_status(v1::SYNC_WRONG_JOB);
  stranger.set_incarnation(7);
  v1::RegisterPsReply ours;
  ours.set_status(v1::SYNC_OK);
  ours.set_incarnation(1);
  Time now = absl::ZeroDuration();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(ps_->OnRegisterReply(stranger, now).ok());
    EXPECT_TRUE(ps_->ShouldRegister(now));
    EXPECT_EQ(ps_->MakeRegistration().highest_incarnation(), 1u);
    now += WrongJob::kPatience - absl::Seconds(1);
    EXPECT_TRUE(ps_->OnRegisterReply(stranger, now).ok());
    EXPECT_TRUE(ps_->OnRegisterReply(ours, now).ok());
  }
  EXPECT_TRUE(ps_->OnRegisterReply(stranger, now).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(ps_->OnRegisterReply(stranger, now + WrongJob::kPatience)));
}

TEST_F(PsTest, ANewIncarnationKeepsWhatIsHereAndANewGenerationDropsIt) {
  Begin();
  EXPECT_EQ(SendOne(Push(0, kFirst, Verdict::kApply)), ReplyStatus::kApplied);
  ASSERT_EQ(ps_->OnDirect(MakeDirective(MakeView(1, 2), {kWorker}, 1), absl::ZeroDuration()).status(), v1::SYNC_OK);
  EXPECT_EQ(Value(0), All(1));
  EXPECT_EQ(SendOne(Push(0, kFirst, Verdict::kApply)), ReplyStatus::kDuplicate);
  EXPECT_TRUE(Send(1, {Push(1, kSecond, Verdict::kPending)}).empty());
  const v1::PsStats before = ps_->stats();
  EXPECT_GT(before.received_bytes(), 0u);

  ASSERT_EQ(ps_->OnDirect(MakeDirective(MakeView(2, 2), {kWorker}, 1), absl::ZeroDuration()).status(), v1::SYNC_OK);
  EXPECT_EQ(ps_->stats().received_bytes(), before.received_bytes()) << "they went over the network all the same";
  EXPECT_EQ(ps_->stats().sent_bytes(), before.sent_bytes());
  const Replies owed = ps_->TakeOwedReplies();
  ASSERT_EQ(owed.size(), 1u);
  EXPECT_EQ(owed[0].frames[0].header.status, ReplyStatus::kRefused);
  EXPECT_FALSE(ps_->initialised());
  EXPECT_EQ(ps_->pending_bytes(), 0u);
  EXPECT_EQ(SendOne(Push(0, kFirst, Verdict::kApply)), ReplyStatus::kRefused) << "of the history before";
  const v1::LedgerReply ledger = ps_->ReadLedger();
  for (const v1::SliceLedger& slice : ledger.slices()) {
    EXPECT_EQ(slice.version(), 0u);
    EXPECT_EQ(slice.epochs_size(), 0);
  }
  Initialise(2);
  Frame push = Push(0, kFirst, Verdict::kApply);
  push.header.generation = 2;
  EXPECT_EQ(SendOne(push), ReplyStatus::kApplied);
  EXPECT_EQ(Value(0), All(1));
}

TEST_F(PsTest, TheLearningRateFallsWithStaleness) {
  v1::View view = MakeView();
  view.mutable_optimizer()->set_staleness_aware(true);
  ASSERT_EQ(ps_->OnDirect(MakeDirective(view, {kWorker}, 1), absl::ZeroDuration()).status(), v1::SYNC_OK);
  Initialise();
  float expected = 0;
  for (std::uint32_t i = 0; i < 8; ++i) {
    ASSERT_EQ(SendOne(Push(0, {i / 4, 0, i % 4}, Verdict::kApply)), ReplyStatus::kApplied);  // computed at version 0
    expected += static_cast<float>(StalenessScale(i, 0));
    EXPECT_NEAR(Value(0)[0], expected, 1e-5);
  }
}

// What arrives in which order does not matter.
TEST_F(PsTest, TheLearningRateIsThatOfTheUpdatesPlaceInThePlanTimesTheScaleOfTheView) {
  v1::View view = MakeView();
  v1::ScheduleConfig& schedule = *view.mutable_optimizer()->mutable_schedule();
  schedule.set_type(v1::SCHEDULE_STEP);
  schedule.set_gamma(0.5);
  schedule.set_every_updates(2);
  ASSERT_EQ(ps_->OnDirect(MakeDirective(view, {kWorker}, 1), absl::ZeroDuration()).status(), v1::SYNC_OK);
  Initialise();
  float expected = 0;
  const auto push = [&](const UpdateId& update, float rate) {
    expected += rate;
    ASSERT_EQ(SendOne(Push(0, update, Verdict::kApply)), ReplyStatus::kApplied);
    EXPECT_EQ(Value(0), All(expected));
  };
  push({0, 0, 3}, 0.5f);
  push({1, 0, 0}, 1 / 64.0f);
  push({0, 0, 0}, 1);
  push({0, 1, 1}, 0.25f);

  v1::View scaled = view;
  scaled.mutable_stamp()->set_epoch(2);
  scaled.set_mode_epoch(2);
  scaled.set_learning_rate_scale(0.25);
  ASSERT_EQ(ps_->OnDirect(MakeDirective(scaled, {kWorker}, 2), absl::ZeroDuration()).status(), v1::SYNC_OK);
  Frame next = Push(0, {0, 0, 2}, Verdict::kApply);
  next.header.epoch = 2;
  ASSERT_EQ(SendOne(next), ReplyStatus::kApplied);
  EXPECT_EQ(Value(0), All(expected + 0.125f));
}

TEST_F(PsTest, AScheduleThatIsOutsideItsRangeIsRefused) {
  v1::View view = MakeView();
  view.mutable_optimizer()->mutable_schedule()->set_type(v1::SCHEDULE_STEP);
  EXPECT_EQ(ps_->OnDirect(MakeDirective(view, {kWorker}, 1), absl::ZeroDuration()).status(), v1::SYNC_REFUSED);
}

TEST_F(PsTest, ABufferTakesDifferencesAsTheyAreAndEachOnce) {
  v1::View view = MakeView();
  view.mutable_tensors(1)->set_kind(v1::BUFFER);
  view.mutable_optimizer()->set_learning_rate(0.25);
  view.mutable_optimizer()->set_staleness_aware(true);
  ASSERT_EQ(ps_->OnDirect(MakeDirective(view, {kWorker}, 1), absl::ZeroDuration()).status(), v1::SYNC_OK);
  Initialise();
  for (const std::uint32_t slice : {0u, 1u}) {
    Frame clipped = Push(slice, kFirst, Verdict::kApply, 3);
    clipped.header.factor = 0.5f;
    EXPECT_EQ(SendOne(clipped), ReplyStatus::kApplied);
    // Computed with the version before the first: stale by one.
    EXPECT_EQ(SendOne(Push(slice, kSecond, Verdict::kApply, 2)), ReplyStatus::kApplied);
    EXPECT_EQ(SendOne(Push(slice, kSecond, Verdict::kApply, 2)), ReplyStatus::kDuplicate);
    EXPECT_EQ(SendOne(Push(slice, {0, 0, 2}, Verdict::kSkip, 9)), ReplyStatus::kApplied);
  }
  EXPECT_EQ(Value(1), All(5));
  EXPECT_LT(Value(0).front(), 3.5f * 0.25f + 1e-6f);
  EXPECT_GT(Value(0).front(), 0);
}

// With delay compensation: a push of -1 at 0 makes 1, whatever else; later ones depend on the value that they are of.
class CompensatingPsTest : public PsTest {
 protected:
  static constexpr std::uint64_t kOther = 6;

  void SetUp() override {
    v1::OptimizerConfig& optimizer = *view_.mutable_optimizer();
    optimizer.set_type(v1::DELAY_COMPENSATED_SGD);
    optimizer.set_lambda(0.25);
    ASSERT_EQ(ps_->OnDirect(MakeDirective(view_, {kWorker, kOther}, 1), absl::ZeroDuration()).status(), v1::SYNC_OK);
    Initialise();
  }
  Frame Of(std::uint64_t session, Frame frame, std::uint64_t version = 0) {
    frame.header.session = session;
    frame.header.version = version;
    return frame;
  }
  void Pull(std::uint64_t session) {
    ASSERT_EQ(SendOne(Of(session, MakeFrame(FrameKind::kPull, 0))), ReplyStatus::kValue);
  }
  // With the new value in its answer, which is shared by the test no longer than this.
  float PushOne(std::uint64_t session, std::uint32_t group, std::uint64_t version) {
    Frame frame = Of(session, Push(0, {group / 4, 0, group % 4}, Verdict::kApply), version);
    frame.header.want_value = true;
    EXPECT_EQ(SendOne(frame), ReplyStatus::kApplied);
    return Value(0)[0];
  }

  v1::View view_ = MakeView();
};

TEST_F(CompensatingPsTest, ComparesWithTheValueThatTheSessionComputedWith) {
  Pull(kWorker);
  Pull(kOther);
  // The rate is 1, gradients are -1: minus (-1 + 0.25 * (value - pulled)).
  EXPECT_EQ(PushOne(kWorker, 0, 0), 1);
  EXPECT_EQ(PushOne(kWorker, 1, 1), 2) << "of the value in the answer";
  EXPECT_EQ(PushOne(kOther, 2, 0), 2 + 1 - 0.25f * 2);
  // It got a newer value and computed with an older one.
  Pull(kWorker);
  EXPECT_EQ(PushOne(kWorker, 3, 2), 2.5f + 1 - 0.25f * (2.5f - 2));
  EXPECT_EQ(PushOne(kOther, 4, 3), 3.375f + 1 - 0.25f * (3.375f - 2.5f));
}

TEST_F(CompensatingPsTest, WithoutThatValueTakesThePlainStep) {
  Pull(kOther);
  EXPECT_EQ(PushOne(kOther, 0, 0), 1);
  EXPECT_EQ(PushOne(kWorker, 1, 0), 2) << "it never pulled";
}

TEST_F(CompensatingPsTest, KeepsOneValueOfASessionAndNoneOfOneThatIsOver) {
  std::vector<std::weak_ptr<const std::vector<float>>> values;
  const auto alive = [&values] {
    std::set<const std::vector<float>*> different;
    for (const auto& value : values) different.insert(value.lock().get());
    return different.size() - different.count(nullptr);
  };
  for (const std::uint64_t session : {kWorker, kOther}) Pull(session);
  for (std::uint32_t i = 0; i < 6; ++i) {
    values.push_back(ps_->value(0));
    PushOne(kWorker, i, i);
  }
  values.push_back(ps_->value(0));
  // The first, of the other; the newest, of the worker too; the one before, which the next step is written over.
  EXPECT_EQ(alive(), 3u);
  for (std::uint32_t i = 0; i < 20; ++i) Pull(kOther);
  EXPECT_EQ(alive(), 3u);
  ASSERT_EQ(ps_->OnDirect(MakeDirective(view_, {kWorker}, 2), absl::ZeroDuration()).status(), v1::SYNC_OK);
  EXPECT_TRUE(values.front().expired());
  ASSERT_EQ(ps_->OnDirect(MakeDirective(MakeView(2), {kWorker}, 3), absl::ZeroDuration()).status(), v1::SYNC_OK);
  EXPECT_EQ(alive(), 0u);
}

TEST_F(CompensatingPsTest, GivesALateSliceTheStepThatItHadInTime) {
  Pull(kWorker);
  Pull(kOther);
  v1::DirectRequest directive = MakeDirective(view_, {kWorker, kOther}, 1);
  directive.mutable_cut()->set_cut(1);
  directive.set_sequence(1);
  ASSERT_EQ(ps_->OnDirect(directive, absl::ZeroDuration()).status(), v1::SYNC_OK);
  Frame of_the_cut = Of(kWorker, Push(0, kFirst, Verdict::kApply, 4));
  of_the_cut.header.cut = 1;
  ASSERT_EQ(SendOne(of_the_cut), ReplyStatus::kApplied);
  PushOne(kOther, 1, 0);  // late: of before the cut
  EXPECT_EQ(Value(0)[0], 4 + 1 - 0.25f * 4);
  directive.mutable_cut()->set_sealed(true);
  directive.set_sequence(2);
  ASSERT_EQ(ps_->OnDirect(directive, absl::ZeroDuration()).status(), v1::SYNC_OK);
  ASSERT_TRUE(ps_->TakeCutToWrite().has_value());
  EXPECT_EQ(*ps_->TakeSnapshot(1, 0)->value, All(1)) << "where nothing came between";
}

// Slices 0 and 1 have a standby at another ps, which hears what the test lets through.
class PsWithAStandbyTest : public PsTest {
 protected:
  static constexpr std::uint64_t kStandbySession = 78;

  PsWithAStandbyTest() {
    PsOptions options;
    options.job_uid = kJobUid;
    options.index = 1;
    options.session = kStandbySession;
    standby_ = *PsCore::Create(options);
  }

  // A view of slices 0 and 1 from what their placement is.
  v1::View ViewOf(std::uint32_t epoch, const std::function<void(v1::SlicePlacement*)>& place) const {
    v1::View view = MakeView(1, 1, epoch);
    view.set_mode_epoch(1);
    view.set_replication_factor(2);
    view.set_replication_lag(lag_);
    AddTwoPs(&view);
    for (const int slice : {0, 1}) place(view.mutable_layout(slice));
    return view;
  }
  v1::View Protected(std::uint32_t epoch) const {
    return ViewOf(epoch, [](v1::SlicePlacement* placement) {
      placement->set_standby(1);
      placement->set_standby_replica(9);
    });
  }
  v1::View FailedOver(std::uint32_t epoch) const {
    return ViewOf(epoch, [](v1::SlicePlacement* placement) {
      placement->set_primary(1);
      placement->set_primary_replica(9);
    });
  }
  v1::DirectReply Direct(PsCore& ps, const v1::View& view, bool committed = true) {
    v1::DirectRequest request = MakeDirective(view, {kWorker}, ++members_version_);
    if (&ps == standby_.get()) request.set_session(kStandbySession);
    request.set_committed(committed);
    v1::DirectReply reply = ps.OnDirect(request, now_);
    EXPECT_EQ(reply.status(), v1::SYNC_OK) << reply.message();
    for (DataReply& owed : ps.TakeOwedReplies()) told_.push_back(std::move(owed));
    return reply;
  }
  // Until the standbys are in sync.
  void Protect() {
    const v1::View joining = ViewOf(1, [](v1::SlicePlacement* placement) {
      placement->set_joining(1);
      placement->set_joining_replica(9);
    });
    Direct(*standby_, joining);
    Direct(*ps_, joining);
    Initialise();
    Ship();
    const v1::DirectReply reply = Direct(*ps_, joining);
    ASSERT_EQ(reply.replicas_size(), 2);
    for (const v1::ReplicaState& state : reply.replicas()) EXPECT_TRUE(state.level());
    Direct(*standby_, Protected(2));
    Direct(*ps_, Protected(2));
  }
  // All that is to be sent arrives, and so do the answers.
  void Ship() {
    for (;;) {
      const std::vector<ReplicationCall> calls = ps_->TakeReplicationCalls(now_);
      if (calls.empty()) return;
      for (const ReplicationCall& call : calls) Arrive(call);
    }
  }
  void Arrive(const ReplicationCall& call) {
    EXPECT_EQ(call.address, "ps1");
    Replies replies;
    standby_->OnData(1, call.frames, &replies);
    ASSERT_EQ(replies.size(), 1u);
    ps_->OnReplicationReply(call.call, replies[0].frames, now_, &told_);
  }
  // What the worker hears at once of a call with one frame; kNone: nothing yet.
  ReplyStatus Hears(PsCore::CallId call, const Frame& frame) {
    const Replies replies = Send(call, {frame});
    return replies.empty() ? ReplyStatus::kNone : replies.at(0).frames.at(0).header.status;
  }
  std::vector<std::pair<PsCore::CallId, ReplyStatus>> Told() {
    const Replies replies = std::exchange(told_, {});
    std::vector<std::pair<PsCore::CallId, ReplyStatus>> told;
    told.reserve(replies.size());
    for (const DataReply& reply : replies) told.emplace_back(reply.call, reply.frames[0].header.status);
    return told;
  }
  const SliceState& AtStandby(std::uint32_t slice) const {
    return standby_->replicas().entries().at(slice).replica.state();
  }

  Time now_ = absl::Seconds(5);
  std::uint32_t lag_ = 0;
  std::uint64_t members_version_ = 0;
  std::unique_ptr<PsCore> standby_;
  Replies told_;  // that became due later
};

using ToldOf = std::vector<std::pair<PsCore::CallId, ReplyStatus>>;

TEST_F(PsWithAStandbyTest, NothingIsSaidThatTheStandbyDoesNotHold) {
  ASSERT_NO_FATAL_FAILURE(Protect());
  EXPECT_EQ(Hears(1, Push(0, kFirst, Verdict::kApply)), ReplyStatus::kNone);
  EXPECT_EQ(Hears(2, Push(0, kFirst, Verdict::kApply)), ReplyStatus::kNone) << "a duplicate of it";
  EXPECT_EQ(Hears(3, MakeFrame(FrameKind::kPull, 0)), ReplyStatus::kNone) << "its value";
  EXPECT_EQ(Hears(4, MakeFrame(FrameKind::kPull, 1)), ReplyStatus::kValue) << "of another slice";
  std::vector<ReplicationCall> calls = ps_->TakeReplicationCalls(now_);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_FALSE(AtStandby(0).table().Contains(kFirst));
  // It is lost on its way.
  ps_->OnReplicationReply(calls[0].call, absl::DeadlineExceededError("no answer"), now_, &told_);
  EXPECT_EQ(Told(), ToldOf{});
  EXPECT_GT(ps_->stats().log_bytes(), 0u);
  now_ = ps_->replication_timer();
  calls = ps_->TakeReplicationCalls(now_);
  ASSERT_EQ(calls.size(), 1u);
  Arrive(calls[0]);
  EXPECT_EQ(Told(), (ToldOf{{1, ReplyStatus::kApplied}, {2, ReplyStatus::kDuplicate}, {3, ReplyStatus::kValue}}));
  EXPECT_TRUE(AtStandby(0).table().Contains(kFirst));
  EXPECT_EQ(*AtStandby(0).value(), Value(0));
  EXPECT_EQ(ps_->stats().log_bytes(), 0u);
  EXPECT_EQ(Hears(5, Push(0, kFirst, Verdict::kApply)), ReplyStatus::kDuplicate);
  // A call of several slices waits for all of them.
  EXPECT_TRUE(Send(6, {Push(0, kSecond, Verdict::kApply), Push(1, kSecond, Verdict::kApply)}).empty());
  Ship();
  EXPECT_EQ(Told(), (ToldOf{{6, ReplyStatus::kApplied}}));
}

// A sparse gradient of so many bytes may be one of any number of elements.
TEST_F(PsWithAStandbyTest, WhatThePrimaryTakesTheStandbyTakes) {
  ASSERT_NO_FATAL_FAILURE(Protect());
  Frame push = Push(0, kFirst, Verdict::kApply);
  push.header.elements = 99;
  EXPECT_EQ(Hears(1, push), ReplyStatus::kNone);
  Frame skip = Push(0, kSecond, Verdict::kSkip);
  skip.payload = Payload();
  EXPECT_EQ(Hears(2, skip), ReplyStatus::kNone);
  Ship();
  EXPECT_EQ(Told(), (ToldOf{{1, ReplyStatus::kApplied}, {2, ReplyStatus::kApplied}}));
}

TEST_F(PsWithAStandbyTest, OfALagSoManyUpdatesAreSaidEarlier) {
  lag_ = 2;
  ASSERT_NO_FATAL_FAILURE(Protect());
  for (std::uint32_t group = 0; group < 4; ++group) {
    const ReplyStatus heard = Hears(group, Push(0, {0, 0, group}, Verdict::kApply));
    EXPECT_EQ(heard, group < 2 ? ReplyStatus::kApplied : ReplyStatus::kNone) << group;
  }
  EXPECT_EQ(Hears(9, Push(0, kFirst, Verdict::kApply)), ReplyStatus::kNone) << "with the newest of the slice";
  Ship();
  EXPECT_EQ(Told().size(), 3u);
}

TEST_F(PsWithAStandbyTest, ALostStandbyIsWaitedForUntilTheViewWithoutItCounts) {
  ASSERT_NO_FATAL_FAILURE(Protect());
  EXPECT_EQ(Hears(1, Push(0, kFirst, Verdict::kApply)), ReplyStatus::kNone);
  const v1::View alone = ViewOf(3, [](v1::SlicePlacement*) {});
  EXPECT_FALSE(Direct(*ps_, alone, /*committed=*/false).committed());
  EXPECT_EQ(Told(), ToldOf{}) << "another coordinator may yet let the standby take over";
  EXPECT_EQ(Hears(2, Push(0, kSecond, Verdict::kApply)), ReplyStatus::kNone);
  EXPECT_TRUE(Direct(*ps_, alone).committed());
  EXPECT_EQ(Told(), (ToldOf{{1, ReplyStatus::kApplied}, {2, ReplyStatus::kApplied}}));
  EXPECT_EQ(Hears(3, Push(1, kFirst, Verdict::kApply)), ReplyStatus::kApplied);
  EXPECT_EQ(ps_->stats().log_bytes(), 0u);
}

TEST_F(PsWithAStandbyTest, AStandbyThatTakesOverKnowsWhatWasSaid) {
  ASSERT_NO_FATAL_FAILURE(Protect());
  Send(1, {Push(0, kFirst, Verdict::kApply)});
  Ship();
  EXPECT_EQ(Told(), (ToldOf{{1, ReplyStatus::kApplied}}));
  EXPECT_EQ(Hears(2, Push(0, kSecond, Verdict::kApply)), ReplyStatus::kNone) << "this one it never hears of";
  Direct(*standby_, FailedOver(3));
  const auto ask = [this](const Frame& frame) {
    Replies replies;
    standby_->OnData(7, {frame}, &replies);
    return replies.empty() ? ReplyStatus::kNone : replies.at(0).frames.at(0).header.status;
  };
  EXPECT_EQ(ask(Push(0, kFirst, Verdict::kApply)), ReplyStatus::kDuplicate);
  EXPECT_EQ(ask(Push(0, kSecond, Verdict::kApply)), ReplyStatus::kApplied) << "nobody waits for the one before";
  EXPECT_EQ(*standby_->value(0), All(2));
  // If the one before lives on, it finds out: what waited there is asked for elsewhere.
  Direct(*ps_, FailedOver(3));
  EXPECT_EQ(Told(), (ToldOf{{2, ReplyStatus::kWrongOwner}}));
  EXPECT_EQ(Hears(3, Push(0, kFirst, Verdict::kApply)), ReplyStatus::kWrongOwner);
  EXPECT_EQ(ps_->value(0), nullptr);
}

TEST_F(PsWithAStandbyTest, WhatIsFrozenTakesNothingAndSaysWhenTheOthersHaveAll) {
  ASSERT_NO_FATAL_FAILURE(Protect());
  EXPECT_EQ(Hears(1, Push(0, kFirst, Verdict::kApply)), ReplyStatus::kNone);
  v1::View frozen = Protected(3);
  frozen.mutable_layout(0)->set_frozen(true);
  v1::DirectReply reply = Direct(*ps_, frozen);
  ASSERT_EQ(reply.replicas_size(), 1);
  EXPECT_FALSE(reply.replicas(0).frozen()) << "the standby lacks one";
  EXPECT_EQ(Hears(2, Push(0, kSecond, Verdict::kApply)), ReplyStatus::kBehind);
  Ship();
  EXPECT_EQ(Told(), (ToldOf{{1, ReplyStatus::kApplied}}));
  reply = Direct(*ps_, frozen);
  EXPECT_TRUE(reply.replicas(0).frozen());
  EXPECT_EQ(Hears(3, MakeFrame(FrameKind::kPull, 0)), ReplyStatus::kBehind);
  EXPECT_EQ(Hears(4, MakeFrame(FrameKind::kPull, 1)), ReplyStatus::kValue);
}

}  // namespace
}  // namespace downpour::core
