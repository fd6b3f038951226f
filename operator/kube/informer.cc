#include "operator/kube/informer.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "operator/kube/api_error.h"
#include "operator/kube/json_text.h"
#include "operator/kube/reflector_plan.h"
#include "operator/kube/wait.h"
#include "operator/kube/watch.h"

namespace downpour::kube {
namespace {

ReflectorPlan::Limits LimitsOf(const ReflectorOptions& options) {
  ReflectorPlan::Limits limits;
  limits.first_backoff = options.first_backoff;
  limits.most_backoff = options.most_backoff;
  return limits;
}

// Of an event of type ERROR: its object is what a refused request has for a body.
absl::Status ErrorOfEvent(const Json& object) {
  HttpResponse response;
  const std::int64_t code = FindInteger(object, {"code"}).value_or(0);
  response.status = code > 0 ? static_cast<int>(code) : 500;
  response.body = DumpJson(object);
  return ToStatus(ReadApiError(response));
}

}  // namespace

class Reflector::Impl {
 public:
  Impl(ReflectorOptions options, Client* client, Transport* transport, ReflectorSink* sink, std::uint32_t seed)
      : options_(std::move(options)),
        client_(client),
        transport_(transport),
        sink_(sink),
        random_(seed),
        plan_(LimitsOf(options_)) {}

  void Start() {
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }

  ReflectorState state() const {
    const std::lock_guard lock(mutex_);
    return state_;
  }

  bool WaitForSync(absl::Duration limit) const {
    std::unique_lock lock(mutex_);
    return synced_.wait_until(lock, DeadlineAfter(limit), [this] { return state_.synced; });
  }

 private:
  using Action = ReflectorPlan::Action;
  using WatchEnd = ReflectorPlan::WatchEnd;

  void Run(const std::stop_token& stop) {
    for (;;) {
      const ReflectorPlan::Step step = plan_.Next(Random(0, 1));
      if (!SleepFor(stop, step.wait)) return;
      if (step.action == Action::kWatch) {
        Watch(step.resource_version, stop);
      } else {
        ListPage(step, stop);
      }
    }
  }

  void ListPage(const ReflectorPlan::Step& step, const std::stop_token& stop) {
    ListOptions list;
    list.label_selector = options_.label_selector;
    list.field_selector = options_.field_selector;
    list.limit = options_.page_size;
    list.continue_token = step.continue_token;
    list.fields = options_.fields;
    list.stop = stop;
    const absl::StatusOr<kube::ListPage> page = client_->List(options_.resource, options_.namespace_name, list);
    if (stop.stop_requested()) return;
    if (!page.ok()) {
      Failed(page.status());
      return plan_.OnListFailed(page.status(), MonotonicNow());
    }
    if (step.action == Action::kListFirstPage) {
      first_page_version_ = page->resource_version;
      sink_->OnListBegin();
    }
    for (const Json& item : page->items) sink_->OnListed(item);
    // Later pages may name a newer version; what changed in between is then in none of them.
    if (page->continue_token.empty()) sink_->OnListEnd(first_page_version_);
    plan_.OnPage(page->resource_version, page->continue_token);
    const std::lock_guard lock(mutex_);
    state_.last_contact = MonotonicNow();
    if (!page->continue_token.empty()) return;
    ++state_.lists;
    state_.synced = true;
    synced_.notify_all();
  }

  void Watch(const std::string& resource_version, const std::stop_token& stop) {
    {
      const std::lock_guard lock(mutex_);
      ++state_.watches;
    }
    const absl::Duration lasts = absl::Seconds(
        Random(absl::ToDoubleSeconds(options_.watch_shortest), absl::ToDoubleSeconds(options_.watch_longest)));
    HttpRequest request;
    request.path = ResourcePath(options_.resource, options_.namespace_name);
    request.query = {{"watch", "true"},
                     {"allowWatchBookmarks", "true"},
                     {"resourceVersion", resource_version},
                     {"timeoutSeconds", absl::StrCat(absl::ToInt64Seconds(absl::Ceil(lasts, absl::Seconds(1))))}};
    if (!options_.label_selector.empty()) request.query.emplace_back("labelSelector", options_.label_selector);
    if (!options_.field_selector.empty()) request.query.emplace_back("fieldSelector", options_.field_selector);
    if (!options_.fields.empty()) request.accept = kAcceptProtobuf;
    request.timeout = options_.silence;

    const absl::Duration start = MonotonicNow();
    WatchDecoder decoder(options_.fields);
    WatchEnd end = WatchEnd::kClosed;
    absl::Status reason = absl::UnavailableError("the server ended the watch at once");
    const absl::StatusOr<HttpResponse> response = transport_->Stream(request, stop, [&](std::string_view bytes) {
      const absl::StatusOr<std::vector<WatchEvent>> events = decoder.Decode(bytes);
      if (!events.ok()) {
        end = WatchEnd::kUnreadable;
        reason = events.status();
        return false;
      }
      for (const WatchEvent& event : *events) {
        if (stop.stop_requested()) return false;
        if (event.type == WatchEvent::Type::kError) {
          reason = ErrorOfEvent(event.object);
          end = absl::IsOutOfRange(reason) ? WatchEnd::kExpired : WatchEnd::kRefused;
          return false;
        }
        Handle(event);
      }
      return MonotonicNow() - start < lasts + options_.slack;
    });
    if (stop.stop_requested()) return;
    if (!response.ok()) {
      end = WatchEnd::kBroken;
      reason = response.status();
    } else if (response->status != 200) {
      reason = ToStatus(ReadApiError(*response));
      end = absl::IsOutOfRange(reason) ? WatchEnd::kExpired : WatchEnd::kRefused;
    } else if (absl::Status cut = decoder.Finish(); end == WatchEnd::kClosed && !cut.ok()) {
      // An unreadable event at the very end, or only half of one: the first reading of it decides next time.
      end = WatchEnd::kBroken;
      reason = cut;
    }
    if (end != WatchEnd::kClosed) Failed(reason);
    plan_.OnWatchEnded(end, reason, MonotonicNow() - start, MonotonicNow());
  }

  void Handle(const WatchEvent& event) {
    const std::string version = FindText(event.object, {"metadata", "resourceVersion"});
    switch (event.type) {
      case WatchEvent::Type::kAdded:
      case WatchEvent::Type::kModified:
        sink_->OnUpserted(event.object);
        break;
      case WatchEvent::Type::kDeleted:
        sink_->OnDeleted(event.object);
        break;
      case WatchEvent::Type::kBookmark:
        sink_->OnBookmark(version);
        break;
      case WatchEvent::Type::kError:
        return;
    }
    plan_.OnWatchProgress(version);
    const std::lock_guard lock(mutex_);
    state_.last_contact = MonotonicNow();
  }

  void Failed(const absl::Status& status) {
    {
      const std::lock_guard lock(mutex_);
      ++state_.failures;
      state_.last_error = std::string(status.message());
    }
    if (options_.on_failure) options_.on_failure(status);
  }

  double Random(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }

  const ReflectorOptions options_;
  Client* const client_;
  Transport* const transport_;
  ReflectorSink* const sink_;
  std::mt19937 random_;  // this and the next two: the thread alone
  ReflectorPlan plan_;
  std::string first_page_version_;
  mutable std::mutex mutex_;
  mutable std::condition_variable synced_;
  ReflectorState state_;
  std::jthread thread_;  // the last member: it ends before the others
};

Reflector::Reflector(ReflectorOptions options, Client* client, Transport* transport, ReflectorSink* sink,
                     std::uint32_t seed)
    : impl_(std::make_unique<Impl>(std::move(options), client, transport, sink, seed)) {}

Reflector::~Reflector() = default;

void Reflector::Start() { impl_->Start(); }

ReflectorState Reflector::state() const { return impl_->state(); }

bool Reflector::WaitForSync(absl::Duration limit) const { return impl_->WaitForSync(limit); }

}  // namespace downpour::kube
