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
  EXPECT_EQ(status.message(), "data set format \"TFRecord\" is not supported; known: IDX, Synthetic");
  status = OpenDataset({.format = "Synthetic", .synthetic = {.kind = "Video"}}, Split::kTrain).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const auto dataset = OpenDataset({.format = "Synthetic", .synthetic = {.kind = "Speech"}}, Split::kTest);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 1000);
}

}  // namespace
}  // namespace downpour::data
