#include "trainer/core/ps_replicas.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/testing/ps_messages.h"

namespace downpour::core {
namespace {

using Role = PsReplicas::Role;

// Of three slices: the primary is here, the standby is here, nothing is here.
v1::View ViewOfRoles() {
  v1::View view = MakeView();
  for (auto& placement : *view.mutable_layout()) {
    placement.set_primary(1);
    placement.set_primary_replica(10);
  }
  view.mutable_layout(0)->set_primary(0);
  view.mutable_layout(1)->set_standby(0);
  view.mutable_layout(1)->set_standby_replica(11);
  return view;
}
void Join(v1::View& view, int slice, std::uint64_t replica) {
  view.mutable_layout(slice)->set_joining(0);
  view.mutable_layout(slice)->set_joining_replica(replica);
}
// The standby of slice 1 becomes the primary.
v1::View Promoted(v1::View view) {
  view.mutable_layout(1)->set_primary(0);
  view.mutable_layout(1)->set_primary_replica(11);
  view.mutable_layout(1)->clear_standby();
  view.mutable_layout(1)->clear_standby_replica();
  return view;
}

Frame Record(std::uint32_t slice, std::uint64_t replica, std::uint64_t sequence, const UpdateId& update,
             Verdict verdict = Verdict::kApply, std::uint64_t from = 10) {
  Frame frame = Push(slice, update, verdict);
  frame.header.clock = from;
  frame.header.kind = FrameKind::kRecord;
  frame.header.record = RecordKind::kUpdate;
  frame.header.replica = replica;
  frame.header.sequence = sequence;
  frame.header.learning_rate = 1;
  return frame;
}

ReplyStatus Take(PsReplicas& replicas, const Frame& frame, bool mine = true) {
  bool applied = false;
  const Frame reply = replicas.Take(frame, mine, &applied);
  EXPECT_EQ(reply.header.kind, FrameKind::kReply);
  EXPECT_EQ(reply.header.slice, frame.header.slice);
  EXPECT_EQ(reply.header.replica, frame.header.replica);
  EXPECT_EQ(reply.payload.size(), 0u);
  return reply.header.status;
}
std::uint64_t SequenceSaid(PsReplicas& replicas, const Frame& frame) {
  bool applied = false;
  return replicas.Take(frame, true, &applied).header.sequence;
}

// Every update of data shard 0.
std::vector<UpdateId> ShardZero() { return {{0, 0, 0}, {0, 0, 1}, {0, 0, 2}, {0, 0, 3}}; }

void ApplyHere(PsReplicas& replicas, std::uint32_t slice, const UpdateId& update) {
  Replica& replica = replicas.Primary(slice)->replica;
  const absl::StatusOr<Replica::Done> done =
      replica.Do(Record(slice, replica.number(), replica.sequence() + 1, update));
  ASSERT_TRUE(done.ok()) << done.status();
  if (done->completes_shard) replicas.OnComplete({update.dataset_epoch, update.data_shard});
}

bool IsComplete(PsReplicas& replicas, std::uint32_t shard = 0) {
  v1::ShardId id;
  id.set_shard(shard);
  v1::DirectReply reply;
  replicas.Confirm(id, /*inspect=*/false, /*settled=*/true, &reply);
  return reply.shards(0).complete();
}

// The parts of a copy of slice 2 that the updates of `applied` are on, as of that many records.
std::vector<Frame> PartsOf(const v1::View& view, std::uint64_t replica, const std::vector<UpdateId>& applied) {
  PsReplicas primary(1);
  EXPECT_TRUE(primary.Begin(view).ok());
  Replica& source = primary.Primary(2)->replica;
  source.state().Initialise(Floats(std::vector<float>(kElements, 3)));
  for (const UpdateId& update : applied) ApplyHere(primary, 2, update);
  std::vector<Frame> parts = *CutCopy(source.Export());
  for (Frame& part : parts) part.header.replica = replica;
  return parts;
}

TEST(PsReplicasTest, AHistoryBeginsWithWhatTheViewGives) {
  PsReplicas replicas(0);
  v1::View view = ViewOfRoles();
  Join(view, 2, 12);
  ASSERT_TRUE(replicas.Begin(view).ok());
  EXPECT_EQ(replicas.slice_count(), 3u);
  ASSERT_EQ(replicas.entries().size(), 3u);
  EXPECT_EQ(replicas.entries().at(0).role, Role::kPrimary);
  EXPECT_EQ(replicas.entries().at(1).role, Role::kStandby);
  EXPECT_EQ(replicas.entries().at(2).role, Role::kJoining);
  EXPECT_EQ(replicas.entries().at(0).replica.number(), 10u);
  EXPECT_EQ(replicas.entries().at(1).replica.number(), 11u);
  EXPECT_EQ(replicas.entries().at(2).replica.number(), 12u);
  EXPECT_TRUE(replicas.entries().at(2).assembly.has_value());
  EXPECT_EQ(replicas.primaries(), std::vector<std::uint32_t>{0});
  EXPECT_NE(replicas.Primary(0), nullptr);
  EXPECT_EQ(replicas.Primary(1), nullptr);
  EXPECT_EQ(replicas.Primary(2), nullptr);
  EXPECT_FALSE(replicas.initialised());
  replicas.Primary(0)->replica.state().Initialise(Floats(std::vector<float>(kElements, 0)));
  EXPECT_TRUE(replicas.initialised()) << "that of others is for their primaries";
}

TEST(PsReplicasTest, AnUnsoundViewChangesNothing) {
  PsReplicas replicas(0);
  ASSERT_TRUE(replicas.Begin(ViewOfRoles()).ok());
  ASSERT_EQ(Take(replicas, Record(1, 11, 1, kFirst)), ReplyStatus::kApplied);
  v1::View few = ViewOfRoles();
  few.mutable_layout()->RemoveLast();
  v1::View no_data = ViewOfRoles();
  no_data.mutable_data()->clear_batch_size();
  v1::View no_type = ViewOfRoles();
  no_type.mutable_tensors(0)->set_type(v1::ELEMENT_UNSPECIFIED);
  v1::View no_rate = ViewOfRoles();
  no_rate.mutable_optimizer()->set_learning_rate(-1);
  for (const v1::View& view : {few, no_data, no_type, no_rate}) {
    EXPECT_EQ(replicas.Begin(view).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(replicas.Change(few).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(replicas.entries().size(), 2u);
  EXPECT_EQ(replicas.entries().at(1).replica.sequence(), 1u);
}

TEST(PsReplicasTest, WhatGoesOnUnderItsNumberIsKept) {
  PsReplicas replicas(0);
  ASSERT_TRUE(replicas.Begin(ViewOfRoles()).ok());
  ASSERT_EQ(Take(replicas, Record(1, 11, 1, kFirst)), ReplyStatus::kApplied);
  v1::View view = Promoted(ViewOfRoles());
  // Slice 0 goes over to another ps, and this one has the standby.
  view.mutable_layout(0)->set_primary(1);
  view.mutable_layout(0)->set_primary_replica(20);
  view.mutable_layout(0)->set_standby(0);
  view.mutable_layout(0)->set_standby_replica(10);
  ASSERT_TRUE(replicas.Change(view).ok());
  EXPECT_EQ(replicas.primaries(), std::vector<std::uint32_t>{1});
  EXPECT_EQ(replicas.Primary(1)->replica.sequence(), 1u);
  EXPECT_TRUE(replicas.Primary(1)->replica.state().table().Contains(kFirst));
  EXPECT_EQ(replicas.entries().at(0).role, Role::kStandby);
  EXPECT_EQ(replicas.entries().at(0).replica.number(), 10u);
}

TEST(PsReplicasTest, WhatIsNotNamedIsDroppedAndBeginsAnewUnderAnotherNumber) {
  PsReplicas replicas(0);
  ASSERT_TRUE(replicas.Begin(ViewOfRoles()).ok());
  ASSERT_EQ(Take(replicas, Record(1, 11, 1, kFirst)), ReplyStatus::kApplied);
  v1::View view = ViewOfRoles();
  view.mutable_layout(1)->clear_standby();
  ASSERT_TRUE(replicas.Change(view).ok());
  EXPECT_EQ(replicas.entries().count(1), 0u);
  Join(view, 1, 21);
  ASSERT_TRUE(replicas.Change(view).ok());
  EXPECT_EQ(replicas.entries().at(1).replica.sequence(), 0u);
  EXPECT_TRUE(replicas.entries().at(1).assembly.has_value());
  // Another one of the same slice, while the first is on its way.
  Join(view, 1, 22);
  ASSERT_TRUE(replicas.Change(view).ok());
  EXPECT_EQ(replicas.entries().at(1).replica.number(), 22u);
}

TEST(PsReplicasTest, AFrozenSliceIsOneOfThePrimary) {
  PsReplicas replicas(0);
  ASSERT_TRUE(replicas.Begin(ViewOfRoles()).ok());
  v1::View view = ViewOfRoles();
  view.mutable_layout(0)->set_frozen(true);
  view.mutable_layout(1)->set_frozen(true);
  ASSERT_TRUE(replicas.Change(view).ok());
  EXPECT_TRUE(replicas.entries().at(0).frozen);
  EXPECT_FALSE(replicas.entries().at(1).frozen);
  ASSERT_TRUE(replicas.Change(ViewOfRoles()).ok());
  EXPECT_FALSE(replicas.entries().at(0).frozen);
}

TEST(PsReplicasTest, AViewThatCountsOnWhatIsNotHereIsRefused) {
  v1::View joining = ViewOfRoles();
  Join(joining, 2, 12);
  struct Case {
    const char* name;
    std::function<void(v1::View&)> change;
  };
  const Case cases[] = {
      {"the primary of a slice that is not here",
       [](v1::View& view) {
         view.mutable_layout(2)->clear_joining();
         view.mutable_layout(2)->set_primary(0);
       }},
      {"the standby under another number", [](v1::View& view) { view.mutable_layout(1)->set_standby_replica(99); }},
      {"the primary under another number", [](v1::View& view) { view.mutable_layout(0)->set_primary_replica(99); }},
      {"the standby of what is being copied",
       [](v1::View& view) {
         view.mutable_layout(2)->clear_joining();
         view.mutable_layout(2)->set_standby(0);
         view.mutable_layout(2)->set_standby_replica(12);
       }},
  };
  for (const Case& refused : cases) {
    SCOPED_TRACE(refused.name);
    PsReplicas replicas(0);
    ASSERT_TRUE(replicas.Begin(joining).ok());
    v1::View view = joining;
    view.mutable_layout(0)->set_frozen(true);
    refused.change(view);
    EXPECT_EQ(replicas.Change(view).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(replicas.entries().size(), 3u);
    EXPECT_FALSE(replicas.entries().at(0).frozen) << "nothing has changed";
    EXPECT_EQ(replicas.entries().at(1).role, Role::kStandby);
    EXPECT_EQ(replicas.entries().at(2).role, Role::kJoining);
  }
}

TEST(PsReplicasTest, RecordsAreDoneInOrderAndOnce) {
  PsReplicas replicas(0);
  ASSERT_TRUE(replicas.Begin(ViewOfRoles()).ok());
  const Replica& replica = replicas.entries().at(1).replica;
  EXPECT_EQ(Take(replicas, Record(1, 11, 2, kSecond)), ReplyStatus::kNotReady) << "a gap";
  EXPECT_EQ(SequenceSaid(replicas, Record(1, 11, 2, kSecond)), 0u);
  EXPECT_EQ(replica.sequence(), 0u);
  bool applied = false;
  EXPECT_EQ(replicas.Take(Record(1, 11, 1, kFirst), true, &applied).header.sequence, 1u);
  EXPECT_TRUE(applied);
  EXPECT_EQ(replicas.Take(Record(1, 11, 1, kFirst), true, &applied).header.status, ReplyStatus::kApplied);
  EXPECT_FALSE(applied) << "a duplicate";
  EXPECT_EQ(Take(replicas, Record(1, 11, 1, kSecond)), ReplyStatus::kApplied) << "whatever it says";
  EXPECT_FALSE(replica.state().table().Contains(kSecond));
  EXPECT_EQ(SequenceSaid(replicas, Record(1, 11, 2, kSecond)), 2u);
  EXPECT_EQ(SequenceSaid(replicas, Record(1, 11, 1, kFirst)), 2u) << "how far it is, whatever was asked";
  EXPECT_EQ(replica.state().version(), 2u);
  Frame ended = Record(1, 11, 3, kFirst);
  ended.header.record = RecordKind::kSessionEnded;
  EXPECT_EQ(replicas.Take(ended, true, &applied).header.status, ReplyStatus::kApplied);
  EXPECT_FALSE(applied) << "not an update";
}

TEST(PsReplicasTest, WhatIsNotMeantForAReplicaHereChangesNothing) {
  PsReplicas replicas(0);
  ASSERT_TRUE(replicas.Begin(ViewOfRoles()).ok());
  EXPECT_EQ(Take(replicas, Record(1, 12, 1, kFirst)), ReplyStatus::kWrongOwner) << "another replica";
  EXPECT_EQ(Take(replicas, Record(2, 11, 1, kFirst)), ReplyStatus::kWrongOwner) << "another slice";
  EXPECT_EQ(Take(replicas, Record(9, 11, 1, kFirst)), ReplyStatus::kWrongOwner) << "no slice";
  EXPECT_EQ(Take(replicas, Record(0, 10, 1, kFirst)), ReplyStatus::kWrongOwner) << "the primary is here";
  EXPECT_EQ(Take(replicas, Record(1, 11, 1, kFirst), /*mine=*/false), ReplyStatus::kBehind) << "another history";
  Frame corrupt = Record(1, 11, 1, kFirst);
  corrupt.header.status = ReplyStatus::kCorrupt;
  EXPECT_EQ(Take(replicas, corrupt), ReplyStatus::kCorrupt);
  Frame malformed = Record(1, 11, 1, kFirst);
  malformed.header.record = RecordKind::kNone;
  EXPECT_EQ(Take(replicas, malformed), ReplyStatus::kMalformed);
  for (const auto& [number, entry] : replicas.entries()) EXPECT_EQ(entry.replica.sequence(), 0u);
  EXPECT_EQ(Take(replicas, Record(1, 11, 1, kFirst)), ReplyStatus::kApplied);
}

TEST(PsReplicasTest, ACopyIsThereWithItsLastPartAndRecordsBehindIt) {
  v1::View view = ViewOfRoles();
  Join(view, 2, 12);
  PsReplicas replicas(0);
  ASSERT_TRUE(replicas.Begin(view).ok());
  const std::vector<Frame> parts = PartsOf(view, 12, {kFirst});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(Take(replicas, Record(2, 12, 2, kSecond)), ReplyStatus::kNotReady) << "before the copy";
  EXPECT_EQ(Take(replicas, parts[1]), ReplyStatus::kApplied);
  Frame wrong = parts[0];
  wrong.header.clock = 9;
  EXPECT_EQ(Take(replicas, wrong), ReplyStatus::kMalformed);
  EXPECT_EQ(Take(replicas, parts[1]), ReplyStatus::kApplied) << "again";
  EXPECT_TRUE(replicas.entries().at(2).assembly.has_value());
  EXPECT_EQ(Take(replicas, parts[0]), ReplyStatus::kApplied);
  const PsReplicas::Entry& entry = replicas.entries().at(2);
  EXPECT_FALSE(entry.assembly.has_value());
  EXPECT_EQ(entry.replica.sequence(), 1u);
  EXPECT_TRUE(entry.replica.state().table().Contains(kFirst));
  EXPECT_EQ(Take(replicas, parts[0]), ReplyStatus::kApplied) << "a late part";
  EXPECT_EQ(Take(replicas, Record(2, 12, 2, kSecond)), ReplyStatus::kApplied);
  // Now it may count.
  view.mutable_layout(2)->clear_joining();
  view.mutable_layout(2)->set_standby(0);
  view.mutable_layout(2)->set_standby_replica(12);
  ASSERT_TRUE(replicas.Change(view).ok());
  EXPECT_EQ(replicas.entries().at(2).replica.sequence(), 2u);
  EXPECT_EQ(*replicas.entries().at(2).replica.state().value(), std::vector<float>(kElements, 5));
}

TEST(PsReplicasTest, StandbysCountAndWhatIsBeingCopiedDoesNot) {
  v1::View view = ViewOfRoles();
  Join(view, 2, 12);
  PsReplicas replicas(0);
  ASSERT_TRUE(replicas.Begin(view).ok());
  for (const UpdateId& update : ShardZero()) ApplyHere(replicas, 0, update);
  EXPECT_FALSE(IsComplete(replicas)) << "the standby of slice 1 has nothing";
  std::uint64_t sequence = 0;
  for (const UpdateId& update : ShardZero()) {
    EXPECT_FALSE(replicas.entries().at(0).replica.state().table().IsRetired(0, 0));
    ASSERT_EQ(Take(replicas, Record(1, 11, ++sequence, update)), ReplyStatus::kApplied);
  }
  EXPECT_TRUE(IsComplete(replicas));
  EXPECT_TRUE(replicas.entries().at(0).replica.state().table().IsRetired(0, 0));
  EXPECT_TRUE(replicas.entries().at(1).replica.state().table().IsRetired(0, 0));

  // A copy that has nothing of the shard comes to count: what was complete is not any more.
  for (const Frame& part : PartsOf(view, 12, {kFirst})) ASSERT_EQ(Take(replicas, part), ReplyStatus::kApplied);
  EXPECT_TRUE(IsComplete(replicas));
  v1::View level = view;
  level.mutable_layout(2)->clear_joining();
  level.mutable_layout(2)->set_standby(0);
  level.mutable_layout(2)->set_standby_replica(12);
  ASSERT_TRUE(replicas.Change(level).ok());
  EXPECT_FALSE(IsComplete(replicas));
  sequence = 1;
  for (std::uint32_t group = 1; group < 4; ++group) {
    ASSERT_EQ(Take(replicas, Record(2, 12, ++sequence, {0, 0, group})), ReplyStatus::kApplied);
  }
  EXPECT_TRUE(IsComplete(replicas)) << "it was heard with the records";
}

TEST(PsReplicasTest, ACopyWithAllOfAShardCountsWhenItIsInSync) {
  v1::View view = ViewOfRoles();
  Join(view, 2, 12);
  PsReplicas replicas(0);
  ASSERT_TRUE(replicas.Begin(view).ok());
  std::uint64_t sequence = 0;
  for (const UpdateId& update : ShardZero()) {
    ApplyHere(replicas, 0, update);
    ASSERT_EQ(Take(replicas, Record(1, 11, ++sequence, update)), ReplyStatus::kApplied);
  }
  for (const Frame& part : PartsOf(view, 12, ShardZero())) ASSERT_EQ(Take(replicas, part), ReplyStatus::kApplied);
  view.mutable_layout(2)->clear_joining();
  view.mutable_layout(2)->set_standby(0);
  view.mutable_layout(2)->set_standby_replica(12);
  ASSERT_TRUE(replicas.Change(view).ok());
  EXPECT_TRUE(IsComplete(replicas));
  ASSERT_TRUE(replicas.Change(Promoted(view)).ok());
  EXPECT_TRUE(IsComplete(replicas)) << "another role, the same replicas";
}

TEST(PsReplicasTest, TheWatermarkIsThatOfAllThatCount) {
  v1::View view = ViewOfRoles();
  Join(view, 2, 12);
  PsReplicas replicas(0);
  ASSERT_TRUE(replicas.Begin(view).ok());
  std::uint64_t sequence = 0;
  for (std::uint32_t shard = 0; shard < 3; ++shard) {
    for (std::uint32_t group = 0; group < 4; ++group) {
      ApplyHere(replicas, 0, {0, shard, group});
      ASSERT_EQ(Take(replicas, Record(1, 11, ++sequence, {0, shard, group})), ReplyStatus::kApplied);
    }
  }
  EXPECT_EQ(replicas.Advance(1), 0u) << "not retired yet";
  for (std::uint32_t shard = 0; shard < 3; ++shard) EXPECT_TRUE(IsComplete(replicas, shard));
  EXPECT_EQ(replicas.Advance(1), 1u) << "whatever is joining";
  v1::RegisterPsRequest request;
  replicas.Describe(&request);
  EXPECT_EQ(request.watermark(), 1u);
  // Of what a ps tells as its ledger only that of the slices that it owns is its own.
  v1::LedgerReply ledger;
  replicas.Describe(&ledger);
  ASSERT_EQ(ledger.slices_size(), 1);
  EXPECT_EQ(ledger.slices(0).slice(), 0u);
  EXPECT_EQ(ledger.slices(0).watermark(), 1u);
  v1::PsStats stats;
  replicas.Describe(&stats);
  EXPECT_EQ(stats.slices(), 1u);
  EXPECT_EQ(stats.standby_slices(), 2u);
  EXPECT_EQ(stats.applied(), 12u);
}

TEST(PsReplicasTest, WhoOnlyHasWhatIsBeingCopiedHasNoObjection) {
  v1::View view = ViewOfRoles();
  view.mutable_layout(0)->set_primary(1);
  view.mutable_layout(1)->clear_standby();
  Join(view, 2, 12);
  PsReplicas replicas(0);
  ASSERT_TRUE(replicas.Begin(view).ok());
  v1::RegisterPsRequest request;
  replicas.Describe(&request);
  EXPECT_EQ(request.watermark(), 2u) << "all epochs";
  EXPECT_TRUE(IsComplete(replicas));
  EXPECT_EQ(replicas.Advance(0), 0u);
  for (const UpdateId& update : ShardZero())
    EXPECT_FALSE(replicas.entries().at(2).replica.state().table().Contains(update));
}

TEST(PsReplicasTest, AnInspectionTellsWhatEveryReplicaThatCountsHas) {
  PsReplicas replicas(0);
  ASSERT_TRUE(replicas.Begin(ViewOfRoles()).ok());
  ApplyHere(replicas, 0, kFirst);
  ApplyHere(replicas, 0, kSecond);
  ASSERT_EQ(Take(replicas, Record(1, 11, 1, kSecond)), ReplyStatus::kApplied);
  v1::ShardId shard;
  v1::DirectReply reply;
  replicas.Confirm(shard, /*inspect=*/true, /*settled=*/true, &reply);
  ASSERT_TRUE(reply.shards(0).inspected());
  const Bitmap applied = Bitmap::FromBytes(4, reply.shards(0).applied());
  EXPECT_FALSE(applied.Test(0));
  EXPECT_TRUE(applied.Test(1));
  EXPECT_FALSE(applied.Test(2));
}

}  // namespace
}  // namespace downpour::core
