#include "trainer/checkpoint/s3_client.h"

#include <curl/curl.h>
#include <openssl/evp.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <limits>
#include <mutex>
#include <optional>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "trainer/checkpoint/s3_xml.h"

namespace downpour::checkpoint {
namespace {

// An error must fit, however little of an object was asked for.
constexpr std::size_t kErrorBytes = 64 << 10;
constexpr std::size_t kMessageBytes = 300;
constexpr std::size_t kMinPartBytes = 5 << 20;
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

// As signatures want it.
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

// One line that can be printed, whatever the server sent.
std::string Printable(absl::string_view text) {
  std::string line = absl::Utf8SafeCHexEscape(text.substr(0, kMessageBytes));
  if (text.size() > kMessageBytes) line += "...";
  return line;
}

bool HasControlCharacters(absl::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

std::string Sha256Hex(absl::Span<const std::uint8_t> bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) != 1) return {};
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
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

bool IsTransient(int http_status, absl::string_view code) {
  for (const int status : {429, 500, 502, 503, 504}) {
    if (http_status == status) return true;
  }
  // Some of these come with a status that is final otherwise, or after a 200 with which the answer had begun.
  for (const absl::string_view one : {"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout",
                                      "ConditionalRequestConflict", "OperationAborted"}) {
    if (code == one) return true;
  }
  return false;
}

absl::StatusCode StatusCodeOf(int http_status, absl::string_view code, bool transient) {
  if (absl::StrContains(code, "Quota") || absl::StrContains(code, "StorageFull") || http_status == 507) {
    return absl::StatusCode::kResourceExhausted;
  }
  if (transient) return absl::StatusCode::kUnavailable;
  // Somebody has removed the unfinished upload.
  if (code == "NoSuchUpload") return absl::StatusCode::kAborted;
  if (code == "ExpiredToken" || code == "InvalidToken") return absl::StatusCode::kPermissionDenied;
  switch (http_status) {
    case 401:
    case 403:
    case 407:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 412:
      return absl::StatusCode::kFailedPrecondition;
    case 416:
      return absl::StatusCode::kOutOfRange;
    case 501:
      return absl::StatusCode::kUnimplemented;
    default:
      if (http_status >= 300 && http_status < 500) return absl::StatusCode::kInvalidArgument;
      return absl::StatusCode::kInternal;
  }
}

// Where libcurl puts what comes in.
struct Incoming {
  S3Answer* answer;
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
  S3Answer& answer = *incoming->answer;
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

double RandomFraction() {
  thread_local std::mt19937_64 generator(std::random_device{}());
  return std::uniform_real_distribution<double>(0.0, 1.0)(generator);
}

// The URL of the bucket, without a slash at its end.
absl::StatusOr<std::string> BucketUrl(const S3Options& options, const std::string& bucket) {
  if (options.endpoint.empty()) {
    const std::string host =
        absl::StrCat("s3.", options.region, ".amazonaws.com", absl::StartsWith(options.region, "cn-") ? ".cn" : "");
    // The certificate is for one label before that.
    if (absl::StrContains(bucket, '.')) return absl::StrCat("https://", host, "/", bucket);
    return absl::StrCat("https://", bucket, ".", host);
  }
  absl::string_view rest = absl::StripSuffix(options.endpoint, "/");
  const bool has_scheme = absl::ConsumePrefix(&rest, "http://") || absl::ConsumePrefix(&rest, "https://");
  // What is before '@' may be a secret: it is not shown.
  if (absl::StrContains(rest, '@')) {
    return absl::InvalidArgumentError("the S3 endpoint has a user name, expected http(s)://HOST[:PORT]");
  }
  if (!has_scheme || rest.empty() || rest.find_first_of("/?# ") != absl::string_view::npos ||
      HasControlCharacters(rest)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the S3 endpoint is \"", Printable(options.endpoint), "\", expected http(s)://HOST[:PORT]"));
  }
  return absl::StrCat(absl::StripSuffix(options.endpoint, "/"), "/", bucket);
}

}  // namespace

std::string S3Answer::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

S3Attempts::S3Attempts(const S3Options& options, absl::Duration limit)
    : options_(options), begin_(options.now()), end_(begin_ + limit) {}

absl::Duration S3Attempts::left() const { return end_ - options_.now(); }

bool S3Attempts::Again(absl::Status* failure) {
  absl::Duration most = options_.backoff_initial;
  for (int i = 0; i < failed_ && most < options_.backoff_max; ++i) most *= 2;
  ++failed_;
  const absl::Duration wait = options_.random() * std::min(most, options_.backoff_max);
  if (wait < left()) {
    options_.sleep(wait);
    if (left() > absl::ZeroDuration()) return true;
  }
  *failure = absl::Status(failure->code(), absl::StrFormat("%s; given up after %d %s in %.1f s", failure->message(),
                                                           failed_, failed_ == 1 ? "attempt" : "attempts",
                                                           absl::ToDoubleSeconds(options_.now() - begin_)));
  return false;
}

class S3Client::Impl {
 public:
  Impl(S3Options options, std::string bucket, std::string url)
      : options_(std::move(options)),
        bucket_(std::move(bucket)),
        url_(std::move(url)),
        provider_(absl::StrCat("aws:amz:", options_.region, ":s3")) {}

  const S3Options& options() const { return options_; }

  S3Answer SendOnce(const S3Request& request, const S3Attempts& attempts) {
    S3Answer answer;
    char error[CURL_ERROR_SIZE] = "";
    const CURLcode code = Perform(request, attempts.left(), answer, error);
    if (code != CURLE_OK) {
      answer.transient = IsTransient(code);
      answer.http_status = 0;
      answer.status = absl::Status(
          code == CURLE_WRITE_ERROR ? absl::StatusCode::kInternal : absl::StatusCode::kUnavailable,
          absl::StrCat(Subject(request), code == CURLE_WRITE_ERROR ? "the answer is longer than S3's can be"
                                         : error[0] != '\0'        ? Printable(error)
                                                                   : std::string(curl_easy_strerror(code))));
      return answer;
    }
    Judge(request, answer);
    return answer;
  }

 private:
  // Of error messages.
  std::string Subject(const S3Request& request) const {
    return absl::StrCat("s3://", bucket_, request.key.empty() ? "" : "/", request.key, ": ", request.method, ": ");
  }

  void Judge(const S3Request& request, S3Answer& answer) const {
    const bool success = answer.http_status >= 200 && answer.http_status < 300;
    // Completing an upload takes long: the server begins to answer before it knows how it ends.
    const bool may_hide_error = request.method == "POST";
    if (success && !may_hide_error) return;
    const std::optional<S3Error> error = ParseS3Error(answer.body);
    if (success && !error.has_value()) return;
    std::string message = absl::StrCat(Subject(request), "HTTP status ", answer.http_status);
    if (error.has_value()) {
      answer.code = error->code;
      absl::StrAppend(&message, " ", Printable(error->code), ": ", Printable(error->message));
    }
    const std::string region = answer.Header("x-amz-bucket-region");
    if (!region.empty() && region != options_.region) {
      absl::StrAppend(&message, "; the bucket is in region ", Printable(region), ", AWS_REGION is ", options_.region);
    }
    answer.transient = IsTransient(answer.http_status, answer.code);
    answer.status = absl::Status(StatusCodeOf(answer.http_status, answer.code, answer.transient), message);
  }

  CURLcode Perform(const S3Request& request, absl::Duration left, S3Answer& answer, char* error) {
    if (left <= absl::ZeroDuration()) return CURLE_OPERATION_TIMEDOUT;
    Easy easy = Take();
    if (easy == nullptr) return CURLE_FAILED_INIT;

    std::string url = url_;
    if (!request.key.empty() || options_.endpoint.empty()) absl::StrAppend(&url, "/", Encode(request.key, true));
    char mark = '?';
    for (const auto& [name, value] : request.query) {
      url += mark;
      absl::StrAppend(&url, Encode(name, false), "=", Encode(value, false));
      mark = '&';
    }
    HeaderList headers;
    for (const auto& [name, value] : request.headers) headers.Add(absl::StrCat(name, ": ", value));
    headers.Add(absl::StrCat("x-amz-content-sha256: ", Sha256Hex(request.body)));
    if (!options_.credentials.session_token.empty()) {
      headers.Add(absl::StrCat("x-amz-security-token: ", options_.credentials.session_token));
    }
    headers.Add("Expect:");  // would cost a second where the server does not know it
    const bool has_body = request.method == "PUT" || request.method == "POST";
    if (has_body) headers.Add("content-type: application/octet-stream");
    if (headers.get() == nullptr) return CURLE_OUT_OF_MEMORY;

    CURLcode code = CURLE_OK;
    const auto set = [&](CURLoption option, auto value) {
      if (code == CURLE_OK) code = curl_easy_setopt(easy.get(), option, value);
    };
    const auto milliseconds = [](absl::Duration duration) {
      return static_cast<long>(
          std::clamp<std::int64_t>(absl::ToInt64Milliseconds(duration), 1, std::numeric_limits<std::int32_t>::max()));
    };
    set(CURLOPT_ERRORBUFFER, error);
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_PATH_AS_IS, 1L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TIMEOUT_MS, milliseconds(left));
    set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds(std::min(left, options_.connect_timeout)));
    set(CURLOPT_LOW_SPEED_LIMIT, kStallBytesPerSecond);
    set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(absl::ToInt64Seconds(options_.stall_timeout))));
    if (!options_.ca_bundle.empty()) set(CURLOPT_CAINFO, options_.ca_bundle.c_str());
    set(CURLOPT_AWS_SIGV4, provider_.c_str());
    set(CURLOPT_USERNAME, options_.credentials.access_key_id.c_str());
    set(CURLOPT_PASSWORD, options_.credentials.secret_access_key.c_str());
    set(CURLOPT_USERAGENT, "downpour");
    set(CURLOPT_HTTPHEADER, headers.get());
    Incoming incoming{&answer, std::max(request.max_answer_bytes, kErrorBytes)};
    set(CURLOPT_WRITEFUNCTION, &TakeBody);
    set(CURLOPT_WRITEDATA, static_cast<void*>(&incoming));
    set(CURLOPT_HEADERFUNCTION, &TakeHeader);
    set(CURLOPT_HEADERDATA, static_cast<void*>(&incoming));
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

  const S3Options options_;
  const std::string bucket_;
  const std::string url_;
  const std::string provider_;
  std::mutex mutex_;
  std::vector<Easy> idle_;
};

absl::StatusOr<std::unique_ptr<S3Client>> S3Client::Create(S3Options options, std::string bucket) {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (initialised != CURLE_OK) {
    return absl::InternalError(absl::StrCat("libcurl: ", curl_easy_strerror(initialised)));
  }
  if (options.part_bytes < kMinPartBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("parts of ", options.part_bytes, " bytes, expected at least ", kMinPartBytes));
  }
  if (options.read_ahead_bytes == 0) return absl::InvalidArgumentError("read-ahead of 0 bytes, expected at least 1");
  if (options.region.empty() || !std::all_of(options.region.begin(), options.region.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-';
      })) {
    return absl::InvalidArgumentError(absl::StrCat("the S3 region is \"", Printable(options.region),
                                                   "\", expected letters, digits and '-', as in us-east-1"));
  }
  const S3Credentials& credentials = options.credentials;
  for (const std::string* const part :
       {&credentials.access_key_id, &credentials.secret_access_key, &credentials.session_token}) {
    if (HasControlCharacters(*part)) {
      return absl::InvalidArgumentError("the S3 credentials have control characters, expected one line each");
    }
  }
  if (credentials.access_key_id.empty() || credentials.secret_access_key.empty()) {
    return absl::InvalidArgumentError("no credentials for S3");
  }
  if (!options.now) {
    options.now = [] { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); };
  }
  if (!options.sleep) options.sleep = [](absl::Duration duration) { absl::SleepFor(duration); };
  if (!options.random) options.random = RandomFraction;
  absl::StatusOr<std::string> url = BucketUrl(options, bucket);
  if (!url.ok()) return url.status();
  return std::unique_ptr<S3Client>(
      new S3Client(std::make_unique<Impl>(std::move(options), std::move(bucket), *std::move(url))));
}

S3Client::S3Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
S3Client::~S3Client() = default;

const S3Options& S3Client::options() const { return impl_->options(); }

S3Answer S3Client::SendOnce(const S3Request& request, const S3Attempts& attempts) {
  return impl_->SendOnce(request, attempts);
}

S3Answer S3Client::Send(const S3Request& request, S3Attempts& attempts) {
  for (;;) {
    S3Answer answer = SendOnce(request, attempts);
    if (!answer.transient || !attempts.Again(&answer.status)) return answer;
  }
}

}  // namespace downpour::checkpoint
