#ifndef DOWNPOUR_OPERATOR_CONTROLLER_TESTING_RECONCILER_FIXTURE_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_TESTING_RECONCILER_FIXTURE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "operator/controller/reconciler.h"
#include "operator/controller/testing/pods.h"
#include "operator/kube/client.h"
#include "operator/kube/informer.h"
#include "tests/support/fake_api_server.h"

namespace downpour::controller {

inline constexpr char kKey[] = "team/lenet";

// Answers what the test says, for whichever job it is asked about.
class FakeGateway final : public CoordinatorGateway {
 public:
  void Follow(const std::string&, const std::string&, const std::string& address, Periods asked,
              v1::ProgressRequest asked_for) override {
    followed = address;
    question = std::move(asked_for);
    periods = asked;
  }
  void Forget(const std::string&) override { followed.clear(); }
  std::optional<Answer> Latest(const std::string&) const override { return answer; }
  void Finish(api::Role role, const std::string&, const std::string& address) override {
    finished.insert(role);
    finished_at.insert(address);
  }

  std::string followed;
  Periods periods;
  v1::ProgressRequest question;
  std::optional<Answer> answer;
  std::set<api::Role> finished;
  std::set<std::string> finished_at;  // their addresses
};

// A reconciler with a real client, an API server that holds what it writes, and caches that are refreshed when the test
// says so.
class ReconcilerTest : public ::testing::Test {
 protected:
  ReconcilerTest();

  // What is in memory is lost, as when the operator is killed.
  void Restart();

  void CreateJob(int ps = 1, int workers = 2, const kube::Json& more = kube::Json::object(),
                 const std::string& name = "lenet");
  // "job-0", "job-1", ..., of one ps and one worker each.
  std::vector<std::string> CreateJobs(int count);

  template <class T>
  void Fill(kube::Store<T>& store, const kube::Resource& resource) {
    store.OnListBegin();
    for (const kube::Json& object : server_.List(resource)) store.OnListed(object);
    store.OnListEnd(server_.resource_version());
  }
  void Refresh();

  // Decides, which asks nobody, and carries it out at once.
  ReconcileResult Reconcile(const std::string& key);
  ReconcileResult Reconcile();
  void ReconcileAll(const std::vector<std::string>& names);

  // Looks at the job all the time for ten minutes, as when each of its own writes brings it back; how often that
  // failed.
  int FailuresInTenMinutes();
  // For so many seconds looks at the job when a pass has asked for it, and not otherwise.
  void LookWhenAsked(double seconds);

  // A job with `more` in its spec whose pods, or templates, get odd answers (webhooks may choose their code).
  void ExpectThatWhateverIsAnsweredIsTold(const std::string& target, const kube::Json& more);
  // What was in the way of a job of one ps and two workers is gone.
  void ExpectThatItGoesOnWithoutFaults();

  // As a user does.
  void ChangeSpec(const std::function<void(kube::Json& spec)>& change);
  // Until nothing is written any more, not even what is for people only and had to wait.
  void Settle();
  // What a kubelet does: pods run, and those that were asked to end do.
  void RunPods();
  void EndPod(const std::string& name, int exit_code, const std::string& reason = "Error");
  void Report(v1::JobPhase phase, std::uint64_t updates);
  // One ps and two workers: all run, are members, and have applied ten updates.
  void BringToTraining();
  static kube::Json SomebodyElsesService();

  // Where the coordinator is found; empty: nowhere.
  std::string Published() const;
  std::vector<std::string> PodNames() const;
  kube::Json Status(const std::string& name = "lenet") const;
  std::string Condition(const std::string& type, const std::string& name = "lenet") const;
  int Writes() const;

  double now_ = 1'800'000'000;
  std::string pod_address_ = "10.0.0.1";  // of all pods that run
  kube::FakeApiServer server_;
  const std::string base_url_;
  kube::Client client_;
  ReconcilerOptions options_;
  kube::Store<JobRecord> jobs_;
  kube::Store<Pod> pods_;
  FakeGateway gateway_;
  std::optional<std::vector<std::string>> cordoned_nodes_;
  std::unique_ptr<Reconciler> reconciler_;
  std::vector<std::string> events_;
  std::map<std::string, int> status_writes_;  // by what is new
  std::function<void()> after_status_;        // once, after the next one
  int stale_ = 0;
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_TESTING_RECONCILER_FIXTURE_H_
