#include "operator/controller/cordoned_nodes.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/http_transport.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/plain_credentials.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using kube::Json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr absl::Duration kLimit = absl::Seconds(30);

class CordonedNodesTest : public ::testing::Test {
 protected:
  CordonedNodesTest() : client_(MakeTransport()), transport_(MakeTransport()) {
    watch_.first_backoff = absl::Milliseconds(4);
    watch_.namespace_name = "team";  // of jobs: nodes have none
  }

  std::shared_ptr<kube::Transport> MakeTransport() {
    return kube::MakeHttpTransport(std::make_shared<kube::PlainCredentials>(server_.Start()));
  }

  void PutNode(const std::string& name, bool cordoned) {
    Json node = {{"metadata", {{"name", name}}}, {"spec", Json::object()}};
    if (cordoned) node["spec"]["unschedulable"] = true;
    server_.Put(kube::kNodes, node);
  }

  void Start() {
    nodes_ = std::make_unique<CordonedNodes>(
        watch_, &client_, transport_.get(),
        [this](const std::string& node) {
          absl::MutexLock lock(&mutex_);
          changes_.push_back(node);
        },
        1);
    nodes_->Start();
  }

  // Waits until so many changes came; answers all.
  std::vector<std::string> Changes(std::size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto there = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return changes_.size() >= count; };
    mutex_.AwaitWithTimeout(absl::Condition(&there), kLimit);
    return changes_;
  }

  FakeApiServer server_;
  kube::ReflectorOptions watch_;
  kube::Client client_;
  std::shared_ptr<kube::Transport> transport_;
  absl::Mutex mutex_;
  std::vector<std::string> changes_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<CordonedNodes> nodes_;  // the last: it calls back until it is gone
};

TEST_F(CordonedNodesTest, FollowsWhatIsCordonedAndNothingElse) {
  PutNode("node-0", false);
  PutNode("node-1", true);
  Start();
  EXPECT_THAT(Changes(1), ElementsAre("node-1"));
  EXPECT_TRUE(server_.WaitForWatches(1, kLimit));
  EXPECT_THAT(nodes_->Names(), Optional(ElementsAre("node-1")));

  server_.Modify(kube::kNodes, "", "node-1", [](Json& node) { node["status"]["phase"] = "it tells of itself"; });
  server_.Modify(kube::kNodes, "", "node-0", [](Json& node) { node["status"]["phase"] = "this one too"; });
  PutNode("node-1", false);
  EXPECT_THAT(Changes(2), ElementsAre("node-1", "node-1"));
  EXPECT_THAT(nodes_->Names(), Optional(IsEmpty()));

  PutNode("node-0", true);
  EXPECT_THAT(Changes(3), ElementsAre("node-1", "node-1", "node-0"));
  server_.Remove(kube::kNodes, "", "node-0");
  EXPECT_THAT(Changes(4), ElementsAre("node-1", "node-1", "node-0", "node-0"));
  EXPECT_THAT(nodes_->Names(), Optional(IsEmpty()));
}

TEST_F(CordonedNodesTest, KnowsNothingWithoutTheRightAndFollowsOnceItIsGiven) {
  PutNode("node-1", true);
  server_.Inject("GET", "/nodes", FakeApiServer::Refuse(403, "Forbidden", "nodes is forbidden"), -1);
  Start();
  EXPECT_TRUE(server_.WaitForRequests("GET", "/nodes", 3, kLimit));
  EXPECT_EQ(nodes_->Names(), std::nullopt);
  server_.ClearFaults();
  EXPECT_THAT(Changes(1), ElementsAre("node-1"));
}

}  // namespace
}  // namespace downpour::controller
