#include "trainer/core/replica.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "trainer/core/buffer_update.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/sandblaster/lbfgs.h"
#include "trainer/core/sandblaster/vectors.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

using testing::AllConfigs;
using testing::ConfigOf;
using testing::RandomFloats;

constexpr std::uint32_t kNumber = 3;
constexpr std::uint32_t kElements = 5;
constexpr std::uint32_t kShards = 6;
constexpr std::uint32_t kGroups = 4;

DataPlan MakePlan() {
  v1::DataPlan plan;
  plan.set_sample_count(kShards * kGroups * 3 - 1);  // the last update has fewer samples
  plan.set_batch_size(3);
  plan.set_updates_per_shard(kGroups);
  plan.set_epochs(2);
  return *DataPlan::Create(plan);
}

// Null: of a buffer.
Replica MakeReplica(std::uint64_t number, const v1::OptimizerConfig* config) {
  std::unique_ptr<Optimizer> optimizer = config == nullptr ? CreateBufferUpdate() : testing::Make(*config, kElements);
  return {number, SliceState(kNumber, {0, 0, kElements}, std::move(optimizer), MakePlan()), config == nullptr};
}

Payload Owned(std::vector<float> values) {
  auto owner = std::make_shared<const std::vector<float>>(std::move(values));
  return Payload::OfFloats(*owner, owner);
}

Frame RecordOf(RecordKind kind) {
  Frame record;
  record.header.kind = FrameKind::kRecord;
  record.header.record = kind;
  record.header.slice = kNumber;
  return record;
}

Frame UpdateOf(const UpdateId& update, std::vector<float> gradient = std::vector<float>(kElements, 1)) {
  Frame record = RecordOf(RecordKind::kUpdate);
  record.header.update = update;
  record.header.verdict = Verdict::kApply;
  record.header.type = DataType::kFloat32;
  record.header.codec = FrameCodec::kFp32;
  record.header.elements = kElements;
  record.header.learning_rate = 0.5;
  record.payload = Owned(std::move(gradient));
  return record;
}

Frame StepWidthOf(std::uint64_t width) {
  Frame record = RecordOf(RecordKind::kStepWidth);
  record.header.version = width;
  return record;
}

// All that a replica has, to the bit.
std::vector<std::string> BitsOf(const Replica& replica) {
  const absl::StatusOr<std::vector<Frame>> frames = CutCopy(replica.Export());
  if (!frames.ok()) return {frames.status().ToString()};
  std::vector<std::string> parts;
  for (const Frame& frame : *frames) {
    std::string& part = parts.emplace_back(absl::StrCat(frame.header.sequence, ":"));
    for (const auto& segment : frame.payload.segments()) part.append(segment.begin(), segment.end());
  }
  return parts;
}

// As it comes from one ps to another, its parts in any order.
Replica Copied(std::mt19937& random, const Replica& from, Replica to) {
  const absl::StatusOr<std::vector<Frame>> cut = CutCopy(from.Export());
  EXPECT_TRUE(cut.ok()) << cut.status();
  std::vector<Frame> parts = *cut;
  std::shuffle(parts.begin(), parts.end(), random);
  CopyAssembly assembly(kNumber, {0, 0, kElements});
  for (const Frame& part : parts) EXPECT_TRUE(assembly.Add(part).ok());
  const absl::StatusOr<std::optional<ReplicaCopy>> copy = assembly.Take();
  EXPECT_TRUE(copy.ok()) << copy.status();
  if (copy.ok() && copy->has_value()) {
    const absl::Status imported = to.Import(**copy);
    EXPECT_TRUE(imported.ok()) << imported;
  } else {
    ADD_FAILURE() << "no copy";
  }
  return to;
}

// What a primary would do with a slice, of some sessions and one update after the other.
class Records {
 public:
  Records(std::mt19937& random, std::uint32_t width) : random_(random), width_(width) {
    for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
      for (std::uint32_t shard = 0; shard < kShards; ++shard) {
        for (std::uint32_t group = 0; group < kGroups; ++group) updates_.push_back({epoch, shard, group});
      }
    }
    // Not far from their order.
    for (std::size_t i = 0; i + 1 < updates_.size(); ++i) {
      std::swap(updates_[i], updates_[std::min<std::size_t>(updates_.size() - 1, i + random_() % 4)]);
    }
  }
  bool empty() const { return next_ == updates_.size(); }

  Frame Next(const Replica& primary) {
    const std::uint64_t session = 1 + random_() % 3;
    if (width_ != 0 && random_() % 12 == 0) return StepWidthOf(random_() % 2 == 0 ? width_ : width_ - 1);
    if (random_() % 15 == 0) return OfSession(RecordKind::kSessionEnded, random_() % 4 == 0 ? 0 : session);
    if (random_() % 3 != 0 && !primary.has_pulled(session)) {
      pulled_[session] = primary.state().version();
      return OfSession(RecordKind::kPulled, session);
    }
    Frame record = UpdateOf(updates_[next_++], RandomFloats(random_, kElements));
    FrameHeader& header = record.header;
    header.session = session;
    header.version = pulled_.count(session) != 0 ? pulled_[session] : 0;
    header.want_value = random_() % 2 == 0;
    header.learning_rate = 0.01 * static_cast<double>(1 + random_() % 9);
    header.factor = random_() % 3 == 0 ? 0.25F : 1;
    header.loss = static_cast<double>(random_() % 100);
    if (random_() % 6 == 0) header.verdict = Verdict::kSkip;
    return record;
  }

 private:
  static Frame OfSession(RecordKind kind, std::uint64_t session) {
    Frame record = RecordOf(kind);
    record.header.session = session;
    return record;
  }

  std::mt19937& random_;
  std::uint32_t width_;
  std::vector<UpdateId> updates_;
  std::size_t next_ = 0;
  std::map<std::uint64_t, std::uint64_t> pulled_;
};

// One that begins with the primary, and one that is copied in the middle.
void ExpectSameBits(std::uint32_t seed, const v1::OptimizerConfig* config, std::uint32_t width) {
  SCOPED_TRACE(absl::StrCat("seed ", seed, ", width ", width, ", type ",
                            config == nullptr ? "buffer" : v1::OptimizerType_Name(config->type())));
  std::mt19937 random(seed);
  Replica primary = MakeReplica(1, config);
  primary.state().Initialise(Owned(RandomFloats(random, kElements)));
  if (width != 0) {
    ASSERT_TRUE(primary.Do(StepWidthOf(width)).ok());
  }
  Replica standby = Copied(random, primary, MakeReplica(2, config));
  std::optional<Replica> joined;
  Records records(random, width);
  while (!records.empty()) {
    if (random() % 10 == 0) joined.emplace(Copied(random, primary, MakeReplica(3, config)));
    const Frame record = records.Next(primary);
    ASSERT_TRUE(standby.Check(record).ok()) << standby.Check(record);
    const absl::StatusOr<Replica::Done> done = primary.Do(record);
    ASSERT_TRUE(done.ok()) << done.status();
    const absl::StatusOr<Replica::Done> there = standby.Do(record);
    ASSERT_TRUE(there.ok()) << there.status();
    EXPECT_EQ(there->completes_shard, done->completes_shard);
    EXPECT_EQ(there->context.staleness, done->context.staleness);
    ASSERT_TRUE(BitsOf(standby) == BitsOf(primary)) << "record " << primary.sequence();
    if (!joined.has_value()) continue;
    ASSERT_TRUE(joined->Check(record).ok()) << joined->Check(record);
    ASSERT_TRUE(joined->Do(record).ok());
    ASSERT_TRUE(BitsOf(*joined) == BitsOf(primary)) << "record " << primary.sequence();
  }
  EXPECT_GT(primary.state().version(), 40u);
  EXPECT_EQ(standby.number(), 2u) << "a copy has no number of its own";
}

TEST(ReplicaTest, WhoDoesTheSameRecordsHasTheSameBits) {
  std::uint32_t seed = 0;
  for (const v1::OptimizerConfig& config : AllConfigs()) {
    for (int run = 0; run < 3 && !::testing::Test::HasFailure(); ++run) ExpectSameBits(++seed, &config, 0);
  }
  ExpectSameBits(++seed, nullptr, 0);
}

TEST(ReplicaTest, AlsoInTheMiddleOfAStepOfManyUpdates) {
  std::uint32_t seed = 1000;
  for (const v1::OptimizerType type : {v1::SGD, v1::MOMENTUM, v1::ADAM}) {
    const v1::OptimizerConfig config = ConfigOf(type);
    for (const std::uint32_t width : {1u, 2u, 3u, 5u}) {
      for (int run = 0; run < 4 && !::testing::Test::HasFailure(); ++run) ExpectSameBits(++seed, &config, width);
    }
  }
}

TEST(ReplicaTest, CountsEveryRecordAndNoneThatCannotBe) {
  const v1::OptimizerConfig config = ConfigOf(v1::SGD);
  Replica replica = MakeReplica(1, &config);
  EXPECT_EQ(replica.sequence(), 0u);
  ASSERT_TRUE(replica.Do(UpdateOf({0, 0, 0})).ok());
  ASSERT_TRUE(replica.Do(StepWidthOf(0)).ok());
  EXPECT_EQ(replica.sequence(), 2u);
  EXPECT_EQ(replica.Do(RecordOf(RecordKind::kNone)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(replica.sequence(), 2u);
}

TEST(ReplicaTest, CompensatesWithTheValueThatTheSessionGot) {
  const v1::OptimizerConfig config = ConfigOf(v1::DELAY_COMPENSATED_SGD);
  Replica replica = MakeReplica(1, &config);
  replica.state().Initialise(Owned({1, 2, 3, 4, 5}));
  Frame pulled = RecordOf(RecordKind::kPulled);
  pulled.header.session = 9;
  ASSERT_TRUE(replica.Do(pulled).ok());
  EXPECT_TRUE(replica.keeps(9));
  EXPECT_TRUE(replica.keeps(0));
  EXPECT_FALSE(replica.keeps(8));
  EXPECT_TRUE(replica.has_pulled(9));
  const std::vector<float> before = *replica.state().value();
  ASSERT_TRUE(replica.Do(UpdateOf({0, 0, 0})).ok());
  EXPECT_FALSE(replica.has_pulled(9)) << "there is a newer one";
  Frame update = UpdateOf({0, 0, 1});
  update.header.session = 9;
  const absl::StatusOr<Replica::Done> done = replica.Do(update);
  ASSERT_TRUE(done.ok());
  ASSERT_NE(done->pulled, nullptr);
  EXPECT_EQ(*done->pulled, before);
  EXPECT_EQ(done->context.pulled, done->pulled.get());
  EXPECT_EQ(done->context.staleness, 1u);
  Frame ended = RecordOf(RecordKind::kSessionEnded);
  ended.header.session = 9;
  ASSERT_TRUE(replica.Do(ended).ok());
  EXPECT_FALSE(replica.keeps(9));
}

TEST(ReplicaTest, OfOneSessionThatIsNeverHeardFewValuesAreKept) {
  const v1::OptimizerConfig config = ConfigOf(v1::DELAY_COMPENSATED_SGD);
  Replica replica = MakeReplica(1, &config);
  Frame pulled = RecordOf(RecordKind::kPulled);
  pulled.header.session = 9;
  for (std::uint32_t group = 0; group < 3 * kGroups; ++group) {
    ASSERT_TRUE(replica.Do(pulled).ok());
    ASSERT_TRUE(replica.Do(pulled).ok());
    ASSERT_TRUE(replica.Do(UpdateOf({0, group / kGroups, group % kGroups})).ok());
  }
  EXPECT_EQ(replica.Export().pulled.at(9).size(), 4u);
}

TEST(ReplicaTest, TheFactorIsNotOfBuffers) {
  const v1::OptimizerConfig config = ConfigOf(v1::SGD);
  Frame update = UpdateOf({0, 0, 0});
  update.header.factor = 0.25F;
  EXPECT_EQ(MakeReplica(1, &config).ContextOf(update.header).factor, 0.25);
  EXPECT_EQ(MakeReplica(1, nullptr).ContextOf(update.header).factor, 1);
}

TEST(ReplicaTest, ACopyThatDoesNotFitChangesNothing) {
  const v1::OptimizerConfig sgd = ConfigOf(v1::SGD);
  const v1::OptimizerConfig adam = ConfigOf(v1::ADAM);
  Replica replica = MakeReplica(1, &adam);
  replica.state().Initialise(Owned({1, 2, 3, 4, 5}));
  ASSERT_TRUE(replica.Do(StepWidthOf(3)).ok());
  ASSERT_TRUE(replica.Do(UpdateOf({0, 0, 0})).ok());
  const std::vector<std::string> before = BitsOf(replica);
  const auto refused = [&](const ReplicaCopy& copy) {
    EXPECT_EQ(replica.Import(copy).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(BitsOf(replica) == before);
  };
  refused(MakeReplica(2, &sgd).Export());
  ReplicaCopy wide = MakeReplica(2, &adam).Export();
  wide.snapshot.value = std::make_shared<const std::vector<float>>(kElements + 1);
  refused(wide);
  ReplicaCopy beyond = MakeReplica(2, &adam).Export();
  beyond.snapshot.table.add_epochs()->add_open()->set_shard(kShards);
  refused(beyond);
}

TEST(ReplicaTest, ARecordThatCannotBeDoneIsRefusedBeforeItIs) {
  const v1::OptimizerConfig config = ConfigOf(v1::SGD);
  Replica replica = MakeReplica(1, &config);
  ASSERT_TRUE(replica.Do(UpdateOf({0, 0, 1})).ok());
  ASSERT_TRUE(replica.Check(UpdateOf({0, 0, 0})).ok());
  struct Case {
    const char* name;
    std::function<void(Frame&)> spoil;
  };
  const Case cases[] = {
      {"no kind", [](Frame& record) { record.header.record = RecordKind::kNone; }},
      {"a kind that nobody knows", [](Frame& record) { record.header.record = static_cast<RecordKind>(77); }},
      {"no such epoch", [](Frame& record) { record.header.update.dataset_epoch = 2; }},
      {"no such data shard", [](Frame& record) { record.header.update.data_shard = kShards; }},
      {"no such group", [](Frame& record) { record.header.update.group = kGroups; }},
      {"an update that is here", [](Frame& record) { record.header.update.group = 1; }},
      {"no verdict", [](Frame& record) { record.header.verdict = Verdict::kPending; }},
      {"a verdict that nobody knows", [](Frame& record) { record.header.verdict = static_cast<Verdict>(9); }},
      {"too few elements", [](Frame& record) { record.header.elements = kElements - 1; }},
      {"too short",
       [](Frame& record) {
         record.payload = Owned({1, 2, 3, 4});
       }},
      {"too long",
       [](Frame& record) {
         record.payload = Owned({1, 2, 3, 4, 5, 6});
       }},
      {"no gradient", [](Frame& record) { record.payload = Payload(); }},
      {"no codec", [](Frame& record) { record.header.codec = FrameCodec::kNone; }},
      {"another codec", [](Frame& record) { record.header.codec = FrameCodec::kTopK; }},
      {"too many updates a step", [](Frame& record) { record = StepWidthOf(std::uint64_t{1} << 32); }},
      {"a command where there are no vectors", [](Frame& record) { record = RecordOf(RecordKind::kVectors); }},
  };
  const std::vector<std::string> before = BitsOf(replica);
  for (const Case& refused : cases) {
    SCOPED_TRACE(refused.name);
    Frame record = UpdateOf({0, 0, 0});
    refused.spoil(record);
    EXPECT_EQ(replica.Check(record).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(BitsOf(replica) == before);
  // What is skipped has no gradient.
  Frame skipped = UpdateOf({0, 0, 0});
  skipped.header.verdict = Verdict::kSkip;
  skipped.payload = Payload();
  EXPECT_TRUE(replica.Check(skipped).ok());
  EXPECT_TRUE(replica.Check(StepWidthOf(UINT32_MAX)).ok());
  EXPECT_TRUE(replica.Check(RecordOf(RecordKind::kPulled)).ok());
  EXPECT_TRUE(replica.Check(RecordOf(RecordKind::kSessionEnded)).ok());
}

TEST(ReplicaTest, ACommandOnVectorsIsDoneWhereItCanBe) {
  v1::OptimizerConfig config;
  config.set_type(v1::LBFGS);
  config.set_history(2);
  Replica replica = MakeReplica(1, &config);
  v1::VectorCommand command;
  command.set_number(1);
  command.add_sums()->set_target(1);
  command.mutable_search()->Resize(static_cast<int>(sandblaster::Lbfgs::StateSize(config.history())), 0);
  command.set_search(0, 1);
  const auto record_of = [](const std::string& bytes) {
    Frame record = RecordOf(RecordKind::kVectors);
    record.payload = OwningPayload({bytes.begin(), bytes.end()});
    return record;
  };
  EXPECT_TRUE(replica.Check(record_of(command.SerializeAsString())).ok());
  EXPECT_FALSE(replica.Check(record_of("\xff\xff")).ok()) << "no command";
  EXPECT_FALSE(replica.Do(record_of("\xff\xff")).ok());
  command.mutable_sums(0)->set_target(999);
  EXPECT_FALSE(replica.Check(record_of(command.SerializeAsString())).ok()) << "no such vector";
  EXPECT_FALSE(replica.Do(record_of(command.SerializeAsString())).ok());
  EXPECT_EQ(replica.sequence(), 0u);
  command.mutable_sums(0)->set_target(1);
  ASSERT_TRUE(replica.Do(record_of(command.SerializeAsString())).ok());
  EXPECT_EQ(replica.sequence(), 1u);
  EXPECT_EQ(replica.state().search_vectors()->number(), 1u);
}

}  // namespace
}  // namespace downpour::core
