#include "trainer/service/process.h"

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::service {
namespace {

using ::testing::HasSubstr;

constexpr char kVariable[] = "DOWNPOUR_PROCESS_TEST_CONFIG";

TEST(ProcessTest, TheConfigurationMayStandInTheEnvironment) {
  setenv(kVariable, R"({"jobUid": "abc", "psReplicas": 2, "epochs": 1, "batchSize": 8})", 1);
  const absl::StatusOr<v1::TrainingConfig> config = ReadConfig(std::string("env:") + kVariable);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->ps_replicas(), 2u);
}

TEST(ProcessTest, AConfigurationThatIsMissingOrWrongIsNamed) {
  unsetenv(kVariable);
  const std::string source = std::string("env:") + kVariable;
  absl::Status status = ReadConfig(source).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(kVariable));
  setenv(kVariable, R"({"jobUid": "abc", "epochs": 1, "batchSize": 8})", 1);
  status = ReadConfig(source).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), source + ": psReplicas: must be set");
  status = ReadConfig("/nowhere/config.json").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/config.json"));
}

}  // namespace
}  // namespace downpour::service
