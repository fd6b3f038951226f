#include "trainer/data/files/arrow_files.h"

#include <cstdlib>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// What can be told without a store; arrow_files_server_test.cc has one.
namespace downpour::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ArrowFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* const variable :
         {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL",
          "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE"}) {
      unsetenv(variable);
    }
    // Amazon's library is not to ask an instance that it might run on.
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  }

  // Nobody listens there.
  static constexpr char kOptions[] = "?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:9";
  RemoteFilesOptions options_{.deadline = absl::Seconds(20),
                              .connect_timeout = absl::Seconds(1),
                              .stall_timeout = absl::Seconds(1),
                              .attempts = 1};
};

TEST_F(ArrowFilesTest, RemotePathsHaveAScheme) {
  for (const char* const path :
       {"s3://bucket/key", "S3://bucket", "gs://bucket", "abfs://c@a.dfs.core.windows.net/x", "hdfs://host:8020/x"}) {
    EXPECT_TRUE(IsRemote(path)) << path;
  }
  for (const char* const path : {"/data", "data", "s3:/bucket", "file:///data", "http://host/x", "a/s3://b", ""}) {
    EXPECT_FALSE(IsRemote(path)) << path;
  }
}

TEST_F(ArrowFilesTest, OtherSchemesAreRefused) {
  const absl::Status status = OpenRemoteFiles("ftp://host/x").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "got a path with the scheme 'ftp', expected s3://, gs://, abfs:// or hdfs://");
  EXPECT_EQ(OpenRemoteFiles("/data").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ArrowFilesTest, AMissingBucketIsSaid) {
  const absl::Status status = OpenRemoteFiles("s3:///key").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no bucket or host, expected s3://NAME/..."));
}

TEST_F(ArrowFilesTest, AnOptionThatIsNoneIsSaidWithoutSecrets) {
  const absl::Status status =
      OpenRemoteFiles("s3://the-id:the-secret@bucket/x?region=us-east-1&colour=the-colour").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("s3://bucket: "), HasSubstr("'colour'"), Not(HasSubstr("the-id")),
                    Not(HasSubstr("the-secret")), Not(HasSubstr("the-colour"))));
}

TEST_F(ArrowFilesTest, AUriThatCannotBeReadIsNotShownWithItsSecrets) {
  const absl::Status status = OpenRemoteFiles("s3://id:a secret[]@bucket/x?region=us-east-1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("s3://bucket: "), Not(HasSubstr("a secret"))));
}

TEST_F(ArrowFilesTest, HalfOfTheCredentialsIsSaid) {
  setenv("AWS_SECRET_ACCESS_KEY", "the-secret", 1);
  const absl::Status status = OpenRemoteFiles(absl::StrCat("s3://bucket", kOptions)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "no credentials for S3: of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only the second is set, expected "
            "both");
}

TEST_F(ArrowFilesTest, AnEndpointThatIsNoneIsSaid) {
  setenv("AWS_ENDPOINT_URL_S3", "127.0.0.1:9000", 1);
  const absl::Status status = OpenRemoteFiles("s3://id:secret@bucket").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is not http(s)://HOST[:PORT]"));
}

TEST_F(ArrowFilesTest, PathsAreOfOneStore) {
  const auto files = OpenRemoteFiles(absl::StrCat("s3://id:secret@bucket/a", kOptions), options_);
  ASSERT_TRUE(files.ok()) << files.status();
  for (const std::string path : {"s3://other/a", "gs://bucket/a"}) {
    const absl::Status status = (*files)->Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), absl::StrCat(path, ": is not in s3://bucket"));
  }
  EXPECT_EQ((*files)->List("/data").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ArrowFilesTest, AServerThatIsNotThereIsUnavailable) {
  setenv("AWS_ACCESS_KEY_ID", "the-id", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "the-secret", 1);
  const auto files = OpenRemoteFiles(absl::StrCat("s3://bucket/a", kOptions), options_);
  ASSERT_TRUE(files.ok()) << files.status();
  for (const absl::Status& status :
       {(*files)->Open("s3://bucket/a/b").status(), (*files)->List("s3://bucket/a").status()}) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("s3://bucket/a"), Not(HasSubstr("the-secret")), Not(HasSubstr("endpoint_override"))));
  }
}

}  // namespace
}  // namespace downpour::data
