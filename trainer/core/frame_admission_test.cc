#include "trainer/core/frame_admission.h"

#include <functional>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/testing/ps_messages.h"

namespace downpour::core {
namespace {

// A ps of two slices with values, in generation 3 and epoch 5; its mode is of epoch 4.
class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest() {
    view_.set_mode_epoch(4);
    v1::DirectRequest members;
    members.set_members_version(1);
    members.add_sessions(kWorker);
    EXPECT_TRUE(sessions_.Take(members).has_value());
    Begin();
  }
  void Begin() {
    ASSERT_TRUE(replicas_.Begin(view_).ok());
    for (const std::uint32_t slice : {0u, 1u}) Initialise(slice);
  }
  void Initialise(std::uint32_t slice) {
    replicas_.Primary(slice)->replica.state().Initialise(WithFloats(Frame(), 0).payload);
  }
  static Frame Current(Frame frame) {
    frame.header.generation = 3;
    frame.header.epoch = 5;
    return frame;
  }
  ReplyStatus Check(const Frame& frame, PlantedBug bug = PlantedBug::kNone, bool thawed = false) const {
    return FrameAdmission{uid_, view_, sessions_, replicas_, thawed, bug}.Check(frame);
  }
  ReplyStatus Check(Frame frame, const std::function<void(FrameHeader&)>& spoil) const {
    spoil(frame.header);
    return Check(frame);
  }

  JobUid uid_ = *ParseJobUid(kJobUid);
  v1::View view_ = MakeView(3, 1, 5);
  LiveSessions sessions_;
  PsReplicas replicas_{0};
};

TEST_F(AdmissionTest, WhateverTheKindTheFrameIsOfThisHistoryOfALiveSessionAndOfThisMode) {
  const Frame frames[] = {Current(Push(0, kFirst, Verdict::kApply)), Current(Push(0, kFirst, Verdict::kPending)),
                          Current(MakeFrame(FrameKind::kPull, 1)),
                          Current(WithFloats(MakeFrame(FrameKind::kInitialise, 0), 1)),
                          Current(VerdictFrame(kFirst, Verdict::kSkip))};
  for (const Frame& frame : frames) {
    SCOPED_TRACE(static_cast<int>(frame.header.kind));
    EXPECT_EQ(Check(frame), ReplyStatus::kNone);
    EXPECT_EQ(Check(frame, [](FrameHeader& header) { header.epoch = 4; }), ReplyStatus::kNone) << "of this mode";
    EXPECT_EQ(Check(frame, [](FrameHeader& header) { header.epoch = 3; }), ReplyStatus::kStaleView);
    EXPECT_EQ(Check(frame, [](FrameHeader& header) { header.epoch = 6; }), ReplyStatus::kBehind);
    EXPECT_EQ(Check(frame, [](FrameHeader& header) { header.generation = 2; }), ReplyStatus::kRefused);
    EXPECT_EQ(Check(frame, [](FrameHeader& header) { header.generation = 4; }), ReplyStatus::kBehind);
    EXPECT_EQ(Check(frame, [](FrameHeader& header) { header.session = 9; }), ReplyStatus::kRefused);
    EXPECT_EQ(Check(frame, [](FrameHeader& header) { header.job_uid[5] ^= 1; }), ReplyStatus::kRefused);
    EXPECT_EQ(Check(frame, [](FrameHeader& header) { header.factor = 1.5F; }), ReplyStatus::kMalformed);
    EXPECT_EQ(Check(frame, [](FrameHeader& header) { header.status = ReplyStatus::kCorrupt; }), ReplyStatus::kCorrupt);
  }
  view_.clear_stamp();
  for (const Frame& frame : frames) EXPECT_EQ(Check(frame), ReplyStatus::kBehind);
}

TEST_F(AdmissionTest, WhatIsAskedOfASliceIsAskedOfItsPrimaryThatIsNotFrozen) {
  for (const FrameKind kind : {FrameKind::kPush, FrameKind::kPull, FrameKind::kInitialise}) {
    SCOPED_TRACE(static_cast<int>(kind));
    Frame frame = Current(Push(0, kFirst, Verdict::kApply));
    frame.header.kind = kind;
    EXPECT_EQ(Check(frame), ReplyStatus::kNone);
    EXPECT_EQ(Check(frame, [](FrameHeader& header) { header.slice = kForeignSlice; }), ReplyStatus::kWrongOwner);
    EXPECT_EQ(Check(frame, [](FrameHeader& header) { header.slice = 3; }), ReplyStatus::kMalformed);
    replicas_.Primary(0)->frozen = true;
    EXPECT_EQ(Check(frame), ReplyStatus::kBehind);
    EXPECT_EQ(Check(frame, PlantedBug::kNone, /*thawed=*/true), ReplyStatus::kNone);
    EXPECT_EQ(Check(frame, [](FrameHeader& header) { header.slice = 1; }), ReplyStatus::kNone);
    replicas_.Primary(0)->frozen = false;
  }
  for (const FrameKind kind : {FrameKind::kReply, FrameKind::kRecord, FrameKind::kCopy}) {
    EXPECT_EQ(Check(Current(MakeFrame(kind, 0))), ReplyStatus::kMalformed);
  }
}

TEST_F(AdmissionTest, OnlyAFirstValueIsTakenBeforeThereIsOneAndNoneThatComesWithACheckpoint) {
  ASSERT_TRUE(replicas_.Begin(view_).ok());
  Initialise(1);
  EXPECT_EQ(Check(Current(Push(0, kFirst, Verdict::kApply))), ReplyStatus::kNotReady);
  EXPECT_EQ(Check(Current(MakeFrame(FrameKind::kPull, 0))), ReplyStatus::kNotReady);
  EXPECT_EQ(Check(Current(MakeFrame(FrameKind::kPull, 1))), ReplyStatus::kNone);
  Frame value = Current(WithFloats(MakeFrame(FrameKind::kInitialise, 0), 1));
  EXPECT_EQ(Check(value), ReplyStatus::kNone);
  EXPECT_EQ(Check(value, [](FrameHeader& header) { header.codec = FrameCodec::kTopK; }), ReplyStatus::kMalformed);
  view_.mutable_restore()->set_checkpoint("cut-1");
  EXPECT_EQ(Check(value), ReplyStatus::kNotReady);
  view_.clear_restore();
  value.payload = Floats({1, 2, 3});
  EXPECT_EQ(Check(value), ReplyStatus::kMalformed);
}

TEST_F(AdmissionTest, APushIsOfThePlanAndHasAWholeGradientUnlessItSkips) {
  Frame push = Current(Push(0, kFirst, Verdict::kApply));
  EXPECT_EQ(Check(push, [](FrameHeader& header) { header.update = {0, 0, 4}; }), ReplyStatus::kMalformed);
  push.payload = Payload();
  for (const Verdict verdict : {Verdict::kApply, Verdict::kPending}) {
    EXPECT_EQ(Check(push, [&](FrameHeader& header) { header.verdict = verdict; }), ReplyStatus::kMalformed);
  }
  const auto skips = [](FrameHeader& header) { header.verdict = Verdict::kSkip; };
  EXPECT_EQ(Check(push, skips), ReplyStatus::kNone);
  push.payload = Floats({1, 2, 3});
  EXPECT_EQ(Check(push, skips), ReplyStatus::kMalformed);
  const Frame verdict = Current(VerdictFrame({0, 0, 4}, Verdict::kApply));
  EXPECT_EQ(Check(verdict), ReplyStatus::kMalformed);
  EXPECT_EQ(Check(Current(VerdictFrame(kFirst, Verdict::kPending))), ReplyStatus::kMalformed);
}

TEST_F(AdmissionTest, WhoBeginsAnUpdateOfAnEvaluationThatIsOverIsToldSo) {
  view_.set_mode(v1::SANDBLASTER);
  Frame pull = Current(MakeFrame(FrameKind::kPull, 0));
  pull.header.begins_update = true;
  EXPECT_EQ(Check(pull), ReplyStatus::kNone);
  EXPECT_EQ(Check(pull, [](FrameHeader& header) { header.update = {0, 3, 0}; }), ReplyStatus::kMalformed);
  ASSERT_TRUE(replicas_.Begin(view_).ok());
  SliceSnapshot snapshot;
  snapshot.value = std::make_shared<std::vector<float>>(kElements);
  snapshot.optimizer.type = "SGD";
  snapshot.table.set_watermark(1);
  ASSERT_TRUE(replicas_.Primary(0)->replica.state().Import(snapshot, 1).ok());
  EXPECT_EQ(Check(pull), ReplyStatus::kSuperseded);
  EXPECT_EQ(Check(pull, [](FrameHeader& header) { header.update = {1, 0, 0}; }), ReplyStatus::kNone);
  EXPECT_EQ(Check(pull, [](FrameHeader& header) { header.begins_update = false; }), ReplyStatus::kNone);
  view_.set_mode(v1::SYNCHRONOUS);
  view_.set_updates_per_step(2);
  EXPECT_EQ(Check(pull), ReplyStatus::kNone) << "it gets the value of its step";
}

}  // namespace
}  // namespace downpour::core
