#include "operator/kube/informer.h"

#include <condition_variable>
#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/http_transport.h"
#include "operator/kube/json_text.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/plain_credentials.h"
#include "tests/support/test_data.h"

namespace downpour::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using End = FakeApiServer::Reaction::End;

constexpr absl::Duration kPatience = absl::Seconds(30);

struct Item {
  ObjectMeta meta;
  std::int64_t n = 0;
};
using Items = Store<Item>;

std::optional<Item> DecodeItem(const Json& object, const Item* /*before*/) {
  const auto n = FindInteger(object, {"spec", "n"});
  if (!n.has_value()) return std::nullopt;
  return Item{ReadMeta(object), *n};
}

Json Pod(const std::string& name, int n, const std::string& owner = "") {
  Json pod = {{"metadata", {{"name", name}, {"namespace", "team"}}}, {"spec", {{"n", n}}}};
  if (!owner.empty()) pod["metadata"]["ownerReferences"] = Json::array({{{"uid", owner}, {"controller", true}}});
  return pod;
}

std::string Line(const std::string& type, const Json& object) {
  return DumpJson({{"type", type}, {"object", object}}) + "\n";
}

const char* const kExpiredLine = R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}})"
                                 "\n";

class InformerTest : public ::testing::Test {
 protected:
  InformerTest()
      : client_(Transport()),
        watches_(Transport()),
        items_(
            DecodeItem, [](const Item& item) { return item.meta.controller_uid; },
            [this](const Items::Pointer& before, const Items::Pointer& after) { OnChange(before, after); }) {
    options_.resource = kPods;
    options_.page_size = 2;
    options_.watch_shortest = options_.watch_longest = absl::Minutes(10);
    options_.silence = absl::Minutes(10);
    options_.first_backoff = absl::Milliseconds(4);
    options_.most_backoff = absl::Milliseconds(20);
  }

  std::unique_ptr<kube::Transport> Transport() {
    return MakeHttpTransport(std::make_shared<PlainCredentials>(server_.Start()));
  }

  void Start() {
    reflector_ = std::make_unique<Reflector>(options_, &client_, watches_.get(), &items_, 1);
    reflector_->Start();
  }
  void StartAndSync() {
    Start();
    ASSERT_TRUE(reflector_->WaitForSync(kPatience));
  }

  void OnChange(const Items::Pointer& before, const Items::Pointer& after) {
    const std::lock_guard lock(mutex_);
    const Item& item = after != nullptr ? *after : *before;
    changes_.push_back(absl::StrCat(before == nullptr  ? "+"
                                    : after == nullptr ? "-"
                                                       : "~",
                                    item.meta.name, "=", item.n));
    changed_.notify_all();
  }
  // Waits for so many changes and answers all there are.
  std::vector<std::string> Changes(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, absl::ToChronoNanoseconds(kPatience), [&] { return changes_.size() >= count; });
    return changes_;
  }
  // Whether the cache comes to hold what the server does.
  bool CatchesUp() {
    const absl::Time deadline = absl::Now() + kPatience;
    for (;;) {
      std::map<std::string, std::string> there, here;
      for (const Json& object : server_.List(kPods)) {
        const ObjectMeta meta = ReadMeta(object);
        there[meta.Key()] = meta.uid + "@" + meta.resource_version;
      }
      for (const auto& item : items_.All()) here[item->meta.Key()] = item->meta.uid + "@" + item->meta.resource_version;
      if (there == here) return true;
      if (absl::Now() > deadline) return false;
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(5));
    }
  }
  int Lists() const { return server_.CountRequests("GET", "/api/v1/pods") - Watches(); }
  int Watches() const { return server_.CountRequests("GET", "watch=true"); }

  FakeApiServer server_;
  Client client_;
  std::unique_ptr<kube::Transport> watches_;
  ReflectorOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> changes_;
  Items items_;
  std::unique_ptr<Reflector> reflector_;
};

// The answers are those of a real server.
TEST_F(InformerTest, ReadsProtocolBuffersWhereItAsksForThem) {
  constexpr ProtobufField::Kind kMessage = ProtobufField::Kind::kMessage;
  const ProtobufField fields[] = {{1, "metadata", kMessage, MetadataFields()}};
  Items items(
      [](const Json& object, const Item*) {
        return Item{ReadMeta(object), 0};
      },
      [](const Item& item) { return item.meta.controller_uid; },
      [this](const Items::Pointer& before, const Items::Pointer& after) { OnChange(before, after); });
  options_.fields = fields;
  server_.Inject("GET", "limit=", FakeApiServer::Respond(200, ReadTestData("list.pb")));
  server_.Inject("GET", "watch=true", FakeApiServer::Stream({ReadTestData("watch.pb")}, End::kHang));
  Reflector reflector(options_, &client_, watches_.get(), &items, 1);
  reflector.Start();
  const std::vector<std::string> changes = Changes(11);
  ASSERT_EQ(changes.size(), 11u);
  EXPECT_EQ(changes.front(), "+lenet-worker-2=0");
  EXPECT_EQ(changes.back(), "-lenet-worker-2=0");
  EXPECT_EQ(reflector.state().failures, 0u);
  for (const FakeApiServer::Request& request : server_.requests()) {
    EXPECT_EQ(request.headers.at("accept"), kAcceptProtobuf) << request.Target();
  }
}

TEST_F(InformerTest, ListsAndThenFollows) {
  server_.Put(kPods, Pod("a", 1));
  StartAndSync();
  EXPECT_THAT(Changes(1), ElementsAre("+a=1"));
  server_.Put(kPods, Pod("b", 2));
  server_.Put(kPods, Pod("a", 3));
  server_.Remove(kPods, "team", "b");
  EXPECT_THAT(Changes(4), ElementsAre("+a=1", "+b=2", "~a=3", "-b=2"));
  EXPECT_EQ(items_.size(), 1u);
  EXPECT_EQ(items_.Get("team/a")->n, 3);
  EXPECT_EQ(items_.Get("team/b"), nullptr);
  EXPECT_EQ(items_.resource_version(), server_.resource_version());
  EXPECT_EQ(server_.requests().at(0).query.count("resourceVersion"), 0u) << "from a cache it comes in one piece";
  const ReflectorState state = reflector_->state();
  EXPECT_EQ(state.lists, 1u);
  EXPECT_EQ(state.failures, 0u);
  EXPECT_GT(state.last_contact, -absl::InfiniteDuration());
}

TEST_F(InformerTest, ReadsAllPages) {
  for (int i = 0; i < 7; ++i) server_.Put(kPods, Pod(absl::StrCat("p", i), i));
  StartAndSync();
  EXPECT_EQ(items_.size(), 7u);
  EXPECT_EQ(Lists(), 4);
}

TEST_F(InformerTest, AnExpiredPageBeginsTheListAnew) {
  for (int i = 0; i < 7; ++i) server_.Put(kPods, Pod(absl::StrCat("p", i), i));
  FakeApiServer::Reaction expired = FakeApiServer::Refuse(410, "Expired", "token");
  expired.before = [&] { server_.Remove(kPods, "team", "p0"); };
  server_.Inject("GET", "continue=", expired, 1);
  StartAndSync();
  EXPECT_TRUE(CatchesUp());
  EXPECT_EQ(items_.Get("team/p0"), nullptr) << "the first page of the broken list does not count";
  EXPECT_EQ(Changes(6).size(), 6u);
}

TEST_F(InformerTest, GroupsByItsIndex) {
  server_.Put(kPods, Pod("a", 1, "job-1"));
  server_.Put(kPods, Pod("b", 2, "job-1"));
  server_.Put(kPods, Pod("c", 3, "job-2"));
  StartAndSync();
  EXPECT_EQ(items_.Group("job-1").size(), 2u);
  server_.Put(kPods, Pod("b", 4, "job-2"));
  Changes(4);
  EXPECT_EQ(items_.Group("job-1").size(), 1u);
  EXPECT_EQ(items_.Group("job-2").size(), 2u);
  EXPECT_THAT(items_.Group("job-3"), IsEmpty());
}

TEST_F(InformerTest, LeavesOutAndCountsWhatItCannotDecode) {
  Json odd = Pod("odd", 1);
  odd["spec"]["n"] = "text";
  server_.Put(kPods, odd);
  server_.Put(kPods, Pod("a", 1));
  StartAndSync();
  EXPECT_EQ(items_.size(), 1u);
  EXPECT_EQ(items_.refused(), 1u);
}

TEST_F(InformerTest, ListsAgainAfter410) {
  const std::string frame = ReadTestData("expired.pb");
  for (const std::string& event : {std::string(kExpiredLine), frame, std::string()}) {
    const bool as_event = !event.empty();
    SCOPED_TRACE(event);
    changes_.clear();
    server_.Put(kPods, Pod("a", 1));
    server_.Put(kPods, Pod("b", 1));
    // While the watch is away, one object goes, one comes, and the server forgets that it was so.
    FakeApiServer::Reaction expired =
        as_event ? FakeApiServer::Stream({event}) : FakeApiServer::Refuse(410, "Expired", "too old");
    expired.before = [&] {
      server_.Remove(kPods, "team", "b");
      server_.Put(kPods, Pod("c", 1));
      server_.Compact();
    };
    server_.Inject("GET", "watch=true", expired, 1);
    const auto before = server_.requests().size();
    const int watches = Watches();
    StartAndSync();
    ASSERT_TRUE(server_.WaitForRequests("GET", "watch=true", watches + 2, kPatience));
    if (as_event) {
      EXPECT_THAT(Changes(4), UnorderedElementsAre("+a=1", "+b=1", "-b=1", "+c=1"));
    }
    EXPECT_TRUE(CatchesUp());
    EXPECT_GE(reflector_->state().lists, 2u);
    std::vector<std::string> versions;
    const auto requests = server_.requests();
    for (std::size_t i = before; i < requests.size(); ++i) {
      const auto& query = requests[i].query;
      if (query.find("watch") != query.end() || query.find("continue") != query.end()) continue;
      const auto version = query.find("resourceVersion");
      versions.push_back(version == query.end() ? "newest" : version->second);
    }
    EXPECT_THAT(versions, ElementsAre("newest", "newest"));
    reflector_.reset();
    for (const char* const name : {"a", "c"}) server_.Remove(kPods, "team", name);
    items_.OnListBegin();
    items_.OnListEnd("0");
  }
}

TEST_F(InformerTest, AnotherUidIsGoneAndNew) {
  const std::string uid = ReadMeta(server_.Put(kPods, Pod("a", 1))).uid;
  FakeApiServer::Reaction expired = FakeApiServer::Stream({kExpiredLine});
  expired.before = [&] {
    server_.Remove(kPods, "team", "a");
    server_.Put(kPods, Pod("a", 2));
  };
  server_.Inject("GET", "watch=true", expired, 1);
  StartAndSync();
  EXPECT_THAT(Changes(3), ElementsAre("+a=1", "-a=1", "+a=2"));
  EXPECT_NE(items_.Get("team/a")->meta.uid, uid);
}

TEST_F(InformerTest, EventsMayBeCutAnywhere) {
  StartAndSync();
  ASSERT_TRUE(server_.WaitForWatches(1, kPatience));
  Json a = Pod("a", 1);
  a["metadata"]["resourceVersion"] = "900";
  Json b = Pod("b", 2);
  b["metadata"]["resourceVersion"] = "901";
  const std::string text = Line("ADDED", a) + Line("ADDED", b) + Line("DELETED", a);
  server_.Inject("GET", "watch=true",
                 FakeApiServer::Stream({text.substr(0, 10), text.substr(10, 100), text.substr(110)}, End::kHang), 1);
  server_.EndWatches();
  EXPECT_THAT(Changes(3), ElementsAre("+a=1", "+b=2", "-a=1"));
}

TEST_F(InformerTest, ABrokenWatchGoesOnWhereItWas) {
  Json a = Pod("a", 1);
  a["metadata"]["resourceVersion"] = "900";
  const std::string line = Line("ADDED", a);
  for (const End end : {End::kReset, End::kClose, End::kKeepAlive}) {
    // The last event comes half.
    server_.Inject("GET", "watch=true", FakeApiServer::Stream({line, line.substr(0, 20)}, end), 1);
  }
  server_.Inject("GET", "watch=true", FakeApiServer::End(End::kHang), -1);
  StartAndSync();
  ASSERT_TRUE(server_.WaitForRequests("GET", "watch=true", 4, kPatience));
  EXPECT_EQ(server_.requests().back().query.at("resourceVersion"), "900");
  EXPECT_EQ(Lists(), 1);
  EXPECT_EQ(reflector_->state().failures, 3u);
}

TEST_F(InformerTest, AnUnreadableEventLeadsToAList) {
  server_.Inject("GET", "watch=true", FakeApiServer::Stream({"{\"type\":\"ADDED\",\"object\":\n"}), 1);
  server_.Inject("GET", "watch=true", FakeApiServer::Stream({"nonsense\n"}, End::kHang), 1);
  StartAndSync();
  ASSERT_TRUE(server_.WaitForRequests("GET", "watch=true", 3, kPatience));
  EXPECT_EQ(Lists(), 3);
}

TEST_F(InformerTest, WatchesThatEndAtOnceLeadToAList) {
  server_.Inject("GET", "watch=true", FakeApiServer::Stream({}), 3);
  StartAndSync();
  ASSERT_TRUE(server_.WaitForRequests("GET", "watch=true", 4, kPatience));
  EXPECT_EQ(Lists(), 2);
}

TEST_F(InformerTest, SilenceIsTakenForDeath) {
  options_.silence = absl::Milliseconds(100);
  server_.Inject("GET", "watch=true", FakeApiServer::End(End::kHang), 1);
  server_.Inject("GET", "watch=true", FakeApiServer::Stream({}, End::kHang), 1);
  StartAndSync();
  ASSERT_TRUE(server_.WaitForRequests("GET", "watch=true", 3, kPatience));
  EXPECT_EQ(Lists(), 1);
}

TEST_F(InformerTest, BookmarksMoveTheVersion) {
  server_.Put(kPods, Pod("a", 1));
  StartAndSync();
  ASSERT_TRUE(server_.WaitForWatches(1, kPatience));
  server_.Put(kServices, Pod("unwatched", 1));
  server_.SendBookmarks();
  const std::string version = server_.resource_version();
  const absl::Time deadline = absl::Now() + kPatience;
  while (items_.resource_version() != version && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(2));
  EXPECT_EQ(items_.resource_version(), version);
  server_.EndWatches();
  ASSERT_TRUE(server_.WaitForRequests("GET", "watch=true", 2, kPatience));
  EXPECT_EQ(server_.requests().back().query.at("resourceVersion"), version);
  EXPECT_EQ(Changes(1).size(), 1u);
}

TEST_F(InformerTest, SelectsByLabels) {
  options_.label_selector = "app=downpour";
  Json ours = Pod("ours", 1);
  ours["metadata"]["labels"] = {{"app", "downpour"}};
  server_.Put(kPods, ours);
  server_.Put(kPods, Pod("theirs", 1));
  StartAndSync();
  EXPECT_EQ(items_.size(), 1u);
  server_.Modify(kPods, "team", "ours", [](Json& pod) { pod["metadata"]["labels"] = Json::object(); });
  EXPECT_THAT(Changes(2), ElementsAre("+ours=1", "-ours=1"));
}

TEST_F(InformerTest, LargeObjectsPass) {
  StartAndSync();
  Json large = Pod("large", 1);
  large["spec"]["text"] = std::string((8 << 20) - 4096, 'x');
  server_.Put(kPods, large);
  server_.Put(kPods, Pod("small", 2));
  EXPECT_THAT(Changes(2), ElementsAre("+large=1", "+small=2"));
}

TEST_F(InformerTest, EndsAtOnceWhateverTheServerDoes) {
  // Time-outs of minutes: these pass in time only if the destructor waits for none of them.
  server_.Inject("GET", "watch=true", FakeApiServer::End(End::kHang), -1);
  StartAndSync();
  ASSERT_TRUE(server_.WaitForRequests("GET", "watch=true", 1, kPatience));
  reflector_.reset();

  server_.Inject("GET", "limit=", FakeApiServer::End(End::kHang), -1);
  Start();
  ASSERT_TRUE(server_.WaitForRequests("GET", "limit=", 2, kPatience));
  reflector_.reset();

  server_.ClearFaults();
  server_.Inject("GET", "", FakeApiServer::Refuse(429, "TooManyRequests", "", {{"Retry-After", "20"}}), -1);
  Start();
  ASSERT_TRUE(server_.WaitForRequests("GET", "limit=", 3, kPatience));
  EXPECT_FALSE(reflector_->WaitForSync(absl::ZeroDuration()));
  reflector_.reset();

  Reflector never_started(options_, &client_, watches_.get(), &items_, 1);
}

// Whatever goes wrong on the way: in the end the cache holds what the server holds.
TEST_F(InformerTest, CatchesUpAfterEverything) {
  options_.silence = absl::Milliseconds(300);
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
    const auto mutate = [&] {
      const std::string name = absl::StrCat("p", pick(9));
      if (pick(2) == 0) {
        server_.Remove(kPods, "team", name);
      } else {
        server_.Put(kPods, Pod(name, pick(1000)));
      }
    };
    Start();
    for (int step = 0; step < 120; ++step) {
      mutate();
      switch (pick(11)) {
        case 0:
          server_.EndWatches(pick(1) == 0);
          break;
        case 1:
          server_.Compact();
          server_.EndWatches();
          break;
        case 2:
          server_.SetExpiredAsStatus(pick(1) == 0);
          break;
        case 3:
          server_.Inject("GET", "", FakeApiServer::Refuse(500, "InternalError", "x"), 1);
          break;
        case 4:
          server_.Inject("GET", "", FakeApiServer::End(pick(1) == 0 ? End::kReset : End::kClose), 2);
          break;
        case 5:
          server_.Inject("GET", "watch=true", FakeApiServer::Stream({"nonsense\n"}), 1);
          server_.EndWatches();
          break;
        case 6:
          server_.Inject("GET", "watch=true", FakeApiServer::Stream({}), 1 + pick(3));
          server_.EndWatches(true);
          break;
        case 7:
          server_.Inject("GET", "continue=", FakeApiServer::Refuse(410, "Expired", "x"), 1);
          server_.Compact();
          server_.EndWatches();
          break;
        case 8:
          server_.SendBookmarks();
          break;
        case 9:
          server_.Inject("GET", "watch=true", FakeApiServer::Stream({}, End::kHang), 1);
          server_.EndWatches();
          break;
        default:
          (void)server_.WaitForWatches(1, absl::Milliseconds(20));
      }
    }
    server_.ClearFaults();
    EXPECT_TRUE(CatchesUp()) << "seed " << seed << ": " << reflector_->state().last_error;
    reflector_.reset();
    EXPECT_EQ(items_.refused(), 0u);
  }
}

}  // namespace
}  // namespace downpour::kube
