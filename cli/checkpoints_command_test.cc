#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/testing/command_under_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/store.h"
#include "trainer/checkpoint/testing/sample_checkpoint.h"

namespace downpour::cli::testing {
namespace {

namespace fs = std::filesystem;
using checkpoint::testing::MakeSampleJob;
using checkpoint::testing::WriteSample;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kFirst[] = "cut-0000000001-g1-i1-00112233";
constexpr char kSecond[] = "cut-0000000002-g1-i1-00112233";

class CheckpointsCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    store_ = *checkpoint::OpenStore(uri_);
    ASSERT_TRUE(WriteSample(*store_, MakeSampleJob(1, 1), 2).ok());
    ASSERT_TRUE(WriteSample(*store_, MakeSampleJob(1, 2), 2).ok());
  }

  // The exit code; what it printed is in `output_` and `errors_`.
  int Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "checkpoints");
    Command command(
        {.arguments = std::move(arguments), .environment = {}, .directory = scratch_.path(), .file_size_limit = {}});
    const int exit_code = command.Wait();
    output_ = command.Output();
    errors_ = command.Errors();
    return exit_code;
  }

  ScratchFolder scratch_;
  const std::string uri_ = scratch_.path() + "/checkpoints";
  std::unique_ptr<checkpoint::Store> store_;
  std::string output_;
  std::string errors_;
};

TEST_F(CheckpointsCommandTest, Lists) {
  EXPECT_EQ(Run({"ls", uri_}), kExitDone);
  EXPECT_THAT(output_, ContainsRegex("NAME +JOB +AGE +UPDATES +EPOCHS +SIZE +COMPLETE"));
  EXPECT_THAT(output_, ContainsRegex(std::string(kSecond) + " +sample .* yes\n" + kFirst));
  fs::resize_file(uri_ + "/" + kSecond + "/ps-1.state", 100);
  EXPECT_EQ(Run({"ls", uri_}), kExitDone);
  EXPECT_THAT(output_, ContainsRegex(std::string(kSecond) + " .*no: ps-1.state has 100 bytes, expected [0-9]+"));
  EXPECT_EQ(Run({"ls", uri_, "-o", "json"}), kExitDone);
  const nlohmann::json list = nlohmann::json::parse(output_);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["name"], kFirst);
  EXPECT_EQ(list[0]["complete"], true);
  EXPECT_EQ(list[0]["epochsTotal"], 4);
  EXPECT_EQ(list[1]["complete"], false);
  EXPECT_EQ(Run({"ls", uri_ + "/" + kFirst}), kExitDone);
  EXPECT_THAT(output_, Not(HasSubstr(kSecond)));
  EXPECT_EQ(Run({"ls", scratch_.path() + "/none"}), kExitDone);
  EXPECT_EQ(output_, "no checkpoints in " + scratch_.path() + "/none\n");
  EXPECT_EQ(Run({"ls", "gs://bucket"}), kExitBadInput);
  EXPECT_THAT(errors_, HasSubstr("must be a path or s3://BUCKET/PREFIX"));
}

TEST_F(CheckpointsCommandTest, VerifiesAndSaysWhatIsWrong) {
  EXPECT_EQ(Run({"verify", uri_}), kExitDone);
  EXPECT_EQ(output_, std::string(kSecond) + ": whole\n" + kFirst + ": whole\n");
  std::string weights = ReadText(uri_ + "/" + kFirst + "/ps-0.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  WriteText(uri_ + "/" + kFirst + "/ps-0.safetensors", weights);
  EXPECT_EQ(Run({"verify", uri_}), kExitFailed);
  EXPECT_THAT(output_, HasSubstr(std::string(kSecond) + ": whole\n"));
  EXPECT_THAT(output_, ContainsRegex(std::string(kFirst) +
                                     "/ps-0.safetensors: slice [0-9]+ .*: the value has checksum [0-9a-f]+, expected"));
  EXPECT_EQ(Run({"verify", uri_ + "/" + kSecond}), kExitDone);
  EXPECT_EQ(Run({"verify", uri_ + "/cut-0000000009-g1-i1-00112233"}), kExitBadInput);
}

TEST_F(CheckpointsCommandTest, RemovesWhatIsNamedAndNothingElse) {
  EXPECT_EQ(Run({"rm", uri_}), kExitBadInput);
  EXPECT_THAT(errors_, HasSubstr("names no checkpoint"));
  EXPECT_EQ(Run({"rm", uri_ + "/" + kFirst, uri_ + "/cut-0000000009-g1-i1-00112233"}), kExitBadInput);
  EXPECT_THAT(errors_, HasSubstr("there is no such checkpoint"));
  EXPECT_TRUE(fs::exists(uri_ + "/" + kFirst)) << "all or none";
  EXPECT_EQ(Run({"rm", uri_ + "/" + kFirst}), kExitDone);
  EXPECT_EQ(output_, std::string(kFirst) + ": removed\n");
  EXPECT_FALSE(fs::exists(uri_ + "/" + kFirst));
  EXPECT_EQ(Run({"verify", uri_}), kExitDone);
  EXPECT_EQ(output_, std::string(kSecond) + ": whole\n");
}

TEST_F(CheckpointsCommandTest, ExportsTheNewestOrTheOneThatIsNamed) {
  const std::string path = scratch_.path() + "/model.safetensors";
  EXPECT_EQ(Run({"export", uri_, path}), kExitDone) << errors_;
  EXPECT_EQ(output_, path + ": the model of " + kSecond + "\n");
  EXPECT_EQ(checkpoint::ReadSafetensors(path)->metadata.at("checkpoint"), kSecond);
  EXPECT_EQ(Run({"export", uri_ + "/" + kFirst, path}), kExitDone) << errors_;
  EXPECT_EQ(checkpoint::ReadSafetensors(path)->metadata.at("checkpoint"), kFirst);
  EXPECT_EQ(Run({"export", uri_, scratch_.path() + "/none/model"}), kExitBadInput);
  EXPECT_THAT(errors_, HasSubstr("cannot create: No such file or directory"));
  EXPECT_EQ(Run({"export", scratch_.path() + "/none", path}), kExitBadInput);
  EXPECT_THAT(output_, IsEmpty());
}

}  // namespace
}  // namespace downpour::cli::testing
