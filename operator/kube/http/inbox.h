#ifndef DOWNPOUR_OPERATOR_KUBE_HTTP_INBOX_H_
#define DOWNPOUR_OPERATOR_KUBE_HTTP_INBOX_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cpprest/streams.h"
#include "pplx/pplxtasks.h"

namespace downpour::kube {

// How many exchanges the library has not let go of. Thread-safe.
class OpenExchanges {
 public:
  void Begin();
  void End();
  // Until none is left, but no longer than `wait`: false then.
  bool Drain(absl::Duration wait);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// What the library's threads and the thread that asks share of one exchange. The latter may leave at any time: the
// library learns of a cancellation only where it next looks, which is late while it resolves a name, say.
class Inbox {
 public:
  struct Head {
    int status = 0;
    std::optional<absl::Duration> retry_after;
  };

  // More than this waits in the socket, so that a slow reader slows the server down.
  static constexpr std::size_t kMaxWaitingBytes = std::size_t{1} << 20;

  explicit Inbox(std::shared_ptr<OpenExchanges> open);
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // The library's side. The task is done when there is room for more.
  pplx::task<std::size_t> Put(const std::uint8_t* bytes, std::size_t count);
  void SetHead(const Head& head);
  void End(absl::Status status);

  // The asking side. kDeadlineExceeded, kCancelled, or how the exchange ended.
  absl::StatusOr<Head> WaitForHead(const std::stop_token& stop, absl::Duration wait);
  // What came since, once it is `least` bytes or all that was still to come; empty: there is no more.
  absl::StatusOr<std::string> Take(const std::stop_token& stop, absl::Duration wait, std::size_t least);
  // Lets more come. Why it did not, Take says.
  void Gather(const std::stop_token& stop, absl::Duration wait);
  // Nobody takes anything from now on. False: it had ended.
  bool Abandon();

 private:
  template <typename Ready>
  absl::Status Wait(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, absl::Duration wait,
                    const Ready& ready);
  absl::Status WaitForBytes(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, absl::Duration wait,
                            std::size_t least);
  // Without the lock: the continuation of the task may run at once.
  void GiveRoom();

  const std::shared_ptr<OpenExchanges> open_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<Head> head_;
  std::string bytes_;
  // The asking thread is woken for what it waits for alone.
  bool head_awaited_ = false;
  std::size_t awaited_bytes_ = 0;
  bool ended_ = false;
  absl::Status end_;
  bool abandoned_ = false;
  bool waiting_for_room_ = false;
  std::size_t room_count_ = 0;
  pplx::task_completion_event<std::size_t> room_;
};

// Where the library writes what comes.
concurrency::streams::ostream InboxStream(std::shared_ptr<Inbox> inbox);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_HTTP_INBOX_H_
