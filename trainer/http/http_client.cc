#include "trainer/http/http_client.h"

#include <curl/curl.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <limits>
#include <mutex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace downpour::http {
namespace {

constexpr std::size_t kMessageBytes = 300;
constexpr long kStallBytesPerSecond = 1024;

// libcurl, told not to touch signals as there are threads, leaves SIGPIPE to us: OpenSSL writes to connections that the
// server has closed.
class PipeSignalBlocked {
 public:
  PipeSignalBlocked() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~PipeSignalBlocked() {
    if (!was_pending_) {
      const timespec at_once{};
      while (sigtimedwait(&pipe_, nullptr, &at_once) == SIGPIPE) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  PipeSignalBlocked(const PipeSignalBlocked&) = delete;
  PipeSignalBlocked& operator=(const PipeSignalBlocked&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_;
};

int IsCancelled(void* request, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const Request*>(request)->cancelled() ? 1 : 0;
}

bool IsTransient(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PROXY:
      return true;
    default:
      return false;
  }
}

// Where libcurl puts what comes in.
struct Incoming {
  Answer* answer;
  std::size_t max_bytes;
  bool has_all_headers = false;
};

std::size_t TakeBody(char* bytes, std::size_t, std::size_t size, void* to) {
  const auto* const incoming = static_cast<Incoming*>(to);
  if (incoming->answer->body.size() + size > incoming->max_bytes) return 0;
  incoming->answer->body.append(bytes, size);
  return size;
}

std::size_t TakeHeader(char* bytes, std::size_t, std::size_t size, void* to) {
  auto* const incoming = static_cast<Incoming*>(to);
  Answer& answer = *incoming->answer;
  const absl::string_view line(bytes, size);
  if (absl::StartsWith(line, "HTTP/")) {
    answer.headers.clear();  // a proxy's answer, or "100 Continue", came before
    incoming->has_all_headers = false;
  }
  if (absl::StripAsciiWhitespace(line).empty()) incoming->has_all_headers = true;
  if (const std::size_t colon = line.find(':'); colon != absl::string_view::npos) {
    answer.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return size;
}

struct EasyDeleter {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
using Easy = std::unique_ptr<CURL, EasyDeleter>;

// A list of headers for libcurl.
class HeaderList {
 public:
  ~HeaderList() { curl_slist_free_all(list_); }
  HeaderList() = default;
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  void Add(const std::string& line) {
    curl_slist* const longer = curl_slist_append(list_, line.c_str());
    complete_ = complete_ && longer != nullptr;
    if (longer != nullptr) list_ = longer;
  }
  // Null: no memory.
  curl_slist* get() const { return complete_ ? list_ : nullptr; }

 private:
  curl_slist* list_ = nullptr;
  bool complete_ = true;
};

}  // namespace

std::string Answer::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

std::string Encode(absl::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-_.~", c) ||
        (keep_slashes && c == '/')) {
      encoded += c;
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

std::string Printable(absl::string_view text) {
  std::string line = absl::Utf8SafeCHexEscape(text.substr(0, kMessageBytes));
  if (text.size() > kMessageBytes) line += "...";
  return line;
}

bool HasControlCharacters(absl::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

class Client::Impl {
 public:
  explicit Impl(ClientOptions options) : options_(std::move(options)) {}

  Answer Send(const Request& request, absl::Duration limit) {
    Answer answer;
    char error[CURL_ERROR_SIZE] = "";
    const CURLcode code = Perform(request, limit, answer, error);
    if (code == CURLE_OK) return answer;
    answer.transient = IsTransient(code);
    answer.http_status = 0;
    if (code == CURLE_WRITE_ERROR) {
      answer.status =
          absl::InternalError(absl::StrCat("the answer is longer than ", request.max_answer_bytes, " bytes"));
    } else {
      answer.status = absl::UnavailableError(error[0] != '\0' ? Printable(error) : curl_easy_strerror(code));
    }
    return answer;
  }

 private:
  CURLcode Perform(const Request& request, absl::Duration limit, Answer& answer, char* error) {
    if (limit <= absl::ZeroDuration()) return CURLE_OPERATION_TIMEDOUT;
    Easy easy = Take();
    if (easy == nullptr) return CURLE_FAILED_INIT;

    HeaderList headers;
    for (const auto& [name, value] : request.headers) headers.Add(absl::StrCat(name, ": ", value));
    headers.Add("Expect:");  // would cost a second where the server does not know it
    if (headers.get() == nullptr) return CURLE_OUT_OF_MEMORY;
    const bool has_body = request.method == "PUT" || request.method == "POST";

    CURLcode code = CURLE_OK;
    const auto set = [&](CURLoption option, auto value) {
      if (code == CURLE_OK) code = curl_easy_setopt(easy.get(), option, value);
    };
    const auto milliseconds = [](absl::Duration duration) {
      return static_cast<long>(
          std::clamp<std::int64_t>(absl::ToInt64Milliseconds(duration), 1, std::numeric_limits<std::int32_t>::max()));
    };
    set(CURLOPT_ERRORBUFFER, error);
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_PATH_AS_IS, 1L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TIMEOUT_MS, milliseconds(limit));
    set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds(std::min(limit, options_.connect_timeout)));
    set(CURLOPT_LOW_SPEED_LIMIT, kStallBytesPerSecond);
    set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(absl::ToInt64Seconds(options_.stall_timeout))));
    if (!options_.ca_bundle.empty()) set(CURLOPT_CAINFO, options_.ca_bundle.c_str());
    if (request.signature != nullptr) {
      set(CURLOPT_AWS_SIGV4, request.signature->provider.c_str());
      set(CURLOPT_USERNAME, request.signature->access_key_id.c_str());
      set(CURLOPT_PASSWORD, request.signature->secret_access_key.c_str());
    }
    set(CURLOPT_USERAGENT, "downpour");
    set(CURLOPT_HTTPHEADER, headers.get());
    Incoming incoming{&answer, request.max_answer_bytes};
    set(CURLOPT_WRITEFUNCTION, &TakeBody);
    set(CURLOPT_WRITEDATA, static_cast<void*>(&incoming));
    set(CURLOPT_HEADERFUNCTION, &TakeHeader);
    set(CURLOPT_HEADERDATA, static_cast<void*>(&incoming));
    if (request.cancelled) {
      set(CURLOPT_NOPROGRESS, 0L);
      set(CURLOPT_XFERINFOFUNCTION, &IsCancelled);
      set(CURLOPT_XFERINFODATA, static_cast<void*>(const_cast<Request*>(&request)));
    }
    if (request.method == "HEAD") {
      set(CURLOPT_NOBODY, 1L);
    } else {
      set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
    if (has_body) {
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
      set(CURLOPT_POSTFIELDS, request.body.empty() ? "" : reinterpret_cast<const char*>(request.body.data()));
    }
    if (code == CURLE_OK) {
      const PipeSignalBlocked blocked;
      code = curl_easy_perform(easy.get());
    }
    // libcurl is content with a connection that ends amid the headers.
    if (code == CURLE_OK && !incoming.has_all_headers) code = CURLE_GOT_NOTHING;
    long http_status = 0;
    if (code == CURLE_OK) code = curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &http_status);
    answer.http_status = static_cast<int>(http_status);
    GiveBack(std::move(easy));
    return code;
  }

  // One that nobody else uses, with its connection; null: it cannot be made.
  Easy Take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return Easy(curl_easy_init());
    Easy easy = std::move(idle_.back());
    idle_.pop_back();
    return easy;
  }

  void GiveBack(Easy easy) {
    curl_easy_reset(easy.get());
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(easy));
  }

  const ClientOptions options_;
  std::mutex mutex_;
  std::vector<Easy> idle_;
};

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (initialised != CURLE_OK) {
    return absl::InternalError(absl::StrCat("libcurl: ", curl_easy_strerror(initialised)));
  }
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(std::move(options))));
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

Answer Client::Send(const Request& request, absl::Duration limit) { return impl_->Send(request, limit); }

}  // namespace downpour::http
