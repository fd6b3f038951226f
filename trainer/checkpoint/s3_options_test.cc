#include "trainer/checkpoint/s3_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace downpour::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class S3OptionsTest : public testing::Test {
 protected:
  S3OptionsTest() {
    for (const char* const variable :
         {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
          "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"}) {
      unsetenv(variable);
    }
    path_ = std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    setenv("AWS_SHARED_CREDENTIALS_FILE", path_.c_str(), 1);
    std::filesystem::remove(path_);
  }
  ~S3OptionsTest() override { std::filesystem::remove(path_); }

  void WriteFile(const std::string& text) const { std::ofstream(path_) << text; }

  std::filesystem::path path_;
};

TEST_F(S3OptionsTest, ReadsTheVariablesOfTheAwsTools) {
  setenv("AWS_ACCESS_KEY_ID", "id\n", 1);  // as secrets are that were made from files
  setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  setenv("AWS_SESSION_TOKEN", "token", 1);
  setenv("AWS_DEFAULT_REGION", "eu-west-1", 1);
  setenv("AWS_ENDPOINT_URL", "http://host:1", 1);
  auto options = S3OptionsFromEnvironment();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->credentials.access_key_id, "id");
  EXPECT_EQ(options->credentials.secret_access_key, "secret");
  EXPECT_EQ(options->credentials.session_token, "token");
  EXPECT_EQ(options->region, "eu-west-1");
  EXPECT_EQ(options->endpoint, "http://host:1");
  setenv("AWS_REGION", "eu-north-1", 1);
  setenv("AWS_ENDPOINT_URL_S3", "http://host:2", 1);
  options = S3OptionsFromEnvironment();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->region, "eu-north-1");
  EXPECT_EQ(options->endpoint, "http://host:2");
}

TEST_F(S3OptionsTest, ReadsTheSharedFile) {
  WriteFile(
      "# comment\n[default]\naws_access_key_id = a\naws_secret_access_key=b=/+\n\n"
      "[my.profile]\naws_access_key_id = c\naws_secret_access_key = d\naws_session_token = e\n");
  auto options = S3OptionsFromEnvironment();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->credentials.access_key_id, "a");
  EXPECT_EQ(options->credentials.secret_access_key, "b=/+");
  EXPECT_EQ(options->region, "us-east-1");
  setenv("AWS_PROFILE", "my.profile", 1);
  options = S3OptionsFromEnvironment();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->credentials.access_key_id, "c");
  EXPECT_EQ(options->credentials.session_token, "e");
}

TEST_F(S3OptionsTest, SaysWhatIsMissing) {
  const auto message = [] { return std::string(S3OptionsFromEnvironment().status().message()); };
  EXPECT_THAT(message(), AllOf(HasSubstr("AWS_ACCESS_KEY_ID"), HasSubstr(path_.string())));
  WriteFile("[default]\naws_secret_access_key = do-not-show\n");
  EXPECT_THAT(message(),
              AllOf(HasSubstr("\"default\""), HasSubstr("aws_access_key_id"), Not(HasSubstr("do-not-show"))));
  WriteFile("[default]\ndo-not-show\n");
  EXPECT_THAT(message(), AllOf(HasSubstr("line 2"), Not(HasSubstr("do-not-show"))));
  setenv("AWS_PROFILE", "other", 1);
  WriteFile("[default]\n");
  EXPECT_THAT(message(), HasSubstr("no profile \"other\""));
  setenv("AWS_SECRET_ACCESS_KEY", "do-not-show", 1);
  EXPECT_THAT(message(), AllOf(HasSubstr("only the second is set"), Not(HasSubstr("do-not-show"))));
}

}  // namespace
}  // namespace downpour::checkpoint
