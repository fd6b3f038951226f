#include "trainer/worker/ring_heal.h"

#include <bit>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/collective/fake.h"

namespace downpour::worker {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(30);

v1::View MakeView() {
  v1::View view;
  view.mutable_stamp()->set_generation(1);
  view.mutable_stamp()->set_incarnation(2);
  view.mutable_stamp()->set_epoch(3);
  view.set_mode(v1::SYNCHRONOUS);
  view.set_updates_per_step(2);
  view.mutable_data()->set_sample_count(64);
  view.mutable_data()->set_batch_size(4);
  view.mutable_data()->set_updates_per_shard(4);
  view.mutable_data()->set_epochs(3);
  view.mutable_optimizer()->set_type(v1::ADAM);
  view.mutable_optimizer()->set_learning_rate(0.1);
  view.mutable_optimizer()->set_beta1(0.9);
  view.mutable_optimizer()->set_beta2(0.999);
  view.mutable_optimizer()->set_epsilon(1e-7);
  for (const auto& [name, elements] : {std::pair("odd", 7), std::pair("scalar", 1)}) {
    v1::TensorSpec* const tensor = view.add_tensors();
    tensor->set_name(name);
    tensor->set_type(v1::FLOAT32);
    tensor->set_kind(v1::PARAMETER);
    tensor->add_shape(elements);
  }
  return view;
}

// With its first values, after `steps` steps.
core::RingReplica MakeReplica(int steps) {
  core::RingReplica replica = *core::RingReplica::Create(MakeView());
  for (std::uint32_t number = 0; number < replica.slices().size(); ++number) {
    const std::vector<float> values(replica.slices()[number].elements, 0.5f);
    replica.Initialise(number, core::Payload::OfFloats(values, nullptr));
  }
  for (int step = 0; step < steps; ++step) {
    replica.TakeStep({replica.NextStep()}, [&](std::uint32_t slice) -> absl::Span<const float> {
      static const std::vector<float> kSum = {1, 2, 3, 4, 5, 6, 7};
      return absl::MakeConstSpan(kSum).subspan(0, replica.slices()[slice].elements);
    });
  }
  return replica;
}

std::vector<float> BitsOf(const core::RingReplica& replica) {
  std::vector<float> bits;
  replica.ForEachVector(
      [&bits](absl::Span<const float> values) { bits.insert(bits.end(), values.begin(), values.end()); });
  return bits;
}

// Runs `rank(group)` on all ranks at once.
void OnAllRanks(collective::FakeNetwork& network, int size, const std::function<void(collective::Collective&)>& rank) {
  auto groups = network.NewGroup("v1", size);
  std::vector<std::thread> threads;
  threads.reserve(groups.size());
  for (auto& group : groups) threads.emplace_back([&rank, &group] { rank(*group); });
  for (std::thread& thread : threads) thread.join();
}

// The same where the optimizer's state is divided, with all of it at this member.
core::RingReplica MakeDivided(int steps, std::uint32_t holders) {
  v1::View view = MakeView();
  view.set_state_copies(1);
  view.set_state_holders(holders);
  core::RingReplica replica = *core::RingReplica::Create(view);
  if (steps < 0) return replica;
  for (std::uint32_t number = 0; number < replica.slices().size(); ++number) {
    const std::vector<float> values(replica.slices()[number].elements, 0.5f);
    replica.Initialise(number, core::Payload::OfFloats(values, nullptr));
  }
  for (int step = 0; step < steps; ++step) {
    std::vector<std::vector<float>> sums;
    for (const core::Slice& slice : replica.slices()) {
      for (float& value : sums.emplace_back(slice.elements))
        value = static_cast<float>(&value - sums.back().data() + 1);
    }
    const core::RingReplica::Step taken{replica.NextStep()};
    replica.UpdateHeld(taken, [&](std::uint32_t slice) { return absl::MakeSpan(sums[slice]); });
    replica.TakeStep(taken, [&](std::uint32_t slice) { return absl::MakeConstSpan(sums[slice]); });
  }
  return replica;
}

TEST(RingHealTest, EveryoneHearsAllPositions) {
  collective::FakeNetwork network;
  OnAllRanks(network, 3, [](collective::Collective& group) {
    core::RingPosition position;
    position.known = group.rank() != 1;
    position.took.set_generation(0x123456789abcdef0u);
    position.took.set_incarnation(static_cast<std::uint32_t>(group.rank()));
    position.took.set_epoch(0xffffffffu);
    position.updates = std::uint64_t{7} << 32 | static_cast<std::uint32_t>(group.rank());
    position.whole = group.rank() == 0;
    position.shares = {{2, 3}, {0, 1}, {3, 4}};
    if (group.rank() == 2) position.prepared = position.took;
    position.prepared_updates = std::uint64_t{9} << 32;
    position.last = {group.rank() == 2 ? core::Verdict::kSkip : core::Verdict::kApply, 0.1, 5};
    const auto positions = TellPositions(group, position, kLimit);
    ASSERT_TRUE(positions.ok()) << positions.status();
    ASSERT_EQ(positions->size(), 3u);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      const core::RingPosition& heard = (*positions)[rank];
      EXPECT_EQ(heard.known, rank != 1);
      if (!heard.known) continue;
      EXPECT_EQ(heard.took.generation(), 0x123456789abcdef0u);
      EXPECT_EQ(heard.took.incarnation(), rank);
      EXPECT_EQ(heard.took.epoch(), 0xffffffffu);
      EXPECT_EQ(heard.updates, std::uint64_t{7} << 32 | rank);
      EXPECT_EQ(heard.whole, rank == 0);
      EXPECT_EQ(heard.shares, (std::vector<core::StateShare>{{2, 3}, {0, 1}, {3, 4}}));
      EXPECT_EQ(heard.prepared.has_value(), rank == 2);
      if (rank == 2) {
        EXPECT_EQ(heard.prepared->generation(), 0x123456789abcdef0u);
      }
      EXPECT_EQ(heard.prepared_updates, std::uint64_t{9} << 32);
      EXPECT_EQ(heard.last.verdict, rank == 2 ? core::Verdict::kSkip : core::Verdict::kApply);
      EXPECT_EQ(heard.last.factor, 0.1);
      EXPECT_EQ(heard.last.updates, 5u);
    }
  });
}

TEST(RingHealTest, TheStateOfTheSourceIsEverybodysToTheLastBit) {
  const core::RingReplica source = MakeReplica(5);
  collective::FakeNetwork network;
  OnAllRanks(network, 3, [&source](collective::Collective& group) {
    if (group.rank() == 1) {
      const auto given = ShareState(group, 1, kLimit, source);
      ASSERT_TRUE(given.ok()) << given.status();
      EXPECT_TRUE(given->empty());
      return;
    }
    // One has never had a state, the other an older one.
    core::RingReplica replica = group.rank() == 0 ? *core::RingReplica::Create(MakeView()) : MakeReplica(2);
    const auto state = ShareState(group, 1, kLimit, replica);
    ASSERT_TRUE(state.ok()) << state.status();
    for (const core::SliceSnapshot& snapshot : *state) ASSERT_TRUE(replica.Import(snapshot).ok());
    EXPECT_EQ(replica.updates(), source.updates());
    EXPECT_EQ(replica.NextStep(), source.NextStep());
    EXPECT_EQ(BitsOf(replica), BitsOf(source));
  });
}

TEST(RingHealTest, ADividedStateComesTogetherAsItWas) {
  const core::RingReplica plain = MakeReplica(5);
  collective::FakeNetwork network;
  OnAllRanks(network, 3, [&plain](collective::Collective& group) {
    const auto rank = static_cast<std::uint32_t>(group.rank());
    // One has all of it, one an older one, one none.
    core::RingReplica replica = MakeDivided(rank == 1 ? 5 : rank == 0 ? 2 : -1, 3);
    const auto fragments = core::PlanFragments(replica.layout(), replica.slices(), 1, {{}, {core::StateShare()}, {}});
    ASSERT_TRUE(fragments.ok()) << fragments.status();
    core::RingReplica::Assembly assembly(replica, core::StateShare{rank, 3});
    const absl::Status shared = ShareDivided(group, 1, *fragments, kLimit, replica, &assembly);
    ASSERT_TRUE(shared.ok()) << shared;
    const absl::Status installed = replica.Install(std::move(assembly), /*keeps=*/rank == 1);
    ASSERT_TRUE(installed.ok()) << installed;
    EXPECT_EQ(replica.shares().size(), rank == 1 ? 2u : 1u);
    replica.Settle();
    EXPECT_EQ(replica.shares(), (std::vector<core::StateShare>{{rank, 3}}));
    EXPECT_EQ(replica.NextStep(), plain.NextStep());
    for (std::uint32_t slice = 0; slice < plain.slices().size(); ++slice) {
      EXPECT_EQ(*replica.value(slice), *plain.value(slice));
    }
    const auto gathered = GatherState(group, 7, kLimit, replica);
    ASSERT_TRUE(gathered.ok()) << gathered.status();
    EXPECT_EQ(gathered->size(), rank == 0 ? plain.slices().size() : 0u);
    for (const core::SliceSnapshot& has : *gathered) {
      const core::SliceSnapshot expected = plain.Export(has.number);
      EXPECT_EQ(*has.value, *expected.value);
      EXPECT_EQ(has.optimizer.type, expected.optimizer.type);
      ASSERT_EQ(has.optimizer.vectors.size(), expected.optimizer.vectors.size());
      for (std::size_t i = 0; i < has.optimizer.vectors.size(); ++i) {
        EXPECT_EQ(has.optimizer.vectors[i].name, expected.optimizer.vectors[i].name);
        EXPECT_EQ(*has.optimizer.vectors[i].values, *expected.optimizer.vectors[i].values);
      }
      EXPECT_EQ(has.table.SerializeAsString(), expected.table.SerializeAsString());
    }
    const auto mixed = GatherState(group, 8 + rank / 2, kLimit, replica);
    EXPECT_TRUE(absl::IsInternal(mixed.status())) << mixed.status();
  });
}

// What comes is trusted no further than it can be.
TEST(RingHealTest, ADescriptionThatCannotBeIsRefused) {
  for (const auto& [parts, bytes] :
       {std::pair(0u, 10u), std::pair(1u, 10u), std::pair(1000000u, 10u), std::pair(3u, 0xffffffffu)}) {
    collective::FakeNetwork network;
    OnAllRanks(network, 2, [parts = parts, bytes = bytes](collective::Collective& group) {
      if (group.rank() == 0) {
        std::vector<float> head = {std::bit_cast<float>(parts), std::bit_cast<float>(bytes)};
        EXPECT_TRUE(group.Broadcast(absl::MakeSpan(head), 0, kLimit).ok());
        return;
      }
      const auto state = ShareState(group, 0, kLimit, *core::RingReplica::Create(MakeView()));
      EXPECT_TRUE(absl::IsInternal(state.status())) << state.status();
      group.Abort();
    });
  }
}

TEST(RingHealTest, WhoeverIsLostMeanwhileEndsItForAll) {
  for (std::int64_t call = 1; call <= 6; ++call) {
    const core::RingReplica source = MakeReplica(1);
    collective::FakeNetwork network;
    network.Inject({collective::Fault::Kind::kFail, 0, call});
    OnAllRanks(network, 2, [&source](collective::Collective& group) {
      const core::RingReplica none = *core::RingReplica::Create(MakeView());
      const auto state = ShareState(group, 0, kLimit, group.rank() == 0 ? source : none);
      EXPECT_TRUE(absl::IsUnavailable(state.status())) << state.status();
    });
  }
}

}  // namespace
}  // namespace downpour::worker
