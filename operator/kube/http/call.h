#ifndef DOWNPOUR_OPERATOR_KUBE_HTTP_CALL_H_
#define DOWNPOUR_OPERATOR_KUBE_HTTP_CALL_H_

#include <functional>
#include <memory>
#include <stop_token>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "operator/kube/http/channel.h"
#include "operator/kube/http/inbox.h"
#include "operator/kube/transport.h"
#include "pplx/pplxcancellation_token.h"

namespace downpour::kube {

// A request on its way. Its end gives up what has not come. One thread reads it, once.
class HttpCall {
 public:
  HttpCall(const HttpChannel& channel, const HttpRequest& request, std::shared_ptr<OpenExchanges> open);
  ~HttpCall();
  HttpCall(const HttpCall&) = delete;
  HttpCall& operator=(const HttpCall&) = delete;

  // The whole response, by `deadline` of MonotonicNow(). Errors are those of Transport::Exchange.
  absl::StatusOr<HttpResponse> Read(const std::stop_token& stop, absl::Duration deadline) const;
  // As Transport::Stream; `timeout` is that of the request.
  absl::StatusOr<HttpResponse> ReadStream(const std::stop_token& stop, absl::Duration timeout,
                                          const std::function<bool(std::string_view)>& on_data) const;

 private:
  const std::shared_ptr<Inbox> inbox_;
  pplx::cancellation_token_source cancellation_;
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_HTTP_CALL_H_
