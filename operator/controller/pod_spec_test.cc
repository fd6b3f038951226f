#include "operator/controller/pod_spec.h"

#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/seeds.h"

namespace downpour::controller {
namespace {

using kube::Json;

Json Merge(const std::string& ours, const std::string& theirs) {
  return MergePodSpec(Json::parse(ours), Json::parse(theirs));
}

TEST(PodSpecTest, MapsAreMergedFieldByField) {
  EXPECT_EQ(
      Merge(
          R"({"securityContext": {"runAsNonRoot": true, "runAsUser": 7, "seccompProfile": {"type": "RuntimeDefault"}}})",
          R"({"securityContext": {"fsGroup": 2000, "runAsUser": 8}, "nodeSelector": {"a": "b"}})"),
      Json::parse(R"({"securityContext": {"runAsNonRoot": true, "runAsUser": 8, "fsGroup": 2000,
                                                "seccompProfile": {"type": "RuntimeDefault"}},
                            "nodeSelector": {"a": "b"}})"));
}

TEST(PodSpecTest, NullTakesASingleValueAwayAndNoMapOrList) {
  EXPECT_EQ(
      Merge(R"({"securityContext": {"runAsUser": 7, "runAsNonRoot": true}, "grace": 3, "volumes": [{"name": "a"}]})",
            R"({"securityContext": {"runAsUser": null}, "grace": null, "volumes": null})"),
      Json::parse(R"({"securityContext": {"runAsNonRoot": true}, "volumes": [{"name": "a"}]})"));
  const std::string ours = R"({"securityContext": {"runAsNonRoot": true}})";
  EXPECT_EQ(Merge(ours, R"({"securityContext": null})"), Json::parse(ours)) << "a key without a value is no wish";
}

TEST(PodSpecTest, ListsAreMergedByTheirKeys) {
  EXPECT_EQ(Merge(R"({"containers": [{"name": "trainer", "image": "a", "command": ["x", "y"],
                                      "ports": [{"name": "metrics", "containerPort": 8080}],
                                      "env": [{"name": "CONFIG", "value": "{}"}],
                                      "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}],
                      "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "more", "emptyDir": {}}]})",
                  R"({"containers": [{"name": "proxy"},
                                     {"name": "trainer", "image": "b", "command": ["z"],
                                      "ports": [{"containerPort": 9000},
                                                {"containerPort": 8080, "protocol": "TCP", "hostPort": 80},
                                                {"containerPort": 8080, "protocol": "UDP"}],
                                      "env": [{"name": "MORE", "value": "1"}, {"name": "CONFIG", "value": "no"}],
                                      "volumeMounts": [{"name": "disk", "mountPath": "/tmp/"}]}],
                      "volumes": [{"name": "tmp", "hostPath": {"path": "/x"}}]})"),
            Json::parse(R"({"containers": [{"name": "proxy"},
                                     {"name": "trainer", "image": "b", "command": ["z"],
                                      "ports": [{"containerPort": 9000},
                                                {"containerPort": 8080, "name": "metrics", "protocol": "TCP", "hostPort": 80},
                                                {"containerPort": 8080, "protocol": "UDP"}],
                                      "env": [{"name": "MORE", "value": "1"}, {"name": "CONFIG", "value": "{}"}],
                                      "volumeMounts": [{"name": "disk", "mountPath": "/tmp/"}]}],
                      "volumes": [{"name": "more", "emptyDir": {}}, {"name": "tmp", "hostPath": {"path": "/x"}}]})"));
}

TEST(PodSpecTest, AProbeHasOneWayToAsk) {
  const std::string ours = R"({"readinessProbe": {"grpc": {"port": 7070}, "periodSeconds": 5}})";
  EXPECT_EQ(Merge(ours, R"({"readinessProbe": {"tcpSocket": {"port": 7070}}})"),
            Json::parse(R"({"readinessProbe": {"tcpSocket": {"port": 7070}, "periodSeconds": 5}})"));
  EXPECT_EQ(Merge(ours, R"({"readinessProbe": {"periodSeconds": 30}})"),
            Json::parse(R"({"readinessProbe": {"grpc": {"port": 7070}, "periodSeconds": 30}})"));
}

// The platform says what is wrong with it.
TEST(PodSpecTest, WhatIsOfAnotherTypeIsHandedOn) {
  EXPECT_EQ(Merge(R"({"containers": [{"name": "trainer", "env": [{"name": "A"}], "securityContext": {"a": 1}}]})",
                  R"({"containers": [3, null, {"name": "trainer", "env": {}, "securityContext": 3}]})"),
            Json::parse(R"({"containers": [3, null, {"name": "trainer", "env": {}, "securityContext": 3}]})"));
  EXPECT_EQ(Merge(R"({"a": 1})", "[]"), Json::parse(R"({"a": 1})"));
}

TEST(PodSpecTest, FindsTheMountThatAPathIsOn) {
  const Json container = Json::parse(R"({"volumeMounts": [{"name": "root", "mountPath": "/models"}, {"mountPath": 3}, 7,
                                                          {"name": "deep", "mountPath": "models/fashion/"}]})");
  const auto find = [&container](const std::string& path) {
    const Json* mount = FindMount(container, path);
    return mount == nullptr ? "" : mount->at("name").get<std::string>();
  };
  EXPECT_EQ(find("/models"), "root");
  EXPECT_EQ(find("/models/other/x"), "root");
  EXPECT_EQ(find("/models/fashion"), "deep");
  EXPECT_EQ(find("/models/fashion/1"), "deep");
  EXPECT_EQ(find("/models-old"), "");
  EXPECT_EQ(find("/"), "");
  EXPECT_EQ(FindMount(Json::parse(R"({"volumeMounts": 3})"), "/x"), nullptr);
  EXPECT_NE(FindMount(Json::parse(R"({"volumeMounts": [{"mountPath": "/"}]})"), "/x"), nullptr);
}

// What a node makes of a value, with the variables A and POD_IP: third_party/forked/golang/expansion of Kubernetes,
// byte by byte.
std::string Expand(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$' || i + 1 == text.size()) {
      result += text[i];
    } else if (text[i + 1] == '$') {
      result += '$';
      ++i;
    } else if (const std::size_t end = text.find(')', i + 2); text[i + 1] == '(' && end != std::string::npos) {
      const std::string name = text.substr(i + 2, end - i - 2);
      result += name == "A" ? "one" : name == "POD_IP" ? "10.0.0.1" : "$(" + name + ")";
      i = end;
    } else {
      result += text[i];
      result += text[++i];
    }
  }
  return result;
}

TEST(PodSpecTest, WhatIsEscapedArrivesAsItIs) {
  EXPECT_EQ(Expand("/data/$(POD_IP)/$$"), "/data/10.0.0.1/$") << "what happens to it otherwise";
  for (const char* text : {"", "/data", "$", "$$", "a$", "$(A)", "$$(A)", "$A", "$(", "$()", "/d/$(POD_IP)/$$/$x"}) {
    EXPECT_EQ(Expand(EscapeReferences(text)), text);
  }
  for (std::uint32_t seed = 0; seed < Seeds(2000); ++seed) {
    std::mt19937 random(seed);
    std::string text;
    for (std::size_t n = random() % 20; n > 0; --n) text += "$$$()A/"[random() % 7];
    ASSERT_EQ(Expand(EscapeReferences(text)), text) << "seed " << seed;
  }
}

}  // namespace
}  // namespace downpour::controller
