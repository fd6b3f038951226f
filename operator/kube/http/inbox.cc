#include "operator/kube/http/inbox.h"

#include <ios>
#include <utility>

#include "cpprest/astreambuf.h"
#include "operator/kube/wait.h"

namespace downpour::kube {
namespace {

// The library's own buffer has no limit, and its reads wait for as many bytes as they asked for. Write-only.
class InboxBuffer final : public concurrency::streams::details::streambuf_state_manager<std::uint8_t> {
 public:
  explicit InboxBuffer(std::shared_ptr<Inbox> inbox)
      : streambuf_state_manager<std::uint8_t>(std::ios_base::out), inbox_(std::move(inbox)) {}

  bool can_seek() const override { return false; }
  bool has_size() const override { return false; }
  std::size_t buffer_size(std::ios_base::openmode) const override { return 0; }
  void set_buffer_size(std::size_t, std::ios_base::openmode) override {}
  std::size_t in_avail() const override { return 0; }
  pos_type getpos(std::ios_base::openmode) const override { return static_cast<pos_type>(traits::eof()); }
  pos_type seekpos(pos_type, std::ios_base::openmode) override { return static_cast<pos_type>(traits::eof()); }
  pos_type seekoff(off_type, std::ios_base::seekdir, std::ios_base::openmode) override {
    return static_cast<pos_type>(traits::eof());
  }
  bool acquire(std::uint8_t*& bytes, std::size_t& count) override {
    bytes = nullptr;
    count = 0;
    return false;
  }
  void release(std::uint8_t*, std::size_t) override {}

 protected:
  using streambuf_state_manager<std::uint8_t>::_putn;
  pplx::task<int_type> _putc(std::uint8_t byte) override {
    return inbox_->Put(&byte, 1).then([byte](std::size_t) { return static_cast<int_type>(byte); });
  }
  pplx::task<std::size_t> _putn(const std::uint8_t* bytes, std::size_t count) override {
    return inbox_->Put(bytes, count);
  }
  pplx::task<int_type> _bumpc() override { return Nothing(); }
  int_type _sbumpc() override { return traits::eof(); }
  pplx::task<int_type> _getc() override { return Nothing(); }
  int_type _sgetc() override { return traits::eof(); }
  pplx::task<int_type> _nextc() override { return Nothing(); }
  pplx::task<int_type> _ungetc() override { return Nothing(); }
  pplx::task<std::size_t> _getn(std::uint8_t*, std::size_t) override { return pplx::task_from_result<std::size_t>(0); }
  std::size_t _scopy(std::uint8_t*, std::size_t) override { return 0; }
  pplx::task<bool> _sync() override { return pplx::task_from_result(true); }
  std::uint8_t* _alloc(std::size_t) override { return nullptr; }
  void _commit(std::size_t) override {}

 private:
  static pplx::task<int_type> Nothing() { return pplx::task_from_result<int_type>(traits::eof()); }

  const std::shared_ptr<Inbox> inbox_;
};

}  // namespace

void OpenExchanges::Begin() {
  const std::lock_guard lock(mutex_);
  ++count_;
}

void OpenExchanges::End() {
  const std::lock_guard lock(mutex_);
  --count_;
  changed_.notify_all();
}

bool OpenExchanges::Drain(absl::Duration wait) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, DeadlineAfter(wait), [&] { return count_ == 0; });
}

Inbox::Inbox(std::shared_ptr<OpenExchanges> open) : open_(std::move(open)) { open_->Begin(); }

Inbox::~Inbox() { open_->End(); }

template <typename Ready>
absl::Status Inbox::Wait(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, absl::Duration wait,
                         const Ready& ready) {
  if (changed_.wait_until(lock, stop, DeadlineAfter(wait), ready)) {
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    return absl::OkStatus();
  }
  if (stop.stop_requested()) return absl::CancelledError("stopped");
  return absl::DeadlineExceededError("nothing came from the API server in time");
}

absl::Status Inbox::WaitForBytes(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, absl::Duration wait,
                                 std::size_t least) {
  awaited_bytes_ = least;
  return Wait(lock, stop, wait, [&] { return bytes_.size() >= least || ended_; });
}

pplx::task<std::size_t> Inbox::Put(const std::uint8_t* bytes, std::size_t count) {
  const std::lock_guard lock(mutex_);
  if (abandoned_) return pplx::task_from_result(count);
  bytes_.append(reinterpret_cast<const char*>(bytes), count);
  if (bytes_.size() >= awaited_bytes_) changed_.notify_all();
  if (bytes_.size() < kMaxWaitingBytes) return pplx::task_from_result(count);
  room_count_ = count;
  room_ = pplx::task_completion_event<std::size_t>();
  waiting_for_room_ = true;
  return pplx::create_task(room_);
}

void Inbox::SetHead(const Head& head) {
  const std::lock_guard lock(mutex_);
  head_ = head;
  if (head_awaited_) changed_.notify_all();
}

void Inbox::End(absl::Status status) {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  end_ = std::move(status);
  changed_.notify_all();
}

absl::StatusOr<Inbox::Head> Inbox::WaitForHead(const std::stop_token& stop, absl::Duration wait) {
  std::unique_lock lock(mutex_);
  head_awaited_ = true;
  if (absl::Status status = Wait(lock, stop, wait, [&] { return head_.has_value() || ended_; }); !status.ok()) {
    return status;
  }
  if (!head_.has_value()) return end_.ok() ? absl::UnavailableError("the connection ended") : end_;
  return *head_;
}

absl::StatusOr<std::string> Inbox::Take(const std::stop_token& stop, absl::Duration wait, std::size_t least) {
  std::string taken;
  {
    std::unique_lock lock(mutex_);
    if (absl::Status status = WaitForBytes(lock, stop, wait, least); !status.ok()) return status;
    if (bytes_.empty() && !end_.ok()) return end_;
    taken.swap(bytes_);
  }
  GiveRoom();
  return taken;
}

void Inbox::Gather(const std::stop_token& stop, absl::Duration wait) {
  std::unique_lock lock(mutex_);
  WaitForBytes(lock, stop, wait, kMaxWaitingBytes).IgnoreError();
}

bool Inbox::Abandon() {
  bool open;
  {
    const std::lock_guard lock(mutex_);
    open = !ended_;
    abandoned_ = true;
    bytes_.clear();
  }
  GiveRoom();
  return open;
}

void Inbox::GiveRoom() {
  pplx::task_completion_event<std::size_t> room;
  std::size_t count;
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_for_room_) return;
    waiting_for_room_ = false;
    room = room_;
    count = room_count_;
  }
  room.set(count);
}

concurrency::streams::ostream InboxStream(std::shared_ptr<Inbox> inbox) {
  return concurrency::streams::ostream(concurrency::streams::streambuf<std::uint8_t>(
      std::shared_ptr<concurrency::streams::details::basic_streambuf<std::uint8_t>>(
          std::make_shared<InboxBuffer>(std::move(inbox)))));
}

}  // namespace downpour::kube
