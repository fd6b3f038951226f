#include "operator/kube/http/inbox.h"

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace downpour::kube {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr absl::Duration kNone = absl::ZeroDuration();

class InboxTest : public ::testing::Test {
 protected:
  // Whether there is room for more.
  pplx::task<std::size_t> Put(const std::string& text) {
    return inbox_->Put(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
  absl::StatusOr<std::string> Take(std::size_t least, absl::Duration wait = kPatience) {
    return inbox_->Take({}, wait, least);
  }

  const std::shared_ptr<OpenExchanges> open_ = std::make_shared<OpenExchanges>();
  std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>(open_);
};

TEST_F(InboxTest, GivesWhatCameOnceItIsEnoughOrAllThereIs) {
  EXPECT_TRUE(absl::IsDeadlineExceeded(Take(1, kNone).status()));
  EXPECT_TRUE(Put("one").is_done());
  EXPECT_TRUE(absl::IsDeadlineExceeded(Take(4, kNone).status()));
  EXPECT_TRUE(Put("two").is_done());
  EXPECT_EQ(*Take(4), "onetwo");
  EXPECT_TRUE(Put("three").is_done());
  inbox_->End(absl::OkStatus());
  EXPECT_EQ(*Take(1000), "three");
  EXPECT_EQ(*Take(1000), "") << "there is no more";
}

TEST_F(InboxTest, AnErrorComesAfterWhatCame) {
  EXPECT_TRUE(Put("first").is_done());
  inbox_->End(absl::UnavailableError("broken"));
  EXPECT_EQ(*Take(1000), "first");
  EXPECT_TRUE(absl::IsUnavailable(Take(1).status()));
}

TEST_F(InboxTest, WhoPutsTooMuchWaitsUntilItIsTaken) {
  const pplx::task<std::size_t> put = Put(std::string(Inbox::kMaxWaitingBytes, 'x'));
  EXPECT_FALSE(put.is_done());
  EXPECT_EQ(Take(1)->size(), Inbox::kMaxWaitingBytes);
  EXPECT_TRUE(put.is_done());
  EXPECT_EQ(put.get(), Inbox::kMaxWaitingBytes);
  EXPECT_TRUE(Put("more").is_done());
}

TEST_F(InboxTest, WhoLeavesLetsTheOtherGoOn) {
  const pplx::task<std::size_t> put = Put(std::string(Inbox::kMaxWaitingBytes, 'x'));
  EXPECT_TRUE(inbox_->Abandon()) << "it had not ended";
  EXPECT_TRUE(put.is_done());
  EXPECT_TRUE(Put(std::string(Inbox::kMaxWaitingBytes, 'y')).is_done()) << "nothing is kept";
  inbox_->End(absl::OkStatus());
  EXPECT_FALSE(inbox_->Abandon());
}

TEST_F(InboxTest, TheHeadOrWhyThereIsNone) {
  EXPECT_TRUE(absl::IsDeadlineExceeded(inbox_->WaitForHead({}, kNone).status()));
  inbox_->SetHead({404, absl::Seconds(3)});
  inbox_->End(absl::UnavailableError("broken later"));
  const auto head = inbox_->WaitForHead({}, kPatience);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->status, 404);
  EXPECT_EQ(head->retry_after, absl::Seconds(3));

  Inbox headless(open_);
  headless.End(absl::UnavailableError("refused"));
  EXPECT_EQ(headless.WaitForHead({}, kPatience).status().message(), "refused");
  Inbox mute(open_);
  mute.End(absl::OkStatus());
  EXPECT_TRUE(absl::IsUnavailable(mute.WaitForHead({}, kPatience).status()));
}

TEST_F(InboxTest, WhoWaitsIsWoken) {
  std::stop_source stop;
  std::jthread library([&] {
    inbox_->SetHead({200, {}});
    Put("a");
    Put("b");
    stop.request_stop();
  });
  EXPECT_EQ(inbox_->WaitForHead({}, kPatience)->status, 200);
  EXPECT_EQ(*Take(2), "ab");
  EXPECT_TRUE(absl::IsCancelled(inbox_->Take(stop.get_token(), kPatience, 1).status()));
}

TEST_F(InboxTest, ExchangesAreOpenUntilTheirInboxGoes) {
  std::jthread library([inbox = std::move(inbox_)] { inbox->End(absl::OkStatus()); });
  EXPECT_TRUE(open_->Drain(kPatience));
  const Inbox another(open_);
  EXPECT_FALSE(open_->Drain(kNone));
}

}  // namespace
}  // namespace downpour::kube
