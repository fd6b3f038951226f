#include "trainer/checkpoint/s3_client.h"

#include <openssl/evp.h>

#include <algorithm>
#include <chrono>
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
#include "trainer/http/http_client.h"

namespace downpour::checkpoint {
namespace {

// An error must fit, however little of an object was asked for.
constexpr std::size_t kErrorBytes = 64 << 10;
constexpr std::size_t kMinPartBytes = 5 << 20;

using http::Encode;
using http::HasControlCharacters;
using http::Printable;

std::string Sha256Hex(absl::Span<const std::uint8_t> bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) != 1) return {};
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
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
  Impl(S3Options options, std::string bucket, std::string url, std::unique_ptr<http::Client> client)
      : options_(std::move(options)),
        bucket_(std::move(bucket)),
        url_(std::move(url)),
        signature_{absl::StrCat("aws:amz:", options_.region, ":s3"), options_.credentials.access_key_id,
                   options_.credentials.secret_access_key},
        client_(std::move(client)) {}

  const S3Options& options() const { return options_; }

  S3Answer SendOnce(const S3Request& request, const S3Attempts& attempts) {
    http::Answer answer = client_->Send(HttpRequest(request), attempts.left());
    S3Answer taken;
    taken.http_status = answer.http_status;
    taken.headers = std::move(answer.headers);
    taken.body = std::move(answer.body);
    if (answer.status.ok()) {
      Judge(request, taken);
    } else {
      taken.transient = answer.transient;
      taken.status = absl::Status(answer.status.code(), absl::StrCat(Subject(request), answer.status.message()));
    }
    return taken;
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

  http::Request HttpRequest(const S3Request& request) const {
    http::Request sent;
    sent.method = request.method;
    sent.url = url_;
    if (!request.key.empty() || options_.endpoint.empty()) absl::StrAppend(&sent.url, "/", Encode(request.key, true));
    char mark = '?';
    for (const auto& [name, value] : request.query) {
      sent.url += mark;
      absl::StrAppend(&sent.url, Encode(name, false), "=", Encode(value, false));
      mark = '&';
    }
    sent.headers = request.headers;
    sent.headers.emplace_back("x-amz-content-sha256", Sha256Hex(request.body));
    if (!options_.credentials.session_token.empty()) {
      sent.headers.emplace_back("x-amz-security-token", options_.credentials.session_token);
    }
    if (request.method == "PUT" || request.method == "POST") {
      sent.headers.emplace_back("content-type", "application/octet-stream");
    }
    sent.body = request.body;
    sent.max_answer_bytes = std::max(request.max_answer_bytes, kErrorBytes);
    sent.signature = &signature_;
    return sent;
  }

  const S3Options options_;
  const std::string bucket_;
  const std::string url_;
  const http::Signature signature_;
  const std::unique_ptr<http::Client> client_;
};

absl::StatusOr<std::unique_ptr<S3Client>> S3Client::Create(S3Options options, std::string bucket) {
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
  absl::StatusOr<std::unique_ptr<http::Client>> client =
      http::Client::Create({options.ca_bundle, options.connect_timeout, options.stall_timeout});
  if (!client.ok()) return client.status();
  return std::unique_ptr<S3Client>(
      new S3Client(std::make_unique<Impl>(std::move(options), std::move(bucket), *std::move(url), *std::move(client))));
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
