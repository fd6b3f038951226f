#include "operator/controller/pod.h"

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/watch.h"
#include "tests/support/test_data.h"

namespace downpour::controller {
namespace {

using kube::Json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Json MakeObject() {
  return Json::parse(R"({
    "metadata": {"name": "lenet-worker-2", "namespace": "team", "uid": "pod-uid", "resourceVersion": "17",
                 "creationTimestamp": "2026-01-02T03:04:05Z",
                 "labels": {"training.downpour.dev/role": "worker", "training.downpour.dev/index": "2",
                            "training.downpour.dev/incarnation": "3"},
                 "ownerReferences": [{"kind": "TrainingJob", "uid": "job-uid", "controller": true}]},
    "spec": {"nodeName": "node-1"},
    "status": {"phase": "Running", "podIP": "10.0.0.7",
               "containerStatuses": [{"name": "sidecar", "state": {"terminated": {"exitCode": 9}}},
                                     {"name": "trainer", "state": {"running": {"startedAt": "2026-01-02T03:04:07Z"}}}]}
  })");
}

Json Terminated(int exit_code, const std::string& reason) {
  Json object = MakeObject();
  object["status"]["phase"] = exit_code == 0 ? "Succeeded" : "Failed";
  object["status"]["containerStatuses"][1]["state"] = {{"terminated",
                                                        {{"exitCode", exit_code},
                                                         {"reason", reason},
                                                         {"finishedAt", "2026-01-02T04:00:00Z"},
                                                         {"message", "a line\nthe last line\n"}}}};
  return object;
}

// Of an object in JSON, what would be read of it in Protocol Buffers.
Json Prune(const Json& object, kube::ProtobufFields fields) {
  Json pruned = Json::object();
  for (const kube::ProtobufField& field : fields) {
    const std::string name(field.name());
    if (!object.contains(name)) continue;
    const Json& value = object.at(name);
    if (value.is_object() && field.kind() == kube::ProtobufField::Kind::kMessage) {
      pruned[name] = Prune(value, field.message());
    } else if (value.is_array()) {
      pruned[name] = Json::array();
      for (const Json& item : value) pruned[name].push_back(Prune(item, field.message()));
    } else {
      pruned[name] = value;
    }
  }
  return pruned;
}

// Every field that is looked at is one that is asked for.
std::optional<Pod> DecodeAll(const Json& object) {
  std::optional<Pod> pod = DecodePod(object);
  EXPECT_TRUE(pod == DecodePod(Prune(object, PodFields()))) << object;
  return pod;
}

TEST(PodTest, ReadsWhatThePlannerNeeds) {
  const std::optional<Pod> pod = DecodeAll(MakeObject());
  ASSERT_TRUE(pod.has_value());
  EXPECT_EQ(pod->role, api::Role::kWorker);
  EXPECT_EQ(pod->meta.controller_uid, "job-uid");
  EXPECT_EQ(pod->address, "10.0.0.7");
  EXPECT_EQ(pod->started_time, kube::ParseTime("2026-01-02T03:04:07Z"));
  const planner::Instance instance = ToInstance(*pod, true);
  EXPECT_EQ(instance.uid, "pod-uid");
  EXPECT_EQ(instance.index, 2);
  EXPECT_EQ(instance.incarnation, 3);
  EXPECT_EQ(instance.phase, planner::InstancePhase::kRunning);
  EXPECT_TRUE(instance.ready);
  EXPECT_FALSE(instance.terminating);
  EXPECT_EQ(instance.node, "node-1");
  EXPECT_FALSE(instance.exit_code.has_value()) << "that is another container's";
}

TEST(PodTest, KnowsWhichContainersStillRun) {
  Json object = MakeObject();
  EXPECT_THAT(ToInstance(*DecodeAll(object), true).running_containers, ElementsAre("trainer"));
  // The sidecar does not notice that its work is over.
  Json& containers = object["status"]["containerStatuses"];
  containers[0]["state"] = {{"running", {{"startedAt", "2026-01-02T03:04:07Z"}}}};
  containers[1]["state"] = {{"terminated", {{"exitCode", 0}, {"reason", "Completed"}}}};
  EXPECT_THAT(ToInstance(*DecodeAll(object), true).running_containers, ElementsAre("sidecar"));
  containers[0]["state"] = {{"running", Json::object()}};
  EXPECT_THAT(ToInstance(*DecodePod(object), true).running_containers, ElementsAre("sidecar"));
  object["status"]["phase"] = "Failed";
  EXPECT_THAT(ToInstance(*DecodePod(object), true).running_containers, IsEmpty()) << "it has ended";
}

// A pod's life as a real server told it, in the encoding that is asked for and in the other.
TEST(PodTest, BothEncodingsSayTheSame) {
  kube::WatchDecoder decoder(PodFields());
  const auto events = decoder.Decode(ReadTestData("watch.pb"));
  kube::WatchDecoder json_decoder;
  const auto expected = json_decoder.Decode(ReadTestData("watch.json"));
  ASSERT_TRUE(events.ok()) << events.status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_EQ(events->size(), expected->size());
  std::vector<Pod> life;
  for (std::size_t i = 0; i < events->size(); ++i) {
    SCOPED_TRACE(i);
    const std::optional<Pod> pod = DecodePod((*events)[i].object);
    EXPECT_TRUE(pod == DecodeAll((*expected)[i].object)) << (*events)[i].object << (*expected)[i].object;
    if (pod.has_value()) life.push_back(*pod);
  }
  ASSERT_EQ(life.size(), 10u) << "bookmarks are no pods";
  EXPECT_EQ(life[0].meta.controller_uid, "3b709f5e-ef8e-47bd-b8f1-4671efb88fc6");
  EXPECT_EQ(life[0].job_name, "lenet");
  EXPECT_EQ(WaitingReason(life[1]), "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
  EXPECT_EQ(WaitingReason(life[3]), "ImagePullBackOff: Back-off pulling image \xE2\x80\x94 sp\xC3\xA4ter");
  EXPECT_EQ(life[4].phase, "Running");
  EXPECT_EQ(life[4].node, "somewhere");
  EXPECT_EQ(life[4].address, "10.0.0.7");
  EXPECT_EQ(life[4].started_time, kube::ParseTime("2026-01-02T03:04:07Z"));
  EXPECT_EQ(life[6].exit_code, 137);
  EXPECT_EQ(life[6].container_reason, "OOMKilled");
  EXPECT_EQ(life[6].container_message, "the last line");
  EXPECT_EQ(life[6].finished_time, kube::ParseTime("2026-01-02T04:00:00Z"));
  EXPECT_EQ(life[6].reason, "Evicted");
}

TEST(PodTest, PodsWithoutOurLabelsAreNotOurs) {
  const std::function<void(Json&)> spoilers[] = {
      [](Json& labels) { labels.erase("training.downpour.dev/role"); },
      [](Json& labels) { labels["training.downpour.dev/role"] = "chief"; },
      [](Json& labels) { labels["training.downpour.dev/index"] = "-1"; },
      [](Json& labels) { labels["training.downpour.dev/index"] = "2x"; },
      [](Json& labels) { labels["training.downpour.dev/incarnation"] = "0"; },
      [](Json& labels) { labels["training.downpour.dev/incarnation"] = "99999999999999999999"; },
      [](Json& labels) { labels["training.downpour.dev/index"] = 2; },
  };
  for (const auto& spoil : spoilers) {
    Json object = MakeObject();
    spoil(object["metadata"]["labels"]);
    EXPECT_FALSE(DecodePod(object).has_value()) << object["metadata"]["labels"];
  }
  for (const char* text : {"null", "[]", "{}", R"({"metadata": 3})", R"({"metadata": {"labels": []}})"}) {
    EXPECT_FALSE(DecodePod(Json::parse(text)).has_value()) << text;
  }
}

TEST(PodTest, EndsCarryTheirCause) {
  planner::Instance instance = ToInstance(*DecodeAll(Terminated(3, "Error")), true);
  EXPECT_EQ(instance.phase, planner::InstancePhase::kFailed);
  EXPECT_EQ(instance.exit_code, 3);
  EXPECT_EQ(instance.reason, "Error");
  EXPECT_EQ(instance.last_log_line, "the last line");
  EXPECT_EQ(instance.finished_time, kube::ParseTime("2026-01-02T04:00:00Z"));
  EXPECT_FALSE(instance.ready);

  instance = ToInstance(*DecodeAll(Terminated(137, "OOMKilled")), true);
  EXPECT_EQ(instance.reason, "OOMKilled");

  instance = ToInstance(*DecodeAll(Terminated(0, "Completed")), true);
  EXPECT_EQ(instance.phase, planner::InstancePhase::kSucceeded);
  EXPECT_EQ(instance.last_log_line, "");

  Json evicted = Terminated(137, "Error");
  evicted["status"]["reason"] = "Evicted";
  EXPECT_EQ(ToInstance(*DecodeAll(evicted), true).reason, "Evicted") << "the platform's word goes first";

  Json disrupted = MakeObject();
  disrupted["metadata"]["deletionTimestamp"] = "2026-01-02T03:05:00Z";
  disrupted["metadata"]["deletionGracePeriodSeconds"] = 30;
  disrupted["status"]["conditions"] = Json::parse(
      R"([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
          {"type": "Ready", "status": "False"}])");
  instance = ToInstance(*DecodeAll(disrupted), true);
  EXPECT_TRUE(instance.terminating);
  EXPECT_EQ(*instance.terminating_since, *kube::ParseTime("2026-01-02T03:04:30Z"));
  ASSERT_EQ(instance.conditions.size(), 1u);
  EXPECT_EQ(instance.conditions[0].type, "DisruptionTarget");

  // A rule of the failure policy may name any condition of a pod that failed.
  Json failed = Terminated(1, "Error");
  failed["status"]["conditions"] = Json::parse(
      R"([{"type": "Ready", "status": "False", "reason": "PodFailed"}, {"type": "example.com/Healthy", "status": "False"}])");
  EXPECT_EQ(ToInstance(*DecodeAll(failed), true).conditions,
            (std::vector<api::PodConditionRule>{{"Ready", "False"}, {"example.com/Healthy", "False"}}));
}

TEST(PodTest, SaysWhyAPodWaits) {
  Json object = MakeObject();
  object["status"]["phase"] = "Pending";
  object["status"]["containerStatuses"] = Json::array();
  EXPECT_EQ(WaitingReason(*DecodeAll(object)), "");
  object["status"]["conditions"] = Json::parse(
      R"([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}])");
  EXPECT_EQ(WaitingReason(*DecodeAll(object)), "Unschedulable: 0/1 nodes are available");
  object["status"]["conditions"] = Json::parse(R"([{"type": "PodScheduled", "status": "True"}])");
  object["status"]["containerStatuses"] = Json::parse(
      R"([{"name": "trainer", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling"}}}])");
  EXPECT_EQ(WaitingReason(*DecodeAll(object)), "ImagePullBackOff: Back-off pulling");
  EXPECT_EQ(ToInstance(*DecodeAll(object), true).phase, planner::InstancePhase::kPending);
  EXPECT_EQ(ToInstance(*DecodeAll(object), true).waiting_reason, "ImagePullBackOff: Back-off pulling");
}

Json WithContainers(const std::string& phase, const std::string& init, const std::string& containers) {
  Json object = MakeObject();
  object["status"]["phase"] = phase;
  object["status"]["initContainerStatuses"] = Json::parse(init);
  object["status"]["containerStatuses"] = Json::parse(containers);
  return object;
}

constexpr char kNotYet[] = R"([{"name": "trainer", "state": {"waiting": {"reason": "PodInitializing"}}}])";

TEST(PodTest, EveryContainerCountsForWhyAPodWaits) {
  const auto reason = [](const std::string& init, const std::string& containers) {
    return WaitingReason(*DecodeAll(WithContainers("Pending", init, containers)));
  };
  EXPECT_EQ(reason(R"([{"name": "first", "state": {"terminated": {"exitCode": 0}}},
                       {"name": "fetch", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}},
                       {"name": "later", "state": {"waiting": {"reason": "PodInitializing"}}}])",
                   kNotYet),
            "ImagePullBackOff: init container fetch: Back-off");
  EXPECT_EQ(reason(R"([{"name": "fetch", "state": {"running": {}}}])", kNotYet),
            "PodInitializing: the init container fetch runs");
  EXPECT_EQ(reason("[]", R"([{"name": "trainer", "state": {"running": {}}},
                             {"name": "proxy", "state": {"waiting": {"reason": "ErrImageNeverPull"}}}])"),
            "ErrImageNeverPull: container proxy");
  EXPECT_EQ(
      reason(R"([{"name": "mesh", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "10s"}}}])", kNotYet),
      "CrashLoopBackOff: init container mesh: 10s");
  EXPECT_EQ(reason("[]", R"([{"name": "trainer", "state": {"waiting": {"reason": "ContainerCreating"}}}])"),
            "ContainerCreating");
}

TEST(PodTest, EveryContainerCountsForWhyAPodFailed) {
  const auto failed = [](const std::string& init, const std::string& containers) {
    const planner::Instance instance = ToInstance(*DecodeAll(WithContainers("Failed", init, containers)), false);
    return absl::StrCat(instance.container, ", ", instance.exit_code.value_or(-1), ", ", instance.reason, ", ",
                        instance.last_log_line, ", ", instance.finished_time.value_or(0));
  };
  EXPECT_EQ(failed(R"([{"name": "mesh", "state": {"terminated": {"exitCode": 143}}},
                       {"name": "fetch", "state": {"terminated": {"exitCode": 42, "reason": "Error", "message": "no route\n",
                                                                  "finishedAt": "1970-01-01T00:00:07Z"}}},
                       {"name": "later", "state": {"waiting": {"reason": "PodInitializing"}}}])",
                   kNotYet),
            "init container fetch, 42, Error, no route, 7");
  const std::string trainer_done =
      R"({"name": "trainer", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}})";
  const std::string trainer_failed =
      R"({"name": "trainer", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}})";
  const std::string proxy_killed =
      R"({"name": "proxy", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}})";
  const std::string mesh_ended = R"([{"name": "mesh", "state": {"terminated": {"exitCode": 143}}}])";
  EXPECT_EQ(failed(mesh_ended, absl::StrCat("[", trainer_done, ",", proxy_killed, "]")),
            "container proxy, 137, OOMKilled, , 0");
  EXPECT_EQ(failed(mesh_ended, absl::StrCat("[", proxy_killed, ",", trainer_failed, "]")), ", 3, Error, , 0")
      << "what our own says goes first";
  EXPECT_EQ(failed("[]", absl::StrCat("[", trainer_done, "]")), ", 0, Completed, , 0");
  EXPECT_EQ(failed("[]", "[]"), ", -1, , , 0");
}

TEST(PodTest, OfAPodThatSucceededOursIsLookedAt) {
  const Json object = WithContainers("Succeeded", R"([{"name": "mesh", "state": {"terminated": {"exitCode": 137}}}])",
                                     R"([{"name": "trainer", "state": {"terminated": {"exitCode": 0}}}])");
  const planner::Instance instance = ToInstance(*DecodeAll(object), false);
  EXPECT_EQ(instance.exit_code, 0);
  EXPECT_EQ(instance.container, "");
}

TEST(PodTest, AnUnknownPhaseMayStillRun) {
  Json object = MakeObject();
  object["status"]["phase"] = "Unknown";
  EXPECT_EQ(ToInstance(*DecodeAll(object), false).phase, planner::InstancePhase::kRunning);
}

}  // namespace
}  // namespace downpour::controller
