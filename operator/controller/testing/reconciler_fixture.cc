#include "operator/controller/testing/reconciler_fixture.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "operator/kube/http_transport.h"
#include "tests/support/plain_credentials.h"
#include "tests/support/training_job.h"

namespace downpour::controller {

using kube::FakeApiServer;
using kube::Json;
using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;

ReconcilerTest::ReconcilerTest()
    : base_url_(server_.Start()),
      client_(kube::MakeHttpTransport(std::make_shared<kube::PlainCredentials>(base_url_)),
              {absl::Seconds(10), 10000, 10000}),
      jobs_(
          DecodeJob, [](const JobRecord& job) { return job.meta.namespace_name; }, [](const auto&, const auto&) {}),
      pods_(
          DecodePod, [](const Pod& pod) { return pod.meta.controller_uid; }, [](const auto&, const auto&) {}) {
  server_.SetClock([this] { return now_; });
  server_.SetGracefulPods(true);
  Restart();
}

void ReconcilerTest::Restart() {
  options_.pods = {"server:1", "trainer:1", "IfNotPresent"};
  ReconcilerHooks hooks;
  hooks.on_event = [this](const kube::EventToRecord& event) { events_.push_back(event.reason); };
  hooks.on_stale = [this] { ++stale_; };
  hooks.on_status_write = [this](std::string_view news) {
    ++status_writes_[std::string(news)];
    if (after_status_) std::exchange(after_status_, nullptr)();
  };
  hooks.cordoned_nodes = [this] { return cordoned_nodes_; };
  reconciler_ =
      std::make_unique<Reconciler>(options_, &client_, &jobs_, &pods_, &gateway_, hooks, [this] { return now_; });
}

void ReconcilerTest::CreateJob(int ps, int workers, const Json& more, const std::string& name) {
  Json job = TrainingJobObject(kNamespace, name, ps, workers);
  job["spec"].merge_patch(more);
  server_.Put(kube::kTrainingJobs, std::move(job));
}

std::vector<std::string> ReconcilerTest::CreateJobs(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    names.push_back(absl::StrCat("job-", i));
    CreateJob(1, 1, Json::object(), names.back());
  }
  return names;
}

void ReconcilerTest::Refresh() {
  Fill(jobs_, kube::kTrainingJobs);
  Fill(pods_, kube::kPods);
}

ReconcileResult ReconcilerTest::Reconcile(const std::string& key) {
  const std::size_t asked = server_.CountRequests();
  const Decision decision = reconciler_->Decide(key);
  EXPECT_EQ(server_.CountRequests(), asked);
  return decision.carry_out ? decision.carry_out() : decision.result;
}

ReconcileResult ReconcilerTest::Reconcile() {
  now_ += 0.25;
  return Reconcile(kKey);
}

void ReconcilerTest::ReconcileAll(const std::vector<std::string>& names) {
  Refresh();
  for (const std::string& name : names) {
    ASSERT_TRUE(Reconcile(absl::StrCat(kNamespace, "/", name)).status.ok());
  }
}

int ReconcilerTest::FailuresInTenMinutes() {
  const double begun = now_;
  int failed = 0;
  while (now_ < begun + 600) {
    Refresh();
    const ReconcileResult result = Reconcile();
    if (!result.status.ok()) ++failed;
    if (result.status.ok() && now_ > begun + 1) {
      EXPECT_TRUE(result.requeue_after.has_value());
    }
  }
  return failed;
}

void ReconcilerTest::LookWhenAsked(double seconds) {
  const double begun = now_;
  while (now_ < begun + seconds) {
    Refresh();
    now_ += absl::ToDoubleSeconds(Reconcile(kKey).requeue_after.value_or(absl::Hours(1)));
  }
}

void ReconcilerTest::ExpectThatWhateverIsAnsweredIsTold(const std::string& target, const Json& more) {
  for (const FakeApiServer::Reaction& answer :
       {FakeApiServer::Refuse(409, "Conflict", "no"), FakeApiServer::Refuse(413, "TooLarge", "no"),
        FakeApiServer::Refuse(418, "Teapot", "no"), FakeApiServer::Respond(201, "not JSON")}) {
    SCOPED_TRACE(answer.pieces.front());
    server_.Remove(kube::kTrainingJobs, kNamespace, "lenet");
    CreateJob(1, 2, more);
    server_.Inject("POST", target, answer, -1);
    EXPECT_THAT(FailuresInTenMinutes(), AllOf(Ge(10), Le(60))) << "tries within ten minutes";
    EXPECT_EQ(Condition("Blocked"), "True ServerError");
    EXPECT_EQ(std::count(events_.begin(), events_.end(), "ServerError"), 1);
    events_.clear();
    server_.ClearFaults();
  }
}

void ReconcilerTest::ExpectThatItGoesOnWithoutFaults() {
  server_.ClearFaults();
  now_ += 60;
  Settle();
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
  EXPECT_EQ(PodNames().size(), 4u);
}

void ReconcilerTest::ChangeSpec(const std::function<void(Json& spec)>& change) {
  server_.Modify(kube::kTrainingJobs, kNamespace, "lenet", [&change](Json& job) {
    change(job["spec"]);
    job["metadata"]["generation"] = job["metadata"].value("generation", 1) + 1;
  });
}

void ReconcilerTest::Settle() {
  int quiet = 0;
  for (int i = 0; i < 50; ++i) {
    const std::string before = server_.resource_version();
    Refresh();
    const ReconcileResult result = Reconcile();
    now_ += 6;
    quiet = result.status.ok() && server_.resource_version() == before ? quiet + 1 : 0;
    if (quiet == 2) return;
  }
  FAIL() << "it does not come to rest";
}

void ReconcilerTest::RunPods() {
  for (const Json& object : server_.List(kube::kPods)) {
    const std::string name = kube::FindText(object, {"metadata", "name"});
    if (kube::Find(object, {"metadata", "deletionTimestamp"}) != nullptr) {
      server_.Remove(kube::kPods, kNamespace, name);
      continue;
    }
    const std::string phase = kube::FindText(object, {"status", "phase"});
    if (phase == "Failed" || phase == "Succeeded" || phase == "Running") continue;
    server_.Modify(kube::kPods, kNamespace, name, [this](Json& pod) {
      pod["status"] = {{"phase", "Running"}, {"podIP", pod_address_}};
    });
  }
}

void ReconcilerTest::EndPod(const std::string& name, int exit_code, const std::string& reason) {
  server_.Modify(kube::kPods, kNamespace, name, [&](Json& pod) {
    pod["status"] = {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
                     {"containerStatuses", Json::array({{{"name", "trainer"},
                                                         {"state",
                                                          {{"terminated",
                                                            {{"exitCode", exit_code},
                                                             {"reason", reason},
                                                             {"message", "the last words"},
                                                             {"finishedAt", kube::FormatTime(now_)}}}}}}})}};
  });
}

void ReconcilerTest::Report(v1::JobPhase phase, std::uint64_t updates) {
  CoordinatorGateway::Answer answer;
  answer.received_time = now_;
  answer.reply.set_phase(phase);
  answer.reply.set_updates_applied(updates);
  answer.reply.set_updates_expected(100);
  answer.reply.mutable_view()->set_generation(1);
  Refresh();
  for (const auto& pod : pods_.All()) {
    if (pod->phase != "Running" || pod->role == api::Role::kCoordinator) continue;
    v1::MemberProgress* member = answer.reply.add_members();
    member->set_role(pod->role == api::Role::kWorker ? "worker" : "ps");
    member->set_index(static_cast<std::uint32_t>(pod->index));
    member->set_process_incarnation(static_cast<std::uint32_t>(pod->incarnation));
  }
  gateway_.answer = std::move(answer);
}

void ReconcilerTest::BringToTraining() {
  CreateJob(1, 2);
  Settle();
  RunPods();
  Report(v1::PHASE_TRAINING, 10);
  Settle();
}

Json ReconcilerTest::SomebodyElsesService() {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", {{"name", kServiceName}, {"namespace", kNamespace}}},
          {"spec", {{"clusterIP", "None"}}}};
}

std::string ReconcilerTest::Published() const {
  const Json endpoints = server_.Get(kube::kEndpointSlices, kNamespace, "lenet").value().at("endpoints");
  return endpoints.empty() ? "" : endpoints.at(0).at("addresses").at(0).get<std::string>();
}

std::vector<std::string> ReconcilerTest::PodNames() const {
  std::vector<std::string> names;
  for (const Json& pod : server_.List(kube::kPods)) names.push_back(kube::FindText(pod, {"metadata", "name"}));
  std::sort(names.begin(), names.end());
  return names;
}

Json ReconcilerTest::Status(const std::string& name) const {
  return server_.Get(kube::kTrainingJobs, kNamespace, name)->value("status", Json::object());
}

std::string ReconcilerTest::Condition(const std::string& type, const std::string& name) const {
  const Json status = Status(name);
  for (const Json& condition : status.value("conditions", Json::array())) {
    if (condition.at("type") == type) {
      return absl::StrCat(condition.at("status").get<std::string>(), " ", condition.at("reason").get<std::string>());
    }
  }
  return "";
}

int ReconcilerTest::Writes() const {
  const std::vector<FakeApiServer::Request> requests = server_.requests();
  return static_cast<int>(std::count_if(requests.begin(), requests.end(),
                                        [](const FakeApiServer::Request& one) { return one.method != "GET"; }));
}

}  // namespace downpour::controller
