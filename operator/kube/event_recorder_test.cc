#include "operator/kube/event_recorder.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "operator/kube/http_transport.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/plain_credentials.h"

namespace downpour::kube {
namespace {

using End = FakeApiServer::Reaction::End;

constexpr absl::Duration kPatience = absl::Seconds(30);

EventToRecord Event(const std::string& reason) {
  EventToRecord event;
  event.resource = kTrainingJobs;
  event.about.namespace_name = "team";
  event.about.name = "job";
  event.about.uid = "uid";
  event.warning = true;
  event.reason = reason;
  event.message = "text";
  return event;
}

class EventRecorderTest : public ::testing::Test {
 protected:
  EventRecorderTest()
      : client_(MakeHttpTransport(std::make_shared<PlainCredentials>(server_.Start())),
                ClientOptions{.timeout = absl::Seconds(5)}) {}

  FakeApiServer server_;
  Client client_;
};

TEST_F(EventRecorderTest, WritesEventsAndRaisesTheirCount) {
  EventRecorder recorder(&client_, "downpour-operator", "pod-1");
  for (int i = 0; i < 3; ++i) recorder.Record(Event("Failed"));
  recorder.Record(Event("Other"));
  ASSERT_TRUE(recorder.Flush(kPatience));
  const auto events = server_.List(kEvents);
  ASSERT_EQ(events.size(), 2u);
  const Json& event = FindText(events[0], {"reason"}) == "Failed" ? events[0] : events[1];
  EXPECT_EQ(FindText(event, {"metadata", "namespace"}), "team");
  EXPECT_EQ(FindText(event, {"involvedObject", "kind"}), "TrainingJob");
  EXPECT_EQ(FindText(event, {"type"}), "Warning");
  EXPECT_EQ(FindText(event, {"reportingInstance"}), "pod-1");
  EXPECT_EQ(FindInteger(event, {"count"}), 3);
  EXPECT_EQ(recorder.dropped(), 0u);
}

TEST_F(EventRecorderTest, ACombinedEventHasTheNewestMessage) {
  EventRecorder recorder(&client_, "downpour-operator", "pod-1");
  for (int i = 0; i < 14; ++i) {
    EventToRecord event = Event("Failed");
    event.message = "worker-" + std::to_string(i);
    recorder.Record(event);
  }
  ASSERT_TRUE(recorder.Flush(kPatience));
  const auto events = server_.List(kEvents);
  EXPECT_EQ(events.size(), 11u);
  const auto combined =
      std::find_if(events.begin(), events.end(), [](const Json& event) { return FindInteger(event, {"count"}) == 4; });
  ASSERT_NE(combined, events.end());
  EXPECT_EQ(FindText(*combined, {"message"}), "(combined from similar events): worker-13");
}

TEST_F(EventRecorderTest, RaisesWhatAnotherProcessWrote) {
  for (int process = 1; process <= 2; ++process) {
    EventRecorder recorder(&client_, "downpour-operator", "pod");
    recorder.Record(Event("Failed"));
    ASSERT_TRUE(recorder.Flush(kPatience));
  }
  std::int64_t count = 0;
  for (const Json& event : server_.List(kEvents)) count += FindInteger(event, {"count"}).value_or(0);
  EXPECT_EQ(count, 2) << "in one event, or in two if ten minutes began in between";
}

TEST_F(EventRecorderTest, WritesAnewWhatWasDeleted) {
  EventRecorder recorder(&client_, "downpour-operator", "pod");
  recorder.Record(Event("Failed"));
  ASSERT_TRUE(recorder.Flush(kPatience));
  for (const Json& event : server_.List(kEvents)) server_.Remove(kEvents, "team", ReadMeta(event).name);
  recorder.Record(Event("Failed"));
  ASSERT_TRUE(recorder.Flush(kPatience));
  EXPECT_EQ(server_.List(kEvents).size(), 1u);
}

TEST_F(EventRecorderTest, DropsWhatIsTooMuchAndWhatIsRefused) {
  EventRecorder recorder(&client_, "downpour-operator", "pod");
  for (int i = 0; i < 40; ++i) recorder.Record(Event("Failed"));
  ASSERT_TRUE(recorder.Flush(kPatience));
  EXPECT_EQ(recorder.dropped(), 15u);
  EXPECT_EQ(FindInteger(server_.List(kEvents).at(0), {"count"}), 25);

  server_.Inject("", "", FakeApiServer::Refuse(403, "Forbidden", "the namespace is being terminated"), -1);
  EventToRecord other = Event("Failed");
  other.about.name = "other";
  recorder.Record(other);
  ASSERT_TRUE(recorder.Flush(kPatience));
  EXPECT_EQ(recorder.dropped(), 16u);
}

TEST_F(EventRecorderTest, NeverMakesItsCallerWait) {
  server_.Inject("", "", FakeApiServer::End(End::kHang), -1);
  EventRecorder recorder(&client_, "downpour-operator", "pod");
  for (int i = 0; i < 3000; ++i) {
    EventToRecord event = Event("Failed");
    event.about.name += std::to_string(i);
    recorder.Record(event);  // would hang if it wrote
  }
  EXPECT_FALSE(recorder.Flush(absl::Milliseconds(1)));
  EXPECT_GE(recorder.dropped(), 1990u);
  client_.Stop();
}

}  // namespace
}  // namespace downpour::kube
