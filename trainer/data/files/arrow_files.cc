#include "trainer/data/files/arrow_files.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/util/future.h>
#include <arrow/util/io_util.h>
#include <arrow/util/thread_pool.h>
#include <arrow/util/uri.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace downpour::data {
namespace {

constexpr int kThreads = 16;
constexpr std::size_t kMessageBytes = 500;

// The parts of SCHEME://[USER[:PASSWORD]@]HOST[/PATH][?QUERY], as they stand there.
struct Uri {
  std::string scheme;
  std::string user;  // with the password
  std::string host;
  std::string path;  // without slashes at its ends
  std::string query;

  bool is_azure() const { return scheme == "abfs" || scheme == "abfss"; }
  // SCHEME://HOST, for people and as the beginning of paths. Azure has the container where others have the user.
  std::string Root() const {
    const std::string container = is_azure() ? user.substr(0, user.find(':')) : "";
    return absl::StrCat(scheme, "://", container, container.empty() ? "" : "@", host);
  }
  std::string Shown() const { return path.empty() ? Root() : absl::StrCat(Root(), "/", path); }
};

bool IsKnown(absl::string_view scheme) {
  for (const absl::string_view known : {"s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs"}) {
    if (scheme == known) return true;
  }
  return false;
}

// Nothing: the text is no such URI.
absl::StatusOr<Uri> ParseUri(absl::string_view text) {
  Uri uri;
  const std::size_t colon = text.find("://");
  if (colon != absl::string_view::npos) uri.scheme = absl::AsciiStrToLower(text.substr(0, colon));
  if (!IsKnown(uri.scheme)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("got a path with the scheme '%s', expected s3://, gs://, abfs:// "
                        "or hdfs://",
                        uri.scheme));
  }
  text.remove_prefix(colon + 3);
  if (const std::size_t question = text.find('?'); question != absl::string_view::npos) {
    uri.query = std::string(text.substr(question + 1));
    text = text.substr(0, question);
  }
  absl::string_view authority = text.substr(0, text.find('/'));
  absl::string_view path = text.substr(authority.size());
  while (absl::ConsumePrefix(&path, "/")) {
  }
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  uri.path = std::string(path);
  if (const std::size_t at = authority.rfind('@'); at != absl::string_view::npos) {
    uri.user = std::string(authority.substr(0, at));
    authority.remove_prefix(at + 1);
  }
  uri.host = std::string(authority);
  if (uri.host.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(uri.Shown(), ": no bucket or host, expected ", uri.scheme, "://NAME/..."));
  }
  return uri;
}

// The first that is set and not empty. Secrets that were made from a file often end with a newline.
std::string FromEnvironment(std::initializer_list<const char*> variables) {
  for (const char* const variable : variables) {
    const char* const value = std::getenv(variable);
    if (value == nullptr) continue;
    std::string text(absl::StripAsciiWhitespace(value));
    if (!text.empty()) return text;
  }
  return {};
}

// What no message shows.
class Secrets {
 public:
  void Add(const std::string& secret) {
    if (!secret.empty()) secrets_.push_back(secret);
  }
  void AddAllOf(const Uri& uri) {
    const std::size_t colon = uri.user.find(':');
    if (!uri.is_azure()) Add(uri.user);
    if (colon != std::string::npos) {
      const std::string password = uri.user.substr(colon + 1);
      Add(password);
      Add(arrow::util::UriUnescape(password));
    }
    Add(uri.query);
    std::size_t begin = 0;
    while (begin < uri.query.size()) {
      const std::size_t end = std::min(uri.query.find('&', begin), uri.query.size());
      const std::string item = uri.query.substr(begin, end - begin);
      const std::size_t equals = item.find('=');
      // Others are words such as "true", which would leave holes in messages.
      for (const char* const name : {"secret", "sig", "key", "token", "password"}) {
        if (equals == std::string::npos || !absl::StrContains(item.substr(0, equals), name)) continue;
        Add(item.substr(equals + 1));
        Add(arrow::util::UriUnescape(item.substr(equals + 1)));
      }
      begin = end + 1;
    }
  }
  std::string Hide(std::string text) const {
    for (const std::string& secret : secrets_) text = absl::StrReplaceAll(text, {{secret, "***"}});
    return text;
  }

 private:
  std::vector<std::string> secrets_;
};

bool HasAny(const std::string& text, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const char* part) { return absl::StrContains(text, part); });
}

// Arrow has one code for all that a server may say: the rest is in the text. Amazon's, Google's and Azure's words.
absl::StatusCode CodeOf(const arrow::Status& status, const std::string& text) {
  const int error = arrow::internal::ErrnoFromStatus(status);
  if (error == ENOENT || error == ENOTDIR) return absl::StatusCode::kNotFound;
  if (error == EACCES || error == EPERM) return absl::StatusCode::kPermissionDenied;
  if (status.IsInvalid() || status.IsTypeError() || status.IsKeyError()) return absl::StatusCode::kInvalidArgument;
  if (status.IsNotImplemented()) return absl::StatusCode::kUnimplemented;
  if (status.IsOutOfMemory()) return absl::StatusCode::kResourceExhausted;
  if (HasAny(text, {"ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "INVALID_SIGNATURE",
                    "MISSING_AUTHENTICATION_TOKEN", "INVALID_CLIENT_TOKEN_ID", "UNRECOGNIZED_CLIENT", "ExpiredToken",
                    "token has expired", "HTTP status 401", "HTTP status 403", "PERMISSION_DENIED", "UNAUTHENTICATED",
                    "] 401 ", "] 403 "})) {
    return absl::StatusCode::kPermissionDenied;
  }
  if (HasAny(text, {"NO_SUCH_KEY", "NO_SUCH_BUCKET", "RESOURCE_NOT_FOUND", "HTTP status 404", "NOT_FOUND", "] 404 "})) {
    return absl::StatusCode::kNotFound;
  }
  if (HasAny(text, {"HTTP status 400", "HTTP status 301", "INVALID_ARGUMENT"})) {
    return absl::StatusCode::kInvalidArgument;
  }
  if (HasAny(text, {"libjvm", "libhdfs"})) return absl::StatusCode::kFailedPrecondition;
  return absl::StatusCode::kUnavailable;
}

absl::Status ToStatus(const std::string& about, const Secrets& secrets, const arrow::Status& status) {
  std::string text = status.message();
  if (status.detail() != nullptr) absl::StrAppend(&text, " ", status.detail()->ToString());
  const absl::StatusCode code = CodeOf(status, text);
  // Hidden before it is cut, or half of a secret might be left.
  text = absl::Utf8SafeCHexEscape(absl::string_view(secrets.Hide(std::move(text))).substr(0, kMessageBytes));
  text = absl::StrReplaceAll(text, {{"\\'", "'"}, {"\\\"", "\""}});
  return absl::Status(code, absl::StrCat(about, ": ", text));
}

// A process that does not end Arrow's file systems crashes as it ends, and so does one that ends them after the
// destructors of what they hold, some of which is made with the first client: to be called after each.
void FinalizeAtExit() {
  static std::atomic<bool> finalized{false};  // has no destructor
  const int registered = std::atexit([] {
    if (!finalized.exchange(true)) static_cast<void>(arrow::fs::EnsureFinalized());
  });
  if (registered != 0) std::abort();  // no memory
}

// Once, before anything else of Arrow's file systems.
arrow::Status Start() {
  static const auto* const status = new arrow::Status([] {
    arrow::fs::FileSystemGlobalOptions options;
    // Those that Arrow was built with are where another distribution has them.
    options.tls_ca_file_path = FromEnvironment({"SSL_CERT_FILE"});
    const char* const debian = "/etc/ssl/certs/ca-certificates.crt";
    std::error_code ignored;
    if (options.tls_ca_file_path.empty() && std::filesystem::exists(debian, ignored)) options.tls_ca_file_path = debian;
    return arrow::fs::Initialize(options);
  }());
  return *status;
}

arrow::Status StartS3() {
  ARROW_RETURN_NOT_OK(Start());
  if (arrow::fs::IsS3Initialized()) return arrow::Status::OK();
  arrow::fs::S3GlobalOptions options = arrow::fs::S3GlobalOptions::Defaults();
  options.log_level = arrow::fs::S3LogLevel::Off;
  // OpenSSL writes to connections that the server has closed.
  struct sigaction now {};
  options.install_sigpipe_handler = sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL;
  const arrow::Status status = arrow::fs::InitializeS3(options);
  // Another thread may have been first.
  return arrow::fs::IsS3Initialized() ? arrow::Status::OK() : status;
}

// What Arrow is asked to open: without the path, in which it would want percent-encoding.
std::string ArrowUri(const Uri& uri, const std::string& query) {
  return absl::StrCat(uri.scheme, "://", uri.user, uri.user.empty() ? "" : "@", uri.host, query.empty() ? "" : "?",
                      query);
}

bool HasOption(const std::string& query, absl::string_view name) {
  return absl::StrContains(absl::StrCat("&", query), absl::StrCat("&", name, "="));
}

void AddOption(std::string* query, absl::string_view name, absl::string_view value) {
  absl::StrAppend(query, query->empty() ? "" : "&", name, "=", value);
}

struct S3Settings {
  std::string query;
  std::string key_id;
  std::string secret;
  std::string token;
  std::string ca_bundle;
};

absl::StatusOr<S3Settings> S3FromEnvironment(const Uri& uri) {
  S3Settings settings;
  settings.query = uri.query;
  std::string endpoint = FromEnvironment({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (!endpoint.empty() && !HasOption(uri.query, "endpoint_override")) {
    absl::string_view rest = absl::StripSuffix(endpoint, "/");
    const bool plain = absl::ConsumePrefix(&rest, "http://");
    if (!plain && !absl::ConsumePrefix(&rest, "https://")) {
      return absl::InvalidArgumentError("AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL is not http(s)://HOST[:PORT]");
    }
    AddOption(&settings.query, "scheme", plain ? "http" : "https");
    AddOption(&settings.query, "endpoint_override", rest);
  }
  if (!HasOption(uri.query, "region")) {
    std::string region = FromEnvironment({"AWS_REGION", "AWS_DEFAULT_REGION"});
    // Of Amazon itself Arrow finds out where the bucket is.
    if (region.empty() && HasOption(settings.query, "endpoint_override")) region = "us-east-1";
    if (!region.empty()) AddOption(&settings.query, "region", region);
  }
  settings.ca_bundle = FromEnvironment({"AWS_CA_BUNDLE"});
  if (!uri.user.empty()) return settings;
  settings.key_id = FromEnvironment({"AWS_ACCESS_KEY_ID"});
  settings.secret = FromEnvironment({"AWS_SECRET_ACCESS_KEY"});
  settings.token = FromEnvironment({"AWS_SESSION_TOKEN"});
  if (settings.key_id.empty() != settings.secret.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no credentials for S3: of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only the ",
                     settings.secret.empty() ? "first" : "second", " is set, expected both"));
  }
  return settings;
}

arrow::Result<std::shared_ptr<arrow::fs::FileSystem>> OpenS3(const Uri& uri, const S3Settings& settings,
                                                             const RemoteFilesOptions& limits, std::string* base) {
  ARROW_RETURN_NOT_OK(StartS3());
  ARROW_ASSIGN_OR_RAISE(auto options, arrow::fs::S3Options::FromUri(ArrowUri(uri, settings.query), base));
  if (!settings.key_id.empty()) options.ConfigureAccessKey(settings.key_id, settings.secret, settings.token);
  options.connect_timeout = absl::ToDoubleSeconds(limits.connect_timeout);
  options.request_timeout = absl::ToDoubleSeconds(limits.stall_timeout);
  options.retry_strategy = arrow::fs::S3RetryStrategy::GetAwsStandardRetryStrategy(limits.attempts);
  if (!settings.ca_bundle.empty()) options.tls_ca_file_path = settings.ca_bundle;
  return arrow::fs::S3FileSystem::Make(options);
}

class RemoteFiles final : public Files {
 public:
  RemoteFiles(Uri uri, Secrets secrets, const RemoteFilesOptions& options,
              std::shared_ptr<arrow::internal::ThreadPool> threads)
      : uri_(std::move(uri)), secrets_(std::move(secrets)), options_(options), threads_(std::move(threads)) {}

  absl::Status Connect() {
    S3Settings settings;
    if (uri_.scheme == "s3") {
      auto found = S3FromEnvironment(uri_);
      if (!found.ok()) return found.status();
      settings = *std::move(found);
      secrets_.Add(settings.secret);
      secrets_.Add(settings.token);
    }
    using Opened = std::pair<std::shared_ptr<arrow::fs::FileSystem>, std::string>;
    auto opened = Call<Opened>(
        uri_.Root(), [uri = uri_, settings = std::move(settings), options = options_]() -> arrow::Result<Opened> {
          Opened result;
          const absl::Cleanup finalize = &FinalizeAtExit;
          if (uri.scheme == "s3") {
            ARROW_ASSIGN_OR_RAISE(result.first, OpenS3(uri, settings, options, &result.second));
            return result;
          }
          ARROW_RETURN_NOT_OK(Start());
          std::string query = uri.query;
          if (absl::StartsWith(uri.scheme, "g") && !HasOption(query, "retry_limit_seconds")) {
            AddOption(&query, "retry_limit_seconds", absl::StrCat(absl::ToDoubleSeconds(options.deadline)));
          }
          ARROW_ASSIGN_OR_RAISE(result.first, arrow::fs::FileSystemFromUri(ArrowUri(uri, query), &result.second));
          return result;
        });
    if (!opened.ok()) return opened.status();
    file_system_ = std::move(opened->first);
    base_ = std::move(opened->second);
    while (absl::EndsWith(base_, "/")) base_.pop_back();
    // Hadoop's paths begin with a slash, those of buckets do not.
    if (!base_.empty() || uri_.scheme == "hdfs" || uri_.scheme == "viewfs") base_ += "/";
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<FileInfo>> List(const std::string& path) const override {
    auto uri = OfThisStore(path);
    if (!uri.ok()) return uri.status();
    const std::string about = uri->Shown();
    using Found = std::vector<arrow::fs::FileInfo>;
    auto found = Call<Found>(about, [files = file_system_, place = PathOf(*uri)]() -> arrow::Result<Found> {
      ARROW_ASSIGN_OR_RAISE(auto itself, files->GetFileInfo(place));
      if (!itself.IsDirectory()) return Found{std::move(itself)};
      arrow::fs::FileSelector below;
      below.base_dir = place;
      below.recursive = true;
      return files->GetFileInfo(below);
    });
    if (!found.ok()) return found.status();
    if (found->size() == 1 && found->front().type() == arrow::fs::FileType::NotFound) {
      return absl::NotFoundError(absl::StrCat(about, ": nothing is there"));
    }
    std::vector<FileInfo> files;
    for (const arrow::fs::FileInfo& file : *found) {
      if (!file.IsFile()) continue;
      FileInfo info = InfoOf(file);
      if (info.path != about) {
        const absl::string_view below = absl::string_view(info.path).substr(about.size());
        if (absl::StrContains(below, "/.")) continue;
      }
      if (absl::StrContains(info.path, '?')) {
        return absl::InvalidArgumentError(absl::StrCat(info.path, ": names with '?' cannot be read"));
      }
      files.push_back(std::move(info));
    }
    std::sort(files.begin(), files.end(), [](const FileInfo& a, const FileInfo& b) { return a.path < b.path; });
    return files;
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) const override {
    auto uri = OfThisStore(path);
    if (!uri.ok()) return uri.status();
    using Opened = std::pair<arrow::fs::FileInfo, std::shared_ptr<arrow::io::RandomAccessFile>>;
    auto opened = Call<Opened>(uri->Shown(), [files = file_system_, place = PathOf(*uri)]() -> arrow::Result<Opened> {
      Opened result;
      ARROW_ASSIGN_OR_RAISE(result.first, files->GetFileInfo(place));
      if (!result.first.IsFile()) return result;
      ARROW_ASSIGN_OR_RAISE(result.second, files->OpenInputFile(result.first));
      return result;
    });
    if (!opened.ok()) return opened.status();
    if (opened->second == nullptr) {
      return absl::NotFoundError(absl::StrCat(
          uri->Shown(), opened->first.IsDirectory() ? ": is a directory, expected a file" : ": no such file"));
    }
    FileInfo info = InfoOf(opened->first);
    return std::make_unique<File>(*this, std::move(info), std::move(opened->second));
  }

 private:
  class File final : public RandomAccessFile {
   public:
    File(const RemoteFiles& files, FileInfo info, std::shared_ptr<arrow::io::RandomAccessFile> file)
        : files_(files), info_(std::move(info)), file_(std::move(file)) {}

    const FileInfo& info() const override { return info_; }

    absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) const override {
      if (offset > info_.bytes || bytes.size() > info_.bytes - offset) {
        return EndsAt(info_.bytes, offset + bytes.size() - info_.bytes);
      }
      if (bytes.empty()) return absl::OkStatus();
      // Not into `bytes`: what is not answered in time may be answered later.
      using Read = std::shared_ptr<arrow::Buffer>;
      const auto begin = static_cast<std::int64_t>(offset);
      const auto count = static_cast<std::int64_t>(bytes.size());
      const auto read = files_.Call<Read>(
          info_.path, [file = file_, begin, count]() -> arrow::Result<Read> { return file->ReadAt(begin, count); });
      if (!read.ok()) return read.status();
      const auto got = static_cast<std::size_t>((*read)->size());
      if (got < bytes.size()) return EndsAt(offset + got, bytes.size() - got);
      std::memcpy(bytes.data(), (*read)->data(), bytes.size());
      return absl::OkStatus();
    }

   private:
    absl::Status EndsAt(std::uint64_t end, std::uint64_t more) const {
      return absl::DataLossError(absl::StrFormat("%s: ends at byte %d, expected %d more", info_.path, end, more));
    }

    const RemoteFiles& files_;
    const FileInfo info_;
    const std::shared_ptr<arrow::io::RandomAccessFile> file_;
  };

  // What `call` returns, by the deadline. It must own all that it uses.
  template <typename T, typename Function>
  absl::StatusOr<T> Call(const std::string& about, Function call) const {
    auto submitted = threads_->Submit([call = std::move(call)]() -> arrow::Result<T> {
      try {
        return call();
      } catch (const std::exception& exception) {
        return arrow::Status::UnknownError(exception.what());
      }
    });
    if (!submitted.ok()) return ToStatus(about, secrets_, submitted.status());
    if (!submitted->Wait(absl::ToDoubleSeconds(options_.deadline))) {
      return absl::UnavailableError(
          absl::StrCat(about, ": no answer within ", absl::FormatDuration(options_.deadline)));
    }
    arrow::Result<T> result = submitted->MoveResult();
    if (!result.ok()) return ToStatus(about, secrets_, result.status());
    return std::move(result).ValueUnsafe();
  }

  absl::StatusOr<Uri> OfThisStore(const std::string& path) const {
    auto uri = ParseUri(path);
    if (uri.ok() && uri->Root() != uri_.Root()) {
      return absl::InvalidArgumentError(absl::StrCat(uri->Shown(), ": is not in ", uri_.Root()));
    }
    return uri;
  }

  std::string PathOf(const Uri& uri) const {
    std::string path = absl::StrCat(base_, uri.path);
    while (path.size() > 1 && absl::EndsWith(path, "/")) path.pop_back();
    return path;
  }

  FileInfo InfoOf(const arrow::fs::FileInfo& file) const {
    const std::string path(absl::StripPrefix(file.path(), base_));
    const std::int64_t modified = file.mtime().time_since_epoch().count();
    return {absl::StrCat(uri_.Root(), "/", path), static_cast<std::uint64_t>(file.size()),
            file.mtime() == arrow::fs::kNoTime ? 0 : modified};
  }

  const Uri uri_;
  Secrets secrets_;
  const RemoteFilesOptions options_;
  std::shared_ptr<arrow::fs::FileSystem> file_system_;
  std::string base_;  // what Arrow's paths have before ours
  // Ends first: it waits for the calls that are under way.
  const std::shared_ptr<arrow::internal::ThreadPool> threads_;
};

}  // namespace

bool IsRemote(const std::string& path) {
  const std::size_t colon = path.find("://");
  return colon != std::string::npos && IsKnown(absl::AsciiStrToLower(path.substr(0, colon)));
}

absl::StatusOr<std::unique_ptr<Files>> OpenRemoteFiles(const std::string& uri, const RemoteFilesOptions& options) {
  auto parsed = ParseUri(uri);
  if (!parsed.ok()) return parsed.status();
  Secrets secrets;
  secrets.AddAllOf(*parsed);
  auto threads = arrow::internal::ThreadPool::Make(kThreads);
  if (!threads.ok()) return ToStatus(parsed->Root(), secrets, threads.status());
  auto files = std::make_unique<RemoteFiles>(*std::move(parsed), std::move(secrets), options, *std::move(threads));
  if (absl::Status status = files->Connect(); !status.ok()) return status;
  return files;
}

}  // namespace downpour::data
