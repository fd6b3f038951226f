#include "trainer/service/http_server.h"

#include <chrono>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ip/v6_only.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/beast/core.hpp"
#include "boost/beast/http.hpp"
#include "boost/system/system_error.hpp"
#include "proto/host_port.h"

namespace downpour::service {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr std::chrono::seconds kTimeLimit(5);  // of a request, and of its answer
constexpr std::chrono::milliseconds kAcceptRetry(100);

// One connection; lives as long as it is waited for.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Tcp::socket socket, const HttpServer::Handlers& handlers) : stream_(std::move(socket)), handlers_(handlers) {}

  void Run() {
    stream_.expires_after(kTimeLimit);
    http::async_read(stream_, buffer_, request_, [self = shared_from_this()](const error_code& error, std::size_t) {
      if (!error) self->Respond();
    });
  }

 private:
  void Respond() {
    HttpServer::Answer answer = Answer();
    response_.version(request_.version());
    response_.result(static_cast<unsigned>(answer.status));
    response_.set(http::field::content_type, answer.content_type);
    response_.keep_alive(false);
    response_.body() = std::move(answer.body);
    response_.prepare_payload();
    stream_.expires_after(kTimeLimit);
    http::async_write(stream_, response_, [self = shared_from_this()](const error_code&, std::size_t) {
      error_code ignored;
      self->stream_.socket().shutdown(Tcp::socket::shutdown_send, ignored);
    });
  }

  HttpServer::Answer Answer() const {
    if (request_.method() != http::verb::get) return {405, "text/plain", "only GET is answered\n"};
    const std::string target(request_.target());
    const auto handler = handlers_.find(target.substr(0, target.find('?')));
    if (handler == handlers_.end()) return {404, "text/plain", "there is nothing here\n"};
    try {
      return handler->second();
    } catch (const std::exception& error) {
      return {500, "text/plain", absl::StrCat(error.what(), "\n")};
    }
  }

  beast::tcp_stream stream_;
  const HttpServer::Handlers& handlers_;
  beast::flat_buffer buffer_;
  http::request<http::empty_body> request_;
  http::response<http::string_body> response_;
};

}  // namespace

class HttpServer::Impl {
 public:
  explicit Impl(Handlers handlers) : handlers_(std::move(handlers)) {}
  ~Impl() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen(const HostPort& address) {
    error_code error;
    const bool all = address.host == "::";
    const auto port = static_cast<unsigned short>(address.port);
    Tcp::endpoint endpoint(Tcp::v6(), port);
    if (!all) {
      const auto found = Tcp::resolver(context_).resolve(address.host, absl::StrCat(address.port), error);
      if (error) return absl::UnavailableError(error.message());
      endpoint = *found.begin();
    }
    acceptor_.open(endpoint.protocol(), error);
    if (all && error == asio::error::address_family_not_supported) {
      endpoint = Tcp::endpoint(Tcp::v4(), port);
      acceptor_.open(endpoint.protocol(), error);
    }
    if (!error) acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
    if (!error && all && endpoint.protocol() == Tcp::v6()) acceptor_.set_option(asio::ip::v6_only(false), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return absl::UnavailableError(error.message());
    address_ = JoinHostPort(address.host, acceptor_.local_endpoint().port());
    Accept();
    try {
      thread_ = std::thread([this] { context_.run(); });
    } catch (const std::system_error& lack) {
      return absl::ResourceExhaustedError(absl::StrCat("a thread cannot be started: ", lack.what()));
    }
    return absl::OkStatus();
  }

  const std::string& address() const { return address_; }

 private:
  void Accept() {
    acceptor_.async_accept([this](const error_code& error, Tcp::socket socket) {
      if (!error) {
        std::make_shared<Session>(std::move(socket), handlers_)->Run();
        Accept();
        return;
      }
      // Out of descriptors, say.
      retry_.expires_after(kAcceptRetry);
      retry_.async_wait([this](const error_code&) { Accept(); });
    });
  }

  const Handlers handlers_;
  std::string address_;
  asio::io_context context_{1};
  Tcp::acceptor acceptor_{context_};
  asio::steady_timer retry_{context_};
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen, Handlers handlers) {
  const absl::StatusOr<HostPort> address = SplitHostPort(listen);
  if (!address.ok()) return address.status();
  try {
    auto impl = std::make_unique<Impl>(std::move(handlers));
    const absl::Status listens = impl->Listen(*address);
    if (listens.ok()) return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
    if (!absl::IsUnavailable(listens)) return listens;
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", listen, ": is the port in use? (", listens.message(), ")"));
  } catch (const boost::system::system_error& error) {  // out of descriptors, say
    return absl::UnavailableError(absl::StrCat("cannot listen on ", listen, ": ", error.what()));
  }
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
const std::string& HttpServer::address() const { return impl_->address(); }

}  // namespace downpour::service
