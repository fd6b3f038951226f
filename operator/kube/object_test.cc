#include "operator/kube/object.h"

#include <cmath>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/json_text.h"

namespace downpour::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(ResourcePath, KnowsGroupsNamespacesAndSubresources) {
  EXPECT_EQ(ResourcePath(kPods, "team", "worker-0", "log"), "/api/v1/namespaces/team/pods/worker-0/log");
  EXPECT_EQ(ResourcePath(kPods, ""), "/api/v1/pods");
  EXPECT_EQ(ResourcePath(kNodes, "ignored", "node"), "/api/v1/nodes/node");
  EXPECT_EQ(ResourcePath(kTrainingJobs, "team", "job", "status"),
            "/apis/training.downpour.dev/v1alpha1/namespaces/team/trainingjobs/job/status");
}

TEST(ResourcePath, EncodesNames) {
  EXPECT_EQ(ResourcePath(kPods, "a/b", "c?d e%"), "/api/v1/namespaces/a%2Fb/pods/c%3Fd%20e%25");
  EXPECT_EQ(ResourcePath(kPods, "team", ".."), "/api/v1/namespaces/team/pods/%2E%2E");
}

TEST(ReadMeta, ReadsWhatIsThere) {
  const Json object = Json::parse(R"({"metadata": {
      "name": "job", "namespace": "team", "uid": "u-1", "resourceVersion": "17", "generation": 3,
      "labels": {"a": "b", "number": 1}, "annotations": {"c": "d"},
      "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:05:05Z",
      "deletionGracePeriodSeconds": 30,
      "ownerReferences": [{"uid": "other"}, {"uid": "owner", "controller": true}]}})");
  const ObjectMeta meta = ReadMeta(object);
  EXPECT_EQ(meta.Key(), "team/job");
  EXPECT_EQ(meta.uid, "u-1");
  EXPECT_EQ(meta.resource_version, "17");
  EXPECT_EQ(meta.generation, 3);
  EXPECT_THAT(meta.labels, ElementsAre(Pair("a", "b")));
  EXPECT_THAT(meta.annotations, ElementsAre(Pair("c", "d")));
  EXPECT_EQ(*meta.deletion_time - *meta.creation_time, 60);
  EXPECT_EQ(meta.deletion_grace_seconds, 30);
  EXPECT_EQ(meta.controller_uid, "owner");
}

TEST(ReadMeta, LeavesEmptyWhatIsOfAnotherType) {
  for (const char* text : {"null", "[]", "1", R"({"metadata": 3})",
                           R"({"metadata": {"name": 1, "labels": [], "generation": "2", "ownerReferences": {},
                               "creationTimestamp": null, "annotations": null, "uid": {}}})",
                           R"({"metadata": {"ownerReferences": [1, null, {"controller": "true", "uid": "x"}]}})"}) {
    const ObjectMeta meta = ReadMeta(Json::parse(text));
    EXPECT_EQ(meta.Key(), "") << text;
    EXPECT_THAT(meta.labels, IsEmpty()) << text;
    EXPECT_EQ(meta.generation, 0) << text;
    EXPECT_EQ(meta.creation_time, std::nullopt) << text;
    EXPECT_EQ(meta.controller_uid, "") << text;
  }
}

TEST(Find, WalksObjectsOnly) {
  const Json object = Json::parse(R"({"a": {"b": "text", "n": 5, "big": 18446744073709551615, "f": 1.5}})");
  EXPECT_EQ(FindText(object, {"a", "b"}), "text");
  EXPECT_EQ(FindText(object, {"a", "n"}), "");
  EXPECT_EQ(Find(object, {"a", "b", "c"}), nullptr);
  EXPECT_EQ(Find(object, {}), &object);
  EXPECT_EQ(FindInteger(object, {"a", "n"}), 5);
  EXPECT_EQ(FindInteger(object, {"a", "big"}), std::nullopt);
  EXPECT_EQ(FindInteger(object, {"a", "f"}), std::nullopt);
  EXPECT_EQ(FindInteger(object, {"x"}), std::nullopt);
}

TEST(Time, KnownTexts) {
  EXPECT_EQ(FormatTime(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(FormatTime(1'709'164'799.9), "2024-02-28T23:59:59Z");
  EXPECT_EQ(FormatMicroTime(1'709'251'199.25), "2024-02-29T23:59:59.250000Z");
  EXPECT_EQ(FormatMicroTime(-0.5), "1969-12-31T23:59:59.500000Z");
  EXPECT_EQ(ParseTime("2024-02-29T23:59:59.25Z"), 1'709'251'199.25);
  EXPECT_EQ(ParseTime("2024-02-29T23:59:59+01:30"), 1'709'251'199.0 - 5400);
  EXPECT_EQ(ParseTime("1970-01-01T00:00:00-00:01"), 60.0);
  EXPECT_EQ(FormatTime(1e300).substr(0, 5), "9999-");
  EXPECT_EQ(FormatTime(std::nan("")), "1970-01-01T00:00:00Z");
}

TEST(Time, WhatIsWrittenReadsBack) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    const auto micros = std::uniform_int_distribution<std::int64_t>(-62'135'596'800, 253'402'300'799)(random);
    const double seconds = static_cast<double>(micros) + std::uniform_int_distribution<int>(0, 999'999)(random) / 1e6;
    const auto read = ParseTime(FormatMicroTime(seconds));
    ASSERT_TRUE(read.has_value()) << FormatMicroTime(seconds);
    ASSERT_NEAR(*read, seconds, 1e-4) << FormatMicroTime(seconds);
    ASSERT_EQ(ParseTime(FormatTime(seconds)), std::floor(seconds)) << FormatTime(seconds);
  }
}

TEST(Time, RefusesEverythingElse) {
  for (const char* text : {"",
                           "now",
                           "2024-02-29",
                           "2024-02-29T23:59:59",
                           "2024-02-30T00:00:00Z",
                           "2023-02-29T00:00:00Z",
                           "2024-13-01T00:00:00Z",
                           "2024-00-01T00:00:00Z",
                           "2024-01-01T24:00:00Z",
                           "2024-01-01T00:60:00Z",
                           "2024-01-01T00:00:60Z",
                           "2024-01-01t00:00:00z",
                           "2024-01-01 00:00:00Z",
                           "2024-01-01T00:00:00.Z",
                           "2024-01-01T00:00:00,5Z",
                           "2024-01-01T00:00:00Z ",
                           " 2024-01-01T00:00:00Z",
                           "2024-1-01T00:00:00Z",
                           "2024-01-01T00:00:00+24:00",
                           "2024-01-01T00:00:00+01:60",
                           "2024-01-01T00:00:00+0100",
                           "+024-01-01T00:00:00Z",
                           "2024-01-01T00:00:00ZZ",
                           "20240-01-01T00:00:00Z",
                           "2024-01-01T-1:00:00Z"}) {
    EXPECT_EQ(ParseTime(text), std::nullopt) << text;
  }
}

TEST(JsonText, LimitsDepth) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(ParseJson(nested(kMaxJsonDepth)).ok());
  EXPECT_TRUE(absl::IsDataLoss(ParseJson(nested(kMaxJsonDepth + 1)).status()));
  EXPECT_TRUE(ParseJson("\"" + std::string(1000, '[') + "\\\"[\"").ok()) << "brackets in strings do not count";
}

TEST(JsonText, NeverThrows) {
  for (const char* text : {"", "{", "nul", "1e999", "\"\xff\"", "{\"a\":1}x", "[1,]", "\"\\ud800\"", "-", "\""}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseJson(text).status())) << text;
  }
  EXPECT_EQ(DumpJson(Json("\xff")), "\"\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace downpour::kube
