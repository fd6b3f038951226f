#include "operator/kube/http/call.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cpprest/containerstream.h"
#include "cpprest/http_client.h"
#include "operator/kube/json_text.h"
#include "operator/kube/wait.h"

namespace downpour::kube {
namespace {

namespace http = web::http;

constexpr std::size_t kMaxBodyBytes = kMaxJsonBytes;
// What comes right after a piece of a stream is gathered for so long.
constexpr absl::Duration kGatherTime = absl::Milliseconds(20);
constexpr absl::Duration kLongestRetryAfter = absl::Hours(24);

// How a task ended; it must be done. Observes its exception, which would end the process otherwise.
template <typename T>
absl::Status Outcome(const pplx::task<T>& task, T* value) {
  try {
    *value = task.get();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::UnavailableError(error.what());
  } catch (...) {
    return absl::UnavailableError("an unknown exception of the HTTP library");
  }
}

std::optional<absl::Duration> ReadRetryAfter(const http::http_response& response) {
  const auto header = response.headers().find("Retry-After");
  std::int64_t seconds;
  // The other form, a date, is none that API servers write.
  if (header == response.headers().end() || !absl::SimpleAtoi(header->second, &seconds) || seconds < 0) {
    return std::nullopt;
  }
  return std::min(absl::Seconds(seconds), kLongestRetryAfter);
}

void OnHead(const std::shared_ptr<Inbox>& inbox, const pplx::task<http::http_response>& task) {
  http::http_response response;
  if (absl::Status status = Outcome(task, &response); !status.ok()) return inbox->End(std::move(status));
  inbox->SetHead({response.status_code(), ReadRetryAfter(response)});
  response.content_ready().then([inbox](const pplx::task<http::http_response>& body) {
    http::http_response ignored;
    inbox->End(Outcome(body, &ignored));
  });
}

http::http_request MakeMessage(const HttpChannel& channel, const HttpRequest& request) {
  http::http_request message(request.method);
  std::string target = request.path;
  char mark = '?';
  for (const auto& [name, value] : request.query) {
    absl::StrAppend(&target, std::string(1, mark), web::uri::encode_data_string(name), "=",
                    web::uri::encode_data_string(value));
    mark = '&';
  }
  message.set_request_uri(web::uri(target));
  message.headers().add("Accept", request.accept);
  message.headers().add("User-Agent", "downpour");
  if (!channel.credentials.token.empty()) {
    message.headers().add("Authorization", "Bearer " + channel.credentials.token);
  }
  for (const auto& [name, value] : channel.headers) message.headers().add(name, value);
  if (!request.body.empty()) {
    // Of bytes: the library treats a stream of char as one of another type.
    message.set_body(concurrency::streams::bytestream::open_istream(
                         std::vector<std::uint8_t>(request.body.begin(), request.body.end())),
                     request.body.size(), request.content_type);
  }
  return message;
}

}  // namespace

HttpCall::HttpCall(const HttpChannel& channel, const HttpRequest& request, std::shared_ptr<OpenExchanges> open)
    : inbox_(std::make_shared<Inbox>(std::move(open))) {
  try {
    http::http_request message = MakeMessage(channel, request);
    message.set_response_stream(InboxStream(inbox_));
    channel.client->request(message, cancellation_.get_token())
        .then([inbox = inbox_](const pplx::task<http::http_response>& task) { OnHead(inbox, task); });
  } catch (const std::exception& error) {
    inbox_->End(absl::UnavailableError(error.what()));
  }
}

HttpCall::~HttpCall() {
  if (!inbox_->Abandon()) return;  // its connection is for the next one
  try {
    cancellation_.cancel();
  } catch (const std::exception&) {  // of the library's own callbacks, which close a socket
  }
}

absl::StatusOr<HttpResponse> HttpCall::Read(const std::stop_token& stop, absl::Duration deadline) const {
  std::string body;
  for (;;) {
    const absl::StatusOr<std::string> piece = inbox_->Take(stop, deadline - MonotonicNow(), Inbox::kMaxWaitingBytes);
    if (!piece.ok()) return piece.status();
    if (piece->empty()) break;
    if (body.size() + piece->size() > kMaxBodyBytes) {
      return absl::ResourceExhaustedError(absl::StrCat("a response of more than ", kMaxBodyBytes, " bytes"));
    }
    body += *piece;
  }
  const absl::StatusOr<Inbox::Head> head = inbox_->WaitForHead(stop, deadline - MonotonicNow());
  if (!head.ok()) return head.status();
  return HttpResponse{head->status, std::move(body), head->retry_after};
}

absl::StatusOr<HttpResponse> HttpCall::ReadStream(const std::stop_token& stop, absl::Duration timeout,
                                                  const std::function<bool(std::string_view)>& on_data) const {
  const absl::StatusOr<Inbox::Head> head = inbox_->WaitForHead(stop, timeout);
  if (!head.ok()) return head.status();
  if (head->status != 200) return Read(stop, MonotonicNow() + timeout);
  for (;;) {
    const absl::StatusOr<std::string> piece = inbox_->Take(stop, timeout, 1);
    if (!piece.ok()) return piece.status();
    if (piece->empty() || !on_data(*piece)) break;
    // In a rush a reader that wakes up for each event costs more than what it reads. Alone, an event does not wait.
    inbox_->Gather(stop, kGatherTime);
  }
  return HttpResponse{head->status, "", head->retry_after};
}

}  // namespace downpour::kube
