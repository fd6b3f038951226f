#include "trainer/tracking/mlflow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/fake_api_server.h"
#include "trainer/tracking/tracker_thread.h"

// Against a server that answers as each test says. What a whole MLflow makes of it is for mlflow_server_test.cc.
namespace downpour::tracking {
namespace {

using kube::FakeApiServer;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using End = FakeApiServer::Reaction::End;
using nlohmann::json;

constexpr absl::Duration kLimit = absl::Seconds(30);
constexpr char kToken[] = "do-not-show-this-token";
constexpr char kPassword[] = "do-not-show-this-password";
constexpr char kApi[] = "/prefix/api/2.0/mlflow/";

Point LossAt(std::int64_t step, double loss) {
  Point point;
  point.step = step;
  point.time = 1700000000.25 + static_cast<double>(step);
  point.scalars.push_back({"train/loss", loss});
  return point;
}

class MlflowTest : public testing::Test {
 protected:
  MlflowTest() {
    for (const char* const variable : {"no_proxy", "NO_PROXY"}) setenv(variable, "127.0.0.1", 1);
    options_.uri = server_.Start() + "/prefix/";
    options_.experiment = "digits & more";
    options_.token = kToken;
    run_.job_name = "job";
    run_.job_uid = "0123";
    run_.configuration = "{}";
    run_.hyperparameters = {{"optimizer.learningRate", "0.1"}, {"batchSize", "64"}};
    run_.time = 1700000000.25;
  }

  std::unique_ptr<Tracker> Make() {
    auto tracker = MakeMlflowTracker(options_);
    EXPECT_TRUE(tracker.ok()) << tracker.status();
    return *std::move(tracker);
  }

  void Answer(const std::string& call, const std::string& body, int status = 200, int count = 1) {
    server_.Inject("", kApi + call, FakeApiServer::Respond(status, body), count);
  }
  void AnswerAll() { Answer("", "{}", 200, -1); }
  static std::string Error(const std::string& code, const std::string& message = "m") {
    return json{{"error_code", code}, {"message", message}}.dump();
  }

  std::unique_ptr<Tracker> Begun() {
    Answer("experiments/get-by-name", R"({"experiment": {"experiment_id": "7", "lifecycle_stage": "active"}})");
    Answer("runs/search", "{}");
    Answer("runs/create", R"({"run": {"info": {"run_id": "r1"}}})");
    Answer("runs/log-batch", "{}");
    auto tracker = Make();
    EXPECT_EQ(tracker->Begin(run_, kLimit), absl::OkStatus());
    return tracker;
  }

  // Bodies of the requests of this call.
  std::vector<json> Bodies(const std::string& call) const {
    std::vector<json> bodies;
    for (const FakeApiServer::Request& request : server_.requests()) {
      if (request.path == kApi + call) bodies.push_back(json::parse(request.body));
    }
    return bodies;
  }

  FakeApiServer server_;
  MlflowOptions options_;
  tracking::Run run_;
};

TEST_F(MlflowTest, MakesTheExperimentAndARun) {
  Answer("experiments/get-by-name", Error("RESOURCE_DOES_NOT_EXIST"), 404);
  Answer("experiments/create", R"({"experiment_id": "7"})");
  Answer("runs/search", "{}");
  Answer("runs/create", R"({"run": {"info": {"run_id": "r1"}}})");
  Answer("runs/log-batch", "{}");
  ASSERT_EQ(Make()->Begin(run_, kLimit), absl::OkStatus());
  const std::vector<FakeApiServer::Request> requests = server_.requests();
  ASSERT_THAT(requests, SizeIs(5));
  EXPECT_EQ(requests[0].query.at("experiment_name"), "digits & more");
  for (const FakeApiServer::Request& request : requests) {
    EXPECT_EQ(request.headers.at("authorization"), absl::StrCat("Bearer ", kToken));
  }
  EXPECT_EQ(json::parse(requests[1].body), (json{{"name", "digits & more"}}));
  const json search = json::parse(requests[2].body);
  EXPECT_EQ(search["experiment_ids"], json::array({"7"}));
  EXPECT_EQ(search["filter"], "tags.`downpour.job_uid` = '0123'");
  const json create = json::parse(requests[3].body);
  EXPECT_EQ(create["experiment_id"], "7");
  EXPECT_EQ(create["run_name"], "job");
  EXPECT_EQ(create["start_time"], 1700000000250);
  EXPECT_EQ(create["tags"][0], (json{{"key", "downpour.job_uid"}, {"value", "0123"}}));
  EXPECT_EQ(json::parse(requests[4].body),
            (json{{"run_id", "r1"},
                  {"params", json::array({json{{"key", "optimizer.learningRate"}, {"value", "0.1"}},
                                          json{{"key", "batchSize"}, {"value", "64"}}})}}));
}

TEST_F(MlflowTest, GoesOnWithTheRunOfTheSameJob) {
  Answer("experiments/get-by-name", R"({"experiment": {"experiment_id": "7", "lifecycle_stage": "active"}})");
  Answer("runs/search", R"({"runs": [{"info": {"run_id": "r1", "status": "KILLED"},
                                      "data": {"params": [{"key": "batchSize", "value": "32"}]}}]})");
  Answer("runs/update", "{}", 200, -1);
  Answer("runs/log-batch", "{}", 200, -1);
  auto tracker = Make();
  ASSERT_EQ(tracker->Begin(run_, kLimit), absl::OkStatus());
  ASSERT_EQ(tracker->Write({LossAt(5, 0.5)}, kLimit), absl::OkStatus());
  ASSERT_EQ(tracker->End(Outcome::kFailed, 1700000009.5, kLimit), absl::OkStatus());
  EXPECT_EQ(server_.CountRequests("", "runs/create"), 0);
  const std::vector<json> logged = Bodies("runs/log-batch");
  ASSERT_THAT(logged, SizeIs(2));
  // What it has cannot be changed.
  EXPECT_EQ(logged[0]["params"], json::array({json{{"key", "optimizer.learningRate"}, {"value", "0.1"}}}));
  EXPECT_EQ(logged[1]["run_id"], "r1");
  EXPECT_EQ(logged[1]["metrics"],
            json::array({json{{"key", "train/loss"}, {"value", 0.5}, {"timestamp", 1700000005250}, {"step", 5}}}));
  EXPECT_THAT(Bodies("runs/update"),
              ElementsAre(json{{"run_id", "r1"}, {"status", "RUNNING"}},
                          json{{"run_id", "r1"}, {"status", "FAILED"}, {"end_time", 1700000009500}}));
}

TEST_F(MlflowTest, SendsAsMuchAtOnceAsTheApiTakes) {
  for (int i = 0; i < 248; ++i) run_.hyperparameters.emplace_back(absl::StrCat("list.", i), "x");
  Answer("runs/log-batch", "{}", 200, -1);
  auto tracker = Begun();
  std::vector<std::size_t> sizes;
  for (const json& body : Bodies("runs/log-batch")) sizes.push_back(body["params"].size());
  EXPECT_THAT(sizes, ElementsAre(100, 100, 50));
  std::vector<Point> points(2500);
  for (Point& point : points) point.scalars.push_back({"a", 1});
  points.front().texts.push_back({"phase", "Starting"});
  points.back().texts.push_back({"phase", "Training"});
  ASSERT_EQ(tracker->Write(points, kLimit), absl::OkStatus());
  sizes.clear();
  const std::vector<json> logged = Bodies("runs/log-batch");
  ASSERT_THAT(logged, SizeIs(7));
  for (std::size_t i = 3; i < 6; ++i) sizes.push_back(logged[i]["metrics"].size());
  EXPECT_THAT(sizes, ElementsAre(1000, 1000, 500));
  EXPECT_EQ(logged[6]["tags"], json::array({json{{"key", "downpour.phase"}, {"value", "Training"}}}));
}

TEST_F(MlflowTest, NamesAndNumbersAreSuchAsMlflowTakes) {
  auto tracker = Begun();
  AnswerAll();
  Point point = LossAt(1, std::numeric_limits<double>::quiet_NaN());
  point.scalars.push_back({"test/a:b é", std::numeric_limits<double>::infinity()});
  point.texts.push_back({"phase", std::string(4999, 'x') + "é"});
  ASSERT_EQ(tracker->Write({point}, kLimit), absl::OkStatus());
  const std::vector<json> logged = Bodies("runs/log-batch");
  EXPECT_EQ(logged[1]["metrics"][0]["value"], "NaN");
  EXPECT_EQ(logged[1]["metrics"][1]["value"], "Infinity");
  EXPECT_EQ(logged[1]["metrics"][1]["key"], "test/a_b __");
  EXPECT_EQ(logged[2]["tags"][0]["value"], std::string(4999, 'x')) << "no part of a character";
}

TEST_F(MlflowTest, SaysWhatCannotBeAndWhatMayBeBetterSoon) {
  const struct {
    int status;
    std::string body;
    absl::StatusCode expected;
    std::string message;
  } cases[] = {
      {503, "<html>", absl::StatusCode::kUnavailable, "HTTP status 503"},
      {429, "", absl::StatusCode::kUnavailable, "HTTP status 429"},
      {500, Error("INTERNAL_ERROR"), absl::StatusCode::kUnavailable, "HTTP status 500 INTERNAL_ERROR: m"},
      {401, "You are not authenticated.", absl::StatusCode::kPermissionDenied, "HTTP status 401"},
      {403, Error("PERMISSION_DENIED"), absl::StatusCode::kPermissionDenied, "HTTP status 403 PERMISSION_DENIED: m"},
      {404, Error("RESOURCE_DOES_NOT_EXIST", "no\nrun"), absl::StatusCode::kNotFound,
       "HTTP status 404 RESOURCE_DOES_NOT_EXIST: no\\nrun"},
      {404, "not here", absl::StatusCode::kInvalidArgument, "HTTP status 404"},
      {400, Error("INVALID_PARAMETER_VALUE"), absl::StatusCode::kInvalidArgument,
       "HTTP status 400 INVALID_PARAMETER_VALUE: m"},
      {302, "", absl::StatusCode::kInvalidArgument, "HTTP status 302"},
      {200, "no JSON", absl::StatusCode::kInternal, "the answer is no JSON"},
  };
  auto tracker = Begun();
  for (const auto& one : cases) {
    SCOPED_TRACE(one.body);
    Answer("runs/log-batch", one.body, one.status);
    const absl::Status status = tracker->Write({LossAt(1, 1)}, kLimit);
    EXPECT_EQ(status.code(), one.expected);
    EXPECT_EQ(status.message(), absl::StrCat(server_.Start(), "/prefix: runs/log-batch: ", one.message));
  }
}

TEST_F(MlflowTest, AnExperimentThatIsDeletedIsNamed) {
  Answer("experiments/get-by-name", R"({"experiment": {"experiment_id": "7", "lifecycle_stage": "deleted"}})");
  const absl::Status status = Make()->Begin(run_, kLimit);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("the experiment \"digits & more\" is deleted"));
}

TEST_F(MlflowTest, OfTwoThatMakeTheExperimentOneTriesAgain) {
  Answer("experiments/get-by-name", Error("RESOURCE_DOES_NOT_EXIST"), 404);
  Answer("experiments/create", Error("RESOURCE_ALREADY_EXISTS"), 400);
  EXPECT_EQ(Make()->Begin(run_, kLimit).code(), absl::StatusCode::kUnavailable);
}

TEST_F(MlflowTest, AServerThatHangsHoldsUpNobodyForLonger) {
  server_.Inject("", "", FakeApiServer::End(End::kHang), -1);
  EXPECT_EQ(Make()->Begin(run_, absl::Milliseconds(100)).code(), absl::StatusCode::kUnavailable);
  server_.Stop();
  EXPECT_EQ(Make()->Begin(run_, kLimit).code(), absl::StatusCode::kUnavailable);
}

// Without the hurry this would end as well, after the limit, with another message.
TEST_F(MlflowTest, ACallThatIsUnderWayCanBeHurried) {
  server_.Inject("", "", FakeApiServer::End(End::kHang), -1);
  const auto tracker = Make();
  absl::Status begun;
  std::thread caller([&] { begun = tracker->Begin(run_, kLimit); });
  EXPECT_TRUE(server_.WaitForRequests("", "experiments/get-by-name", 1, kLimit));
  tracker->Hurry(absl::ZeroDuration());
  caller.join();
  EXPECT_EQ(begun.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(begun.message(), HasSubstr("allback"));
}

// Whoever comes after a coordinator that was killed finds its run, and ends it.
TEST_F(MlflowTest, TheRunOfAJobThatFailsIsEndedByWhoeverHasIt) {
  auto first = Begun();
  first.reset();
  Answer("experiments/get-by-name", R"({"experiment": {"experiment_id": "7", "lifecycle_stage": "active"}})");
  Answer("runs/search", R"({"runs": [{"info": {"run_id": "r1", "status": "RUNNING"}}]})");
  AnswerAll();
  TrackerThread second(Make(), run_);
  second.Add(LossAt(7, 0.5));
  second.End(Outcome::kFailed, 1700000009.5);
  second.Stop();
  EXPECT_EQ(server_.CountRequests("", "runs/create"), 1) << "by the first";
  EXPECT_EQ(Bodies("runs/update").back(), (json{{"run_id", "r1"}, {"status", "FAILED"}, {"end_time", 1700000009500}}));
}

TEST_F(MlflowTest, SecretsAreShownToTheServerAlone) {
  options_.token.clear();
  options_.user = "me";
  options_.password = kPassword;
  server_.Inject("", "", FakeApiServer::Respond(401, ""), -1);
  const absl::Status refused = Make()->Begin(run_, kLimit);
  EXPECT_EQ(server_.requests()[0].headers.at("authorization"), "Basic bWU6ZG8tbm90LXNob3ctdGhpcy1wYXNzd29yZA==");
  server_.Stop();
  const absl::Status away = Make()->Begin(run_, kLimit);
  options_.password = absl::StrCat(kPassword, "\nx");
  const absl::Status two_lines = MakeMlflowTracker(options_).status();
  options_.password = kPassword;
  options_.uri = absl::StrCat("http://me:", kPassword, "@host");
  const absl::Status in_uri = MakeMlflowTracker(options_).status();
  for (const absl::Status& status : {refused, away, two_lines, in_uri}) {
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), AllOf(Not(HasSubstr(kPassword)), Not(HasSubstr("bWU6"))));
  }
}

TEST_F(MlflowTest, AUriMustBeOne) {
  for (const char* const uri : {"", "databricks", "file:///runs", "http://", "http:///runs", "http://host/?a=b",
                                "http://ho st", "sqlite:///mlflow.db", "http://host/\n"}) {
    options_.uri = uri;
    const auto tracker = MakeMlflowTracker(options_);
    EXPECT_EQ(tracker.status().code(), absl::StatusCode::kInvalidArgument) << uri;
    EXPECT_THAT(tracker.status().message(), HasSubstr("expected http(s)://HOST[:PORT][/PREFIX]"));
  }
}

TEST(MlflowOptionsTest, TheManifestComesBeforeTheEnvironment) {
  const auto clear = [] {
    for (const char* const name : {"URI", "TOKEN", "USERNAME", "PASSWORD", "SERVER_CERT_PATH"}) {
      unsetenv(absl::StrCat("MLFLOW_TRACKING_", name).c_str());
    }
  };
  clear();
  const auto none = MlflowOptionsFromEnvironment("", "e", "");
  EXPECT_THAT(none.status().message(), AllOf(HasSubstr("spec.tracking.mlflow.uri"), HasSubstr("MLFLOW_TRACKING_URI")));
  setenv("MLFLOW_TRACKING_URI", "http://environment:5000", 1);
  setenv("MLFLOW_TRACKING_TOKEN", "token\n", 1);  // as secrets are that were made from files
  setenv("MLFLOW_TRACKING_USERNAME", "me", 1);
  setenv("MLFLOW_TRACKING_PASSWORD", "secret", 1);
  const auto options = MlflowOptionsFromEnvironment("", "e", "r");
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->uri, "http://environment:5000");
  EXPECT_EQ(options->experiment, "e");
  EXPECT_EQ(options->run_name, "r");
  EXPECT_EQ(options->token, "token");
  EXPECT_EQ(options->user, "me");
  EXPECT_EQ(options->password, "secret");
  EXPECT_EQ(MlflowOptionsFromEnvironment("http://manifest", "e", "r")->uri, "http://manifest");
  clear();
}

}  // namespace
}  // namespace downpour::tracking
