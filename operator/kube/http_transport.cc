#include "operator/kube/http_transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/ip/address.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ssl.hpp"
#include "cpprest/astreambuf.h"
#include "cpprest/containerstream.h"
#include "cpprest/http_client.h"
#include "cpprest/streams.h"
#include "operator/kube/json_text.h"
#include "operator/kube/wait.h"
#include "pplx/threadpool.h"

namespace downpour::kube {
namespace {

namespace http = web::http;
namespace asio = boost::asio;

constexpr std::size_t kMaxBodyBytes = kMaxJsonBytes;
// More than this waits in the socket, so that a slow reader slows the server down.
constexpr std::size_t kMaxWaitingBytes = std::size_t{1} << 20;
// What comes right after a piece of a stream is gathered for so long.
constexpr absl::Duration kGatherTime = absl::Milliseconds(20);
constexpr absl::Duration kLongestRetryAfter = absl::Hours(24);
constexpr absl::Duration kLongestDrain = absl::Seconds(1);

// How many exchanges the library has not let go of.
class OpenExchanges {
 public:
  void Begin() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  void End() {
    const std::lock_guard lock(mutex_);
    --count_;
    changed_.notify_all();
  }
  // Until none is left, but no longer than `wait`.
  void Drain(absl::Duration wait) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, DeadlineAfter(wait), [&] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// What the library's threads and the thread that asks share. The latter may leave at any time: the library learns of a
// cancellation only where it next looks, which is late while it resolves a name, say.
class Inbox {
 public:
  struct Head {
    int status = 0;
    std::optional<absl::Duration> retry_after;
  };

  explicit Inbox(std::shared_ptr<OpenExchanges> open) : open_(std::move(open)) { open_->Begin(); }
  ~Inbox() { open_->End(); }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // The library's side. The task is done when there is room for more.
  pplx::task<std::size_t> Put(const std::uint8_t* bytes, std::size_t count) {
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
  void SetHead(const Head& head) {
    const std::lock_guard lock(mutex_);
    head_ = head;
    if (head_awaited_) changed_.notify_all();
  }
  void End(absl::Status status) {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    end_ = std::move(status);
    changed_.notify_all();
  }

  // The asking side. kDeadlineExceeded, kCancelled, or how the exchange ended.
  absl::StatusOr<Head> WaitForHead(const std::stop_token& stop, absl::Duration wait) {
    std::unique_lock lock(mutex_);
    head_awaited_ = true;
    if (absl::Status status = Wait(lock, stop, wait, [&] { return head_.has_value() || ended_; }); !status.ok()) {
      return status;
    }
    if (!head_.has_value()) return end_.ok() ? absl::UnavailableError("the connection ended") : end_;
    return *head_;
  }
  // What came since, once it is `least` bytes or all that was still to come; empty: there is no more.
  absl::StatusOr<std::string> Take(const std::stop_token& stop, absl::Duration wait, std::size_t least) {
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
  // Lets more come. Why it did not, Take says.
  void Gather(const std::stop_token& stop, absl::Duration wait) {
    std::unique_lock lock(mutex_);
    WaitForBytes(lock, stop, wait, kMaxWaitingBytes).IgnoreError();
  }
  // Nobody takes anything from now on. False: it had ended.
  bool Abandon() {
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

 private:
  template <typename Ready>
  absl::Status Wait(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, absl::Duration wait,
                    const Ready& ready) {
    if (changed_.wait_until(lock, stop, DeadlineAfter(wait), ready)) {
      if (stop.stop_requested()) return absl::CancelledError("stopped");
      return absl::OkStatus();
    }
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    return absl::DeadlineExceededError("nothing came from the API server in time");
  }

  absl::Status WaitForBytes(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, absl::Duration wait,
                            std::size_t least) {
    awaited_bytes_ = least;
    return Wait(lock, stop, wait, [&] { return bytes_.size() >= least || ended_; });
  }

  // Without the lock: the continuation of the task may run at once.
  void GiveRoom() {
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

// "https://host:port/path" in pieces.
struct Server {
  bool tls = true;
  std::string host;  // without brackets
  std::string port;
  std::string path;
  std::optional<asio::ip::address> literal;  // if `host` is one

  // The library looks for a name in brackets if IPv6 addresses have any; without, it finds host and port still.
  std::string Uri() const { return absl::StrCat(tls ? "https" : "http", "://", host, ":", port, path); }
};

absl::StatusOr<Server> ParseServer(const std::string& text) {
  const auto bad = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat("address of the API server \"", text, "\": ", why));
  };
  Server server;
  std::string_view rest = text;
  if (rest.starts_with("http://")) {
    server.tls = false;
    rest.remove_prefix(7);
  } else if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
  } else {
    return bad("must begin with https:// or http://");
  }
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  server.path = std::string(rest.substr(slash));
  while (server.path.ends_with('/')) server.path.pop_back();
  rest = rest.substr(0, slash);
  std::size_t port_mark;
  if (rest.starts_with('[')) {
    const std::size_t bracket = rest.find(']');
    if (bracket == std::string_view::npos) return bad("a bracket is not closed");
    server.host = std::string(rest.substr(1, bracket - 1));
    if (bracket + 1 < rest.size() && rest[bracket + 1] != ':') return bad("expected a port behind the bracket");
    port_mark = bracket + 1;
  } else {
    port_mark = std::min(rest.find(':'), rest.size());
    server.host = std::string(rest.substr(0, port_mark));
  }
  server.port = port_mark < rest.size() ? std::string(rest.substr(port_mark + 1)) : server.tls ? "443" : "80";
  int port;
  if (server.host.empty()) return bad("has no host");
  if (!absl::SimpleAtoi(server.port, &port) || port < 1 || port > 65535) return bad("has no valid port");
  boost::system::error_code error;
  const asio::ip::address address = asio::ip::make_address(server.host, error);
  if (!error) server.literal = address;
  return server;
}

// So that a peer that vanished is noticed even where nothing is sent. A socket can be had before it connects only, and
// opened before that only if the address is known: names go without.
void KeepAlive(asio::ip::tcp::socket& socket, const std::optional<asio::ip::address>& literal) {
  boost::system::error_code ignored;
  if (!socket.is_open()) {
    if (!literal.has_value()) return;
    socket.open(literal->is_v6() ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), ignored);
  }
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  constexpr std::pair<int, int> kOptions[] = {{TCP_KEEPIDLE, 30}, {TCP_KEEPINTVL, 10}, {TCP_KEEPCNT, 3}};
  for (const auto& [option, value] : kOptions) {
    setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof(value));
  }
  // Where something was sent that nobody acknowledges, the kernel asks for much longer than anybody waits.
  constexpr unsigned kUnacknowledgedMilliseconds = 20'000;
  setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMilliseconds,
             sizeof(kUnacknowledgedMilliseconds));
}

// Where the certificates are that the system trusts, or that the user says it should.
struct SystemCertificates {
  std::string file = Find(X509_get_default_cert_file_env(), X509_get_default_cert_file());
  std::string directory = Find(X509_get_default_cert_dir_env(), X509_get_default_cert_dir());

  static const SystemCertificates& Get() {
    static const SystemCertificates found;
    return found;
  }

 private:
  static std::string Find(const char* variable, const char* usual) {
    const char* const value = std::getenv(variable);
    return value != nullptr ? value : usual;
  }
};

// Throws: the library hands that to the request.
void ConfigureTls(asio::ssl::context& context, const Credentials& credentials) {
  SSL_CTX* const native = context.native_handle();
  if (SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION) != 1) throw std::runtime_error("TLS 1.2 is not available");
  // Without one OpenSSL asks the terminal.
  context.set_password_callback([](std::size_t, asio::ssl::context::password_purpose) { return std::string(); });
  if (!credentials.certificate_authority.empty()) {
    // In place of the system's, which the library has put there.
    SSL_CTX_set_cert_store(native, X509_STORE_new());
    context.add_certificate_authority(asio::buffer(credentials.certificate_authority));
    // As other clients of Kubernetes do: what is given is trusted, be it an intermediate certificate.
    X509_STORE_set_flags(SSL_CTX_get_cert_store(native), X509_V_FLAG_PARTIAL_CHAIN);
  } else {
    // InitialiseHttp keeps the library from it. Where there is nothing, nobody is trusted, which the handshake says.
    X509_STORE_load_file(SSL_CTX_get_cert_store(native), SystemCertificates::Get().file.c_str());
    X509_STORE_load_path(SSL_CTX_get_cert_store(native), SystemCertificates::Get().directory.c_str());
    ERR_clear_error();
  }
  if (!credentials.client_certificate.empty()) {
    context.use_certificate_chain(asio::buffer(credentials.client_certificate));
    context.use_private_key(asio::buffer(credentials.client_key), asio::ssl::context::pem);
  }
}

// At the end of the process things go in the opposite order: the library's threads must end before OpenSSL cleans up,
// or what it keeps for each of them is lost.
void InitialiseOpenSsl() { OPENSSL_init_ssl(0, nullptr); }

bool SameConnection(const Credentials& a, const Credentials& b) {
  return a.certificate_authority == b.certificate_authority && a.client_certificate == b.client_certificate &&
         a.client_key == b.client_key;
}

class HttpTransport final : public Transport {
 public:
  explicit HttpTransport(std::shared_ptr<CredentialSource> credentials)
      : source_(std::move(credentials)), server_(ParseServer(source_->server())) {
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
      absl::StatusOr<Channel> channel = SharedChannel(refreshed);
      if (!channel.ok()) return channel.status();
      // Somebody may have had to log in, for which there are other limits.
      deadline += MonotonicNow() - before;
      absl::StatusOr<HttpResponse> response = ExchangeOnce(*channel, request, stop, deadline);
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
      const absl::StatusOr<Channel> channel = NewChannel(*std::move(credentials));
      if (!channel.ok()) return channel.status();
      absl::StatusOr<HttpResponse> response = StreamOnce(*channel, request, stop, on_data);
      if (refresh || !response.ok() || response->status != 401) return response;
    }
    return absl::InternalError("not reached");
  }

 private:
  struct Channel {
    Credentials credentials;
    std::shared_ptr<http::client::http_client> client;
  };

  // A request on its way. Its end gives up what has not come.
  class Call {
   public:
    Call(const HttpTransport& transport, const Channel& channel, const HttpRequest& request)
        : inbox_(std::make_shared<Inbox>(transport.open_)) {
      try {
        http::http_request message = transport.Message(channel, request);
        message.set_response_stream(concurrency::streams::ostream(concurrency::streams::streambuf<std::uint8_t>(
            std::shared_ptr<concurrency::streams::details::basic_streambuf<std::uint8_t>>(
                std::make_shared<InboxBuffer>(inbox_)))));
        channel.client->request(message, cancellation_.get_token())
            .then([inbox = inbox_](const pplx::task<http::http_response>& task) { OnHead(inbox, task); });
      } catch (const std::exception& error) {
        inbox_->End(absl::UnavailableError(error.what()));
      }
    }
    ~Call() {
      if (!inbox_->Abandon()) return;  // its connection is for the next one
      try {
        cancellation_.cancel();
      } catch (const std::exception&) {  // of the library's own callbacks, which close a socket
      }
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    Inbox* operator->() const { return inbox_.get(); }

   private:
    static void OnHead(const std::shared_ptr<Inbox>& inbox, const pplx::task<http::http_response>& task) {
      http::http_response response;
      if (absl::Status status = Outcome(task, &response); !status.ok()) return inbox->End(std::move(status));
      inbox->SetHead({response.status_code(), ReadRetryAfter(response)});
      response.content_ready().then([inbox](const pplx::task<http::http_response>& body) {
        http::http_response ignored;
        inbox->End(Outcome(body, &ignored));
      });
    }

    const std::shared_ptr<Inbox> inbox_;
    pplx::cancellation_token_source cancellation_;
  };

  absl::StatusOr<HttpResponse> ExchangeOnce(const Channel& channel, const HttpRequest& request,
                                            const std::stop_token& stop, absl::Duration deadline) {
    const Call call(*this, channel, request);
    return ReadAll(call, stop, deadline);
  }

  absl::StatusOr<HttpResponse> StreamOnce(const Channel& channel, const HttpRequest& request,
                                          const std::stop_token& stop,
                                          const std::function<bool(std::string_view)>& on_data) {
    const Call call(*this, channel, request);
    const absl::StatusOr<Inbox::Head> head = call->WaitForHead(stop, request.timeout);
    if (!head.ok()) return head.status();
    if (head->status != 200) return ReadAll(call, stop, MonotonicNow() + request.timeout);
    for (;;) {
      const absl::StatusOr<std::string> piece = call->Take(stop, request.timeout, 1);
      if (!piece.ok()) return piece.status();
      if (piece->empty() || !on_data(*piece)) break;
      // In a rush a reader that wakes up for each event costs more than what it reads. Alone, an event does not wait.
      call->Gather(stop, kGatherTime);
    }
    return HttpResponse{head->status, "", head->retry_after};
  }

  static absl::StatusOr<HttpResponse> ReadAll(const Call& call, const std::stop_token& stop, absl::Duration deadline) {
    std::string body;
    for (;;) {
      const absl::StatusOr<std::string> piece = call->Take(stop, deadline - MonotonicNow(), kMaxWaitingBytes);
      if (!piece.ok()) return piece.status();
      if (piece->empty()) break;
      if (body.size() + piece->size() > kMaxBodyBytes) {
        return absl::ResourceExhaustedError(absl::StrCat("a response of more than ", kMaxBodyBytes, " bytes"));
      }
      body += *piece;
    }
    const absl::StatusOr<Inbox::Head> head = call->WaitForHead(stop, deadline - MonotonicNow());
    if (!head.ok()) return head.status();
    return HttpResponse{head->status, std::move(body), head->retry_after};
  }

  http::http_request Message(const Channel& channel, const HttpRequest& request) const {
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
    for (const auto& [name, value] : source_->impersonation()) message.headers().add(name, value);
    // The library takes the name that the certificate must have, and the one of SNI, from this header.
    if (server_->tls && !source_->tls_server_name().empty()) {
      message.headers().add("Host", source_->tls_server_name());
    }
    if (!request.body.empty()) {
      // Of bytes: the library treats a stream of char as one of another type.
      message.set_body(concurrency::streams::bytestream::open_istream(
                           std::vector<std::uint8_t>(request.body.begin(), request.body.end())),
                       request.body.size(), request.content_type);
    }
    return message;
  }

  absl::StatusOr<Channel> NewChannel(Credentials credentials) const {
    if (!server_.ok()) return server_.status();
    try {
      http::client::http_client_config config;
      // Its timer restarts at each read and is no limit at all: the asking thread keeps the time.
      config.set_timeout(std::chrono::hours(24));
      // One would carry the token to wherever it leads.
      config.set_max_redirects(0);
      config.set_validate_certificates(!source_->insecure_skip_tls_verify());
      config.set_tlsext_sni_enabled(!server_->literal.has_value() || !source_->tls_server_name().empty());
      config.set_ssl_context_callback(
          [credentials](asio::ssl::context& context) { ConfigureTls(context, credentials); });
      if (const std::string proxy = source_->proxy(); !proxy.empty()) {
        // Without options for its sockets: the library gives them before it connects, and as something else later.
        config.set_proxy(web::web_proxy(web::uri(proxy)));
      } else {
        config.set_nativehandle_options([tls = server_->tls, literal = server_->literal](void* handle) {
          using Socket = asio::ip::tcp::socket;
          KeepAlive(
              tls ? static_cast<asio::ssl::stream<Socket&>*>(handle)->next_layer() : *static_cast<Socket*>(handle),
              literal);
        });
      }
      auto client = std::make_shared<http::client::http_client>(web::uri(server_->Uri()), config);
      return Channel{std::move(credentials), std::move(client)};
    } catch (const std::exception& error) {
      return absl::UnavailableError(error.what());
    }
  }

  // The one that exchanges share. The token is of the moment, the connections are older.
  absl::StatusOr<Channel> SharedChannel(bool refresh) {
    absl::StatusOr<Credentials> credentials = source_->Get(refresh);
    if (!credentials.ok()) return credentials.status();
    const std::lock_guard lock(mutex_);
    if (shared_.client == nullptr || !SameConnection(shared_.credentials, *credentials)) {
      absl::StatusOr<Channel> channel = NewChannel(*std::move(credentials));
      if (!channel.ok()) return channel.status();
      shared_ = *std::move(channel);
    } else {
      shared_.credentials = *std::move(credentials);
    }
    return shared_;
  }

  void Drop(const Channel& channel) {
    const std::lock_guard lock(mutex_);
    if (shared_.client == channel.client) shared_.client = nullptr;
  }

  const std::shared_ptr<CredentialSource> source_;
  const absl::StatusOr<Server> server_;
  const std::shared_ptr<OpenExchanges> open_ = std::make_shared<OpenExchanges>();
  std::mutex mutex_;
  Channel shared_;
};

}  // namespace

void InitialiseHttp(int threads) {
  InitialiseOpenSsl();
  // The library reads all certificates that the system trusts for each connection, before it asks what to trust: 30 ms
  // of a core, for nothing, as nearly all clusters have a certificate of their own.
  SystemCertificates::Get();
  setenv(X509_get_default_cert_file_env(), "/dev/null", /*overwrite=*/1);
  setenv(X509_get_default_cert_dir_env(), "/dev/null", /*overwrite=*/1);
  try {
    crossplat::threadpool::initialize_with_threads(static_cast<std::size_t>(std::max(1, threads)));
  } catch (const std::exception&) {  // somebody was first: then there are threads
  }
}

std::unique_ptr<Transport> MakeHttpTransport(std::shared_ptr<CredentialSource> credentials) {
  return std::make_unique<HttpTransport>(std::move(credentials));
}

}  // namespace downpour::kube
