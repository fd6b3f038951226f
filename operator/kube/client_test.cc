#include "operator/kube/client.h"

#include <atomic>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/api_error.h"
#include "operator/kube/client_metrics.h"
#include "operator/kube/http_transport.h"
#include "operator/kube/json_text.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/plain_credentials.h"

namespace downpour::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using End = FakeApiServer::Reaction::End;

Json Object(const std::string& name) { return {{"metadata", {{"name", name}}}, {"spec", {{"n", 1}}}}; }

class ClientTest : public ::testing::Test {
 protected:
  Client& client(const ClientOptions& options = {}) {
    client_ = std::make_unique<Client>(MakeHttpTransport(std::make_shared<PlainCredentials>(server_.Start())), options,
                                       &metrics_);
    return *client_;
  }

  FakeApiServer server_;
  ClientMetrics metrics_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, CreatesReadsAndDeletes) {
  Client& client = this->client();
  Json object = Object("a");
  object["metadata"]["managedFields"] = Json::array({1});
  object["status"] = {{"phase", "set by others"}};
  const auto created = client.Create(kTrainingJobs, "team", object);
  ASSERT_TRUE(created.ok()) << created.status();
  const ObjectMeta meta = ReadMeta(*created);
  EXPECT_EQ(meta.Key(), "team/a");
  EXPECT_NE(meta.uid, "");
  EXPECT_EQ(Find(*created, {"metadata", "managedFields"}), nullptr);
  EXPECT_EQ(Find(*created, {"status"}), nullptr);

  const auto read = client.Get(kTrainingJobs, "team", "a");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, *created);

  EXPECT_TRUE(absl::IsAlreadyExists(client.Create(kTrainingJobs, "team", object).status()));
  EXPECT_TRUE(client.Delete(kTrainingJobs, "team", "a").ok());
  EXPECT_TRUE(absl::IsNotFound(client.Delete(kTrainingJobs, "team", "a")));
  const auto gone = client.Get(kTrainingJobs, "team", "a");
  EXPECT_TRUE(absl::IsNotFound(gone.status()));
  EXPECT_EQ(GetApiError(gone.status())->reason, "NotFound");
  EXPECT_THAT(std::string(gone.status().message()), HasSubstr("GET /apis/training.downpour.dev"));
}

TEST_F(ClientTest, ADryRunStoresNothing) {
  ASSERT_TRUE(client().Create(kPods, "team", Object("a"), {/*dry_run=*/true}).ok());
  EXPECT_EQ(server_.CountRequests("POST", "fieldValidation=Strict"), 1);
  EXPECT_EQ(server_.Get(kPods, "team", "a"), std::nullopt);
}

TEST_F(ClientTest, DeletesUnderPreconditionsOnly) {
  Client& client = this->client();
  const ObjectMeta meta = ReadMeta(*client.Create(kPods, "team", Object("a")));
  EXPECT_TRUE(
      absl::IsAborted(client.Delete(kPods, "team", "a", {.preconditions = {"another", ""}, .grace_seconds = {}})));
  EXPECT_TRUE(
      absl::IsAborted(client.Delete(kPods, "team", "a", {.preconditions = {meta.uid, "1"}, .grace_seconds = {}})));
  EXPECT_TRUE(
      client.Delete(kPods, "team", "a", {.preconditions = {meta.uid, meta.resource_version}, .grace_seconds = 0}).ok());
  const Json body = *ParseJson(server_.requests().back().body);
  EXPECT_EQ(FindText(body, {"propagationPolicy"}), "Background");
  EXPECT_EQ(FindInteger(body, {"gracePeriodSeconds"}), 0);
}

TEST_F(ClientTest, DeletesWhatASelectorNames) {
  for (int i = 0; i < 4; ++i) {
    Json object = Object(absl::StrCat("pod-", i));
    object["metadata"]["namespace"] = "team";
    object["metadata"]["labels"] = {{"parity", i % 2 == 0 ? "even" : "odd"}};
    server_.Put(kPods, object);
  }
  EXPECT_TRUE(client().DeleteCollection(kPods, "team", "parity=even", {.preconditions = {}, .grace_seconds = 0}).ok());
  EXPECT_EQ(server_.requests().back().Target(), "/api/v1/namespaces/team/pods?labelSelector=parity=even");
  EXPECT_TRUE(absl::IsNotFound(client().Get(kPods, "team", "pod-0").status()));
  EXPECT_TRUE(client().Get(kPods, "team", "pod-1").ok());
  EXPECT_TRUE(client().DeleteCollection(kPods, "team", "parity=even").ok()) << "there is none";
}

TEST_F(ClientTest, ListsInPagesAndBySelectors) {
  for (int i = 0; i < 7; ++i) {
    Json object = Object(absl::StrCat("pod-", i));
    object["metadata"]["namespace"] = i < 5 ? "team" : "other";
    object["metadata"]["labels"] = {{"parity", i % 2 == 0 ? "even" : "odd"}};
    object["metadata"]["managedFields"] = Json::array({1});
    server_.Put(kPods, object);
  }
  Client& client = this->client();
  std::vector<std::string> names;
  ListOptions options;
  options.limit = 2;
  options.resource_version = server_.resource_version();
  do {
    const auto page = client.List(kPods, "team", options);
    ASSERT_TRUE(page.ok()) << page.status();
    EXPECT_EQ(page->resource_version, server_.resource_version());
    for (const Json& item : page->items) {
      names.push_back(FindText(item, {"metadata", "name"}));
      EXPECT_EQ(Find(item, {"metadata", "managedFields"}), nullptr);
      EXPECT_EQ(FindText(item, {"kind"}), "Pod");
    }
    options.continue_token = page->continue_token;
  } while (!options.continue_token.empty());
  EXPECT_THAT(names, ElementsAre("pod-0", "pod-1", "pod-2", "pod-3", "pod-4"));

  ListOptions metadata;
  metadata.metadata_only = true;
  const auto bare = client.List(kPods, "team", metadata);
  ASSERT_TRUE(bare.ok()) << bare.status();
  ASSERT_EQ(bare->items.size(), 5u);
  EXPECT_EQ(FindText(bare->items[0], {"metadata", "name"}), "pod-0");
  EXPECT_EQ(Find(bare->items[0], {"spec"}), nullptr);

  ListOptions odd;
  odd.label_selector = "parity=odd,parity!=even";
  EXPECT_EQ(client.List(kPods, "", odd)->items.size(), 3u);
  ListOptions one;
  one.field_selector = "metadata.name=pod-6";
  EXPECT_EQ(client.List(kPods, "", one)->items.size(), 1u);
}

TEST_F(ClientTest, ApplyCreatesAndChanges) {
  Client& client = this->client();
  const auto created = client.Apply(kServices, "team", "a", Object("a"), "downpour");
  ASSERT_TRUE(created.ok()) << created.status();
  const auto same = client.Apply(kServices, "team", "a", Object("a"), "downpour");
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(*same, *created);
  const auto request = server_.requests().back();
  EXPECT_EQ(request.query.at("fieldManager"), "downpour");
  EXPECT_EQ(request.query.at("force"), "true");
  EXPECT_EQ(request.headers.at("content-type"), "application/apply-patch+yaml");
}

TEST_F(ClientTest, MergePatchIsConditionalIfItSaysSo) {
  Client& client = this->client();
  const ObjectMeta meta = ReadMeta(*client.Create(kPods, "team", Object("a")));
  const auto patch = [&](const std::string& version) {
    return client.MergePatch(kPods, "team", "a",
                             {{"metadata", {{"resourceVersion", version}, {"labels", {{"x", version}}}}}});
  };
  EXPECT_TRUE(patch(meta.resource_version).ok());
  EXPECT_TRUE(absl::IsAborted(patch(meta.resource_version).status()));
}

TEST_F(ClientTest, ReplaceStatusReplacesAllOfIt) {
  Client& client = this->client();
  const Json created = *client.Create(kTrainingJobs, "team", Object("a"));
  const auto first = client.ReplaceStatus(kTrainingJobs, ReadMeta(created), R"({"phase": "Running", "old": 1})");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = client.ReplaceStatus(kTrainingJobs, ReadMeta(*first), R"({"phase": "Done"})");
  EXPECT_EQ(server_.CountRequests("PUT", "/status?fieldValidation=Ignore"), 2);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(Find(*second, {"status"}), nullptr) << "only the metadata is asked for";
  const Json stored = *server_.Get(kTrainingJobs, "team", "a");
  EXPECT_EQ(ReadMeta(stored).resource_version, ReadMeta(*second).resource_version);
  EXPECT_EQ(*Find(stored, {"status"}), (Json{{"phase", "Done"}}));
  EXPECT_EQ(Find(stored, {"spec"})->dump(), Find(created, {"spec"})->dump());

  EXPECT_TRUE(absl::IsAborted(client.ReplaceStatus(kTrainingJobs, ReadMeta(*first), R"({"phase": "Lost"})").status()));
  server_.Remove(kTrainingJobs, "team", "a");
  EXPECT_TRUE(
      absl::IsNotFound(client.ReplaceStatus(kTrainingJobs, ReadMeta(*second), R"({"phase": "Lost"})").status()));
  ASSERT_TRUE(client.Create(kTrainingJobs, "team", Object("a")).ok());
  const auto successor = client.ReplaceStatus(kTrainingJobs, ReadMeta(*second), R"({"phase": "Lost"})");
  EXPECT_TRUE(absl::IsAborted(successor.status())) << "another object of the same name: " << successor.status();
  EXPECT_TRUE(GetApiError(successor.status()).has_value());
  EXPECT_EQ(Find(*server_.Get(kTrainingJobs, "team", "a"), {"status"}), nullptr);

  server_.Inject("PUT", "", FakeApiServer::Refuse(422, "Invalid", "status.phase: Unsupported value"));
  EXPECT_TRUE(absl::IsInvalidArgument(client.ReplaceStatus(kTrainingJobs, ReadMeta(*second), "{}").status()));
}

using LogLines = std::vector<std::pair<std::string, std::string>>;

absl::Status ReadAll(Client& client, const LogOptions& options, LogLines* lines, std::size_t most = 1000) {
  return client.ReadLog("team", "a", options, {}, [&](std::string_view time, std::string_view line) {
    lines->emplace_back(time, line);
    return lines->size() < most;
  });
}

constexpr char kFirstTime[] = "2026-01-02T03:04:05.123456789Z";
constexpr char kSecondTime[] = "2026-01-02T03:04:06Z";

TEST_F(ClientTest, ReadsTheLinesOfALogAndTheirTimes) {
  server_.SetLog("team", "a", absl::StrCat(kFirstTime, " one two\n", kSecondTime, " \nno time\n", kSecondTime, " end"));
  LogLines lines;
  const LogOptions options{.container = "trainer", .tail_lines = 7, .since_time = kFirstTime, .follow = true};
  ASSERT_TRUE(ReadAll(client(), options, &lines).ok());
  EXPECT_THAT(lines, ElementsAre(std::pair(kFirstTime, "one two"), std::pair(kSecondTime, ""), std::pair("", "no time"),
                                 std::pair(kSecondTime, "end")));
  const auto query = server_.requests().back().query;
  EXPECT_EQ(query.at("tailLines"), "7");
  EXPECT_EQ(query.at("container"), "trainer");
  EXPECT_EQ(query.at("sinceTime"), kFirstTime);
  EXPECT_EQ(query.at("follow"), "true");
  lines.clear();
  ASSERT_TRUE(ReadAll(client(), {}, &lines, 1).ok());
  EXPECT_EQ(lines.size(), 1u) << "more than was wanted";
}

TEST_F(ClientTest, LinesOfALogArriveWholeHoweverTheyAreCut) {
  const std::string text = absl::StrCat(kFirstTime, " one\n", kSecondTime, " two\n");
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    server_.Inject("GET", "/log", FakeApiServer::Stream({text.substr(0, cut), text.substr(cut)}), 1);
    LogLines lines;
    ASSERT_TRUE(ReadAll(client(), {}, &lines).ok());
    EXPECT_THAT(lines, ElementsAre(std::pair(kFirstTime, "one"), std::pair(kSecondTime, "two"))) << cut;
  }
}

TEST_F(ClientTest, ALogThatBreaksEndsWithItsLastWholeLine) {
  server_.Inject("GET", "/log", FakeApiServer::Stream({absl::StrCat(kFirstTime, " one\nhal")}, End::kReset), 1);
  LogLines lines;
  EXPECT_TRUE(absl::IsUnavailable(ReadAll(client(), {}, &lines)));
  EXPECT_THAT(lines, ElementsAre(std::pair(kFirstTime, "one")));
  EXPECT_EQ(server_.requests().size(), 1u) << "lines would come twice";
  server_.Inject("GET", "/log", FakeApiServer::Refuse(403, "Forbidden", "no pods/log"), 1);
  EXPECT_EQ(GetApiError(ReadAll(client(), {}, &lines))->message, "no pods/log");
  server_.Inject("GET", "/log", FakeApiServer::Stream({std::string((1 << 20) + 1, 'x')}), 1);
  EXPECT_TRUE(absl::IsResourceExhausted(ReadAll(client(), {}, &lines)));
  server_.Inject("GET", "/log", FakeApiServer::End(End::kHang), 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(ReadAll(client({.timeout = absl::Milliseconds(200)}), {}, &lines)));
}

TEST_F(ClientTest, TriesAgainWhenAskedTo) {
  std::mutex mutex;
  std::vector<int> codes, retried;
  metrics_.on_retry = [&](const std::string& method, int code) {
    EXPECT_EQ(method, "GET");
    const std::lock_guard lock(mutex);
    retried.push_back(code);
  };
  metrics_.on_request = [&](const std::string&, int code, absl::Duration) {
    const std::lock_guard lock(mutex);
    codes.push_back(code);
  };
  Client& client = this->client();
  server_.Inject("", "", FakeApiServer::Refuse(429, "TooManyRequests", "", {{"Retry-After", "0"}}), 1);
  server_.Inject("", "", FakeApiServer::Refuse(503, "ServiceUnavailable", "", {{"Retry-After", "0"}}), 1);
  server_.Inject("", "", FakeApiServer::End(End::kReset), 3);  // the layers below try thrice
  EXPECT_TRUE(client.List(kPods, "", {}).ok());
  EXPECT_THAT(retried, ElementsAre(429, 503, 0));
  EXPECT_THAT(codes, ElementsAre(429, 503, 0, 200));
}

TEST_F(ClientTest, DoesNotTryAgainOtherwise) {
  Client& client = this->client();
  server_.Inject("", "", FakeApiServer::Refuse(500, "InternalError", "webhook failed"), -1);
  const auto failed = client.Create(kPods, "team", Object("a"));
  EXPECT_TRUE(absl::IsUnavailable(failed.status()));
  EXPECT_EQ(GetApiError(failed.status())->code, 500);
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(ClientTest, AnswersTheErrorIfTheWaitWouldPassTheDeadline) {
  Client& client = this->client({.timeout = absl::Seconds(20)});
  server_.Inject("", "", FakeApiServer::Refuse(429, "TooManyRequests", "", {{"Retry-After", "1000"}}), -1);
  const auto limited = client.Get(kPods, "team", "a");
  EXPECT_TRUE(absl::IsResourceExhausted(limited.status())) << limited.status();
  EXPECT_EQ(GetApiError(limited.status())->retry_after, absl::Seconds(1000));
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(ClientTest, ACreateThatBrokeMayHaveHappened) {
  Client& client = this->client();
  // The server stores it and the answer is lost: so it looks to the client.
  FakeApiServer::Reaction lost = FakeApiServer::End(End::kReset);
  lost.before = [&] {
    Json object = Object("a");
    object["metadata"]["namespace"] = "team";
    server_.Put(kPods, object);
  };
  server_.Inject("POST", "", lost, 1);
  EXPECT_TRUE(absl::IsAlreadyExists(client.Create(kPods, "team", Object("a")).status()));
}

TEST_F(ClientTest, ASilentServerMeetsTheDeadline) {
  Client& client = this->client({.timeout = absl::Milliseconds(200)});
  server_.Inject("", "", FakeApiServer::End(End::kHang), -1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(client.Get(kPods, "team", "a").status()));
}

TEST_F(ClientTest, RefusesAnswersThatAreNoObjects) {
  Client& client = this->client();
  const std::string deep = std::string(500, '[') + std::string(500, ']');
  for (const std::string& body :
       {std::string("<html>"), std::string(), std::string("[]"), std::string(R"({"a":)"), "{\"a\":" + deep + "}"}) {
    server_.Inject("", "", FakeApiServer::Respond(200, body), 1);
    EXPECT_TRUE(absl::IsDataLoss(client.Get(kPods, "team", "a").status())) << body.substr(0, 20);
  }
  server_.Inject("", "", FakeApiServer::Respond(200, R"({"items": 3})"), 1);
  EXPECT_TRUE(absl::IsDataLoss(client.List(kPods, "", {}).status()));
  server_.Inject("", "", FakeApiServer::Respond(200, R"({"items": null})"), 1);
  EXPECT_TRUE(client.List(kPods, "", {}).ok());
}

TEST_F(ClientTest, TheRateIsLimited) {
  std::atomic<int> limited = 0;
  metrics_.on_rate_limited = [&](const std::string& method, absl::Duration waited) {
    EXPECT_EQ(method, "GET");
    EXPECT_GT(waited, absl::ZeroDuration());
    ++limited;
  };
  Client& client = this->client({.timeout = absl::Seconds(20), .requests_per_second = 50, .burst = 3});
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(client.List(kPods, "", {}).ok());
  EXPECT_GE(limited, 1);
  Client& impatient = this->client({.timeout = absl::Seconds(1), .requests_per_second = 0.01, .burst = 1});
  EXPECT_TRUE(impatient.List(kPods, "", {}).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(impatient.List(kPods, "", {}).status()));
}

TEST_F(ClientTest, StopEndsWhatWaitsAndWhatComes) {
  Client& client = this->client();
  FakeApiServer::Reaction hang = FakeApiServer::End(End::kHang);
  hang.before = [&] { client.Stop(); };
  server_.Inject("", "", hang, -1);
  EXPECT_TRUE(absl::IsCancelled(client.Get(kPods, "team", "a").status()));
  EXPECT_TRUE(absl::IsCancelled(client.Get(kPods, "team", "a").status()));
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(ClientTest, AStopTokenEndsOneList) {
  Client& client = this->client();
  std::stop_source stop;
  FakeApiServer::Reaction limited = FakeApiServer::Refuse(429, "TooManyRequests", "", {{"Retry-After", "20"}});
  limited.before = [&] { stop.request_stop(); };
  server_.Inject("", "", limited, 1);
  ListOptions options;
  options.stop = stop.get_token();
  EXPECT_TRUE(absl::IsCancelled(client.List(kPods, "", options).status()));
  EXPECT_TRUE(client.List(kPods, "", {}).ok());
}

}  // namespace
}  // namespace downpour::kube
