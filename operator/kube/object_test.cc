#include "operator/kube/object.h"

#include <cmath>
#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"
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

TEST(JsonText, LimitsDepth) {
  for (const char* inner : {"1", "100000000000000000000"}) {
    const auto nested = [inner](int depth) { return std::string(depth, '[') + inner + std::string(depth, ']'); };
    EXPECT_TRUE(ParseJson(nested(kMaxJsonDepth)).ok()) << inner;
    EXPECT_TRUE(absl::IsDataLoss(ParseJson(nested(kMaxJsonDepth + 1)).status())) << inner;
  }
  const std::string empty = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');
  EXPECT_TRUE(absl::IsDataLoss(ParseJson(absl::StrCat("[100000000000000000000, ", empty, "]")).status()));
  const std::string brackets(1000, '[');
  EXPECT_TRUE(ParseJson(absl::StrCat("\"", brackets, "\\\"[\"")).ok()) << "brackets in strings do not count";
}

TEST(JsonText, LeavesManagedFieldsOutOfObjectsOnly) {
  const char* const text = R"({
    "metadata": {"name": "a", "managedFields": [{"manager": "x"}]},
    "object": {"metadata": {"managedFields": [1], "labels": {"managedFields": "kept"}}},
    "items": [{"metadata": {"managedFields": {}}}, {"spec": {"metadata": {"managedFields": "kept"}}}],
    "managedFields": "kept"})";
  const Json expected = Json::parse(R"({
    "metadata": {"name": "a"},
    "object": {"metadata": {"labels": {"managedFields": "kept"}}},
    "items": [{"metadata": {}}, {"spec": {"metadata": {"managedFields": "kept"}}}],
    "managedFields": "kept"})");
  const absl::StatusOr<Json> read = ParseJson(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, expected);
}

Json RandomJson(std::mt19937& random, int depth) {
  const auto below = [&random](unsigned limit) { return static_cast<unsigned>(random() % limit); };
  const auto text = [&] {
    static const char* const kPieces[] = {"a",    "\"",     "\\",         "/",        "\n", "\x01",
                                          "\x7f", "\u00e9", "\U0001f327", "metadata", " "};
    std::string made;
    for (unsigned i = below(6); i > 0; --i) made += kPieces[below(std::size(kPieces))];
    return made;
  };
  switch (below(depth > 0 ? 8 : 6)) {
    case 0:
      return nullptr;
    case 1:
      return below(2) == 0;
    case 2:
      return std::uint64_t{random()} << below(33);
    case 3:
      return -static_cast<std::int64_t>(std::uint64_t{random()} << below(31));
    case 4:
      return std::ldexp(static_cast<double>(random()), static_cast<int>(below(200)) - 100);
    case 5:
      return text();
    case 6: {
      Json array = Json::array();
      for (unsigned i = below(5); i > 0; --i) array.push_back(RandomJson(random, depth - 1));
      return array;
    }
    default: {
      Json object = Json::object();
      for (unsigned i = below(5); i > 0; --i) object[text()] = RandomJson(random, depth - 1);
      return object;
    }
  }
}

// Two parsers by different people.
TEST(JsonText, ReadsWhatAnotherParserReads) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const Json wanted = RandomJson(random, 5);
    std::string text = wanted.dump(seed % 2 == 0 ? -1 : 1);
    const absl::StatusOr<Json> read = ParseJson(text);
    ASSERT_TRUE(read.ok()) << seed << ": " << read.status();
    ASSERT_EQ(*read, wanted) << seed;
    ASSERT_EQ(read->dump(), wanted.dump()) << seed;
    // The same with a byte changed; the other parser takes a zero for the end.
    text[random() % text.size()] = static_cast<char>(1 + random() % 255);
    const Json other = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    const absl::StatusOr<Json> broken = ParseJson(text);
    ASSERT_EQ(broken.ok(), !other.is_discarded()) << seed << ": " << text;
    if (broken.ok()) {
      ASSERT_EQ(*broken, other) << seed << ": " << text;
    }
  }
}

// Servers keep 1e20 and write it as an integer: one object must not make a whole list unreadable.
TEST(JsonText, TakesIntegersOfMoreThan64Bits) {
  const absl::StatusOr<Json> list = ParseJson(
      R"({"metadata": {"managedFields": []}, "items": [{"metadata": {"managedFields": []}, "a": 100000000000000000000},
          {"b": -9223372036854775809}, 1], "object": {"metadata": {"managedFields": []}}})");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(
      list->dump(),
      R"({"items":[{"a":1e+20,"metadata":{}},{"b":-9.223372036854776e+18},1],"metadata":{},"object":{"metadata":{}}})");
  EXPECT_TRUE(absl::IsDataLoss(ParseJson(R"({"a": 100000000000000000000, "b": })").status()));
}

TEST(JsonText, NeverThrows) {
  for (const char* text : {"", "{", "nul", "1e999", "\"\xff\"", "{\"a\":1}x", "[1,]", "\"\\ud800\"", "-", "\""}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseJson(text).status())) << text;
  }
  EXPECT_EQ(DumpJson(Json("\xff")), "\"\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace downpour::kube
