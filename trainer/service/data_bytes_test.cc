#include "trainer/service/data_bytes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DataBytesTest, SharesTheBytesByTheWayTheyWent) {
  wire::TransportCounters counters;
  counters.received_bytes = 1000;
  counters.received_locally = 300;
  counters.sent_bytes = 50;
  counters.sent_locally = 50;
  Metrics metrics;
  PublishDataBytes(counters, &metrics);
  const auto line = [](const std::string& direction, const std::string& way, const std::string& bytes) {
    return HasSubstr("downpour_data_bytes_total{direction=\"" + direction + "\",way=\"" + way + "\"} " + bytes + "\n");
  };
  EXPECT_THAT(metrics.Text(), AllOf(line("received", "network", "700"), line("received", "shared_memory", "300"),
                                    line("sent", "network", "0"), line("sent", "shared_memory", "50")));
  counters.received_bytes += 5;
  PublishDataBytes(counters, &metrics);
  EXPECT_THAT(metrics.Text(), AllOf(line("received", "network", "705"), line("received", "shared_memory", "300")));
}

}  // namespace
}  // namespace downpour::service
