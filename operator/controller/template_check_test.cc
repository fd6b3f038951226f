#include "operator/controller/template_check.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/controller/testing/job_on_server.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using ::testing::HasSubstr;

constexpr double kNow = 1'800'000'000;

class TemplateCheckTest : public JobOnServer {
 protected:
  absl::Status Run(const JobRecord& record, double now = kNow) {
    return check_.Run(record, {"server:1", "trainer:1", "IfNotPresent"}, client_, starts_, now);
  }
  void Refuse(int code, const std::string& reason, const std::string& message, int count = 1) {
    server_.Inject("POST", "dryRun=All", FakeApiServer::Refuse(code, reason, message), count);
  }

  TemplateCheck check_;
  Hold starts_;
  const JobRecord with_template_ = PutJob({{"worker", {{"template", {{"spec", {{"priorityClassName", "some"}}}}}}}});
};

TEST_F(TemplateCheckTest, TemplatesAreAskedAboutWithoutMakingAnything) {
  const JobRecord two = PutJob({{"coordinator", {{"template", {{"spec", {{"hostNetwork", false}}}}}}},
                                {"worker", {{"template", {{"spec", {{"priorityClassName", "some"}}}}}}}});
  ASSERT_TRUE(TemplateCheck::Asks(two));
  ASSERT_TRUE(Run(two).ok());
  EXPECT_TRUE(check_.IsChecked(two));
  EXPECT_EQ(check_.error(), "");
  EXPECT_EQ(server_.CountRequests("POST", "/pods?"), 2) << "of the roles with a template";
  EXPECT_EQ(server_.CountRequests("POST", "dryRun=All"), 2);
  EXPECT_TRUE(server_.List(kube::kPods).empty());
}

TEST_F(TemplateCheckTest, AJobWithoutTemplatesAsksNobodyAndHasItsVerdict) {
  EXPECT_FALSE(TemplateCheck::Asks(record_));
  const std::size_t before = server_.CountRequests();
  ASSERT_TRUE(Run(record_).ok());
  EXPECT_TRUE(check_.IsChecked(record_));
  EXPECT_EQ(check_.error(), "");
  EXPECT_EQ(server_.CountRequests(), before);
}

TEST_F(TemplateCheckTest, OnlyWhatIsTheTemplatesFaultIsHeldAgainstIt) {
  const struct {
    int code;
    std::string reason;
    std::string message;
    bool verdict;
    bool refused;
  } answers[] = {
      {403, "Forbidden", "no PriorityClass with name some", true, true},
      {422, "Invalid", "spec.x: Invalid value", true, true},
      {400, "BadRequest", "unknown field spec.x", true, true},
      {409, "AlreadyExists", "it exists", true, false},
      {403, "Forbidden", "exceeded quota: small", true, false},
      {403, "Forbidden", "status unknown for quota: small", true, false},
      {403, "Forbidden", "because it is being terminated", false, false},
      {404, "NotFound", "namespaces \"team\" not found", false, false},
      {409, "Conflict", "a webhook's", false, false},
      {413, "TooLarge", "a webhook's", false, false},
      {500, "InternalError", "failed calling webhook", false, false},
  };
  for (const auto& answer : answers) {
    SCOPED_TRACE(answer.reason + " " + answer.message);
    check_ = TemplateCheck();
    starts_ = Hold();
    Refuse(answer.code, answer.reason, answer.message);
    const absl::Status status = Run(with_template_);
    EXPECT_EQ(status.ok(), answer.verdict) << status;
    EXPECT_EQ(check_.IsChecked(with_template_), answer.verdict) << "a job that nobody has looked at must not begin";
    EXPECT_EQ(!check_.error().empty(), answer.refused) << check_.error();
    EXPECT_EQ(check_.LookAgain().has_value(), answer.refused);
    EXPECT_EQ(starts_.until > kNow, !answer.verdict) << "it is not asked again at once";
    if (answer.refused) {
      EXPECT_THAT(check_.error(), HasSubstr(answer.message));
      EXPECT_THAT(check_.error(), HasSubstr("worker")) << "whose template";
    }
  }
}

TEST_F(TemplateCheckTest, ATemplateThatMakesNoPodIsRefusedWithoutAsking) {
  const JobRecord broken = PutJob({{"worker", {{"template", {{"spec", {{"containers", "many"}}}}}}}});
  const std::size_t before = server_.CountRequests();
  ASSERT_TRUE(Run(broken).ok());
  EXPECT_THAT(check_.error(), HasSubstr("spec.worker.template"));
  EXPECT_EQ(server_.CountRequests(), before);
}

TEST_F(TemplateCheckTest, WhatIsTheOperatorsIsRefusedByPathWithoutAsking) {
  const JobRecord taken =
      PutJob({{"worker", {{"template", {{"spec", {{"hostname", "mine"}, {"subdomain", "mine"}}}}}}}});
  EXPECT_TRUE(taken.errors.empty()) << "else a job that runs already would be left alone";
  const std::size_t before = server_.CountRequests();
  ASSERT_TRUE(Run(taken).ok());
  EXPECT_EQ(check_.error(),
            "spec.worker.template.spec.hostname: is set by the operator; "
            "spec.worker.template.spec.subdomain: is set by the operator");
  EXPECT_EQ(server_.CountRequests(), before);
}

TEST_F(TemplateCheckTest, AVerdictStaysWhileItCannotBeRenewed) {
  Refuse(403, "Forbidden", "no PriorityClass with name some");
  Refuse(500, "InternalError", "failed calling webhook");
  ASSERT_TRUE(Run(with_template_).ok());
  const std::string error = check_.error();
  ASSERT_FALSE(error.empty());
  EXPECT_FALSE(Run(with_template_, kNow + 30).ok());
  EXPECT_EQ(check_.error(), error);
  EXPECT_TRUE(Run(with_template_, kNow + 60).ok());
  EXPECT_EQ(check_.error(), "") << "it was put right elsewhere";
}

TEST_F(TemplateCheckTest, IsDueBeforeTheFirstPodAloneOnceASpecificationAndEachHalfMinuteAfterARefusal) {
  JobRecord record = with_template_;
  EXPECT_TRUE(check_.IsDue(record, kNow));
  for (const auto& not_begun :
       {+[](JobRecord& one) { one.job.spec.suspend = true; }, +[](JobRecord& one) { one.meta.deletion_time = kNow; },
        +[](JobRecord& one) { one.job.status.start_time = kNow; }}) {
    JobRecord other = record;
    not_begun(other);
    EXPECT_FALSE(check_.IsDue(other, kNow));
  }
  ASSERT_TRUE(Run(record).ok());
  EXPECT_FALSE(check_.IsDue(record, kNow + 1e6)) << "what was accepted stays so";
  ++record.meta.generation;
  EXPECT_TRUE(check_.IsDue(record, kNow));
  Refuse(403, "Forbidden", "no PriorityClass with name some");
  ASSERT_TRUE(Run(record).ok());
  EXPECT_FALSE(check_.IsDue(record, kNow + 29));
  EXPECT_TRUE(check_.IsDue(record, kNow + 30));
  EXPECT_EQ(check_.LookAgain(), absl::Seconds(30));
}

}  // namespace
}  // namespace downpour::controller
