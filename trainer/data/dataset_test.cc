#include "trainer/data/dataset.h"

#include <gtest/gtest.h>

namespace downpour::data {
namespace {

TEST(Dataset, IsOpenedByItsFormat) {
  absl::Status status = OpenDataset({.format = "IDX", .directory = "/absent"}, Split::kTrain).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "/absent: no such directory");
  status = OpenDataset({.format = "TFRecord"}, Split::kTrain).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "data set format \"TFRecord\" is not supported; known: IDX");
}

}  // namespace
}  // namespace downpour::data
