#include "operator/controller/reconciler.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/controller/turn.h"
#include "operator/kube/http_transport.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/plain_credentials.h"
#include "tests/support/seeds.h"
#include "tests/support/training_job.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using kube::Json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;

constexpr char kNamespace[] = "team";
constexpr char kKey[] = "team/lenet";

class FakeGateway final : public CoordinatorGateway {
 public:
  void Follow(const std::string&, const std::string&, const std::string& address, Periods asked,
              std::vector<v1::MemberFailure>) override {
    followed = address;
    periods = asked;
  }
  void Forget(const std::string&) override { followed.clear(); }
  std::optional<Answer> Latest(const std::string&) const override { return answer; }
  void Finish(api::Role role, const std::string&, const std::string&) override { finished.insert(role); }

  std::string followed;
  Periods periods;
  std::optional<Answer> answer;
  std::set<api::Role> finished;
};

// A reconciler with a real client, an API server that holds what it writes, and caches that are refreshed when the test
// says so.
class ReconcilerTest : public ::testing::Test {
 protected:
  ReconcilerTest()
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

  // What is in memory is lost, as when the operator is killed.
  void Restart() {
    options_.images = {"server:1", "trainer:1", "IfNotPresent"};
    ReconcilerHooks hooks;
    hooks.on_event = [this](const kube::EventToRecord& event) { events_.push_back(event.reason); };
    hooks.on_stale = [this] { ++stale_; };
    hooks.on_status_write = [this](std::string_view news) {
      ++status_writes_[std::string(news)];
      if (after_status_) std::exchange(after_status_, nullptr)();
    };
    reconciler_ =
        std::make_unique<Reconciler>(options_, &client_, &jobs_, &pods_, &gateway_, hooks, [this] { return now_; });
  }

  void CreateJob(int ps = 1, int workers = 2, const Json& more = Json::object(), const std::string& name = "lenet") {
    Json job = TrainingJobObject(kNamespace, name, ps, workers);
    job["spec"].merge_patch(more);
    server_.Put(kube::kTrainingJobs, std::move(job));
  }

  // "job-0", "job-1", ..., of one ps and one worker each.
  std::vector<std::string> CreateJobs(int count) {
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) {
      names.push_back(absl::StrCat("job-", i));
      CreateJob(1, 1, Json::object(), names.back());
    }
    return names;
  }

  template <class T>
  void Fill(kube::Store<T>& store, const kube::Resource& resource) {
    store.OnListBegin();
    for (const Json& object : server_.List(resource)) store.OnListed(object);
    store.OnListEnd(server_.resource_version());
  }
  void Refresh() {
    Fill(jobs_, kube::kTrainingJobs);
    Fill(pods_, kube::kPods);
  }

  // Decides, which asks nobody, and carries it out at once.
  ReconcileResult Reconcile(const std::string& key) {
    const std::size_t asked = server_.CountRequests();
    const Decision decision = reconciler_->Decide(key);
    EXPECT_EQ(server_.CountRequests(), asked);
    return decision.carry_out ? decision.carry_out() : decision.result;
  }

  ReconcileResult Reconcile() {
    now_ += 0.25;
    return Reconcile(kKey);
  }

  void ReconcileAll(const std::vector<std::string>& names) {
    Refresh();
    for (const std::string& name : names) {
      ASSERT_TRUE(Reconcile(absl::StrCat(kNamespace, "/", name)).status.ok());
    }
  }

  // Looks at the job all the time for ten minutes, as when each of its own writes brings it back; how often that
  // failed.
  int FailuresInTenMinutes() {
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

  // For so many seconds looks at the job when a pass has asked for it, and not otherwise.
  void LookWhenAsked(double seconds) {
    const double begun = now_;
    while (now_ < begun + seconds) {
      Refresh();
      now_ += absl::ToDoubleSeconds(Reconcile(kKey).requeue_after.value_or(absl::Hours(1)));
    }
  }

  // A job with `more` in its spec whose pods, or templates, get odd answers (webhooks may choose their code).
  void ExpectThatWhateverIsAnsweredIsTold(const std::string& target, const Json& more) {
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

  // What was in the way of a job of one ps and two workers is gone.
  void ExpectThatItGoesOnWithoutFaults() {
    server_.ClearFaults();
    now_ += 60;
    Settle();
    EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
    EXPECT_EQ(PodNames().size(), 4u);
  }

  // As a user does.
  void ChangeSpec(const std::function<void(Json& spec)>& change) {
    server_.Modify(kube::kTrainingJobs, kNamespace, "lenet", [&change](Json& job) {
      change(job["spec"]);
      job["metadata"]["generation"] = job["metadata"].value("generation", 1) + 1;
    });
  }

  // Until nothing is written any more, not even what is for people only and had to wait.
  void Settle() {
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

  // What a kubelet does: pods run, and those that were asked to end do.
  void RunPods() {
    for (const Json& object : server_.List(kube::kPods)) {
      const std::string name = kube::FindText(object, {"metadata", "name"});
      if (kube::Find(object, {"metadata", "deletionTimestamp"}) != nullptr) {
        server_.Remove(kube::kPods, kNamespace, name);
        continue;
      }
      const std::string phase = kube::FindText(object, {"status", "phase"});
      if (phase == "Failed" || phase == "Succeeded" || phase == "Running") continue;
      server_.Modify(kube::kPods, kNamespace, name, [](Json& pod) {
        pod["status"] = {{"phase", "Running"}, {"podIP", "10.0.0.1"}};
      });
    }
  }

  void EndPod(const std::string& name, int exit_code, const std::string& reason = "Error") {
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

  void Report(v1::JobPhase phase, std::uint64_t updates) {
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

  // One ps and two workers: all run, are members, and have applied ten updates.
  void BringToTraining() {
    CreateJob(1, 2);
    Settle();
    RunPods();
    Report(v1::PHASE_TRAINING, 10);
    Settle();
  }

  static Json SomebodyElsesService() {
    return {{"apiVersion", "v1"},
            {"kind", "Service"},
            {"metadata", {{"name", kServiceName}, {"namespace", kNamespace}}},
            {"spec", {{"clusterIP", "None"}}}};
  }

  // Where the coordinator is found; empty: nowhere.
  std::string Published() const {
    const Json endpoints = server_.Get(kube::kEndpointSlices, kNamespace, "lenet").value().at("endpoints");
    return endpoints.empty() ? "" : endpoints.at(0).at("addresses").at(0).get<std::string>();
  }
  std::vector<std::string> PodNames() const {
    std::vector<std::string> names;
    for (const Json& pod : server_.List(kube::kPods)) names.push_back(kube::FindText(pod, {"metadata", "name"}));
    std::sort(names.begin(), names.end());
    return names;
  }
  Json Status(const std::string& name = "lenet") const {
    return server_.Get(kube::kTrainingJobs, kNamespace, name)->value("status", Json::object());
  }
  std::string Condition(const std::string& type, const std::string& name = "lenet") const {
    const Json status = Status(name);
    for (const Json& condition : status.value("conditions", Json::array())) {
      if (condition.at("type") == type) {
        return absl::StrCat(condition.at("status").get<std::string>(), " ", condition.at("reason").get<std::string>());
      }
    }
    return "";
  }
  int Writes() const {
    const std::vector<FakeApiServer::Request> requests = server_.requests();
    return static_cast<int>(std::count_if(requests.begin(), requests.end(),
                                          [](const FakeApiServer::Request& one) { return one.method != "GET"; }));
  }

  double now_ = 1'800'000'000;
  FakeApiServer server_;
  const std::string base_url_;
  kube::Client client_;
  ReconcilerOptions options_;
  kube::Store<JobRecord> jobs_;
  kube::Store<Pod> pods_;
  FakeGateway gateway_;
  std::unique_ptr<Reconciler> reconciler_;
  std::vector<std::string> events_;
  std::map<std::string, int> status_writes_;  // by what is new
  std::function<void()> after_status_;        // once, after the next one
  int stale_ = 0;
};

TEST_F(ReconcilerTest, AJobGoesFromNothingToComplete) {
  CreateJob(2, 3);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(PodNames(), (std::vector<std::string>{"lenet-coordinator-0", "lenet-ps-0", "lenet-ps-1", "lenet-worker-0",
                                                  "lenet-worker-1", "lenet-worker-2"}));
  EXPECT_TRUE(server_.Get(kube::kServices, kNamespace, kServiceName).has_value());
  EXPECT_FALSE(server_.Get(kube::kEndpointSlices, kNamespace, "lenet").has_value())
      << "there is no address yet to find";
  EXPECT_EQ(Status().at("incarnations").at("worker-2"), 1);
  RunPods();
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Published(), "10.0.0.1");
  Settle();
  EXPECT_EQ(Status().at("phase"), "Starting");
  EXPECT_EQ(gateway_.followed, "10.0.0.1:7070");
  Report(v1::PHASE_TRAINING, 10);
  Settle();
  EXPECT_EQ(Status().at("phase"), "Running");
  EXPECT_FALSE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value()) << "little to lose yet";
  now_ += 60;
  Settle();
  EXPECT_TRUE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value());
  EXPECT_EQ(Status().at("worker").at("summary"), "3/3");
  EXPECT_EQ(Status().at("progress").at("percent"), 10);
  EXPECT_THAT(Status().at("worker").at("selector").get<std::string>(), HasSubstr("role=worker"));
  now_ += 20;
  Report(v1::PHASE_DONE, 100);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("SuccessCriteriaMet"), "True TrainingFinished");
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(gateway_.finished, (std::set<api::Role>{api::Role::kCoordinator, api::Role::kParameterServer}))
      << "only once the outcome is stored";
  for (const std::string& name : PodNames()) EndPod(name, 0);
  Settle();
  EXPECT_EQ(Condition("Complete"), "True TrainingFinished");
  RunPods();
  Settle();
  EXPECT_TRUE(PodNames().empty()) << "podCleanup.onSuccess: All";
  EXPECT_EQ(Status().at("progress").at("percent"), 100);
}

TEST_F(ReconcilerTest, TheLifeOfAJobTakesAPodsWritesAndEight) {
  CreateJob(2, 8);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  RunPods();
  Settle();
  Report(v1::PHASE_TRAINING, 10);
  Settle();
  now_ += 60;
  Report(v1::PHASE_TRAINING, 50);
  Settle();
  EXPECT_TRUE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value());
  Report(v1::PHASE_DONE, 100);
  Settle();
  for (const std::string& name : PodNames()) {
    EndPod(name, 0);
    Refresh();
    ASSERT_TRUE(Reconcile().status.ok());
  }
  Settle();
  EXPECT_EQ(Condition("Complete"), "True TrainingFinished");
  EXPECT_TRUE(PodNames().empty());
  EXPECT_EQ(Status().at("worker").at("succeeded"), 8) << "what they did stays to be read";
  EXPECT_EQ(status_writes_["essential"], 4) << "begins, is ready, has succeeded, is complete";
  const int by_the_clock = status_writes_["progress"] + status_writes_["picture"];
  EXPECT_LE(by_the_clock, 3);
  constexpr int kService = 1;  // which all jobs of a namespace share
  EXPECT_LE(Writes() - by_the_clock - kService + static_cast<int>(events_.size()), 11 + 8);
}

TEST_F(ReconcilerTest, AJobWhoseBudgetIsRefusedTrainsOnAndTriesAgainInAMinute) {
  CreateJob();
  Settle();
  RunPods();
  server_.Inject("POST", "/poddisruptionbudgets", FakeApiServer::Refuse(403, "Forbidden", "exceeded quota"), -1);
  Report(v1::PHASE_TRAINING, 10);
  const auto tries = [this] { return server_.CountRequests("POST", "/poddisruptionbudgets"); };
  Refresh();
  const ReconcileResult first = Reconcile();
  EXPECT_TRUE(first.status.ok());
  EXPECT_EQ(tries(), 0);
  ASSERT_TRUE(first.requeue_after.has_value());
  EXPECT_LE(*first.requeue_after, absl::Seconds(60));
  now_ += 60;
  for (int i = 0; i < 20; ++i) {
    Refresh();
    EXPECT_TRUE(Reconcile().status.ok()) << "nobody's work waits for it";
  }
  EXPECT_EQ(tries(), 1);
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "Unprotected"), 1);
  now_ += 61;
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(tries(), 2);
  server_.ClearFaults();
  now_ += 61;
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_TRUE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value());
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "Unprotected"), 1);
}

TEST_F(ReconcilerTest, MembersThatComeAndGoDoNotPutTheBudgetOff) {
  BringToTraining();
  now_ += 40;
  EndPod("lenet-worker-1", 3);
  Settle();
  RunPods();
  Report(v1::PHASE_TRAINING, 20);
  Settle();
  EXPECT_EQ(Condition("Ready"), "True AllMembersReady");
  EXPECT_TRUE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value());
}

TEST_F(ReconcilerTest, AClockThatWasAheadDoesNotPutTheBudgetOff) {
  BringToTraining();
  now_ -= 3600;  // another replica leads now, and its clock is right
  Restart();
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_FALSE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value());
  now_ += 61;
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_TRUE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value());
}

TEST_F(ReconcilerTest, AWriteForAnotherReasonDoesNotPutOffWhenProgressIsWritten) {
  BringToTraining();
  const kube::Json promised = Status().at("progress").at("nextUpdateTime");
  now_ += 5;
  EndPod("lenet-worker-1", 3);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  ASSERT_EQ(Status().at("restarts").at("total"), 1);
  EXPECT_EQ(Status().at("progress").at("nextUpdateTime"), promised);
}

TEST_F(ReconcilerTest, WhatIsForPeopleOnlyWaitsItsTurn) {
  const auto status_writes = [this] {
    const std::vector<FakeApiServer::Request> requests = server_.requests();
    return std::count_if(requests.begin(), requests.end(), [](const FakeApiServer::Request& one) {
      return one.method == "PUT" && one.path.ends_with("/status");
    });
  };
  // As if there were a thousand jobs.
  options_.pace.write_spacing *= 1000;
  options_.pace.ask_spacing *= 1000;
  Restart();
  BringToTraining();
  auto before = status_writes();
  const double ready = now_;
  double unprotected = 0;
  for (int second = 0; second < 400; ++second) {
    now_ += 1;
    Report(v1::PHASE_TRAINING, static_cast<std::uint64_t>(11 + second / 8));
    Refresh();
    ASSERT_TRUE(Reconcile().status.ok());
    if (!server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value()) unprotected = now_;
  }
  EXPECT_GT(unprotected - ready, 200) << "so does the disruption budget, which had a minute to wait";
  EXPECT_GE(status_writes() - before, 1);
  EXPECT_LE(status_writes() - before, 3) << "a thousand jobs share four writes a second";
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(50));
  const kube::Json progress = Status().at("progress");
  const auto time = [&progress](const char* name) { return *kube::ParseTime(progress.at(name).get<std::string>()); };
  const std::string uid = jobs_.All().front()->meta.uid;
  EXPECT_NEAR(time("nextUpdateTime"), NextTurn(uid, 250, time("lastUpdateTime")) + 50, 1);
  EXPECT_NEAR(time("nextUpdateTime") - time("lastUpdateTime"), 250 + 50, 2) << "a second late, and cut to seconds";
  // Nor does a leader that is new write all of them at once.
  before = status_writes();
  Restart();
  Report(v1::PHASE_TRAINING, 90);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(status_writes() - before, 0);
  // What matters does not wait.
  before = status_writes();
  EndPod("lenet-worker-1", 3);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(status_writes() - before, 1);
  EXPECT_EQ(Status().at("restarts").at("total"), 1);
}

TEST_F(ReconcilerTest, AWorkerThatExitsMakesTheNextQuestionSoon) {
  options_.pace.ask_spacing *= 1000;  // as if there were a thousand jobs
  Restart();
  BringToTraining();
  ASSERT_EQ(gateway_.periods.ask, absl::Seconds(50));
  EndPod("lenet-worker-0", 0);  // its coordinator has dismissed it, which nobody has heard of yet
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(1));
}

TEST_F(ReconcilerTest, CoordinatorsOfManyJobsThatStartAreAskedLessOften) {
  constexpr int kJobs = 40;
  options_.pace.ask_spacing = absl::Milliseconds(100);
  Restart();
  const std::vector<std::string> names = CreateJobs(kJobs);
  ReconcileAll(names);
  RunPods();
  ReconcileAll(names);
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(3.9)) << "all but the one that is looked at are known to start";
  Report(v1::PHASE_TRAINING, 10);
  ReconcileAll(names);
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(10)) << "at rest";
  // One that recovers is not held up by all those that are at rest.
  EndPod("job-7-worker-0", 3);
  Refresh();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Reconcile("team/job-7").status.ok());
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(1));
}

TEST_F(ReconcilerTest, ACoordinatorIsAskedFromTheMomentInWhichItHasAnAddress) {
  CreateJob(1, 2);
  Settle();
  EXPECT_EQ(gateway_.followed, "");
  server_.Modify(kube::kPods, kNamespace, "lenet-coordinator-0", [](Json& pod) {
    pod["status"] = {{"phase", "Running"}, {"podIP", "10.0.0.1"}};
  });
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(gateway_.followed, "10.0.0.1:7070");
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(1));
  // One that has answered and waits for a replacement is asked often.
  RunPods();
  Report(v1::PHASE_TRAINING, 10);
  Settle();
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(10));
  EndPod("lenet-worker-1", 3);
  Settle();
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(1));
}

TEST_F(ReconcilerTest, WhyAPodEndedIsAskedBeforeItCountsAsAFailureHoweverManyJobsMove) {
  options_.pace.ask_spacing = absl::Seconds(1);
  Restart();
  const std::vector<std::string> names = CreateJobs(40);
  ReconcileAll(names);
  RunPods();
  ReconcileAll(names);
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(10)) << "no less often than at rest";
  EndPod("job-39-worker-0", 0);
  ReconcileAll(names);
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(3));
}

TEST_F(ReconcilerTest, TheStatusIsStoredBeforeAPodIsMade) {
  CreateJob();
  server_.Inject("PUT", "/status", FakeApiServer::Refuse(409, "Conflict", "changed"), -1);
  Refresh();
  EXPECT_TRUE(absl::IsAborted(Reconcile().status));
  EXPECT_TRUE(PodNames().empty());
  server_.ClearFaults();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(PodNames().size(), 4u);
}

TEST_F(ReconcilerTest, AJobThatChangesWhileItsPodsAreMadeGetsNoMoreOfThem) {
  CreateJob(1, 40);
  const auto suspend = [this](bool whether) { ChangeSpec([whether](Json& spec) { spec["suspend"] = whether; }); };
  after_status_ = [&] {
    suspend(true);
    Fill(jobs_, kube::kTrainingJobs);
  };
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_TRUE(PodNames().empty());
  Settle();
  EXPECT_TRUE(PodNames().empty());
  EXPECT_EQ(kube::FindText(Status(), {"phase"}), "Suspended");
  suspend(false);
  Settle();
  EXPECT_EQ(PodNames().size(), 42u);

  // One that is deleted likewise. It stays as long as a finalizer wants it to.
  ChangeSpec([](Json& spec) { spec["worker"]["replicas"] = 60; });
  after_status_ = [&] {
    server_.Modify(kube::kTrainingJobs, kNamespace, "lenet",
                   [](Json& job) { job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"; });
    Fill(jobs_, kube::kTrainingJobs);
  };
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(PodNames().size(), 42u);
}

TEST_F(ReconcilerTest, AStaleCacheIsNotActedOn) {
  CreateJob();
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  const int writes = Writes();
  // The caches have not seen the pods nor the status.
  for (int i = 0; i < 3; ++i) {
    const ReconcileResult result = Reconcile();
    EXPECT_TRUE(result.status.ok());
    EXPECT_TRUE(result.requeue_after.has_value());
  }
  EXPECT_EQ(stale_, 3);
  EXPECT_EQ(Writes(), writes);
}

TEST_F(ReconcilerTest, APodThatVanishesIsCountedOnceWhateverElseHappened) {
  BringToTraining();
  // While nothing is heard: one worker is deleted, another fails, and the job grows.
  server_.Remove(kube::kPods, kNamespace, "lenet-worker-0");
  EndPod("lenet-worker-1", 3);
  server_.Modify(kube::kTrainingJobs, kNamespace, "lenet", [](Json& job) {
    job["spec"]["worker"]["replicas"] = 4;
    job["metadata"]["generation"] = 2;
  });
  Refresh();
  server_.Inject("PUT", "/status", FakeApiServer::Refuse(409, "Conflict", "changed"), 1);
  EXPECT_TRUE(absl::IsAborted(Reconcile().status)) << "it is not forgotten over a status that could not be stored";
  Settle();
  RunPods();
  Settle();
  EXPECT_EQ(Status().at("restarts").at("total"), 2);
  std::map<std::string, std::string> causes;
  const Json status = Status();
  for (const Json& failure : status.at("failures")) {
    causes[absl::StrCat("worker-", failure.at("index").get<int>())] = failure.at("cause").get<std::string>();
  }
  EXPECT_EQ(causes, (std::map<std::string, std::string>{{"worker-0", "Deleted"}, {"worker-1", "Exit code 3"}}));
  // One that is asked to leave vanishes too, and nobody counts it.
  server_.Modify(kube::kTrainingJobs, kNamespace, "lenet", [](Json& job) {
    job["spec"]["worker"]["replicas"] = 1;
    job["metadata"]["generation"] = 3;
  });
  Settle();
  RunPods();
  Settle();
  EXPECT_EQ(Status().at("restarts").at("total"), 2);
}

TEST_F(ReconcilerTest, AnEndThatWasSeenIsNotForgottenOverAConflict) {
  BringToTraining();
  EndPod("lenet-worker-1", 3);
  Refresh();
  server_.Inject("PUT", "/status", FakeApiServer::Refuse(409, "Conflict", "changed"), 1);
  EXPECT_TRUE(absl::IsAborted(Reconcile().status));
  server_.Remove(kube::kPods, kNamespace, "lenet-worker-1");
  Settle();
  const Json status = Status();
  ASSERT_EQ(status.at("failures").size(), 1u);
  EXPECT_EQ(status.at("failures")[0].at("cause"), "Exit code 3");
  EXPECT_EQ(status.at("restarts").at("counted"), 1);
}

TEST_F(ReconcilerTest, AFailedPodIsReplacedAndItsCauseIsTold) {
  CreateJob();
  Settle();
  RunPods();
  Settle();
  EndPod("lenet-worker-1", 3);
  Settle();
  RunPods();
  Settle();
  const Json failure = Status().at("failures").at(0);
  EXPECT_EQ(failure.at("exitCode"), 3);
  EXPECT_EQ(failure.at("action"), "Replace");
  EXPECT_THAT(failure.at("message").get<std::string>(), HasSubstr("the last words"));
  EXPECT_EQ(Status().at("restarts").at("total"), 1);
  EXPECT_EQ(Status().at("incarnations").at("worker-1"), 2);
  const std::optional<Json> pod = server_.Get(kube::kPods, kNamespace, "lenet-worker-1");
  ASSERT_TRUE(pod.has_value());
  EXPECT_EQ(pod->at("metadata").at("labels").at(kIncarnationLabel), "2");
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "WorkerLost"), 1);
}

TEST_F(ReconcilerTest, AServiceThatSomebodyDeletedIsMadeAgainForAPodThatStarts) {
  BringToTraining();
  const auto looks = [this] { return server_.CountRequests("GET", "/services/downpour-jobs"); };
  EXPECT_EQ(looks(), 1) << "before the first pod";
  EndPod("lenet-worker-0", 3);
  Settle();
  EXPECT_EQ(looks(), 1) << "it was made a moment ago";
  now_ += 60;
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  RunPods();
  EndPod("lenet-worker-1", 3);
  const int pods = server_.CountRequests("POST", "/pods");
  for (int i = 0; i < 50 && server_.CountRequests("POST", "/pods") == pods; ++i) {
    Refresh();
    ASSERT_TRUE(Reconcile().status.ok());
    now_ += 6;
  }
  EXPECT_EQ(server_.CountRequests("POST", "/pods"), pods + 1);
  EXPECT_EQ(looks(), 1) << "the pass that replaces a pod is in a hurry";
  Settle();
  EXPECT_TRUE(server_.Get(kube::kServices, kNamespace, kServiceName).has_value());
  EXPECT_EQ(looks(), 2);
  now_ += 60;
  RunPods();
  EndPod("lenet-worker-0", 3);
  Settle();
  EXPECT_EQ(looks(), 3);
  EXPECT_EQ(server_.CountRequests("POST", "/services"), 2) << "nothing is asked for that is there";
}

TEST_F(ReconcilerTest, ALeaderThatIsNewTellsNothingOfAJobThatTrainsBeforeItHasAsked) {
  for (const bool one_is_lost : {false, true}) {
    if (!one_is_lost) BringToTraining();
    const Json before = Status();
    Restart();
    gateway_.answer.reset();
    if (one_is_lost) EndPod("lenet-worker-0", 3);
    for (int i = 0; i < 4; ++i) {
      Refresh();
      Reconcile();
      EXPECT_EQ(Condition("Ready"), one_is_lost ? "False MembersMissing" : "True AllMembersReady");
    }
    EXPECT_EQ(Status().at("phase"), "Running");
    EXPECT_EQ(Status().at("worker").at("ready"), one_is_lost ? 1 : 2);
    EXPECT_EQ(Status() == before, !one_is_lost);
  }
  // It does not answer.
  for (int i = 0; i < 60; ++i) {
    Refresh();
    Reconcile();
    now_ += 1;
  }
  EXPECT_EQ(Condition("Ready"), "False MembersMissing");
  EXPECT_EQ(Status().at("worker").at("ready"), 0);
}

TEST_F(ReconcilerTest, ALeaderThatIsNewAsksForNoNameOfAJobThatTrains) {
  BringToTraining();
  Restart();
  gateway_.answer.reset();
  for (int i = 0; i < 3; ++i) {
    Refresh();
    Reconcile();
  }
  EXPECT_EQ(server_.CountRequests("", "/services"), 2) << "those before its first pod";
  EXPECT_EQ(server_.CountRequests("", "/endpointslices"), 1) << "its making";
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  server_.Remove(kube::kEndpointSlices, kNamespace, "lenet");
  Restart();
  EndPod("lenet-worker-0", 3);
  Settle();
  EXPECT_TRUE(server_.Get(kube::kServices, kNamespace, kServiceName).has_value());
  EXPECT_TRUE(server_.Get(kube::kEndpointSlices, kNamespace, "lenet").has_value());
}

TEST_F(ReconcilerTest, AServiceOfSomebodyElseIsToldBeforeAPodIsMade) {
  server_.Put(kube::kServices, SomebodyElsesService());
  CreateJob();
  Refresh();
  EXPECT_TRUE(absl::IsAlreadyExists(Reconcile().status));
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("Blocked"), "True NameConflict");
  EXPECT_TRUE(PodNames().empty());
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  now_ += 60;
  Settle();
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
  EXPECT_FALSE(PodNames().empty());
}

TEST_F(ReconcilerTest, AServiceOfSomebodyElseInPlaceOfOursIsAnObstacleThatIsNotAskedAboutAllTheTime) {
  BringToTraining();
  now_ += 60;
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  server_.Put(kube::kServices, SomebodyElsesService());
  EndPod("lenet-worker-1", 3);
  const int before = server_.CountRequests("", "/services");
  for (int i = 0; i < 100; ++i) {
    Refresh();
    Reconcile();
  }
  EXPECT_EQ(Condition("Blocked"), "True NameConflict");
  EXPECT_LE(server_.CountRequests("", "/services") - before, 6) << "in 25 seconds";
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  now_ += 60;
  Settle();
  ASSERT_TRUE(server_.Get(kube::kServices, kNamespace, kServiceName).has_value());
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
}

TEST_F(ReconcilerTest, ACoordinatorThatIsReplacedIsFoundAtItsNewAddress) {
  BringToTraining();
  EXPECT_EQ(Published(), "10.0.0.1");
  EndPod("lenet-coordinator-0", 3);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Published(), "") << "the address may be given to somebody else";
  Settle();
  server_.Modify(kube::kPods, kNamespace, "lenet-coordinator-0", [](Json& pod) {
    pod["status"] = {{"phase", "Running"}, {"podIP", "10.0.0.2"}};
  });
  Settle();
  EXPECT_EQ(Published(), "10.0.0.2");
  EXPECT_EQ(server_.CountRequests("PATCH", "/endpointslices/lenet"), 2);
}

// Whoever starts again must not be led to what has the address by then.
// While a webhook that pods need does not answer.
TEST_F(ReconcilerTest, ACoordinatorIsFoundWhileOtherPodsAreRefused) {
  BringToTraining();
  EndPod("lenet-coordinator-0", 3);
  Settle();
  EndPod("lenet-worker-1", 3);
  server_.Inject("POST", "/pods", FakeApiServer::Refuse(500, "InternalError", "failed calling webhook"), -1);
  LookWhenAsked(30);
  EXPECT_EQ(Condition("Blocked"), "True ServerError");
  server_.Modify(kube::kPods, kNamespace, "lenet-coordinator-0", [](Json& pod) {
    pod["status"] = {{"phase", "Running"}, {"podIP", "10.0.0.2"}};
  });
  Refresh();
  Reconcile();
  EXPECT_EQ(Published(), "10.0.0.2");
}

TEST_F(ReconcilerTest, ThatACoordinatorIsNowhereIsNoObstacleIfItCannotBeSaid) {
  BringToTraining();
  server_.Inject("PATCH", "/endpointslices", FakeApiServer::Refuse(403, "Forbidden", "no"), 3);
  ChangeSpec([](Json& spec) { spec["suspend"] = true; });
  LookWhenAsked(10);
  RunPods();
  LookWhenAsked(3);
  EXPECT_EQ(Published(), "10.0.0.1");
  EXPECT_EQ(Condition("Blocked"), "");
  LookWhenAsked(60);
  EXPECT_EQ(Published(), "");
  EXPECT_EQ(Condition("Blocked"), "");
  EXPECT_EQ(server_.CountRequests("PATCH", "/endpointslices"), 4);
}

TEST_F(ReconcilerTest, AJobThatIsSuspendedIsFoundNowhere) {
  BringToTraining();
  EXPECT_EQ(Published(), "10.0.0.1");
  ChangeSpec([](Json& spec) { spec["suspend"] = true; });
  Settle();
  RunPods();
  Settle();
  ASSERT_TRUE(PodNames().empty());
  EXPECT_EQ(Published(), "");
  // A leader before could not say so any more.
  server_.Modify(kube::kEndpointSlices, kNamespace, "lenet", [](Json& slice) {
    slice["endpoints"] = {{{"addresses", {"10.0.0.1"}}}};
  });
  Restart();
  Settle();
  EXPECT_EQ(Published(), "");
  // As a server says it that there are none.
  server_.Modify(kube::kEndpointSlices, kNamespace, "lenet", [](Json& slice) { slice["endpoints"] = nullptr; });
  Restart();
  const int patches = server_.CountRequests("PATCH", "/endpointslices");
  Settle();
  EXPECT_EQ(server_.CountRequests("PATCH", "/endpointslices"), patches);
  ChangeSpec([](Json& spec) { spec["suspend"] = false; });
  Settle();
  RunPods();
  Settle();
  EXPECT_EQ(Published(), "10.0.0.1");
}

TEST_F(ReconcilerTest, ASliceThatSomebodyDeletedIsMadeAgainForAPodThatStarts) {
  BringToTraining();
  server_.Remove(kube::kEndpointSlices, kNamespace, "lenet");
  now_ += 60;
  EndPod("lenet-worker-0", 3);
  Settle();
  EXPECT_TRUE(server_.Get(kube::kEndpointSlices, kNamespace, "lenet").has_value());
}

TEST_F(ReconcilerTest, ASliceOfSomebodyElseIsAnObstacleAndLeftAlone) {
  const Json theirs = {{"apiVersion", "discovery.k8s.io/v1"},
                       {"kind", "EndpointSlice"},
                       {"metadata", {{"name", "lenet"}, {"namespace", kNamespace}}},
                       {"endpoints", Json::array()}};
  server_.Put(kube::kEndpointSlices, theirs);
  CreateJob(1, 2);
  Settle();
  RunPods();
  LookWhenAsked(30);
  EXPECT_EQ(Condition("Blocked"), "True NameConflict");
  // It may be one that took the place of ours.
  server_.Remove(kube::kEndpointSlices, kNamespace, "lenet");
  LookWhenAsked(70);
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
  Report(v1::PHASE_TRAINING, 10);
  Settle();
  now_ += 60;
  server_.Remove(kube::kEndpointSlices, kNamespace, "lenet");
  const Json placed = server_.Put(kube::kEndpointSlices, theirs);
  EndPod("lenet-worker-1", 3);
  Settle();
  LookWhenAsked(10);
  EXPECT_EQ(Condition("Blocked"), "True NameConflict");
  EXPECT_EQ(server_.Get(kube::kEndpointSlices, kNamespace, "lenet"), placed);
}

TEST_F(ReconcilerTest, TheServiceOfANamespaceGoesWithItsLastJob) {
  BringToTraining();
  server_.Remove(kube::kTrainingJobs, kNamespace, "lenet");
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_FALSE(server_.Get(kube::kServices, kNamespace, kServiceName).has_value());
  Reconcile();
  EXPECT_EQ(server_.CountRequests("DELETE", "/services/downpour-jobs"), 1);
}

TEST_F(ReconcilerTest, ScalingTouchesNoOtherPod) {
  CreateJob(1, 3);
  Settle();
  RunPods();
  Settle();
  std::map<std::string, std::string> uids;
  const auto note = [&] {
    for (const Json& pod : server_.List(kube::kPods)) {
      const auto [known, fresh] =
          uids.emplace(kube::FindText(pod, {"metadata", "name"}), kube::FindText(pod, {"metadata", "uid"}));
      EXPECT_EQ(known->second, kube::FindText(pod, {"metadata", "uid"})) << known->first;
    }
  };
  note();
  for (const int replicas : {5, 1}) {
    server_.Modify(kube::kTrainingJobs, kNamespace, "lenet",
                   [replicas](Json& job) { job["spec"]["worker"]["replicas"] = replicas; });
    Settle();
    RunPods();
    Settle();
    note();
    EXPECT_EQ(PodNames().size(), static_cast<std::size_t>(2 + replicas));
  }
  EXPECT_EQ(Status().at("restarts").at("total"), 0) << "a worker that is not wanted did not fail";
}

TEST_F(ReconcilerTest, ANameThatSomebodyElseOwnsIsLeftAlone) {
  server_.Put(
      kube::kPods,
      {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", {{"name", "lenet-worker-0"}, {"namespace", kNamespace}}}});
  CreateJob();
  Refresh();
  EXPECT_TRUE(absl::IsAlreadyExists(Reconcile().status));
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("Blocked"), "True NameConflict");
  EXPECT_EQ(Status().at("reason"), "NameConflict");
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "NameConflict"), 1);
  server_.Remove(kube::kPods, kNamespace, "lenet-worker-0");
  now_ += 60;
  Settle();
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
  EXPECT_THAT(PodNames(), Contains("lenet-worker-0"));
}

TEST_F(ReconcilerTest, AQuotaIsAnObstacleNotAFailure) {
  CreateJob();
  server_.Inject("POST", "/pods",
                 FakeApiServer::Refuse(403, "Forbidden", "pods \"x\" is forbidden: exceeded quota: small"), -1);
  EXPECT_THAT(FailuresInTenMinutes(), AllOf(Ge(10), Le(20))) << "tries within ten minutes: 1, 2, 4 ... 60 s apart";
  EXPECT_LE(Status().at("incarnations").at("worker-0"), 20);
  EXPECT_LE(Writes(), 100);
  EXPECT_EQ(Condition("Blocked"), "True QuotaExceeded");
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "QuotaExceeded"), 1);
  EXPECT_EQ(Status().at("restarts").at("total"), 0);
  ExpectThatItGoesOnWithoutFaults();
}

// As where a webhook for pods does not answer: an error of the server that lasts.
TEST_F(ReconcilerTest, AnErrorOfTheServerThatLastsIsToldAndIsNoHotLoop) {
  CreateJob();
  server_.Inject("POST", "/pods", FakeApiServer::Refuse(500, "InternalError", "failed calling webhook \"x\": timeout"),
                 -1);
  EXPECT_THAT(FailuresInTenMinutes(), AllOf(Ge(10), Le(60))) << "tries within ten minutes";
  EXPECT_LE(Status().at("incarnations").at("coordinator-0"), 60);
  EXPECT_EQ(Condition("Blocked"), "True ServerError");
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "ServerError"), 1);
  EXPECT_EQ(Status().at("restarts").at("total"), 0);
  ExpectThatItGoesOnWithoutFaults();
}

// Nothing happens that would bring the job back into the queue, but what a pass asks for itself.
TEST_F(ReconcilerTest, ASliceThatWasRefusedIsTriedAgainByItself) {
  CreateJob();
  Settle();
  server_.Inject("POST", "/endpointslices",
                 FakeApiServer::Refuse(403, "Forbidden", "endpointslices \"x\" is forbidden: exceeded quota: small"),
                 -1);
  RunPods();
  LookWhenAsked(300);
  EXPECT_EQ(Condition("Blocked"), "True QuotaExceeded");
  EXPECT_THAT(server_.CountRequests("POST", "/endpointslices"), AllOf(Ge(5), Le(15)));
  server_.ClearFaults();
  LookWhenAsked(70);
  EXPECT_TRUE(server_.Get(kube::kEndpointSlices, kNamespace, "lenet").has_value());
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
}

TEST_F(ReconcilerTest, WhatIsNotWantedAnyMoreIsNoObstacleAnyMore) {
  BringToTraining();
  server_.Inject("POST", "/pods",
                 FakeApiServer::Refuse(403, "Forbidden", "pods \"x\" is forbidden: exceeded quota: small"), -1);
  ChangeSpec([](Json& spec) { spec["worker"]["replicas"] = 3; });
  for (int i = 0; i < 4; ++i) {
    Refresh();
    Reconcile();
  }
  EXPECT_EQ(Condition("Blocked"), "True QuotaExceeded");
  ChangeSpec([](Json& spec) { spec["worker"]["replicas"] = 2; });
  LookWhenAsked(70);
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
}

TEST_F(ReconcilerTest, AStartThatIsBrokenOffSaysNothingAboutTheObstacle) {
  BringToTraining();
  server_.Inject("POST", "/pods",
                 FakeApiServer::Refuse(403, "Forbidden", "pods \"x\" is forbidden: exceeded quota: small"), -1);
  const auto want = [this](int workers) {
    ChangeSpec([workers](Json& spec) { spec["worker"]["replicas"] = workers; });
  };
  want(3);
  Settle();
  ASSERT_EQ(Condition("Blocked"), "True QuotaExceeded");
  now_ += 100;
  after_status_ = [&] {
    want(4);
    Fill(jobs_, kube::kTrainingJobs);
  };
  const int tries = server_.CountRequests("POST", "/pods");
  Refresh();
  Reconcile();
  ASSERT_EQ(server_.CountRequests("POST", "/pods"), tries) << "it was broken off before the first";
  LookWhenAsked(200);
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "QuotaExceeded"), 1);
}

// It begins while the workers of a job that is done have exited, and the coordinator has not answered it yet.
TEST_F(ReconcilerTest, ALeaderThatIsNewAsksBeforeItTakesDismissedWorkersForFailures) {
  BringToTraining();
  EndPod("lenet-worker-0", 0);
  EndPod("lenet-worker-1", 0);
  now_ += 30;
  gateway_ = FakeGateway();
  Restart();
  Refresh();
  ReconcileResult result = Reconcile();
  EXPECT_TRUE(result.status.ok());
  EXPECT_FALSE(gateway_.followed.empty());
  ASSERT_TRUE(result.requeue_after.has_value());
  EXPECT_LE(*result.requeue_after, absl::Seconds(20));
  EXPECT_EQ(Status().at("restarts").at("total"), 0);
  now_ += 3;
  Report(v1::PHASE_DONE, 100);
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("SuccessCriteriaMet"), "True TrainingFinished");
  EXPECT_EQ(Status().at("restarts").at("total"), 0);
}

TEST_F(ReconcilerTest, ALeaderThatIsNewAsksBeforeAJobCountsAsHung) {
  CreateJob(1, 2, {{"progressDeadlineSeconds", 60}});
  Settle();
  RunPods();
  Report(v1::PHASE_TRAINING, 10);
  Settle();
  now_ += 200;
  gateway_.answer.reset();
  Restart();
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("FailureTarget"), "");
  Report(v1::PHASE_TRAINING, 20);
  Settle();
  EXPECT_EQ(Condition("FailureTarget"), "");
  EXPECT_EQ(Status().at("phase"), "Running");
}

// Asked every hundred seconds while it trains, and more often from the moment in which something happens.
TEST_F(ReconcilerTest, AJobThatBeginsToMoveIsAskedBeforeItCountsAsHung) {
  options_.pace.ask_interval_at_rest = absl::Seconds(100);
  Restart();
  CreateJob(1, 2, {{"progressDeadlineSeconds", 60}});
  Settle();
  RunPods();
  Report(v1::PHASE_TRAINING, 10);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(100));
  now_ += 80;
  EndPod("lenet-worker-0", 3);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(1));
  EXPECT_EQ(Condition("FailureTarget"), "");
  now_ += 30;
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("FailureTarget"), "True ProgressDeadlineExceeded") << "there was no answer";
}

TEST_F(ReconcilerTest, AStatusThatCannotBeStoredIsNotTriedAgainAtOnce) {
  BringToTraining();
  Report(v1::PHASE_DONE, 100);
  server_.Inject("PUT", "/status", FakeApiServer::Refuse(500, "InternalError", "no"), -1);
  Refresh();
  const ReconcileResult result = Reconcile();
  EXPECT_FALSE(result.status.ok()) << "the queue backs off";
  EXPECT_GE(result.requeue_after.value_or(absl::InfiniteDuration()), absl::Seconds(1));
}

TEST_F(ReconcilerTest, AClockThatWasAheadDoesNotSilenceAJob) {
  BringToTraining();
  now_ += 3600;
  Report(v1::PHASE_TRAINING, 20);
  Settle();
  EXPECT_EQ(Status().at("progress").at("step"), 20);
  now_ -= 3600;
  for (const bool anew : {false, true}) {
    if (anew) Restart();
    now_ += 100;
    const int step = Status().at("progress").at("step").get<int>() + 10;
    Report(v1::PHASE_TRAINING, static_cast<std::uint64_t>(step));
    Refresh();
    EXPECT_TRUE(Reconcile().status.ok());
    EXPECT_EQ(Status().at("progress").at("step"), step) << anew;
  }
}

TEST_F(ReconcilerTest, AJobThatHasEndedGoesWhenItsTimeIsOver) {
  CreateJob(1, 2, {{"ttlSecondsAfterFinished", 120}, {"podCleanup", {{"worker", {{"onSuccess", "None"}}}}}});
  Settle();
  RunPods();
  Report(v1::PHASE_DONE, 100);
  Settle();
  for (const std::string& name : PodNames()) EndPod(name, 0);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  Refresh();
  const ReconcileResult result = Reconcile();
  EXPECT_EQ(Condition("Complete"), "True TrainingFinished");
  EXPECT_EQ(PodNames(), (std::vector<std::string>{"lenet-worker-0", "lenet-worker-1"}));
  ASSERT_TRUE(result.requeue_after.has_value());
  EXPECT_LE(*result.requeue_after, absl::Seconds(120));
  now_ += 120;
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_FALSE(server_.Get(kube::kTrainingJobs, kNamespace, "lenet").has_value());
}

TEST_F(ReconcilerTest, ATemplateThatThePlatformRefusesStopsTheJobBeforeItsFirstPod) {
  CreateJob(1, 2, {{"worker", {{"template", {{"spec", {{"priorityClassName", "none"}}}}}}}});
  server_.Inject("POST", "dryRun=All", FakeApiServer::Refuse(403, "Forbidden", "no PriorityClass with name none"), -1);
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("TemplateInvalid"), "True Refused");
  EXPECT_TRUE(PodNames().empty());
  server_.ClearFaults();
  now_ += 60;
  Settle();
  EXPECT_EQ(Condition("TemplateInvalid"), "False Accepted");
  EXPECT_EQ(PodNames().size(), 4u);
}

// Pods are made without a look at fields that the server does not know: a job whose templates nobody has looked at must
// not begin.
TEST_F(ReconcilerTest, WhileTemplatesCannotBeCheckedTheJobDoesNotBegin) {
  CreateJob(1, 2, {{"worker", {{"template", {{"spec", {{"priorityClassName", "some"}}}}}}}});
  server_.Inject("POST", "dryRun=All", FakeApiServer::Refuse(500, "InternalError", "failed calling webhook \"x\""), -1);
  EXPECT_THAT(FailuresInTenMinutes(), AllOf(Ge(10), Le(60))) << "tries within ten minutes";
  EXPECT_TRUE(PodNames().empty());
  EXPECT_FALSE(Status().contains("startTime"));
  EXPECT_EQ(Condition("Blocked"), "True ServerError");
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "ServerError"), 1);
  server_.ClearFaults();
  LookWhenAsked(120);
  EXPECT_EQ(PodNames().size(), 4u);
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
}

TEST_F(ReconcilerTest, ATemplateThatIsRefusedStaysSoWhileItCannotBeCheckedAgain) {
  CreateJob(1, 2, {{"worker", {{"template", {{"spec", {{"priorityClassName", "none"}}}}}}}});
  server_.Inject("POST", "dryRun=All", FakeApiServer::Refuse(403, "Forbidden", "no PriorityClass with name none"), 1);
  server_.Inject("POST", "dryRun=All", FakeApiServer::Refuse(500, "InternalError", "failed calling webhook \"x\""), -1);
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("TemplateInvalid"), "True Refused");
  LookWhenAsked(300);
  EXPECT_EQ(Condition("TemplateInvalid"), "True Refused");
  EXPECT_TRUE(PodNames().empty());
}

// As where a webhook refuses with an odd code: nothing that the operator knows what to make of.
TEST_F(ReconcilerTest, AJobWhoseTemplateCannotBeCheckedSaysWhyWhateverTheAnswer) {
  ExpectThatWhateverIsAnsweredIsTold("dryRun=All",
                                     {{"worker", {{"template", {{"spec", {{"priorityClassName", "some"}}}}}}}});
  EXPECT_TRUE(PodNames().empty());
}

// Each try stores a number, which brings the job back at once.
TEST_F(ReconcilerTest, PodsThatAreRefusedAreNoHotLoopWhateverTheAnswer) {
  ExpectThatWhateverIsAnsweredIsTold("/pods", Json::object());
  ExpectThatItGoesOnWithoutFaults();
}

// A quota that has room for all but one: those that run need to find the coordinator.
TEST_F(ReconcilerTest, APodThatIsRefusedHoldsUpNoSlice) {
  CreateJob(1, 2);
  Refresh();
  server_.Put(
      kube::kPods,
      {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", {{"name", "lenet-worker-1"}, {"namespace", kNamespace}}}});
  Reconcile();
  RunPods();
  LookWhenAsked(100);
  EXPECT_EQ(Condition("Blocked"), "True NameConflict");
  EXPECT_TRUE(server_.Get(kube::kEndpointSlices, kNamespace, "lenet").has_value());
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "NameConflict"), 1);
  server_.Remove(kube::kPods, kNamespace, "lenet-worker-1");
  LookWhenAsked(70);
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
}

TEST_F(ReconcilerTest, AFullNamespaceIsNoFaultOfTheTemplate) {
  CreateJob(1, 2, {{"worker", {{"template", {{"spec", {{"priorityClassName", "some"}}}}}}}});
  for (const char* words : {"exceeded quota: small", "status unknown for quota: small, resources: pods"}) {
    server_.ClearFaults();
    server_.Inject("POST", "/pods",
                   FakeApiServer::Refuse(403, "Forbidden", absl::StrCat("pods \"x\" is forbidden: ", words)), -1);
    EXPECT_THAT(FailuresInTenMinutes(), AllOf(Ge(10), Le(20))) << "tries within ten minutes";
    EXPECT_EQ(Condition("Blocked"), "True QuotaExceeded");
    EXPECT_EQ(Condition("TemplateInvalid"), "");
  }
  ExpectThatItGoesOnWithoutFaults();
}

TEST_F(ReconcilerTest, ATerminatingNamespaceIsNoFaultOfTheTemplate) {
  CreateJob(1, 2, {{"worker", {{"template", {{"spec", {{"priorityClassName", "some"}}}}}}}});
  server_.Inject(
      "POST", "/pods",
      FakeApiServer::Refuse(403, "Forbidden",
                            "pods \"x\" is forbidden: unable to create new content in namespace y because it "
                            "is being terminated"),
      -1);
  EXPECT_THAT(FailuresInTenMinutes(), AllOf(Ge(10), Le(20))) << "tries within ten minutes";
  EXPECT_EQ(Condition("Blocked"), "True NamespaceTerminating");
  EXPECT_EQ(Condition("TemplateInvalid"), "");
}

TEST_F(ReconcilerTest, JobsOfSomebodyElseAreLeftAlone) {
  CreateJob(1, 1, {{"managedBy", "kueue.x-k8s.io/multikueue"}});
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Writes(), 0);
}

// Random ends of pods, refusals and broken connections, caches that lag, and an operator that is killed at any moment:
// incarnations are never used twice, are stored before they are used, and in the end everything runs.
TEST_F(ReconcilerTest, WhateverHappensIncarnationsAreUniqueAndTheJobComesBack) {
  for (std::uint32_t seed = 0; seed < Seeds(25); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    for (const std::string& name : PodNames()) server_.Remove(kube::kPods, kNamespace, name);
    server_.Remove(kube::kTrainingJobs, kNamespace, "lenet");
    gateway_ = FakeGateway();
    const Json more = {{"failurePolicy", {{"maxRestarts", 1000}, {"maxRestartsPerReplica", 1000}}},
                       {"progressDeadlineSeconds", 0}};
    Restart();
    CreateJob(2, 3, more);
    std::set<std::string> seen_uids;
    std::map<std::string, int> newest;  // incarnation by pod name
    const auto check = [&] {
      const Json incarnations = Status().value("incarnations", Json::object());
      for (const Json& pod : server_.List(kube::kPods)) {
        const std::string name = kube::FindText(pod, {"metadata", "name"});
        const int incarnation = std::stoi(kube::FindText(pod, {"metadata", "labels", kIncarnationLabel}));
        const std::string instance = name.substr(std::string("lenet-").size());
        ASSERT_GE(incarnations.value(instance, 0), incarnation) << name << " was made before its number was stored";
        if (!seen_uids.insert(kube::FindText(pod, {"metadata", "uid"})).second) continue;
        ASSERT_GT(incarnation, newest[name]) << name << " used a number twice";
        newest[name] = incarnation;
      }
    };
    for (int step = 0; step < 60; ++step) {
      switch (random() % 8) {
        case 0:
          RunPods();
          break;
        case 1: {
          const std::vector<std::string> names = PodNames();
          if (!names.empty()) EndPod(names[random() % names.size()], random() % 2 == 0 ? 1 : 137);
          break;
        }
        case 2: {
          const std::vector<std::string> names = PodNames();
          if (!names.empty()) server_.Remove(kube::kPods, kNamespace, names[random() % names.size()]);
          break;
        }
        case 3:
          server_.Inject(random() % 2 == 0 ? "POST" : "PUT", "",
                         random() % 2 == 0 ? FakeApiServer::Refuse(409, "Conflict", "changed")
                                           : FakeApiServer::End(FakeApiServer::Reaction::End::kReset));
          break;
        case 4:
          Restart();
          break;
        default:
          if (random() % 4 != 0) Refresh();
          now_ += static_cast<double>(random() % 20);
          static_cast<void>(Reconcile());
      }
      ASSERT_NO_FATAL_FAILURE(check());
    }
    server_.ClearFaults();
    for (int i = 0; i < 40; ++i) {
      now_ += 400;  // past every back-off
      // The platform collects what was made for the job before, on the strength of a cache that was behind.
      const std::optional<Json> slice = server_.Get(kube::kEndpointSlices, kNamespace, "lenet");
      const std::string uid = kube::ReadMeta(*server_.Get(kube::kTrainingJobs, kNamespace, "lenet")).uid;
      if (slice.has_value() && kube::ReadMeta(*slice).controller_uid != uid) {
        server_.Remove(kube::kEndpointSlices, kNamespace, "lenet");
      }
      Refresh();
      static_cast<void>(Reconcile());
      RunPods();
      ASSERT_NO_FATAL_FAILURE(check());
    }
    EXPECT_EQ(PodNames().size(), 6u) << Status().at("conditions").dump().substr(0, 2000);
    for (const Json& pod : server_.List(kube::kPods)) EXPECT_EQ(kube::FindText(pod, {"status", "phase"}), "Running");
  }
}

}  // namespace
}  // namespace downpour::controller
