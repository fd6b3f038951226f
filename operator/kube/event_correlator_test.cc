#include "operator/kube/event_correlator.h"

#include <set>

#include "gtest/gtest.h"

namespace downpour::kube {
namespace {

constexpr double kNow = 1'800'000'000;

EventToRecord Event(const std::string& reason, const std::string& message = "text", const std::string& name = "job") {
  EventToRecord event;
  event.resource = kTrainingJobs;
  event.about.namespace_name = "team";
  event.about.name = name;
  event.about.uid = "uid-" + name;
  event.about.resource_version = "12";
  event.reason = reason;
  event.message = message;
  return event;
}

TEST(EventCorrelator, TheSameEventWithinTenMinutesIsRaised) {
  EventCorrelator correlator;
  const auto first = correlator.Correlate(Event("Started"), kNow);
  EXPECT_TRUE(first.is_new);
  const auto second = correlator.Correlate(Event("Started"), kNow + 599);
  EXPECT_FALSE(second.is_new);
  EXPECT_EQ(second.name, first.name);
  EXPECT_EQ(second.count, 2);
  EXPECT_EQ(second.first_time, kNow);
  EXPECT_EQ(correlator.Correlate(Event("Started"), kNow + 1198).count, 3) << "ten minutes since the last";
  const auto later = correlator.Correlate(Event("Started"), kNow + 1798);
  EXPECT_TRUE(later.is_new);
  EXPECT_NE(later.name, first.name);
}

TEST(EventCorrelator, WhatDiffersIsAnotherEvent) {
  EventCorrelator correlator;
  std::set<std::string> names;
  EventToRecord warning = Event("Started");
  warning.warning = true;
  EventToRecord successor = Event("Started");
  successor.about.uid = "another";
  for (const EventToRecord& event : {Event("Started"), Event("Ended"), Event("Started", "other"), warning, successor,
                                     Event("Started", "text", "other-job")}) {
    const auto written = correlator.Correlate(event, kNow);
    EXPECT_TRUE(written.is_new);
    EXPECT_TRUE(names.insert(written.name).second) << written.name;
  }
}

// As where each of a thousand workers fails, and says which one it is.
TEST(EventCorrelator, ManyThatDifferInTheirMessageAloneAreCombined) {
  EventCorrelator correlator;
  const auto of = [](int worker) { return Event("WorkerLost", "worker-" + std::to_string(worker) + " ended"); };
  std::set<std::string> names;
  for (int worker = 0; worker < 10; ++worker) {
    const auto written = correlator.Correlate(of(worker), kNow);
    EXPECT_FALSE(written.combined);
    EXPECT_TRUE(names.insert(written.name).second);
  }
  const auto first = correlator.Correlate(of(10), kNow + 1);
  EXPECT_TRUE(first.combined && first.is_new);
  EXPECT_EQ(names.count(first.name), 0u);
  EXPECT_EQ(EventMessage(of(10), first), "(combined from similar events): worker-10 ended");
  for (int worker = 11; worker < 1000; ++worker) {
    const auto written = correlator.Correlate(of(worker), kNow + 2);
    EXPECT_TRUE(written.combined && !written.is_new);
    EXPECT_EQ(written.name, first.name);
    EXPECT_EQ(written.count, worker - 9);
  }
  EXPECT_EQ(correlator.Correlate(of(3), kNow + 3).count, 2) << "it has an event of its own";
  EXPECT_FALSE(correlator.Correlate(Event("Other", "worker-11 ended"), kNow + 3).combined);
  EXPECT_FALSE(correlator.Correlate(of(11), kNow + 700).combined) << "ten minutes without any";
}

TEST(EventCorrelator, NamesSurviveARestart) {
  const auto before = EventCorrelator().Correlate(Event("Started"), kNow);
  EXPECT_EQ(EventCorrelator().Correlate(Event("Started"), kNow).name, before.name);
  EXPECT_EQ(before.name.rfind("job.", 0), 0u);
  EXPECT_LE(EventCorrelator().Correlate(Event("x", "y", std::string(400, 'n')), kNow).name.size(), 253u);
}

TEST(EventCorrelator, LimitsTheEventsOfAnObject) {
  EventCorrelator correlator;
  for (int i = 0; i < 25; ++i) EXPECT_TRUE(correlator.Admit(Event("x"), kNow)) << i;
  EXPECT_FALSE(correlator.Admit(Event("x"), kNow));
  EXPECT_FALSE(correlator.Admit(Event("another reason"), kNow + 299));
  EXPECT_TRUE(correlator.Admit(Event("x", "y", "other-job"), kNow)) << "each object has its own";
  EXPECT_TRUE(correlator.Admit(Event("x"), kNow + 301));
  EXPECT_FALSE(correlator.Admit(Event("x"), kNow + 302));
}

TEST(EventCorrelator, ForgetsWhatWasNotStored) {
  EventCorrelator correlator;
  correlator.Forget(correlator.Correlate(Event("x"), kNow));
  const auto written = correlator.Correlate(Event("x"), kNow);
  EXPECT_TRUE(written.is_new);
  correlator.SetCount(written, 41);
  EXPECT_EQ(correlator.Correlate(Event("x"), kNow).count, 42);
}

TEST(EventCorrelator, ItsMemoryIsBounded) {
  EventCorrelator correlator;
  for (int i = 0; i < 50'000; ++i) {
    const EventToRecord event = Event("x", std::to_string(i), "job-" + std::to_string(i));
    ASSERT_TRUE(correlator.Admit(event, kNow + i * 0.001));
    correlator.Correlate(event, kNow + i * 0.001);
    ASSERT_LE(correlator.size(), 4100u);
  }
}

TEST(EventObject, HasWhatReadersExpect) {
  EventToRecord event = Event("Started", std::string(1022, 'x') + "\xE2\x82\xAC\xE2\x82\xAC");
  const Json object = EventObject(event, {"job.1", 3, kNow, false, false, ""}, kNow + 5, "downpour-operator", "pod-1");
  EXPECT_EQ(FindText(object, {"metadata", "namespace"}), "team");
  EXPECT_EQ(FindText(object, {"involvedObject", "apiVersion"}), "training.downpour.dev/v1alpha1");
  EXPECT_EQ(FindText(object, {"involvedObject", "uid"}), "uid-job");
  EXPECT_EQ(FindText(object, {"type"}), "Normal");
  EXPECT_EQ(FindInteger(object, {"count"}), 3);
  EXPECT_EQ(*ParseTime(FindText(object, {"lastTimestamp"})) - *ParseTime(FindText(object, {"firstTimestamp"})), 5);
  EXPECT_LE(FindText(object, {"message"}).size(), 1024u);
  EXPECT_NO_THROW((void)object.dump()) << "no character is cut in two";
  event.about.namespace_name.clear();
  EXPECT_EQ(EventNamespace(event), "default");
}

}  // namespace
}  // namespace downpour::kube
