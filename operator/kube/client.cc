#include "operator/kube/client.h"

#include <algorithm>
#include <mutex>
#include <random>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "operator/kube/api_error.h"
#include "operator/kube/client_metrics.h"
#include "operator/kube/json_text.h"
#include "operator/kube/retry.h"
#include "operator/kube/wait.h"

namespace downpour::kube {
namespace {

constexpr char kMergePatch[] = "application/merge-patch+json";
constexpr char kApplyPatch[] = "application/apply-patch+yaml";  // JSON is YAML
// Only the metadata comes back: of what was written, and of the items of a list. Errors come whole.
constexpr char kMetadataOnly[] = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
constexpr char kMetadataListOnly[] =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
// Else the server looks for fields that it does not know, to warn of them, which nobody reads.
const std::vector<std::pair<std::string, std::string>> kUnchecked = {{"fieldValidation", "Ignore"}};
constexpr std::size_t kMaxLogLineBytes = std::size_t{1} << 20;

absl::Status WithPrefix(const std::string& prefix, const absl::Status& status) {
  absl::Status prefixed(status.code(), absl::StrCat(prefix, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) { prefixed.SetPayload(type, payload); });
  return prefixed;
}

std::string Describe(const HttpRequest& request) { return absl::StrCat(request.method, " ", request.path); }

HttpRequest Request(std::string method, std::string path) {
  HttpRequest request;
  request.method = std::move(method);
  request.path = std::move(path);
  return request;
}

Json ToJson(const DeleteOptions& options) {
  Json body = {{"apiVersion", "v1"}, {"kind", "DeleteOptions"}};
  if (!options.propagation.empty()) body["propagationPolicy"] = options.propagation;
  if (options.grace_seconds.has_value()) body["gracePeriodSeconds"] = *options.grace_seconds;
  if (!options.preconditions.uid.empty()) body["preconditions"]["uid"] = options.preconditions.uid;
  if (!options.preconditions.resource_version.empty()) {
    body["preconditions"]["resourceVersion"] = options.preconditions.resource_version;
  }
  return body;
}

}  // namespace

class Client::Impl {
 public:
  Impl(std::shared_ptr<Transport> transport, const ClientOptions& options, ClientMetrics* metrics)
      : transport_(std::move(transport)),
        options_(options),
        metrics_(metrics),
        bucket_(options.requests_per_second, options.burst),
        random_(std::random_device()()) {}

  // The response to the last try, which is a success.
  absl::StatusOr<HttpResponse> Do(const HttpRequest& request, const std::stop_token& stop = {}) {
    return UntilStopped(request, stop, [&](const std::stop_token& either) { return Try(request, either); });
  }

  // One try, whose body goes to `on_data`. `silence`: how long nothing may come; absent: as long as a request may take.
  absl::Status Stream(HttpRequest request, std::optional<absl::Duration> silence, const std::stop_token& stop,
                      const std::function<bool(std::string_view)>& on_data) {
    request.timeout = silence.value_or(options_.timeout);
    return UntilStopped(request, stop,
                        [&](const std::stop_token& either) { return transport_->Stream(request, either, on_data); })
        .status();
  }

  absl::StatusOr<Json> DoJson(const HttpRequest& request, const std::stop_token& stop = {},
                              ProtobufFields fields = {}) {
    const absl::StatusOr<HttpResponse> response = Do(request, stop);
    if (!response.ok()) return response.status();
    absl::StatusOr<Json> json = ParseBody(response->body, fields);
    if (!json.ok()) return WithPrefix(Describe(request), json.status());
    if (!json->is_object()) return absl::DataLossError(absl::StrCat(Describe(request), ": the answer is no object"));
    return json;
  }

  void Stop() { stop_.request_stop(); }

 private:
  // What `send` answers, told to stop when this client or `stop` is; everything but success is an error with the
  // request in its message.
  template <typename Send>
  absl::StatusOr<HttpResponse> UntilStopped(const HttpRequest& request, const std::stop_token& stop, const Send& send) {
    std::stop_source either;
    const auto forward = [&either] { either.request_stop(); };
    const std::stop_callback stopped(stop_.get_token(), forward);
    const std::stop_callback cancelled(stop, forward);
    absl::StatusOr<HttpResponse> response = send(either.get_token());
    if (!response.ok()) return WithPrefix(Describe(request), response.status());
    if (response->status >= 300) return WithPrefix(Describe(request), ToStatus(ReadApiError(*response)));
    return response;
  }

  absl::StatusOr<HttpResponse> Try(HttpRequest request, const std::stop_token& stop) {
    const absl::Duration deadline = MonotonicNow() + options_.timeout;
    for (int tries = 1;; ++tries) {
      if (absl::Status permit = WaitForPermit(request.method, deadline, stop); !permit.ok()) return permit;
      const absl::Duration start = MonotonicNow();
      request.timeout = deadline - start;
      absl::StatusOr<HttpResponse> response = transport_->Exchange(request, stop);
      if (metrics_ != nullptr && metrics_->on_request) {
        metrics_->on_request(request.method, response.ok() ? response->status : 0, MonotonicNow() - start);
      }
      const std::optional<absl::Duration> wait = RetryDelay(response, tries, Random());
      // A wait beyond the deadline would only replace an answer that says more.
      if (!wait.has_value() || MonotonicNow() + *wait >= deadline) return response;
      if (!SleepFor(stop, *wait)) return absl::CancelledError("stopped");
      if (metrics_ != nullptr && metrics_->on_retry) {
        metrics_->on_retry(request.method, response.ok() ? response->status : 0);
      }
    }
  }

  absl::Status WaitForPermit(const std::string& method, absl::Duration deadline, const std::stop_token& stop) {
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    std::optional<absl::Duration> wait;
    {
      absl::MutexLock lock(&mutex_);
      const absl::Duration now = MonotonicNow();
      wait = bucket_.Take(now, deadline - now);
    }
    if (!wait.has_value()) return absl::DeadlineExceededError("no permit of the rate limit in time");
    if (*wait > absl::ZeroDuration()) {
      if (!SleepFor(stop, *wait)) return absl::CancelledError("stopped");
      if (metrics_ != nullptr && metrics_->on_rate_limited) metrics_->on_rate_limited(method, *wait);
    }
    return absl::OkStatus();
  }

  double Random() {
    absl::MutexLock lock(&mutex_);
    return std::uniform_real_distribution<double>(0, 1)(random_);
  }

  const std::shared_ptr<Transport> transport_;
  const ClientOptions options_;
  ClientMetrics* const metrics_;
  std::stop_source stop_;
  absl::Mutex mutex_;
  TokenBucket bucket_ ABSL_GUARDED_BY(mutex_);
  std::mt19937 random_ ABSL_GUARDED_BY(mutex_);
};

Client::Client(std::shared_ptr<Transport> transport, ClientOptions options, ClientMetrics* metrics)
    : impl_(std::make_unique<Impl>(std::move(transport), options, metrics)) {}

Client::~Client() = default;

absl::StatusOr<Json> Client::Get(const Resource& resource, std::string_view namespace_name, std::string_view name) {
  return impl_->DoJson(Request("GET", ResourcePath(resource, namespace_name, name)));
}

absl::StatusOr<ListPage> Client::List(const Resource& resource, std::string_view namespace_name,
                                      const ListOptions& options) {
  HttpRequest request = Request("GET", ResourcePath(resource, namespace_name));
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) request.query.emplace_back(name, value);
  };
  add("labelSelector", options.label_selector);
  add("fieldSelector", options.field_selector);
  // A continuation has a version of its own; together with one the server refuses it.
  if (options.continue_token.empty()) add("resourceVersion", options.resource_version);
  if (options.limit > 0) add("limit", absl::StrCat(options.limit));
  add("continue", options.continue_token);
  if (options.metadata_only) request.accept = kMetadataListOnly;
  if (!options.fields.empty()) request.accept = kAcceptProtobuf;
  absl::StatusOr<Json> json = impl_->DoJson(request, options.stop, options.fields);
  if (!json.ok()) return json.status();

  ListPage page;
  page.resource_version = FindText(*json, {"metadata", "resourceVersion"});
  page.continue_token = FindText(*json, {"metadata", "continue"});
  const auto items = json->find("items");
  if (items == json->end() || items->is_null()) return page;
  if (!items->is_array()) return absl::DataLossError(absl::StrCat(Describe(request), ": items is no list"));
  page.items.reserve(items->size());
  for (Json& item : *items) {
    // Servers leave these out of the items of built-in lists.
    if (item.is_object()) {
      if (!item.contains("kind")) item["kind"] = resource.kind;
      if (!item.contains("apiVersion")) item["apiVersion"] = resource.ApiVersion();
    }
    page.items.push_back(std::move(item));
  }
  return page;
}

absl::StatusOr<Json> Client::Create(const Resource& resource, std::string_view namespace_name, const Json& object,
                                    const CreateOptions& options) {
  HttpRequest request = Request("POST", ResourcePath(resource, namespace_name));
  if (options.unchecked) request.query = kUnchecked;
  if (options.dry_run) request.query = {{"dryRun", "All"}, {"fieldValidation", "Strict"}};
  if (options.metadata_only) request.accept = kMetadataOnly;
  request.body = DumpJson(object);
  return impl_->DoJson(request);
}

absl::StatusOr<Json> Client::Apply(const Resource& resource, std::string_view namespace_name, std::string_view name,
                                   const Json& object, std::string_view field_manager, std::string_view subresource) {
  HttpRequest request = Request("PATCH", ResourcePath(resource, namespace_name, name, subresource));
  request.query = {{"fieldManager", std::string(field_manager)}, {"force", "true"}};
  request.content_type = kApplyPatch;
  request.body = DumpJson(object);
  return impl_->DoJson(request);
}

absl::StatusOr<Json> Client::MergePatch(const Resource& resource, std::string_view namespace_name,
                                        std::string_view name, const Json& patch, std::string_view subresource) {
  HttpRequest request = Request("PATCH", ResourcePath(resource, namespace_name, name, subresource));
  request.content_type = kMergePatch;
  request.body = DumpJson(patch);
  return impl_->DoJson(request);
}

absl::StatusOr<Json> Client::ReplaceStatus(const Resource& resource, const ObjectMeta& meta, std::string_view status) {
  HttpRequest request = Request("PUT", ResourcePath(resource, meta.namespace_name, meta.name, "status"));
  request.query = kUnchecked;
  request.accept = kMetadataOnly;
  // Of what is put there the server takes the status alone, so nothing else needs to be sent; a patch would have it
  // take the whole object apart and together again.
  const Json metadata = {{"name", meta.name},
                         {"namespace", meta.namespace_name},
                         {"uid", meta.uid},
                         {"resourceVersion", meta.resource_version}};
  request.body =
      absl::StrCat(R"({"apiVersion":)", DumpJson(resource.ApiVersion()), R"(,"kind":)", DumpJson(resource.kind),
                   R"(,"metadata":)", DumpJson(metadata), R"(,"status":)", std::string(status), "}");
  return impl_->DoJson(request);
}

absl::Status Client::Delete(const Resource& resource, std::string_view namespace_name, std::string_view name,
                            const DeleteOptions& options) {
  HttpRequest request = Request("DELETE", ResourcePath(resource, namespace_name, name));
  request.accept = kMetadataOnly;
  request.body = DumpJson(ToJson(options));
  return impl_->Do(request).status();
}

absl::Status Client::DeleteCollection(const Resource& resource, std::string_view namespace_name,
                                      std::string_view label_selector, const DeleteOptions& options) {
  HttpRequest request = Request("DELETE", ResourcePath(resource, namespace_name));
  request.query.emplace_back("labelSelector", std::string(label_selector));
  request.body = DumpJson(ToJson(options));
  return impl_->Do(request).status();
}

absl::Status Client::ReadLog(std::string_view namespace_name, std::string_view pod, const LogOptions& options,
                             const std::stop_token& stop,
                             const std::function<bool(std::string_view time, std::string_view line)>& on_line) {
  HttpRequest request = Request("GET", ResourcePath(kPods, namespace_name, pod, "log"));
  request.query.emplace_back("timestamps", "true");
  if (!options.container.empty()) request.query.emplace_back("container", options.container);
  if (options.tail_lines.has_value()) request.query.emplace_back("tailLines", absl::StrCat(*options.tail_lines));
  if (!options.since_time.empty()) request.query.emplace_back("sinceTime", options.since_time);
  if (options.follow) request.query.emplace_back("follow", "true");
  const auto pass = [&on_line](std::string_view text) {
    const std::size_t space = std::min(text.find(' '), text.size());
    if (!ParseTime(text.substr(0, space)).has_value()) return on_line("", text);
    return on_line(text.substr(0, space), text.substr(std::min(space + 1, text.size())));
  };
  std::string rest;  // of a line that is not complete yet
  bool wanted = true;
  bool too_long = false;
  absl::Status status = impl_->Stream(
      request, options.follow ? std::optional(kLogSilence) : std::nullopt, stop, [&](std::string_view piece) {
        rest += piece;
        std::size_t begin = 0;
        for (std::size_t end = 0; wanted && (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
          wanted = pass(std::string_view(rest).substr(begin, end - begin));
        }
        rest.erase(0, begin);
        too_long = rest.size() > kMaxLogLineBytes;
        return wanted && !too_long;
      });
  if (!status.ok()) return status;
  if (too_long) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Describe(request), ": a line of more than ", kMaxLogLineBytes, " bytes"));
  }
  if (wanted && !rest.empty()) pass(rest);
  return absl::OkStatus();
}

void Client::Stop() { impl_->Stop(); }

}  // namespace downpour::kube
