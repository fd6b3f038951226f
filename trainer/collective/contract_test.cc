// What collective.h promises, of each implementation.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <latch>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "proto/host_port.h"
#include "trainer/collective/collective.h"
#include "trainer/collective/testing/implementations.h"

namespace downpour::collective {
namespace {

using testing::HasSubstr;

// Long enough for a busy machine: reaching it is a hang.
constexpr absl::Duration kNotHung = absl::Seconds(30);
// For what is to exceed it.
constexpr absl::Duration kShort = absl::Milliseconds(200);

using Values = std::vector<float>;

std::vector<std::uint32_t> Bits(const Values& values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

// Of very different sizes, so that the order of a sum shows.
Values Random(std::size_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(-12, 12);
  Values values(count);
  for (float& value : values) {
    value = std::ldexp(mantissa(random), exponent(random));
  }
  return values;
}

// Each rank on a thread of its own.
void Together(int size, const std::function<void(int)>& play) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&play, rank] { play(rank); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

class ContractTest : public testing::TestWithParam<std::string> {
 protected:
  ContractTest() : implementation_(NewImplementation(GetParam())) {
    for (int i = 0; i < 4; ++i) {
      members_.push_back(implementation_->NewMember());
    }
  }

  void TearDown() override {
    members_.clear();
    EXPECT_EQ(implementation_->Complaints(), "");
  }

  GroupOptions Options(const std::string& view, int rank, int size) const {
    GroupOptions options;
    options.view = view;
    options.rank = rank;
    options.size = size;
    options.host = host_;
    options.store = JoinHostPort(host_, members_[0]->port());
    options.limit = kNotHung;
    return options;
  }

  std::vector<std::unique_ptr<Collective>> Form(const std::string& view, int size) {
    std::vector<std::unique_ptr<Collective>> ends(static_cast<std::size_t>(size));
    Together(size, [&](int rank) {
      auto end = members_[static_cast<std::size_t>(rank)]->Form(Options(view, rank, size));
      EXPECT_TRUE(end.ok()) << end.status();
      if (end.ok()) {
        ends[static_cast<std::size_t>(rank)] = *std::move(end);
      }
    });
    for (const auto& end : ends) {
      if (end == nullptr) {
        return {};
      }
    }
    return ends;
  }

  struct Summed {
    Values values;                   // rank 0's
    std::vector<double> sums, most;  // of what the ranks had, and of its magnitudes
  };
  // Of Random(count, rank): by an all-reduce, and by a reduce-scatter with an all-gather. Both have the same bits, on
  // every rank.
  static Summed SumBothWays(const std::vector<std::unique_ptr<Collective>>& ends, std::size_t count,
                            Precision travels) {
    Summed summed{{}, std::vector<double>(count), std::vector<double>(count)};
    std::vector<Values> reduced, scattered;
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      reduced.push_back(Random(count, static_cast<int>(rank)));
      for (std::size_t i = 0; i < count; ++i) {
        summed.sums[i] += reduced.back()[i];
        summed.most[i] += std::abs(reduced.back()[i]);
      }
    }
    scattered = reduced;
    Together(static_cast<int>(ends.size()), [&](int rank) {
      const std::size_t at = static_cast<std::size_t>(rank);
      EXPECT_EQ(ends[at]->AllReduce(absl::MakeSpan(reduced[at]), kNotHung, travels), absl::OkStatus());
      EXPECT_EQ(ends[at]->ReduceScatter(absl::MakeSpan(scattered[at]), kNotHung, travels), absl::OkStatus());
      EXPECT_EQ(ends[at]->AllGather(absl::MakeSpan(scattered[at]), kNotHung), absl::OkStatus());
    });
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      EXPECT_TRUE(Bits(reduced[rank]) == Bits(reduced[0])) << ends.size() << " " << count << " " << rank;
      EXPECT_TRUE(Bits(scattered[rank]) == Bits(reduced[0])) << ends.size() << " " << count << " " << rank;
    }
    summed.values = reduced[0];
    return summed;
  }

  // Where a value differs from the sum by more than a share `allowed` of the magnitudes that were added.
  static std::vector<std::size_t> FarOff(const Summed& summed, double allowed) {
    std::vector<std::size_t> where;
    for (std::size_t i = 0; i < summed.values.size(); ++i) {
      const double off = std::abs(static_cast<double>(summed.values[i]) - summed.sums[i]);
      if (!(off <= summed.most[i] * allowed)) where.push_back(i);
    }
    return where;
  }

  std::string host_ = "127.0.0.1";
  std::unique_ptr<Implementation> implementation_;
  std::vector<std::unique_ptr<Member>> members_;
};

TEST_P(ContractTest, ASumHasTheSameBitsEverywhereWhicheverWayItIsMade) {
  for (int size = 1; size <= 4; ++size) {
    auto ends = Form(absl::StrCat("sum", size), size);
    ASSERT_FALSE(ends.empty());
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      EXPECT_EQ(ends[rank]->rank(), static_cast<int>(rank));
      EXPECT_EQ(ends[rank]->size(), size);
    }
    for (const std::size_t count : {0u, 1u, 3u, 1000u, 600001u}) {
      const Summed summed = SumBothWays(ends, count, Precision::kFloat32);
      EXPECT_EQ(FarOff(summed, 1e-6), std::vector<std::size_t>()) << size << " " << count;
    }
  }
}

TEST_P(ContractTest, ASumThatTravelsAsBfloat16IsOneAndTheSameEverywhere) {
  for (int size = 1; size <= 4; ++size) {
    auto ends = Form(absl::StrCat("halves", size), size);
    ASSERT_FALSE(ends.empty());
    for (const std::size_t count : {0u, 1u, 3u, 1001u, 600001u}) {
      const Summed summed = SumBothWays(ends, count, Precision::kBfloat16);
      if (size == 1) {
        EXPECT_TRUE(Bits(summed.values) == Bits(Random(count, 0))) << "nothing travels";
        continue;
      }
      const std::vector<std::uint32_t> bits = Bits(summed.values);
      EXPECT_TRUE(
          std::all_of(bits.begin(), bits.end(), [](std::uint32_t of_value) { return (of_value & 0xffff) == 0; }))
          << size << " " << count;
      // Half a unit in the last of eight places each time it is rounded.
      EXPECT_EQ(FarOff(summed, size * std::ldexp(1, -8)), std::vector<std::size_t>()) << size << " " << count;
    }
  }
}

TEST_P(ContractTest, ASumThatTravelsAsBfloat16AddsInFloat32) {
  // 256 + 1 is none, 256 + 2 is.
  auto ends = Form("add halves", 3);
  ASSERT_FALSE(ends.empty());
  Together(3, [&](int rank) {
    const std::size_t at = static_cast<std::size_t>(rank);
    Values values(9, rank == 0 ? 256.0f : 1.5f);
    EXPECT_EQ(ends[at]->AllReduce(absl::MakeSpan(values), kNotHung, Precision::kBfloat16), absl::OkStatus());
    for (const float value : values) EXPECT_TRUE(value == 258 || value == 260) << value;
    Values bad(9, rank == 1 ? std::numeric_limits<float>::infinity() : 1.0f);
    EXPECT_EQ(ends[at]->AllReduce(absl::MakeSpan(bad), kNotHung, Precision::kBfloat16), absl::OkStatus());
    for (const float value : bad) EXPECT_FALSE(std::isfinite(value)) << value;
  });
}

TEST_P(ContractTest, ValuesMoveBitForBit) {
  for (int size = 2; size <= 4; ++size) {
    auto ends = Form(absl::StrCat("move", size), size);
    ASSERT_FALSE(ends.empty());
    for (int root = 0; root < size; ++root) {
      Values given = Random(70001, root);
      const std::uint32_t signalling = 0x7fa12345;  // arithmetic would change it
      std::memcpy(&given[5], &signalling, sizeof(signalling));
      std::vector<Values> got(static_cast<std::size_t>(size), Values(given.size()));
      got[static_cast<std::size_t>(root)] = given;
      Together(size, [&](int rank) {
        const std::size_t at = static_cast<std::size_t>(rank);
        EXPECT_EQ(ends[at]->Broadcast(absl::MakeSpan(got[at]), root, kNotHung), absl::OkStatus());
      });
      for (const Values& of_rank : got) {
        EXPECT_TRUE(Bits(of_rank) == Bits(given)) << size << " " << root;
      }
    }
  }
}

TEST_P(ContractTest, MessagesMeetInOrderBothWaysAtOnceBesideASum) {
  auto ends = Form("messages", 2);
  ASSERT_FALSE(ends.empty());
  constexpr int kMessages = 5;
  Together(2, [&](int rank) {
    Collective& end = *ends[static_cast<std::size_t>(rank)];
    const int other = 1 - rank;
    Values sum(1000, 1.0f);
    std::vector<Values> sent, received;
    std::vector<Handle> handles;
    for (int i = 0; i < kMessages; ++i) {
      sent.push_back(Random(static_cast<std::size_t>(1 + i * 100000), rank * 100 + i));
      received.emplace_back(sent.back().size());
    }
    // Sends first on both: a send that had to be received before the next operation would be waited for for ever.
    for (Values& values : sent) {
      handles.push_back(end.StartSend(values, other).value());
    }
    handles.push_back(end.StartAllReduce(absl::MakeSpan(sum)).value());
    for (Values& values : received) {
      handles.push_back(end.StartReceive(absl::MakeSpan(values), other).value());
    }
    for (const Handle handle : handles) {
      EXPECT_EQ(end.Wait(handle, kNotHung), absl::OkStatus());
    }
    for (int i = 0; i < kMessages; ++i) {
      const std::size_t at = static_cast<std::size_t>(i);
      EXPECT_TRUE(received[at] == Random(received[at].size(), other * 100 + i)) << i;
    }
    EXPECT_EQ(sum, Values(1000, 2.0f));
  });
}

TEST_P(ContractTest, SeveralAreOnTheirWayAndAreWaitedForInAnyOrder) {
  constexpr int kBuckets = 8;
  auto ends = Form("buckets", 3);
  ASSERT_FALSE(ends.empty());
  Together(3, [&](int rank) {
    Collective& end = *ends[static_cast<std::size_t>(rank)];
    std::vector<Values> buckets;
    std::vector<Handle> handles;
    for (int i = 0; i < kBuckets; ++i) {
      buckets.emplace_back(static_cast<std::size_t>(1 + 5000 * i), static_cast<float>(i + rank));
    }
    for (Values& bucket : buckets) {
      handles.push_back(end.StartAllReduce(absl::MakeSpan(bucket)).value());
    }
    for (int i = 0; i < kBuckets; ++i) {
      const std::size_t at = static_cast<std::size_t>((i * 3 + rank) % kBuckets);
      EXPECT_EQ(end.Wait(handles[at], kNotHung), absl::OkStatus());
      EXPECT_EQ(buckets[at], Values(buckets[at].size(), static_cast<float>(3 * at + 3)));
    }
    EXPECT_EQ(end.Wait(handles[0], kNotHung).code(), absl::StatusCode::kInvalidArgument) << "waited for already";
  });
}

TEST_P(ContractTest, WhatARankCannotDoLeavesTheGroupWhole) {
  auto ends = Form("invalid", 2);
  ASSERT_FALSE(ends.empty());
  Values values(3, 1.0f);
  EXPECT_EQ(ends[0]->StartBroadcast(absl::MakeSpan(values), 2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ends[0]->StartSend(values, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ends[0]->StartReceive(absl::MakeSpan(values), -1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ends[0]->Wait(12345, kNotHung).code(), absl::StatusCode::kInvalidArgument);
  Together(2, [&](int rank) {
    Values sum(7, 1.0f);
    EXPECT_EQ(ends[static_cast<std::size_t>(rank)]->AllReduce(absl::MakeSpan(sum), kNotHung), absl::OkStatus());
  });
}

TEST_P(ContractTest, ARankThatNeverStartsExceedsTheDeadlineAndBreaksTheGroup) {
  for (int size = 2; size <= 4; ++size) {
    const std::string view = absl::StrCat("never", size);
    auto ends = Form(view, size);
    ASSERT_FALSE(ends.empty());
    std::vector<absl::Status> statuses(static_cast<std::size_t>(size));
    Together(size - 1, [&](int rank) {
      const std::size_t at = static_cast<std::size_t>(rank);
      Values values(100000, 1.0f);
      statuses[at] = ends[at]->AllReduce(absl::MakeSpan(values), rank == 0 ? kShort : kNotHung);
    });
    EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded) << statuses[0];
    EXPECT_THAT(statuses[0].message(), HasSubstr("all-reduce of 100000 values"));
    EXPECT_THAT(statuses[0].message(), HasSubstr(absl::StrCat("rank 0 of ", size, ", view ", view)));
    for (int rank = 1; rank < size - 1; ++rank) {
      EXPECT_EQ(statuses[static_cast<std::size_t>(rank)].code(), absl::StatusCode::kUnavailable) << size << " " << rank;
    }
    Values values(10);
    const auto late = static_cast<std::size_t>(size - 1);
    EXPECT_EQ(ends[late]->AllReduce(absl::MakeSpan(values), kNotHung).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ends[0]->AllReduce(absl::MakeSpan(values), kNotHung).code(), absl::StatusCode::kDeadlineExceeded);
  }
}

TEST_P(ContractTest, ARankThatGoesInTheMiddleIsNoticed) {
  for (int size = 2; size <= 4; ++size) {
    for (const std::size_t count : {10u, 3000000u}) {
      auto ends = Form(absl::StrCat("gone", size, "/", count), size);
      ASSERT_FALSE(ends.empty());
      std::vector<absl::Status> statuses(static_cast<std::size_t>(size));
      Together(size, [&](int rank) {
        const std::size_t at = static_cast<std::size_t>(rank);
        Values values(count, 1.0f), more(count, 1.0f);
        if (rank == size - 1) {
          ASSERT_TRUE(ends[at]->StartAllReduce(absl::MakeSpan(values)).ok());
          ends[at].reset();  // the others are anywhere
          return;
        }
        statuses[at] = ends[at]->AllReduce(absl::MakeSpan(values), kNotHung);
        if (statuses[at].ok()) {
          statuses[at] = ends[at]->AllReduce(absl::MakeSpan(more), kNotHung);
        }
      });
      for (int rank = 0; rank < size - 1; ++rank) {
        EXPECT_EQ(statuses[static_cast<std::size_t>(rank)].code(), absl::StatusCode::kUnavailable)
            << statuses[static_cast<std::size_t>(rank)];
      }
    }
  }
}

TEST_P(ContractTest, AbortEndsWaitsOnAllRanks) {
  auto ends = Form("abort", 3);
  ASSERT_FALSE(ends.empty());
  std::latch started(2);
  std::thread aborter([&] {
    started.wait();
    ends[0]->Abort();
    ends[0]->Abort();
  });
  std::vector<absl::Status> statuses(3);
  Together(2, [&](int rank) {  // rank 2 does not take part, so this cannot be complete
    const std::size_t at = static_cast<std::size_t>(rank);
    Values sum(50000, 1.0f), message(200000);
    const Handle reduce = ends[at]->StartAllReduce(absl::MakeSpan(sum)).value();
    const Handle receive = ends[at]->StartReceive(absl::MakeSpan(message), 2).value();
    started.count_down();
    statuses[at] = ends[at]->Wait(receive, kNotHung);
    EXPECT_EQ(ends[at]->Wait(reduce, kNotHung).code(), statuses[at].code());
  });
  aborter.join();
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kAborted) << statuses[0];
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kUnavailable) << statuses[1];
  Values values(5);
  EXPECT_EQ(ends[0]->StartAllReduce(absl::MakeSpan(values)).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ends[2]->AllReduce(absl::MakeSpan(values), kNotHung).code(), absl::StatusCode::kUnavailable);
}

TEST_P(ContractTest, MembersThatDoDifferentThingsGetAnErrorNotADeadlock) {
  auto ends = Form("differ", 2);
  ASSERT_FALSE(ends.empty());
  std::vector<absl::Status> statuses(2);
  Together(2, [&](int rank) {
    const std::size_t at = static_cast<std::size_t>(rank);
    Values values(rank == 0 ? 100 : 101, 1.0f);
    statuses[at] = ends[at]->AllReduce(absl::MakeSpan(values), kNotHung);
  });
  EXPECT_TRUE(statuses[0].code() == absl::StatusCode::kInternal || statuses[1].code() == absl::StatusCode::kInternal)
      << statuses[0] << " " << statuses[1];
  EXPECT_FALSE(statuses[0].ok() || statuses[1].ok());
}

TEST_P(ContractTest, MembersWhoseValuesTravelInDifferentWaysGetAnErrorNotADeadlock) {
  auto ends = Form("differ in precision", 2);
  ASSERT_FALSE(ends.empty());
  std::vector<absl::Status> statuses(2);
  Together(2, [&](int rank) {
    const std::size_t at = static_cast<std::size_t>(rank);
    Values values(100, 1.0f);
    statuses[at] =
        ends[at]->AllReduce(absl::MakeSpan(values), kNotHung, rank == 0 ? Precision::kFloat32 : Precision::kBfloat16);
  });
  EXPECT_TRUE(statuses[0].code() == absl::StatusCode::kInternal || statuses[1].code() == absl::StatusCode::kInternal)
      << statuses[0] << " " << statuses[1];
  EXPECT_FALSE(statuses[0].ok() || statuses[1].ok());
}

TEST_P(ContractTest, AGroupIsFormedOfAllItsMembersOrNotAtAll) {
  GroupOptions options = Options("missing", 0, 2);
  options.limit = kShort;
  EXPECT_EQ(members_[0]->Form(options).status().code(), absl::StatusCode::kDeadlineExceeded);
  options = Options("missing too", 1, 2);
  options.limit = kShort;
  const absl::Status status = members_[1]->Form(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 of 2, view missing too"));
  options.size = 0;
  EXPECT_EQ(members_[1]->Form(options).status().code(), absl::StatusCode::kInvalidArgument);
  options = Options("", 0, 2);
  EXPECT_EQ(members_[1]->Form(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(ContractTest, FormingStopsWhenItIsTold) {
  absl::Notification stop;
  std::thread stopper([&] { stop.Notify(); });
  GroupOptions options = Options("stopped", 1, 3);
  options.stop = &stop;
  EXPECT_EQ(members_[1]->Form(options).status().code(), absl::StatusCode::kAborted);
  stopper.join();
}

TEST_P(ContractTest, AMemberThatGaveUpIsMissedByThoseWhoWaitForMore) {
  absl::Status waiting;
  std::thread waiter([&] { waiting = members_[0]->Form(Options("gave up", 0, 3)).status(); });
  GroupOptions options = Options("gave up", 1, 3);
  options.limit = absl::Seconds(2);  // enough to get there
  EXPECT_FALSE(members_[1]->Form(options).ok());
  // Whether rank 0 was there in time or not, there is no group without rank 1.
  auto third = members_[2]->Form(Options("gave up", 2, 3));
  waiter.join();
  EXPECT_EQ(third.status().code(), absl::StatusCode::kUnavailable) << third.status();
  EXPECT_EQ(waiting.code(), absl::StatusCode::kUnavailable) << waiting;
}

TEST_P(ContractTest, AStaleMemberOfAnotherViewDisturbsNobody) {
  absl::Notification stop;
  absl::Status stale;
  std::thread late([&] {
    GroupOptions options = Options("view 1", 2, 3);
    options.stop = &stop;
    stale = members_[2]->Form(options).status();
  });
  auto ends = Form("view 2", 2);
  ASSERT_FALSE(ends.empty());
  Together(2, [&](int rank) {
    Values sum(1000, 1.0f);
    EXPECT_EQ(ends[static_cast<std::size_t>(rank)]->AllReduce(absl::MakeSpan(sum), kNotHung), absl::OkStatus());
    EXPECT_EQ(sum, Values(1000, 2.0f));
  });
  stop.Notify();
  late.join();
  EXPECT_EQ(stale.code(), absl::StatusCode::kAborted) << stale;
}

TEST_P(ContractTest, RankZeroThatIsLostEndsTheForming) {
  std::vector<absl::Status> statuses(2);
  std::unique_ptr<Member> lost = std::move(members_[0]);
  const std::string store = JoinHostPort(host_, lost->port());
  members_[0] = implementation_->NewMember();
  Together(2, [&](int rank) {
    if (rank == 0) {
      // Once rank 1 is certainly there: it forms a group of its own view with rank 0 first.
      GroupOptions options = Options("first", 0, 2);
      options.store = store;
      auto end = lost->Form(options);
      ASSERT_TRUE(end.ok()) << end.status();
      Values values(1);
      EXPECT_EQ((*end)->AllReduce(absl::MakeSpan(values), kNotHung), absl::OkStatus());
      end->reset();
      lost.reset();
    } else {
      GroupOptions options = Options("first", 1, 2);
      options.store = store;
      auto end = members_[1]->Form(options);
      ASSERT_TRUE(end.ok()) << end.status();
      Values values(1);
      EXPECT_EQ((*end)->AllReduce(absl::MakeSpan(values), kNotHung), absl::OkStatus());
      options.view = "second";
      options.limit = absl::Seconds(2);
      const absl::Status status = members_[1]->Form(options).status();
      EXPECT_TRUE(status.code() == absl::StatusCode::kUnavailable ||
                  status.code() == absl::StatusCode::kDeadlineExceeded)
          << status;
    }
  });
}

int Entries(const std::string& folder) {
  int entries = 0;
  DIR* const opened = opendir(folder.c_str());
  while (readdir(opened) != nullptr) {
    ++entries;
  }
  closedir(opened);
  return entries;
}

TEST_P(ContractTest, AHundredViewsLeaveNothingBehind) {
  const auto round = [this](int i) {
    auto ends = Form(absl::StrCat("round ", i), 2 + i % 2);
    ASSERT_FALSE(ends.empty());
    std::barrier together(static_cast<std::ptrdiff_t>(ends.size()));
    Together(static_cast<int>(ends.size()), [&](int rank) {
      Values values(1000, 1.0f), more(100000, 1.0f);
      Collective& end = *ends[static_cast<std::size_t>(rank)];
      EXPECT_EQ(end.AllReduce(absl::MakeSpan(values), kNotHung), absl::OkStatus());
      together.arrive_and_wait();
      // Rank 1 leaves the next one out, so that it is under way when all abort.
      absl::StatusOr<Handle> under_way = 0;
      if (rank != 1) under_way = end.StartAllReduce(absl::MakeSpan(more));
      EXPECT_TRUE(under_way.ok());
      together.arrive_and_wait();
      end.Abort();
      ends[static_cast<std::size_t>(rank)].reset();
    });
  };
  round(0);
  round(1);
  const int descriptors = Entries("/proc/self/fd");
  const int threads = Entries("/proc/self/task");
  for (int i = 2; i < 100; ++i) {
    round(i);
  }
  EXPECT_LE(Entries("/proc/self/fd"), descriptors);
  // A thread that was joined may be listed a moment longer.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (Entries("/proc/self/task") > threads && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_LE(Entries("/proc/self/task"), threads);
}

TEST_P(ContractTest, AddressesOfBothKindsAndNames) {
  for (const std::string host : {"::1", "localhost"}) {
    if (host == "::1" && !NewTcpMember("[::1]:0").ok()) {
      continue;  // a machine without IPv6
    }
    host_ = host;
    auto ends = Form(absl::StrCat("at ", host), 2);
    ASSERT_FALSE(ends.empty()) << host;
    Together(2, [&](int rank) {
      Values sum(1000, 1.0f);
      EXPECT_EQ(ends[static_cast<std::size_t>(rank)]->AllReduce(absl::MakeSpan(sum), kNotHung), absl::OkStatus());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Implementations, ContractTest, testing::ValuesIn(ImplementationNames()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace downpour::collective
