#include "cli/render/fold_events.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

std::vector<std::pair<std::string, std::string>> Warnings(const std::vector<TimelineEvent>& events) {
  std::vector<std::pair<std::string, std::string>> warnings;
  for (const TimelineEvent& event : events) {
    if (event.warning) warnings.emplace_back(event.reason, event.message);
  }
  return warnings;
}

// How many events a line stands for.
int Count(const TimelineEvent& event) {
  const std::size_t start = event.message.rfind(" (");
  return start == std::string::npos ? 1 : std::stoi(event.message.substr(start + 2));
}

TEST(FoldEventsTest, ARunOfOneReasonIsItsLastEvent) {
  const std::vector<TimelineEvent> folded = FoldEvents(std::vector<TimelineEvent>{{1, false, "Started", "all"},
                                                                                  {2, false, "EpochDone", "epoch 1"},
                                                                                  {3, false, "EpochDone", "epoch 2"},
                                                                                  {4, false, "EpochDone", "epoch 3"},
                                                                                  {5, true, "WorkerLost", "worker-0"},
                                                                                  {6, true, "WorkerLost", "worker-0"},
                                                                                  {7, false, "EpochDone", "epoch 4"}});
  ASSERT_EQ(folded.size(), 5u);
  EXPECT_EQ(folded[0].message, "all");
  EXPECT_EQ(folded[1].seconds, 4);
  EXPECT_EQ(folded[1].message, "epoch 3 (3 times)");
  EXPECT_EQ(folded[2].message, "worker-0");
  EXPECT_EQ(folded[3].message, "worker-0");
  EXPECT_EQ(folded[4].message, "epoch 4");
}

TEST(FoldEventsTest, NoEventsAreNoLines) { EXPECT_TRUE(FoldEvents({}).empty()); }

TEST(FoldEventsTest, WarningsStayAndNoEventIsLost) {
  for (int seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&random](int high) { return std::uniform_int_distribution<int>(0, high)(random); };
    std::vector<TimelineEvent> events;
    for (int i = pick(40); i > 0; --i) {
      events.push_back({static_cast<double>(events.size()), pick(3) == 0,
                        std::string(1, static_cast<char>('A' + pick(1))), std::to_string(events.size())});
    }
    const std::vector<TimelineEvent> folded = FoldEvents(events);
    EXPECT_EQ(Warnings(folded), Warnings(events));
    int next = 0;
    for (std::size_t i = 0; i < folded.size(); ++i) {
      next += Count(folded[i]);
      ASSERT_LE(next, static_cast<int>(events.size()));
      EXPECT_EQ(folded[i].seconds, next - 1);  // the last event of those it stands for
      if (i > 0 && !folded[i].warning && !folded[i - 1].warning) {
        EXPECT_NE(folded[i].reason, folded[i - 1].reason);
      }
    }
    EXPECT_EQ(next, static_cast<int>(events.size()));
  }
}

}  // namespace
}  // namespace downpour::cli
