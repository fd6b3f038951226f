#include "cli/ledger/ledger.h"

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using ::testing::HasSubstr;

constexpr int kSeeds = 300;

// A slice as the plain list of how often each update was applied to it, and what it took in steps.
struct ModelSlice {
  std::vector<std::vector<int>> times;  // [epoch][update]
  std::uint64_t skipped = 0;

  std::uint64_t Distinct() const {
    std::uint64_t count = 0;
    for (const auto& epoch : times) count += std::count_if(epoch.begin(), epoch.end(), [](int n) { return n > 0; });
    return count;
  }
  std::uint64_t Steps() const {
    std::uint64_t count = 0;
    for (const auto& epoch : times) {
      for (const int n : epoch) count += n;
    }
    return count;
  }
};

struct Model {
  LedgerExpectation expectation;
  std::uint32_t updates_per_shard = 1;
  std::uint32_t ps_count = 1;
  std::uint64_t epoch_updates = 0;
  std::vector<ModelSlice> slices;
};

std::uint64_t Pick(std::mt19937_64& random, std::uint64_t low, std::uint64_t high) {
  return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
}

// A job stopped anywhere: each epoch is whole, begun or untouched; `finished` has everything.
Model MakeModel(std::mt19937_64& random, bool finished) {
  Model model;
  model.expectation.job_uid = "0123456789abcdef0123456789abcdef";
  model.expectation.sample_count = Pick(random, 1, 600);
  model.expectation.batch_size = static_cast<std::uint32_t>(Pick(random, 1, 40));
  model.expectation.epochs = static_cast<std::uint32_t>(Pick(random, 1, 5));
  model.updates_per_shard = static_cast<std::uint32_t>(Pick(random, 1, 20));
  model.ps_count = static_cast<std::uint32_t>(Pick(random, 1, 4));
  model.epoch_updates = 0;
  for (std::uint64_t first = 0; first < *model.expectation.sample_count; first += model.expectation.batch_size) {
    ++model.epoch_updates;
  }
  const std::uint64_t whole = finished ? model.expectation.epochs : Pick(random, 0, model.expectation.epochs);
  const std::size_t slice_count = Pick(random, 1, 12);
  for (std::size_t s = 0; s < slice_count; ++s) {
    ModelSlice slice;
    for (std::uint64_t epoch = 0; epoch < model.expectation.epochs; ++epoch) {
      slice.times.emplace_back(model.epoch_updates, epoch < whole ? 1 : 0);
      if (epoch != whole) continue;
      for (int& times : slice.times.back()) times = Pick(random, 0, 1) == 1 ? 1 : 0;
    }
    slice.skipped = Pick(random, 0, slice.Steps());
    model.slices.push_back(std::move(slice));
  }
  return model;
}

void SetBit(std::string* bytes, std::uint64_t i) {
  if (bytes->size() <= i / 8) bytes->resize(i / 8 + 1, '\0');
  (*bytes)[i / 8] = static_cast<char>(static_cast<unsigned char>((*bytes)[i / 8]) | 1u << (i % 8));
}

// A ps may or may not have retired what is complete, and may or may not write trailing zeros.
v1::SliceLedger Encode(std::mt19937_64& random, const Model& model, std::uint32_t number) {
  const ModelSlice& slice = model.slices[number];
  const auto whole = [](const std::vector<int>& times) {
    return std::all_of(times.begin(), times.end(), [](int n) { return n > 0; });
  };
  v1::SliceLedger encoded;
  encoded.set_slice(number);
  encoded.set_version(slice.Steps());
  encoded.set_skipped(slice.skipped);
  std::uint32_t watermark = 0;
  while (watermark < slice.times.size() && whole(slice.times[watermark]) && Pick(random, 0, 3) > 0) ++watermark;
  encoded.set_watermark(watermark);
  for (std::uint32_t epoch = watermark; epoch < slice.times.size(); ++epoch) {
    const std::vector<int>& times = slice.times[epoch];
    v1::EpochTable table;
    table.set_dataset_epoch(epoch);
    std::uint32_t shard = 0;
    for (std::size_t first = 0; first < times.size(); first += model.updates_per_shard, ++shard) {
      const std::size_t end = std::min<std::size_t>(times.size(), first + model.updates_per_shard);
      const std::vector<int> part(times.begin() + static_cast<std::ptrdiff_t>(first),
                                  times.begin() + static_cast<std::ptrdiff_t>(end));
      if (whole(part) && Pick(random, 0, 1) == 0) {
        SetBit(table.mutable_retired(), shard);
        continue;
      }
      v1::ShardTable open;
      open.set_shard(shard);
      for (std::size_t i = 0; i < part.size(); ++i) {
        if (part[i] > 0) SetBit(open.mutable_applied(), i);
      }
      if (Pick(random, 0, 1) == 0) open.mutable_applied()->append(Pick(random, 0, 3), '\0');
      if (!open.applied().empty() || Pick(random, 0, 1) == 0) *table.add_open() = open;
    }
    if (table.open_size() > 0 || !table.retired().empty() || Pick(random, 0, 1) == 0) *encoded.add_epochs() = table;
  }
  return encoded;
}

std::vector<v1::LedgerReply> Encode(std::mt19937_64& random, const Model& model) {
  std::vector<v1::LedgerReply> replies(model.ps_count);
  for (std::uint32_t i = 0; i < model.ps_count; ++i) {
    v1::LedgerReply& reply = replies[i];
    reply.set_job_uid(model.expectation.job_uid);
    reply.set_ps_index(i);
    reply.mutable_stamp()->set_generation(7);
    reply.mutable_stamp()->set_epoch(i);  // a ps may lag behind within a generation
    reply.mutable_data()->set_sample_count(*model.expectation.sample_count);
    reply.mutable_data()->set_batch_size(model.expectation.batch_size);
    reply.mutable_data()->set_epochs(model.expectation.epochs);
    reply.mutable_data()->set_updates_per_shard(model.updates_per_shard);
  }
  for (std::uint32_t s = 0; s < model.slices.size(); ++s) {
    *replies[Pick(random, 0, model.ps_count - 1)].add_slices() = Encode(random, model, s);
  }
  std::shuffle(replies.begin(), replies.end(), random);
  return replies;
}

v1::SliceLedger* SomeSlice(std::mt19937_64& random, std::vector<v1::LedgerReply>* replies) {
  std::vector<v1::SliceLedger*> all;
  for (v1::LedgerReply& reply : *replies) {
    for (v1::SliceLedger& slice : *reply.mutable_slices()) all.push_back(&slice);
  }
  return all[Pick(random, 0, all.size() - 1)];
}

v1::EpochTable* TableOf(v1::SliceLedger* slice, std::uint32_t epoch) {
  for (v1::EpochTable& table : *slice->mutable_epochs()) {
    if (table.dataset_epoch() == epoch) return &table;
  }
  v1::EpochTable* table = slice->add_epochs();
  table->set_dataset_epoch(epoch);
  return table;
}

TEST(AuditLedgerTest, FinishedJobIsExactInEveryEncoding) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    const Model model = MakeModel(random, true);
    const auto summary = AuditLedger(model.expectation, Encode(random, model));
    ASSERT_TRUE(summary.ok()) << seed << ": " << summary.status();
    EXPECT_EQ(summary->expected, model.epoch_updates * model.expectation.epochs) << seed;
    EXPECT_EQ(summary->applied, summary->expected) << seed;
    EXPECT_EQ(summary->missing, 0u) << seed;
    EXPECT_EQ(summary->duplicated, 0u) << seed;
    std::uint64_t skipped = 0;
    for (const ModelSlice& slice : model.slices) skipped = std::max(skipped, slice.skipped);
    EXPECT_EQ(summary->skipped, skipped) << seed;
  }
}

// A job of so many updates, resumed once behind an epoch that was cut short.
TEST(AuditLedgerTest, StepsEndTheLastEpochAndWhereAJobHadEndedItsEpoch) {
  v1::LedgerReply reply;
  reply.set_job_uid("0123456789abcdef0123456789abcdef");
  v1::DataPlan& data = *reply.mutable_data();
  data.set_sample_count(100);  // ten updates in data shards of 4, 4 and 2
  data.set_batch_size(10);
  data.set_updates_per_shard(4);
  data.set_epochs(3);
  data.set_steps(22);  // 10 of epoch 0, 5 of the next, which was cut short, and 7
  v1::BatchChange* const change = data.add_changes();
  change->set_dataset_epoch(2);
  change->set_batch_size(10);
  change->set_previous_samples(50);
  v1::SliceLedger& slice = *reply.add_slices();
  slice.set_watermark(3);
  slice.set_version(22);
  LedgerExpectation expectation;
  expectation.job_uid = reply.job_uid();
  expectation.sample_count = 100;
  expectation.batch_size = 10;
  expectation.steps = 22;
  auto summary = AuditLedger(expectation, {reply});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->expected, 22u);
  EXPECT_EQ(summary->applied, 22u);
  EXPECT_EQ(summary->missing, 0u);
  EXPECT_EQ(summary->duplicated, 0u);

  // The last epoch has 4 and 3 updates: all but one are there.
  slice.set_watermark(2);
  slice.set_version(21);
  v1::EpochTable& table = *slice.add_epochs();
  table.set_dataset_epoch(2);
  table.set_retired("\x01");
  table.add_open()->set_shard(1);
  table.mutable_open(0)->set_applied("\x05");
  summary = AuditLedger(expectation, {reply});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->applied, 21u);
  EXPECT_EQ(summary->missing, 1u);
  table.mutable_open(0)->set_applied("\x0d");
  EXPECT_TRUE(absl::IsDataLoss(AuditLedger(expectation, {reply}).status())) << "update 3 of 3";
  table.mutable_open(0)->set_applied("\x05");
  expectation.steps = 23;
  EXPECT_EQ(AuditLedger(expectation, {reply}).status().message(),
            "ps-0 trains with a number of updates of 22, the job asks for 23");
  expectation.steps = 22;
  data.set_epochs(4);
  EXPECT_TRUE(absl::IsFailedPrecondition(AuditLedger(expectation, {reply}).status()));
}

TEST(AuditLedgerTest, JobStoppedAnywhereCountsWhatEverySliceHas) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    const Model model = MakeModel(random, false);
    const auto summary = AuditLedger(model.expectation, Encode(random, model));
    ASSERT_TRUE(summary.ok()) << seed << ": " << summary.status();
    std::uint64_t fewest = summary->expected;
    for (const ModelSlice& slice : model.slices) fewest = std::min(fewest, slice.Distinct());
    std::uint64_t common = 0;
    for (std::size_t epoch = 0; epoch < model.expectation.epochs; ++epoch) {
      for (std::size_t i = 0; i < model.epoch_updates; ++i) {
        common += std::all_of(model.slices.begin(), model.slices.end(),
                              [&](const ModelSlice& slice) { return slice.times[epoch][i] > 0; });
      }
    }
    EXPECT_EQ(summary->applied, fewest) << seed;
    EXPECT_EQ(summary->missing, summary->expected - common) << seed;
    EXPECT_EQ(summary->duplicated, 0u) << seed;
  }
}

// A job that may converge ends after whole epochs: of one that is begun all is expected, of those behind it nothing.
TEST(AuditLedgerTest, OfAJobThatMayConvergeBegunEpochsAreExpected) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    Model model = MakeModel(random, false);
    model.expectation.may_converge = true;
    std::size_t begun = 1;
    std::uint64_t common = 0;
    for (std::size_t epoch = 0; epoch < model.expectation.epochs; ++epoch) {
      for (std::size_t i = 0; i < model.epoch_updates; ++i) {
        const auto has = [&](const ModelSlice& slice) { return slice.times[epoch][i] > 0; };
        if (std::any_of(model.slices.begin(), model.slices.end(), has)) begun = std::max(begun, epoch + 1);
        common += std::all_of(model.slices.begin(), model.slices.end(), has);
      }
    }
    const auto summary = AuditLedger(model.expectation, Encode(random, model));
    ASSERT_TRUE(summary.ok()) << seed << ": " << summary.status();
    EXPECT_EQ(summary->expected, begun * model.epoch_updates) << seed;
    EXPECT_EQ(summary->missing, summary->expected - common) << seed;
  }
}

TEST(AuditLedgerTest, LostUpdatesAreCounted) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    Model model = MakeModel(random, true);
    const std::uint64_t lost = Pick(random, 1, 3);
    std::set<std::tuple<std::size_t, std::size_t, std::size_t>> chosen;
    for (std::uint64_t i = 0; i < lost; ++i) {
      chosen.emplace(Pick(random, 0, model.slices.size() - 1), Pick(random, 0, model.expectation.epochs - 1),
                     Pick(random, 0, model.epoch_updates - 1));
    }
    std::set<std::pair<std::size_t, std::size_t>> updates;
    for (const auto& [slice, epoch, update] : chosen) {
      model.slices[slice].times[epoch][update] = 0;
      model.slices[slice].skipped = 0;
      updates.emplace(epoch, update);
    }
    const auto summary = AuditLedger(model.expectation, Encode(random, model));
    ASSERT_TRUE(summary.ok()) << seed << ": " << summary.status();
    EXPECT_EQ(summary->missing, updates.size()) << seed;
    EXPECT_LT(summary->applied, summary->expected) << seed;
    EXPECT_EQ(summary->duplicated, 0u) << seed;
  }
}

TEST(AuditLedgerTest, DoubleApplicationsAreCounted) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    Model model = MakeModel(random, seed % 2 == 0);
    ModelSlice& slice = model.slices[Pick(random, 0, model.slices.size() - 1)];
    auto& times = slice.times[Pick(random, 0, model.expectation.epochs - 1)][Pick(random, 0, model.epoch_updates - 1)];
    const int extra = static_cast<int>(Pick(random, 1, 4));
    times = 1 + extra;
    const auto summary = AuditLedger(model.expectation, Encode(random, model));
    ASSERT_TRUE(summary.ok()) << seed << ": " << summary.status();
    EXPECT_EQ(summary->duplicated, static_cast<std::uint64_t>(extra)) << seed;
  }
}

// What turns good replies into contradictory or foreign ones, and what the error says.
struct Fault {
  const char* name;
  absl::StatusCode code;
  const char* message;
  std::function<void(std::mt19937_64&, const Model&, std::vector<v1::LedgerReply>*)> inject;
};

TEST(AuditLedgerTest, FaultyRepliesAreRefused) {
  constexpr absl::StatusCode kLoss = absl::StatusCode::kDataLoss;
  constexpr absl::StatusCode kForeign = absl::StatusCode::kFailedPrecondition;
  using Replies = std::vector<v1::LedgerReply>*;
  const std::vector<Fault> faults = {
      {"slice absent", kLoss, "is on no ps",
       [](auto& random, const Model&, Replies replies) {
         v1::SliceLedger* gone = SomeSlice(random, replies);
         for (v1::LedgerReply& reply : *replies) {
           for (int i = 0; i < reply.slices_size(); ++i) {
             if (reply.mutable_slices(i) != gone) continue;
             reply.mutable_slices()->DeleteSubrange(i, 1);
             return;
           }
         }
       }},
      {"slice twice", kLoss, "is reported by",
       [](auto& random, const Model&, Replies replies) {
         const v1::SliceLedger copy = *SomeSlice(random, replies);
         *replies->at(Pick(random, 0, replies->size() - 1)).add_slices() = copy;
         for (v1::LedgerReply& reply : *replies) reply.mutable_stamp()->set_epoch(3);
       }},
      {"slice beyond the model", kLoss, "is reported, the model has",
       [](auto& random, const Model& model, Replies replies) {
         const v1::SliceLedger copy = *SomeSlice(random, replies);
         v1::SliceLedger* extra = replies->front().add_slices();
         *extra = copy;
         extra->set_slice(static_cast<std::uint32_t>(model.slices.size()));
       }},
      {"another generation", kForeign, "generation",
       [](auto& random, const Model& model, Replies replies) {
         v1::LedgerReply& reply = (*replies)[Pick(random, 0, replies->size() - 1)];
         reply.mutable_stamp()->set_generation(8);
         if (replies->size() > 1) return;
         v1::LedgerReply other = reply;
         other.clear_slices();
         other.set_ps_index(model.ps_count);
         other.mutable_stamp()->set_generation(7);
         replies->push_back(other);
       }},
      {"another job", kForeign, "serves the job",
       [](auto& random, const Model&, Replies replies) {
         (*replies)[Pick(random, 0, replies->size() - 1)].set_job_uid("another");
       }},
      {"a ps twice", kForeign, "answered twice",
       [](auto&, const Model&, Replies replies) { replies->push_back(replies->front()); }},
      {"no data plan", kForeign, "has no data plan",
       [](auto& random, const Model&, Replies replies) {
         (*replies)[Pick(random, 0, replies->size() - 1)].clear_data();
       }},
      {"another sample count", kForeign, "a sample count of",
       [](auto& random, const Model& model, Replies replies) {
         (*replies)[Pick(random, 0, replies->size() - 1)].mutable_data()->set_sample_count(
             *model.expectation.sample_count + 1);
       }},
      {"another batch size", kForeign, "a batch size of",
       [](auto& random, const Model& model, Replies replies) {
         (*replies)[Pick(random, 0, replies->size() - 1)].mutable_data()->set_batch_size(model.expectation.batch_size +
                                                                                         1);
       }},
      {"other epochs", kForeign, "a number of epochs of",
       [](auto& random, const Model& model, Replies replies) {
         (*replies)[Pick(random, 0, replies->size() - 1)].mutable_data()->set_epochs(model.expectation.epochs + 1);
       }},
      {"no data shards", kForeign, "data shards of no update",
       [](auto&, const Model&, Replies replies) {
         for (v1::LedgerReply& reply : *replies) reply.mutable_data()->set_updates_per_shard(0);
       }},
      {"retired shard outside", kLoss, "does not exist",
       [](auto& random, const Model& model, Replies replies) {
         v1::SliceLedger* slice = SomeSlice(random, replies);
         const std::uint64_t shards = (model.epoch_updates - 1) / model.updates_per_shard + 1;
         SetBit(TableOf(slice, model.expectation.epochs - 1)->mutable_retired(), shards + Pick(random, 0, 9));
       }},
      {"update outside its shard", kLoss, "has an update beyond its",
       [](auto& random, const Model& model, Replies replies) {
         v1::EpochTable* table = TableOf(SomeSlice(random, replies), model.expectation.epochs - 1);
         table->clear_retired();
         table->clear_open();
         v1::ShardTable* open = table->add_open();
         const std::uint64_t shards = (model.epoch_updates - 1) / model.updates_per_shard + 1;
         open->set_shard(static_cast<std::uint32_t>(shards - 1));
         SetBit(open->mutable_applied(), model.epoch_updates - (shards - 1) * model.updates_per_shard);
       }},
      {"open shard outside", kLoss, "has an update beyond its",
       [](auto& random, const Model& model, Replies replies) {
         v1::ShardTable* open = TableOf(SomeSlice(random, replies), model.expectation.epochs - 1)->add_open();
         open->set_shard(static_cast<std::uint32_t>((model.epoch_updates - 1) / model.updates_per_shard + 1));
         SetBit(open->mutable_applied(), 0);
       }},
      {"epoch outside", kLoss, "",
       [](auto& random, const Model& model, Replies replies) {
         SetBit(TableOf(SomeSlice(random, replies), model.expectation.epochs)->mutable_retired(), 0);
       }},
      {"shard open and retired", kLoss, "open and retired at once",
       [](auto& random, const Model& model, Replies replies) {
         v1::EpochTable* table = TableOf(SomeSlice(random, replies), model.expectation.epochs - 1);
         table->clear_open();
         SetBit(table->mutable_retired(), 0);
         table->add_open()->set_shard(0);
       }},
      {"shard open twice", kLoss, "is open twice",
       [](auto& random, const Model& model, Replies replies) {
         v1::EpochTable* table = TableOf(SomeSlice(random, replies), model.expectation.epochs - 1);
         table->clear_retired();
         table->clear_open();
         table->add_open()->set_shard(0);
         table->add_open()->set_shard(0);
       }},
      {"epoch twice", kLoss, "has two tables",
       [](auto& random, const Model& model, Replies replies) {
         v1::SliceLedger* slice = SomeSlice(random, replies);
         slice->set_watermark(0);
         slice->clear_epochs();
         for (int i = 0; i < 2; ++i) slice->add_epochs()->set_dataset_epoch(model.expectation.epochs - 1);
       }},
      {"table before the watermark", kLoss, "is before the watermark",
       [](auto& random, const Model& model, Replies replies) {
         v1::SliceLedger* slice = SomeSlice(random, replies);
         slice->clear_epochs();
         slice->set_watermark(model.expectation.epochs);
         SetBit(TableOf(slice, model.expectation.epochs - 1)->mutable_retired(), 0);
       }},
      {"watermark outside", kLoss, "watermark",
       [](auto& random, const Model& model, Replies replies) {
         SomeSlice(random, replies)->set_watermark(model.expectation.epochs + 1);
       }},
      {"fewer steps than updates", kLoss, "it took only",
       [](auto& random, const Model&, Replies replies) {
         v1::SliceLedger* slice = SomeSlice(random, replies);
         slice->set_version(slice->version() - 1);
       }},
      {"more skipped than steps", kLoss, "skipped",
       [](auto& random, const Model&, Replies replies) {
         v1::SliceLedger* slice = SomeSlice(random, replies);
         slice->set_skipped(slice->version() + 1);
       }},
  };
  for (const Fault& fault : faults) {
    for (int seed = 0; seed < 100; ++seed) {
      std::mt19937_64 random(seed);
      Model model = MakeModel(random, true);
      model.expectation.slice_count = static_cast<std::uint32_t>(model.slices.size());
      std::vector<v1::LedgerReply> replies = Encode(random, model);
      ASSERT_TRUE(AuditLedger(model.expectation, replies).ok()) << fault.name << ", seed " << seed;
      fault.inject(random, model, &replies);
      const auto summary = AuditLedger(model.expectation, replies);
      ASSERT_EQ(summary.status().code(), fault.code) << fault.name << ", seed " << seed << ": " << summary.status();
      EXPECT_THAT(std::string(summary.status().message()), HasSubstr(fault.message)) << fault.name << ", seed " << seed;
    }
  }
}

// Three epochs of 10 updates, 4 a data shard; training ended in the second one, behind its first data shard.
class StoppedLedgerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    expectation_.job_uid = "0123456789abcdef0123456789abcdef";
    expectation_.sample_count = 20;
    expectation_.batch_size = 2;
    expectation_.epochs = 3;
    expectation_.may_stop = true;
    for (std::uint32_t i = 0; i < 2; ++i) {
      v1::LedgerReply& reply = replies_.emplace_back();
      reply.set_job_uid(expectation_.job_uid);
      reply.set_ps_index(i);
      reply.mutable_data()->set_sample_count(20);
      reply.mutable_data()->set_batch_size(2);
      reply.mutable_data()->set_updates_per_shard(4);
      reply.mutable_data()->set_epochs(3);
      v1::SliceLedger* slice = reply.add_slices();
      slice->set_slice(i);
      slice->set_watermark(1);
      slice->set_version(14);
      TableOf(slice, 1)->set_retired(std::string(1, '\x01'));
      SetEnd(i, 1, 1);
    }
  }
  void SetEnd(std::size_t ps, std::uint32_t epoch, std::uint32_t shard) {
    replies_[ps].mutable_end()->set_dataset_epoch(epoch);
    replies_[ps].mutable_end()->set_shard(shard);
  }
  absl::StatusOr<LedgerSummary> Audit() const { return AuditLedger(expectation_, replies_); }

  LedgerExpectation expectation_;
  std::vector<v1::LedgerReply> replies_;
};

TEST_F(StoppedLedgerTest, WhatIsBeforeTheEndHasToBeThereAndNothingElse) {
  auto summary = Audit();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->expected, 14u);
  EXPECT_EQ(summary->applied, 14u);
  EXPECT_EQ(summary->missing, 0u);
  EXPECT_EQ(summary->duplicated, 0u);

  // One update of the data shard before the end is missing.
  v1::SliceLedger* slice = replies_[1].mutable_slices(0);
  slice->set_version(13);
  slice->mutable_epochs(0)->clear_retired();
  slice->mutable_epochs(0)->add_open()->set_applied(std::string(1, '\x0b'));
  summary = Audit();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->expected, 14u);
  EXPECT_EQ(summary->applied, 13u);
  EXPECT_EQ(summary->missing, 1u);

  slice->set_version(15);
  slice->mutable_epochs(0)->mutable_open(0)->set_applied(std::string(1, '\x0f'));
  summary = Audit();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->missing, 0u);
  EXPECT_EQ(summary->duplicated, 1u) << "a step of which the table knows nothing";
}

TEST_F(StoppedLedgerTest, WhatIsBehindTheEndIsAContradiction) {
  v1::SliceLedger* slice = replies_[1].mutable_slices(0);
  slice->set_version(18);
  slice->mutable_epochs(0)->set_retired(std::string(1, '\x03'));
  EXPECT_EQ(Audit().status().code(), absl::StatusCode::kDataLoss) << "retired";
  slice->mutable_epochs(0)->set_retired(std::string(1, '\x01'));
  v1::ShardTable* open = slice->mutable_epochs(0)->add_open();
  open->set_shard(1);
  EXPECT_TRUE(Audit().ok()) << "open, and nothing in it";
  open->set_applied(std::string(1, '\x01'));
  EXPECT_EQ(Audit().status().code(), absl::StatusCode::kDataLoss) << "open";
  slice->mutable_epochs(0)->clear_open();
  TableOf(slice, 2)->set_retired(std::string(1, '\x01'));
  EXPECT_EQ(Audit().status().code(), absl::StatusCode::kDataLoss) << "of the next epoch";
  slice->clear_epochs();
  slice->set_watermark(2);
  EXPECT_EQ(Audit().status().code(), absl::StatusCode::kDataLoss) << "an epoch that ended in its middle is not whole";
}

TEST_F(StoppedLedgerTest, TheEndMayBeThatOfAnEpoch) {
  for (v1::LedgerReply& reply : replies_) {
    reply.mutable_slices(0)->clear_epochs();
    reply.mutable_slices(0)->set_version(20);
    reply.mutable_slices(0)->set_watermark(2);
  }
  for (const auto& [epoch, shard] : {std::pair(2u, 0u), std::pair(1u, 3u)}) {
    SetEnd(0, epoch, shard);
    SetEnd(1, epoch, shard);
    const auto summary = Audit();
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_EQ(summary->expected, 20u);
    EXPECT_EQ(summary->applied, 20u);
    EXPECT_EQ(summary->missing, 0u);
  }
  // Behind all of the job it is none.
  SetEnd(0, 2, 3);
  SetEnd(1, 2, 3);
  EXPECT_EQ(Audit()->expected, 30u);
  EXPECT_EQ(Audit()->missing, 10u);
}

TEST_F(StoppedLedgerTest, APsMayLagBehindButNotDiffer) {
  replies_[0].clear_end();
  ASSERT_TRUE(Audit().ok()) << Audit().status();
  EXPECT_EQ(Audit()->expected, 14u);
  SetEnd(0, 1, 2);
  EXPECT_THAT(std::string(Audit().status().message()),
              HasSubstr("ps-1 ends training before data shard 1 of epoch 1, ps-0 before data shard 2 of epoch 1"));
  SetEnd(0, 0, 0);
  SetEnd(1, 0, 0);
  EXPECT_EQ(Audit().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(StoppedLedgerTest, AJobThatMayNotStopHasToBeDone) {
  expectation_.may_stop = false;
  EXPECT_EQ(Audit().status().code(), absl::StatusCode::kFailedPrecondition);
  for (v1::LedgerReply& reply : replies_) reply.clear_end();
  EXPECT_EQ(Audit()->missing, 16u);
}

TEST(AuditLedgerTest, ShardSizeOfTheManifestMustBeTheJobs) {
  std::mt19937_64 random(1);
  Model model = MakeModel(random, true);
  model.expectation.updates_per_shard = model.updates_per_shard;
  EXPECT_TRUE(AuditLedger(model.expectation, Encode(random, model)).ok());
  model.expectation.updates_per_shard = model.updates_per_shard + 1;
  EXPECT_EQ(AuditLedger(model.expectation, Encode(random, model)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(AuditLedgerTest, NothingToAudit) {
  std::mt19937_64 random(1);
  const Model model = MakeModel(random, true);
  EXPECT_EQ(AuditLedger(model.expectation, {}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(AuditLedger(LedgerExpectation{}, Encode(random, model)).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::vector<v1::LedgerReply> replies = Encode(random, model);
  for (v1::LedgerReply& reply : replies) reply.clear_slices();
  EXPECT_EQ(AuditLedger(model.expectation, replies).status().code(), absl::StatusCode::kDataLoss);
}

// 20 samples in batches of 2, 2 updates a data shard; from shard 2 of epoch 1 on in batches of 5.
TEST(AuditLedgerTest, ABatchSizeThatChangedOnTheWayCountsOnEitherSide) {
  LedgerExpectation expectation;
  expectation.job_uid = "0123456789abcdef0123456789abcdef";
  expectation.sample_count = 20;
  expectation.batch_size = 5;
  expectation.epochs = 3;
  v1::LedgerReply reply;
  reply.set_job_uid(expectation.job_uid);
  v1::DataPlan* data = reply.mutable_data();
  data->set_sample_count(20);
  data->set_batch_size(2);
  data->set_updates_per_shard(2);
  data->set_epochs(3);
  v1::BatchChange* change = data->add_changes();
  change->set_dataset_epoch(1);
  change->set_shard(2);
  change->set_batch_size(5);
  v1::SliceLedger* slice = reply.add_slices();
  slice->set_watermark(1);
  slice->set_version(10 + 4 + 2);
  // Of epoch 1: shards of 2 x 2 samples twice, 2 x 5 once, and one update of the 2 samples that are left.
  v1::EpochTable* table = slice->add_epochs();
  table->set_dataset_epoch(1);
  table->set_retired(std::string(1, '\x07'));
  auto summary = AuditLedger(expectation, {reply});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->expected, 10u + 4 + 2 + 1 + 4);
  EXPECT_EQ(summary->applied, 16u);
  EXPECT_EQ(summary->missing, 5u);
  slice->set_watermark(3);
  slice->clear_epochs();
  slice->set_version(21);
  summary = AuditLedger(expectation, {reply});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->missing, 0u);
  EXPECT_EQ(summary->duplicated, 0u);
  // The manifest asks for another size than the job ends with.
  expectation.batch_size = 2;
  EXPECT_EQ(AuditLedger(expectation, {reply}).status().code(), absl::StatusCode::kFailedPrecondition);
  expectation.batch_size = 5;
  v1::LedgerReply other = reply;
  other.set_ps_index(1);
  other.clear_slices();
  other.mutable_data()->mutable_changes(0)->set_shard(1);
  EXPECT_EQ(AuditLedger(expectation, {reply, other}).status().code(), absl::StatusCode::kFailedPrecondition);
}

// Two epochs of 4 updates in data shards of 2, two slices.
class RingLedgerTest : public ::testing::Test {
 protected:
  RingLedgerTest() {
    expectation_.job_uid = "0123456789abcdef0123456789abcdef";
    expectation_.sample_count = 8;
    expectation_.batch_size = 2;
    expectation_.epochs = 2;
  }

  // With so many updates, the first ones.
  void AddWorker(std::uint32_t index, std::uint64_t updates) {
    v1::LedgerReply& reply = replies_.emplace_back();
    reply.set_job_uid(expectation_.job_uid);
    reply.set_ps_index(index);
    reply.mutable_stamp()->set_generation(3);
    reply.mutable_stamp()->set_epoch(index);
    v1::DataPlan& data = *reply.mutable_data();
    data.set_sample_count(8);
    data.set_batch_size(2);
    data.set_updates_per_shard(2);
    data.set_epochs(2);
    for (std::uint32_t number = 0; number < 2; ++number) {
      v1::SliceLedger& slice = *reply.add_slices();
      slice.set_slice(number);
      slice.set_version(updates);
      slice.set_watermark(static_cast<std::uint32_t>(updates / 4));
      for (std::uint64_t update = updates / 4 * 4; update < updates; ++update) Apply(&slice, update);
    }
  }
  static void Apply(v1::SliceLedger* slice, std::uint64_t update) {
    v1::EpochTable* const table = TableOf(slice, static_cast<std::uint32_t>(update / 4));
    const auto shard = static_cast<std::uint32_t>(update % 4 / 2);
    for (v1::ShardTable& open : *table->mutable_open()) {
      if (open.shard() == shard) return SetBit(open.mutable_applied(), update % 2);
    }
    v1::ShardTable* const open = table->add_open();
    open->set_shard(shard);
    SetBit(open->mutable_applied(), update % 2);
  }

  absl::StatusOr<LedgerSummary> Audit(bool over) const { return AuditRing(expectation_, replies_, over); }
  std::string Error(bool over) const { return std::string(Audit(over).status().message()); }

  LedgerExpectation expectation_;
  std::vector<v1::LedgerReply> replies_;
};

TEST_F(RingLedgerTest, WhatIsInEveryModelCounts) {
  for (std::uint32_t i = 0; i < 3; ++i) AddWorker(i, 8);
  for (const bool over : {false, true}) {
    const auto summary = Audit(over);
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_TRUE(summary->of_workers);
    EXPECT_EQ(summary->expected, 8u);
    EXPECT_EQ(summary->applied, 8u);
    EXPECT_EQ(summary->missing, 0u);
    EXPECT_EQ(summary->duplicated, 0u);
  }
  // One of them took a step twice.
  replies_[1].mutable_slices(1)->set_version(9);
  EXPECT_EQ(Audit(true)->duplicated, 1u);
}

TEST_F(RingLedgerTest, AWorkerMayBeAStepBehindUntilTheEnd) {
  AddWorker(0, 5);
  AddWorker(1, 7);
  const auto summary = Audit(false);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->applied, 5u);
  EXPECT_EQ(summary->missing, 3u);
  EXPECT_EQ(Audit(true).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Error(true), "worker-0 has 5 updates, worker-1 has 7");
}

TEST_F(RingLedgerTest, AWorkerThatTookOtherStepsIsNamed) {
  for (std::uint32_t i = 0; i < 3; ++i) AddWorker(i, 6);
  AddWorker(3, 5);
  // The same number, of others.
  for (v1::SliceLedger& slice : *replies_[1].mutable_slices()) {
    slice.clear_epochs();
    Apply(&slice, 4);
    Apply(&slice, 6);
  }
  EXPECT_EQ(Audit(false).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Error(false), "worker-1 contradicts worker-0: they have not taken the same steps");
  // It is the others that are many, wherever it stands.
  std::swap(replies_[0], replies_[1]);
  EXPECT_THAT(Error(true), HasSubstr("worker-1 contradicts worker-0, worker-2"));
  // One that is behind and has what nobody else has.
  replies_.erase(replies_.begin());
  EXPECT_TRUE(Audit(false).ok()) << Audit(false).status();
  for (v1::SliceLedger& slice : *replies_[2].mutable_slices()) {
    slice.clear_epochs();
    Apply(&slice, 7);
  }
  EXPECT_THAT(Error(false), HasSubstr("worker-3 contradicts worker-0"));
}

TEST_F(RingLedgerTest, AStepThatOnlyOneSkippedIsAContradiction) {
  AddWorker(0, 8);
  AddWorker(1, 8);
  replies_[1].mutable_slices(0)->set_skipped(1);
  EXPECT_EQ(Audit(true).status().code(), absl::StatusCode::kDataLoss);
  replies_[0].mutable_slices(0)->set_skipped(1);
  EXPECT_EQ(Audit(true)->skipped, 1u);
}

TEST_F(RingLedgerTest, AModelThatIsNotWholeIsNamed) {
  AddWorker(0, 8);
  AddWorker(1, 8);
  replies_[1].mutable_slices()->RemoveLast();
  EXPECT_EQ(Audit(true).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Error(true), "worker-1: slice 1 is not there");
  replies_[1].mutable_slices(0)->set_version(7);
  *replies_[1].add_slices() = replies_[0].slices(1);
  EXPECT_THAT(Error(true), HasSubstr("worker-1: slice 0: its table records 8 updates"));
  // One slice lacks what the other has.
  AddWorker(2, 7);
  Apply(replies_[2].mutable_slices(0), 7);
  replies_[2].mutable_slices(0)->set_version(8);
  replies_.erase(replies_.begin() + 1);
  EXPECT_EQ(Audit(false)->missing, 1u);
}

TEST_F(RingLedgerTest, WhoHasNoModelIsLeftOutAndAnOlderGenerationUntilTheEnd) {
  AddWorker(0, 8);
  AddWorker(1, 0);
  replies_[1].clear_slices();
  AddWorker(2, 0);
  replies_[2].clear_data();
  EXPECT_TRUE(Audit(true).ok()) << Audit(true).status();
  AddWorker(3, 2);
  replies_[3].mutable_stamp()->set_generation(2);
  EXPECT_EQ(Audit(false)->missing, 0u);
  EXPECT_EQ(Audit(true).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Error(true), "worker-3 is still in generation 2, others are in 3");
  replies_.erase(replies_.begin());
  replies_.pop_back();
  EXPECT_EQ(Audit(false).status().code(), absl::StatusCode::kUnavailable);
  replies_.clear();
  EXPECT_EQ(Audit(true).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RingLedgerTest, AnotherJobAndAnotherPlanAreErrorsThatNameTheWorker) {
  AddWorker(0, 8);
  AddWorker(1, 8);
  replies_[1].set_job_uid("another");
  EXPECT_THAT(Error(false), HasSubstr("worker-1 serves the job another"));
  replies_[1].set_job_uid(expectation_.job_uid);
  replies_[1].mutable_data()->set_batch_size(4);
  EXPECT_THAT(Error(false), HasSubstr("worker-1 trains with a batch size of 4"));
  replies_[1] = replies_[0];
  EXPECT_THAT(Error(false), HasSubstr("worker-0 answered twice"));
}

}  // namespace
}  // namespace downpour::cli
