#include "trainer/data/files/shown_path.h"

#include <gtest/gtest.h>

namespace downpour::data {
namespace {

TEST(ShownPathTest, NeitherUsersNorOptionsAreShown) {
  EXPECT_EQ(ShownPath("/data/a?b@c"), "/data/a?b@c");
  EXPECT_EQ(ShownPath("s3://bucket/a/b"), "s3://bucket/a/b");
  EXPECT_EQ(ShownPath("s3://ID:SECRET@bucket"), "s3://bucket");
  EXPECT_EQ(ShownPath("s3://ID:SE/CRET@bucket/a"), "s3://ID:SE/CRET@bucket/a") << "such a secret has to be escaped";
  EXPECT_EQ(ShownPath("s3://ID:SECRET@bucket/a@b/train-{0..9}.tar?region=x"), "s3://bucket/a@b/train-{0..9}.tar");
  EXPECT_EQ(ShownPath("gs://anonymous@bucket/a"), "gs://bucket/a");
  EXPECT_EQ(ShownPath("abfs://container:KEY@account.dfs.core.windows.net/a?sas=1"),
            "abfs://container@account.dfs.core.windows.net/a");
  EXPECT_EQ(ShownPath("s3://bucket?access=a@b"), "s3://bucket");
}

}  // namespace
}  // namespace downpour::data
