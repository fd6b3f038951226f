#include "operator/kube/http_transport.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "boost/system/system_error.hpp"
#include "operator/kube/http/call.h"
#include "operator/kube/http/channel.h"
#include "operator/kube/http/inbox.h"
#include "operator/kube/http/server_address.h"
#include "operator/kube/http/tls.h"
#include "operator/kube/wait.h"
#include "pplx/threadpool.h"

namespace downpour::kube {
namespace {

constexpr absl::Duration kLongestDrain = absl::Seconds(1);

class HttpTransport final : public Transport {
 public:
  explicit HttpTransport(std::shared_ptr<CredentialSource> credentials)
      : source_(std::move(credentials)), server_(ParseServerAddress(source_->server())) {
    InitialiseOpenSsl();
  }
  // What was cancelled the library closes on its own threads, and those may end with the process right after this. One
  // that does not heed yet (it resolves a name, say) is left to itself.
  ~HttpTransport() override { open_->Drain(kLongestDrain); }
  HttpTransport(const HttpTransport&) = delete;
  HttpTransport& operator=(const HttpTransport&) = delete;

  absl::StatusOr<HttpResponse> Exchange(const HttpRequest& request, std::stop_token stop) override {
    absl::Duration deadline = MonotonicNow() + request.timeout;
    bool refreshed = false;
    bool renewed = false;
    for (;;) {
      const absl::Duration before = MonotonicNow();
      absl::StatusOr<HttpChannel> channel = SharedChannel(refreshed);
      if (!channel.ok()) return channel.status();
      // Somebody may have had to log in, for which there are other limits.
      deadline += MonotonicNow() - before;
      absl::StatusOr<HttpResponse> response = HttpCall(*channel, request, open_).Read(stop, deadline);
      if (response.ok() && response->status == 401 && !refreshed) {
        refreshed = true;
        Drop(*channel);
      } else if (absl::IsUnavailable(response.status()) && !renewed) {
        // Every idle connection of the client may be as dead as this one. A second try may find the first one done:
        // names are deterministic and writes conditional.
        renewed = true;
        Drop(*channel);
      } else {
        // What did not answer in time may be dead too, and the next request should not find that out again.
        if (absl::IsDeadlineExceeded(response.status())) Drop(*channel);
        return response;
      }
    }
  }

  absl::StatusOr<HttpResponse> Stream(const HttpRequest& request, std::stop_token stop,
                                      const std::function<bool(std::string_view)>& on_data) override {
    for (const bool refresh : {false, true}) {
      absl::StatusOr<Credentials> credentials = source_->Get(refresh);
      if (!credentials.ok()) return credentials.status();
      // A client of its own: nothing idle, and gone with the stream.
      const absl::StatusOr<HttpChannel> channel = NewChannel(*std::move(credentials));
      if (!channel.ok()) return channel.status();
      absl::StatusOr<HttpResponse> response =
          HttpCall(*channel, request, open_).ReadStream(stop, request.timeout, on_data);
      if (refresh || !response.ok() || response->status != 401) return response;
    }
    return absl::InternalError("not reached");
  }

 private:
  absl::StatusOr<HttpChannel> NewChannel(Credentials credentials) const {
    if (!server_.ok()) return server_.status();
    return OpenChannel(*source_, *server_, std::move(credentials));
  }

  // The one that exchanges share. The token is of the moment, the connections are older.
  absl::StatusOr<HttpChannel> SharedChannel(bool refresh) {
    absl::StatusOr<Credentials> credentials = source_->Get(refresh);
    if (!credentials.ok()) return credentials.status();
    const std::lock_guard lock(mutex_);
    if (shared_.client == nullptr || !SameConnection(shared_.credentials, *credentials)) {
      absl::StatusOr<HttpChannel> channel = NewChannel(*std::move(credentials));
      if (!channel.ok()) return channel.status();
      shared_ = *std::move(channel);
    } else {
      shared_.credentials = *std::move(credentials);
    }
    return shared_;
  }

  void Drop(const HttpChannel& channel) {
    const std::lock_guard lock(mutex_);
    if (shared_.client == channel.client) shared_.client = nullptr;
  }

  const std::shared_ptr<CredentialSource> source_;
  const absl::StatusOr<ServerAddress> server_;
  const std::shared_ptr<OpenExchanges> open_ = std::make_shared<OpenExchanges>();
  std::mutex mutex_;
  HttpChannel shared_;
};

}  // namespace

absl::Status InitialiseHttp(int threads) {
  InitialiseOpenSsl();
  HideSystemCertificates();
  try {
    crossplat::threadpool::initialize_with_threads(static_cast<std::size_t>(std::max(1, threads)));
  } catch (const boost::system::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the threads for HTTP: cannot be started: ", error.code().message()));
  } catch (const std::exception&) {  // somebody was first: then there are threads
  }
  return absl::OkStatus();
}

std::unique_ptr<Transport> MakeHttpTransport(std::shared_ptr<CredentialSource> credentials) {
  return std::make_unique<HttpTransport>(std::move(credentials));
}

}  // namespace downpour::kube
