#include "trainer/core/worker_data_plane.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/testing/ps_messages.h"

namespace downpour::core {
namespace {

using Calls = WorkerDataPlane::Calls;
using Slices = std::vector<std::uint32_t>;
using ByPs = std::map<std::uint32_t, Slices>;

class Host final : public WorkerHost {
 public:
  std::uint64_t NewSession() override { return 0; }
  Payload InitialValue(std::uint32_t, const Slice& slice) override { return Constant(slice, 7); }
  Payload Gradient(std::uint32_t, const Slice& slice) override { return Constant(slice, 3); }
  void StoreValue(std::uint32_t number, const Slice&, const Payload& value) override {
    value.ForEachFloats([&](std::size_t, absl::Span<const float> run) { values[number] = run[0]; });
  }
  std::map<std::uint32_t, float> values;

 private:
  static Payload Constant(const Slice& slice, float value) { return Floats(std::vector<float>(slice.elements, value)); }
};

// Slices 0 and 1 are at ps 0, slice 2 is at ps 1 and of a buffer.
class WorkerDataPlaneTest : public ::testing::Test {
 protected:
  WorkerDataPlaneTest() {
    view_ = ViewOf(1, {0, 0, 1});
    work_.token = 5;
    work_.work.update = kFirst;
    Use({});
  }
  static v1::View ViewOf(std::uint32_t epoch, const Slices& primaries) {
    v1::View view = MakeView(3, 2, epoch);
    view.mutable_tensors(2)->set_kind(v1::BUFFER);
    for (int slice = 0; slice < 3; ++slice) {
      view.mutable_layout(slice)->set_primary(primaries[static_cast<std::size_t>(slice)]);
    }
    for (const std::uint32_t ps : {0u, 1u}) {
      v1::PsMember* member = view.add_ps();
      member->set_index(ps);
      member->set_address(absl::StrCat("ps", ps));
      member->set_session(70 + ps);
    }
    return view;
  }
  void Use(WorkerDataPlane::Options options) {
    options.job_uid = *ParseJobUid(kJobUid);
    options.exchanges.deadline = absl::Seconds(3);
    options.exchanges.payload_bytes = 1 << 20;
    options.exchanges.in_flight = 4;
    data_.emplace(options, &host_, &meter_);
    data_->SetSession(kWorker);
    data_->Begin(view_, *CutTensors(view_));
  }
  static ByPs SlicesOf(const Calls& calls) {
    ByPs slices;
    for (const ExchangeCall& call : calls) {
      for (const Frame& frame : call.frames) slices[call.ps].push_back(frame.header.slice);
    }
    return slices;
  }
  Calls Pull() {
    Calls calls;
    again_ = data_->SendPulls(work_, now_, &calls);
    return calls;
  }
  Calls Push() {
    Calls calls;
    again_ = data_->SendPushes(work_, now_, &calls);
    return calls;
  }
  // The call is answered with that; values are of `version`.
  WorkerDataPlane::Heard Answer(const ExchangeCall& call, ReplyStatus status, std::uint64_t version = 1,
                                float value = 1) {
    std::vector<Frame> replies;
    for (const Frame& frame : call.frames) {
      Frame reply;
      reply.header = ReplyTo(frame.header, status).header;
      if (status == ReplyStatus::kValue) reply = WithFloats(std::move(reply), value);
      reply.header.version = version;
      replies.push_back(std::move(reply));
    }
    return data_->OnReply(call.call, replies, work_, now_);
  }
  WorkerDataPlane::Heard Lose(const ExchangeCall& call) {
    return data_->OnReply(call.call, absl::DeadlineExceededError("no answer"), work_, now_);
  }
  void BeginPushing(Verdict verdict = Verdict::kApply) {
    data_->BeginUpdate();
    data_->slices().SetAllReady();
    work_.verdict = verdict;
    work_.pushing = true;
  }
  // The update is computed, pushed and answered so.
  void PushAll(ReplyStatus status) {
    BeginPushing();
    for (const ExchangeCall& call : Push()) Answer(call, status);
  }

  v1::View view_;
  Host host_;
  WorkerMeter meter_;
  std::optional<WorkerDataPlane> data_;
  WorkUnderWay work_;
  Time now_ = absl::Seconds(50);
  Time again_ = absl::ZeroDuration();  // of what was sent last
};

TEST_F(WorkerDataPlaneTest, PullsAskForWhatIsNotFreshOnce) {
  const Calls calls = Pull();
  EXPECT_EQ(SlicesOf(calls), (ByPs{{0, {0, 1}}, {1, {2}}}));
  EXPECT_EQ(again_, absl::InfiniteDuration());
  const FrameHeader& header = calls.at(0).frames.at(1).header;
  EXPECT_EQ(header.kind, FrameKind::kPull);
  EXPECT_EQ(header.job_uid, *ParseJobUid(kJobUid));
  EXPECT_EQ(header.session, kWorker);
  EXPECT_EQ(header.generation, 3u);
  EXPECT_EQ(header.incarnation, 2u);
  EXPECT_EQ(header.epoch, 1u);
  EXPECT_TRUE(header.begins_update);
  EXPECT_TRUE(Pull().empty());
  EXPECT_TRUE(Answer(calls[0], ReplyStatus::kValue, 1, 4).expected);
  EXPECT_FALSE(Answer(calls[0], ReplyStatus::kValue, 2, 5).expected) << "each once";
  EXPECT_FALSE(data_->slices().fresh());
  Answer(calls[1], ReplyStatus::kValue, 1, 6);
  EXPECT_TRUE(data_->slices().fresh());
  EXPECT_EQ(host_.values, (std::map<std::uint32_t, float>{{0, 4}, {1, 4}, {2, 6}}));
  data_->slices()[1].fresh = false;
  work_.work.kind = v1::TASK_EVALUATE;
  const Calls task = Pull();
  ASSERT_EQ(SlicesOf(task), (ByPs{{0, {1}}}));
  EXPECT_FALSE(task[0].frames[0].header.begins_update) << "a task waits for nobody";
}

TEST_F(WorkerDataPlaneTest, WhatWasPulledForAnotherWorkOrIsOlderIsNotTaken) {
  const Calls calls = Pull();
  ++work_.token;
  Answer(calls.at(0), ReplyStatus::kValue, 1, 4);
  EXPECT_TRUE(host_.values.empty());
  const Calls again = Pull();
  ASSERT_EQ(SlicesOf(again), (ByPs{{0, {0, 1}}}));
  data_->slices()[0].version = 9;
  Answer(again[0], ReplyStatus::kValue, 8, 5);
  EXPECT_EQ(host_.values, (std::map<std::uint32_t, float>{{1, 5}})) << "a newer one overtook it";
  EXPECT_EQ(data_->slices()[0].version, 9u);
  data_->GiveUpPulls(work_);
  EXPECT_TRUE(Answer(calls.at(1), ReplyStatus::kValue).expected) << "that was another work's";
  EXPECT_EQ(SlicesOf(Pull()), (ByPs{{0, {0}}, {1, {2}}}));
}

TEST_F(WorkerDataPlaneTest, APsThatDoesNotAnswerIsAskedAgainAfterAWhile) {
  const Calls calls = Pull();
  const WorkerDataPlane::Heard heard = Lose(calls.at(0));
  EXPECT_TRUE(heard.expected && heard.lost);
  Calls again = Pull();
  EXPECT_TRUE(again.empty());
  EXPECT_GT(again_, now_);
  now_ = again_;
  again = Pull();
  EXPECT_EQ(SlicesOf(again), (ByPs{{0, {0, 1}}}));
  // An answer that is not one for each frame is none.
  EXPECT_TRUE(data_->OnReply(again.at(0).call, std::vector<Frame>(1), work_, now_).lost);
}

TEST_F(WorkerDataPlaneTest, TheVerdictGoesWithAPushOrAfterThem) {
  data_->BeginUpdate();
  data_->slices().SetReady(0);
  const Calls early = Push();
  ASSERT_EQ(SlicesOf(early), (ByPs{{0, {0}}}));
  EXPECT_EQ(early[0].frames[0].header.verdict, Verdict::kPending);
  data_->slices().SetReady(2);
  const Calls buffer = Push();
  ASSERT_EQ(SlicesOf(buffer), (ByPs{{1, {2}}}));
  data_->slices().SetAllReady();
  work_.verdict = Verdict::kApply;
  work_.pushing = true;
  work_.factor = 0.5F;
  work_.loss = 2;
  const Calls calls = Push();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].ps, 0u);
  EXPECT_EQ(calls[0].frames.at(0).header.kind, FrameKind::kPush) << "the one that was left carries it";
  EXPECT_EQ(calls[1].ps, 1u);
  EXPECT_EQ(calls[1].frames.at(0).header.kind, FrameKind::kVerdict);
  for (const ExchangeCall& call : calls) {
    EXPECT_EQ(call.frames[0].header.verdict, Verdict::kApply);
    EXPECT_EQ(call.frames[0].header.factor, 0.5F);
    EXPECT_EQ(call.frames[0].header.loss, 2);
    EXPECT_EQ(call.frames[0].header.update, kFirst);
  }
  EXPECT_TRUE(Push().empty());
  // Where it may not have been heard it is told again.
  Lose(calls[1]);
  Push();
  now_ = again_;
  const Calls again = Push();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].frames.at(0).header.kind, FrameKind::kVerdict);
  for (const Calls& sent : {early, buffer, calls, again}) {
    for (const ExchangeCall& call : sent) Answer(call, ReplyStatus::kApplied);
  }
  EXPECT_TRUE(data_->slices().done());
  EXPECT_TRUE(data_->trained());
  EXPECT_TRUE(Push().empty());
}

TEST_F(WorkerDataPlaneTest, AnUpdateIsTrainedUnlessAnotherExecutionOfItCameFirst) {
  PushAll(ReplyStatus::kDuplicate);
  EXPECT_TRUE(data_->slices().done());
  EXPECT_FALSE(data_->trained());
  // Its own push may have been the first, if the answer to that was lost.
  BeginPushing();
  for (const ExchangeCall& call : Push()) Lose(call);
  Push();
  now_ = again_;
  for (const ExchangeCall& call : Push()) Answer(call, ReplyStatus::kDuplicate);
  EXPECT_TRUE(data_->slices().done());
  EXPECT_TRUE(data_->trained());
}

TEST_F(WorkerDataPlaneTest, ASkippedUpdateHasNoGradientsAndAFailedPushComesAgain) {
  BeginPushing(Verdict::kSkip);
  const Calls calls = Push();
  ASSERT_EQ(SlicesOf(calls), (ByPs{{0, {0, 1}}, {1, {2}}}));
  for (const ExchangeCall& call : calls) {
    for (const Frame& frame : call.frames) EXPECT_EQ(frame.payload.size(), 0u);
  }
  EXPECT_EQ(meter_.stats().push_bytes(), 0u);
  Answer(calls[0], ReplyStatus::kNotReady);
  Answer(calls[1], ReplyStatus::kApplied);
  Push();
  now_ = again_;
  EXPECT_EQ(SlicesOf(Push()), (ByPs{{0, {0, 1}}}));
}

TEST_F(WorkerDataPlaneTest, WhyAFrameIsDeniedTellsWhetherTheCoordinatorKnowsMore) {
  const std::map<ReplyStatus, bool> of_pulls = {{ReplyStatus::kStaleView, true},  {ReplyStatus::kBehind, true},
                                                {ReplyStatus::kWrongOwner, true}, {ReplyStatus::kRefused, true},
                                                {ReplyStatus::kNotReady, false},  {ReplyStatus::kCorrupt, false},
                                                {ReplyStatus::kSuperseded, true}, {ReplyStatus::kValue, false}};
  for (const auto& [status, denied] : of_pulls) {
    SCOPED_TRACE(static_cast<int>(status));
    Use({});
    const WorkerDataPlane::Heard heard = Answer(Pull().at(0), status);
    EXPECT_EQ(heard.denied, denied);
    EXPECT_TRUE(heard.malformed.ok());
    EXPECT_FALSE(heard.lost);
  }
  BeginPushing();
  EXPECT_FALSE(Answer(Push().at(0), ReplyStatus::kSuperseded).denied) << "it just comes again";
  Use({});
  EXPECT_EQ(Answer(Pull().at(1), ReplyStatus::kMalformed).malformed.message(),
            "ps-1 calls a frame of slice 2 malformed");
}

TEST_F(WorkerDataPlaneTest, InitialValuesAreSentUntilTheyAreThere) {
  Calls calls;
  EXPECT_EQ(data_->SendInitialValues(now_, &calls), absl::InfiniteDuration());
  ASSERT_EQ(SlicesOf(calls), (ByPs{{0, {0, 1}}, {1, {2}}}));
  EXPECT_EQ(calls[0].frames[0].payload.size(), kElements * sizeof(float));
  Answer(calls[0], ReplyStatus::kApplied);
  Answer(calls[1], ReplyStatus::kNotReady);
  calls.clear();
  now_ = data_->SendInitialValues(now_, &calls);
  EXPECT_TRUE(calls.empty());
  data_->SendInitialValues(now_, &calls);
  ASSERT_EQ(SlicesOf(calls), (ByPs{{1, {2}}}));
  Answer(calls[0], ReplyStatus::kDuplicate);
  calls.clear();
  data_->SendInitialValues(now_, &calls);
  EXPECT_TRUE(calls.empty());
}

TEST_F(WorkerDataPlaneTest, ValuesOfParametersComeInBf16ForTrainingOnly) {
  WorkerDataPlane::Options options;
  options.bf16_values = true;
  Use(options);
  const Calls calls = Pull();
  EXPECT_TRUE(calls.at(0).frames.at(0).header.want_bf16);
  EXPECT_FALSE(calls.at(1).frames.at(0).header.want_bf16) << "a buffer";
  std::vector<Frame> replies;
  for (const Frame& frame : calls[0].frames) {
    Frame reply = ReplyTo(frame.header, ReplyStatus::kValue);
    reply.header.codec = FrameCodec::kBf16;
    std::vector<std::uint8_t> bytes(EncodedBytes(FrameCodec::kBf16, 0, kElements));
    Encode(FrameCodec::kBf16, 0, std::vector<float>(kElements, 1.5F), bytes.data());
    reply.payload = OwningPayload(std::move(bytes));
    replies.push_back(std::move(reply));
  }
  data_->OnReply(calls[0].call, replies, work_, now_);
  EXPECT_EQ(host_.values.at(1), 1.5F);
  Use(options);
  work_.work.kind = v1::TASK_EVALUATE;
  EXPECT_FALSE(Pull().at(0).frames.at(0).header.want_bf16);
}

TEST_F(WorkerDataPlaneTest, AResidualIsKeptIfTheStepWasTakenForCertain) {
  WorkerDataPlane::Options options;
  options.codec = {FrameCodec::kTopK, 0.25};
  for (const ReplyStatus status : {ReplyStatus::kApplied, ReplyStatus::kDuplicate}) {
    Use(options);
    PushAll(status);
    EXPECT_EQ(data_->HasResidual(), status == ReplyStatus::kApplied);
  }
  // Of an update that is given up nobody knows.
  for (const bool pushing : {false, true}) {
    Use(options);
    PushAll(ReplyStatus::kApplied);
    BeginPushing();
    Push();
    work_.pushing = pushing;
    data_->Drop(work_);
    EXPECT_EQ(data_->HasResidual(), !pushing) << "a ps drops what waits for its verdict";
  }
  Use(options);
  PushAll(ReplyStatus::kApplied);
  work_.flushes = true;
  PushAll(ReplyStatus::kApplied);
  EXPECT_FALSE(data_->HasResidual());
}

// Which has the gradients itself.
class Encoder final : public GradientEncoder {
 public:
  EncodedGradient Encode(std::uint32_t slice, std::uint32_t elements, const Payload&, bool flush) override {
    said.push_back(absl::StrCat(flush ? "flush " : "encode ", slice));
    return {FrameCodec::kBf16, OwningPayload(std::vector<std::uint8_t>(2 * elements, 9))};
  }
  void Keep(std::uint32_t slice) override { said.push_back(absl::StrCat("keep ", slice)); }
  void Undo(std::uint32_t slice) override { said.push_back(absl::StrCat("undo ", slice)); }
  void Forget(std::uint32_t slice) override { said.push_back(absl::StrCat("forget ", slice)); }
  void Clear() override { said.emplace_back("clear"); }
  bool HasResidual() const override { return true; }
  std::vector<std::string> said;
};

TEST_F(WorkerDataPlaneTest, AnEncoderOfTheOptionsIsAskedForAllParameters) {
  Encoder encoder;
  WorkerDataPlane::Options options;
  options.encoder = &encoder;
  Use(options);
  EXPECT_TRUE(data_->HasResidual());
  BeginPushing();
  for (const ExchangeCall& call : Push()) {
    for (const Frame& frame : call.frames) {
      const bool buffer = frame.header.slice == 2;
      EXPECT_EQ(frame.header.codec, buffer ? FrameCodec::kFp32 : FrameCodec::kBf16);
      EXPECT_EQ(frame.payload.segments()[0][0] == 9, !buffer);
    }
    Answer(call, ReplyStatus::kApplied);
  }
  work_.flushes = true;
  BeginPushing();
  Push();
  data_->Drop(work_);
  EXPECT_EQ(encoder.said, (std::vector<std::string>{"clear", "encode 0", "encode 1", "keep 0", "keep 1", "keep 2",
                                                    "flush 0", "flush 1", "forget 0", "forget 1", "forget 2"}));
  data_.reset();
}

TEST_F(WorkerDataPlaneTest, WhatWasOnItsWayGoesToWhoeverHasTheSlice) {
  BeginPushing();
  const Calls before = Push();
  const v1::View moved = ViewOf(2, {0, 1, 1});
  data_->SetView(moved);
  const Calls calls = Push();
  ASSERT_EQ(SlicesOf(calls), (ByPs{{1, {1}}}));
  EXPECT_EQ(calls[0].frames[0].header.epoch, 2u);
  Answer(before.at(0), ReplyStatus::kApplied);
  EXPECT_EQ(data_->slices()[0].push, WorkerSlices::Push::kDone);
  EXPECT_EQ(data_->slices()[1].push, WorkerSlices::Push::kSent) << "the one before has not got it any more";
  Answer(calls[0], ReplyStatus::kDuplicate);
  Answer(before.at(1), ReplyStatus::kApplied);
  EXPECT_TRUE(data_->slices().done());
}

TEST_F(WorkerDataPlaneTest, TheClockIsOfUpdatesDoneAndOfThoseThatNeedNoCatchingUpWith) {
  std::vector<Frame> replies;
  const Calls calls = Pull();
  for (const Frame& frame : calls.at(0).frames) {
    replies.push_back(WithFloats(ReplyTo(frame.header, ReplyStatus::kValue), 1));
    replies.back().header.clock = 4;
  }
  data_->OnReply(calls[0].call, replies, work_, now_);
  EXPECT_EQ(data_->clock(), 4u);
  BeginPushing();
  EXPECT_EQ(Push().at(0).frames.at(0).header.clock, 5u) << "with this update";
  data_->FinishUpdate();
  EXPECT_EQ(data_->clock(), 5u);
  data_->HearOfCut(3);
  data_->HearOfCut(2);
  data_->Drop(work_);
  EXPECT_EQ(data_->clock(), 0u);
  EXPECT_EQ(data_->cut(), 3u);
  EXPECT_FALSE(Answer(calls.at(1), ReplyStatus::kValue).expected);
}

TEST_F(WorkerDataPlaneTest, OfAStepItTakesTheValueAndTheCutThatTheSliceSays) {
  view_.set_mode(v1::SYNCHRONOUS);
  view_.set_updates_per_step(2);
  Use({});
  work_.work.update = {0, 1, 2};
  const Calls calls = Pull();
  EXPECT_EQ(calls.at(0).frames.at(0).header.update, work_.work.update);
  std::vector<Frame> replies;
  for (const Frame& frame : calls[0].frames) {
    replies.push_back(WithFloats(ReplyTo(frame.header, ReplyStatus::kValue), 1));
    replies.back().header.update = {0, 0, 3};
    replies.back().header.cut = 6;
  }
  data_->OnReply(calls[0].call, replies, work_, now_);
  EXPECT_EQ(data_->cut(), 6u);
  EXPECT_EQ(data_->slices()[1].step, (StepId{0, 0, 3})) << "where the slice is";
  EXPECT_EQ(data_->slices()[1].value_of, (StepId{0, 0, 2})) << "what was asked for";
  work_.fetches_next = true;
  BeginPushing();
  EXPECT_FALSE(Push().at(0).frames.at(0).header.want_value) << "the next step is not there before all have pushed";
}

}  // namespace
}  // namespace downpour::core
