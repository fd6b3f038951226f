#include "trainer/collective/fake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace downpour::collective {
namespace {

using Values = std::vector<float>;

constexpr absl::Duration kAny = absl::Hours(1);  // nothing waits in these tests

// One thread plays three ranks, step by step, and says what each of them got.
std::vector<std::string> Play(const std::vector<Fault>& faults) {
  FakeNetwork network(FakeNetwork::Waiting::kNever);
  for (const Fault& fault : faults) network.Inject(fault);
  const auto ends = network.NewGroup("v", 3);
  std::vector<std::string> seen;
  for (int step = 0; step < 3; ++step) {
    std::vector<Values> values(3, Values(5, 1.0f));
    std::vector<absl::StatusOr<Handle>> handles;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      handles.push_back(ends[rank]->StartAllReduce(absl::MakeSpan(values[rank])));
    }
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const absl::Status status = handles[rank].ok() ? ends[rank]->Wait(*handles[rank], kAny) : handles[rank].status();
      EXPECT_EQ(status.ok(), values[rank][0] == 3.0f) << status;
      seen.push_back(absl::StatusCodeToString(status.code()));
    }
  }
  return seen;
}

TEST(FakeTest, OneThreadPlaysAllRanks) { EXPECT_EQ(Play({}), std::vector<std::string>(9, "OK")); }

TEST(FakeTest, AFaultHitsTheCallThatItNames) {
  Fault fault;
  fault.rank = 1;
  fault.call = 2;
  const auto expect = [&fault](const std::vector<std::string>& second_step) {
    std::vector<std::string> expected(3, "OK");
    expected.insert(expected.end(), second_step.begin(), second_step.end());
    expected.insert(expected.end(), second_step.begin(), second_step.end());
    EXPECT_EQ(Play({fault}), expected);
    EXPECT_EQ(Play({fault}), Play({fault}));
  };
  fault.kind = Fault::Kind::kFail;
  expect({"UNAVAILABLE", "UNAVAILABLE", "UNAVAILABLE"});
  fault.kind = Fault::Kind::kLosePeer;
  fault.peer = 2;
  expect({"UNAVAILABLE", "UNAVAILABLE", "UNAVAILABLE"});
  fault.kind = Fault::Kind::kAbort;
  expect({"UNAVAILABLE", "ABORTED", "UNAVAILABLE"});
  // Rank 0 waits first, and what is not complete has exceeded its deadline.
  fault.kind = Fault::Kind::kDeadline;
  expect({"DEADLINE_EXCEEDED", "UNAVAILABLE", "UNAVAILABLE"});
}

TEST(FakeTest, CallsAreCountedOverAllGroups) {
  FakeNetwork network(FakeNetwork::Waiting::kNever);
  Fault fault;
  fault.kind = Fault::Kind::kAbort;
  fault.call = 2;
  network.Inject(fault);
  for (int view = 1; view <= 3; ++view) {
    const auto ends = network.NewGroup(absl::StrCat("v", view), 1);
    Values values(2, 1.0f);
    EXPECT_EQ(ends[0]->AllReduce(absl::MakeSpan(values), kAny).ok(), view != 2);
  }
}

}  // namespace
}  // namespace downpour::collective
