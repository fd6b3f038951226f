#include "tests/support/fake_api_server.h"

#include "gtest/gtest.h"
#include "operator/kube/client.h"
#include "operator/kube/http_transport.h"
#include "operator/kube/watch.h"
#include "tests/support/plain_credentials.h"

// What tests with the fake server rely on, and what clients cannot see of it.
namespace downpour::kube {
namespace {

Json Object(const std::string& name) { return {{"metadata", {{"name", name}}}, {"spec", {{"n", 1}}}}; }

Json Named(const std::string& name, const std::string& namespace_name = "team") {
  Json object = Object(name);
  object["metadata"]["namespace"] = namespace_name;
  return object;
}

class FakeApiServerTest : public ::testing::Test {
 protected:
  FakeApiServerTest() : client_(MakeHttpTransport(std::make_shared<PlainCredentials>(server_.Start()))) {}

  FakeApiServer server_;
  Client client_;
};

TEST_F(FakeApiServerTest, VersionsAndGenerationsMoveWithChanges) {
  const ObjectMeta created = ReadMeta(*client_.Create(kTrainingJobs, "team", Object("a")));
  EXPECT_EQ(created.generation, 1);
  const ObjectMeta labelled =
      ReadMeta(*client_.MergePatch(kTrainingJobs, "team", "a", {{"metadata", {{"labels", {{"x", "y"}}}}}}));
  EXPECT_EQ(labelled.generation, 1);
  EXPECT_NE(labelled.resource_version, created.resource_version);
  const ObjectMeta same =
      ReadMeta(*client_.MergePatch(kTrainingJobs, "team", "a", {{"metadata", {{"labels", {{"x", "y"}}}}}}));
  EXPECT_EQ(same.resource_version, labelled.resource_version) << "nothing changed";
  const ObjectMeta changed = ReadMeta(*client_.MergePatch(kTrainingJobs, "team", "a", {{"spec", {{"n", 2}}}}));
  EXPECT_EQ(changed.generation, 2);
  EXPECT_EQ(changed.uid, created.uid);
}

TEST_F(FakeApiServerTest, StatusAndSpecAreWrittenApart) {
  ASSERT_TRUE(client_.Create(kTrainingJobs, "team", Object("a")).ok());
  ASSERT_TRUE(client_.MergePatch(kTrainingJobs, "team", "a", {{"status", {{"x", 1}}}, {"spec", {{"n", 2}}}}).ok());
  EXPECT_EQ(Find(*server_.Get(kTrainingJobs, "team", "a"), {"status"}), nullptr);
  ASSERT_TRUE(
      client_.MergePatch(kTrainingJobs, "team", "a", {{"status", {{"x", 1}}}, {"spec", {{"n", 3}}}}, "status").ok());
  const Json stored = *server_.Get(kTrainingJobs, "team", "a");
  EXPECT_EQ(FindInteger(stored, {"status", "x"}), 1);
  EXPECT_EQ(FindInteger(stored, {"spec", "n"}), 2);
}

TEST_F(FakeApiServerTest, FinalizersHoldDeletionUp) {
  Json object = Named("a");
  object["metadata"]["finalizers"] = Json::array({"downpour.dev/x"});
  server_.SetClock([] { return 1'700'000'000.0; });
  server_.Put(kTrainingJobs, object);
  ASSERT_TRUE(client_.Delete(kTrainingJobs, "team", "a").ok());
  EXPECT_EQ(ReadMeta(*server_.Get(kTrainingJobs, "team", "a")).deletion_time, 1'700'000'000.0);
  ASSERT_TRUE(client_.MergePatch(kTrainingJobs, "team", "a", {{"metadata", {{"finalizers", nullptr}}}}).ok());
  EXPECT_EQ(server_.Get(kTrainingJobs, "team", "a"), std::nullopt);
}

TEST_F(FakeApiServerTest, PodsMayEndGracefully) {
  server_.SetGracefulPods(true);
  server_.Put(kPods, Named("a"));
  ASSERT_TRUE(client_.Delete(kPods, "team", "a").ok());
  EXPECT_TRUE(ReadMeta(*server_.Get(kPods, "team", "a")).deletion_time.has_value());
  EXPECT_EQ(ReadMeta(*server_.Get(kPods, "team", "a")).deletion_grace_seconds, 30);
  DeleteOptions now;
  now.grace_seconds = 0;
  ASSERT_TRUE(client_.Delete(kPods, "team", "a", now).ok());
  EXPECT_EQ(server_.Get(kPods, "team", "a"), std::nullopt);
}

TEST_F(FakeApiServerTest, DependentsGoWithTheirOwner) {
  const std::string uid = ReadMeta(server_.Put(kTrainingJobs, Named("job"))).uid;
  Json pod = Named("pod");
  pod["metadata"]["ownerReferences"] = Json::array({{{"uid", uid}}});
  const std::string pod_uid = ReadMeta(server_.Put(kPods, pod)).uid;
  Json grandchild = Named("child");
  grandchild["metadata"]["ownerReferences"] = Json::array({{{"uid", pod_uid}}});
  server_.Put(kServices, grandchild);
  server_.Put(kPods, Named("stranger"));
  ASSERT_TRUE(client_.Delete(kTrainingJobs, "team", "job").ok());
  EXPECT_EQ(server_.List(kPods).size(), 1u);
  EXPECT_EQ(server_.List(kServices).size(), 0u);
}

TEST_F(FakeApiServerTest, RefusesStrategicMergesOfCustomResources) {
  ASSERT_TRUE(client_.Create(kTrainingJobs, "team", Object("a")).ok());
  const auto transport = MakeHttpTransport(std::make_shared<PlainCredentials>(server_.Start()));
  HttpRequest request;
  request.method = "PATCH";
  request.path = ResourcePath(kTrainingJobs, "team", "a");
  request.content_type = "application/strategic-merge-patch+json";
  request.body = "{}";
  EXPECT_EQ(transport->Exchange(request, {})->status, 415);
  request.method = "PUT";
  request.path = "/healthz";
  EXPECT_EQ(transport->Exchange(request, {})->status, 404);
}

TEST_F(FakeApiServerTest, WatchesEndAfterTheirTimeAndKnowNamespaces) {
  const auto transport = MakeHttpTransport(std::make_shared<PlainCredentials>(server_.Start()));
  server_.Put(kPods, Named("a"));
  server_.Put(kPods, Named("b", "other"));
  HttpRequest request;
  request.path = ResourcePath(kPods, "team");
  request.query = {{"watch", "true"}, {"timeoutSeconds", "1"}};
  std::string text;
  const auto response = transport->Stream(request, {}, [&](std::string_view bytes) {
    text += bytes;
    return true;
  });
  ASSERT_TRUE(response.ok()) << response.status();
  const auto events = WatchDecoder().Decode(text);
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 1u);
  EXPECT_EQ(ReadMeta(events->at(0).object).Key(), "team/a");
}

TEST_F(FakeApiServerTest, FaultsLastAsLongAsTheySay) {
  server_.Inject("GET", "/pods/a", FakeApiServer::Refuse(403, "Forbidden", "x"), 2);
  EXPECT_TRUE(absl::IsNotFound(client_.Get(kPods, "team", "b").status()));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(absl::IsPermissionDenied(client_.Get(kPods, "team", "a").status()));
  EXPECT_TRUE(absl::IsNotFound(client_.Get(kPods, "team", "a").status()));
  EXPECT_EQ(server_.CountRequests("GET", "/pods/a"), 3);
  EXPECT_FALSE(server_.WaitForRequests("GET", "/pods/a", 4, absl::ZeroDuration()));
}

TEST_F(FakeApiServerTest, MayStopAndStartAgain) {
  server_.Put(kPods, Named("a"));
  server_.Stop();
  server_.Stop();
  Client client(MakeHttpTransport(std::make_shared<PlainCredentials>(server_.Start())));
  EXPECT_TRUE(client.Get(kPods, "team", "a").ok());
}

}  // namespace
}  // namespace downpour::kube
