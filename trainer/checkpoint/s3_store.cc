#include "trainer/checkpoint/s3_store.h"
#include "trainer/checkpoint/about.h"

#include <openssl/evp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "trainer/checkpoint/s3_client.h"
#include "trainer/checkpoint/s3_xml.h"

namespace downpour::checkpoint {
namespace {

constexpr char kScheme[] = "s3://";
constexpr char kWriterHeader[] = "x-amz-meta-downpour-writer";
constexpr std::size_t kMaxParts = 10'000;
constexpr std::size_t kMaxListBytes = 16 << 20;  // of a page; it has a thousand entries at most
constexpr absl::Duration kAbortLimit = absl::Seconds(5);

// Says that a request of a body carries it whole, also to servers that do not check the signature's hash.
absl::StatusOr<std::string> ContentMd5(absl::Span<const std::uint8_t> bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_md5(), nullptr) != 1) {
    return absl::InternalError("OpenSSL has no MD5, which S3 needs");
  }
  return absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

std::string RandomMark() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

// What the writers and readers of a store share.
struct Bucket {
  std::string uri;  // as the user wrote it
  std::string name;
  std::string key_prefix;  // empty, or ends with a slash
  std::unique_ptr<S3Client> client;
  // Whether the server knows If-None-Match; it says so when it does not.
  std::atomic<bool> exclusive_requests = true;

  std::string Describe(const std::string& key) const { return absl::StrCat(kScheme, name, "/", key); }
};

class S3Writer : public StoreWriter {
 public:
  S3Writer(Bucket& bucket, std::string key) : bucket_(bucket), key_(std::move(key)), mark_(RandomMark()) {}

  ~S3Writer() override {
    if (upload_id_.empty()) return;
    // What is left when this fails is for RemoveLeftovers.
    S3Attempts attempts(options(), std::min(options().deadline, kAbortLimit));
    bucket_.client->Send({.method = "DELETE", .key = key_, .query = {{"uploadId", upload_id_}}}, attempts);
  }

  absl::Status Append(absl::Span<const std::uint8_t> bytes) override {
    while (status_.ok() && !bytes.empty()) {
      // A full part waits for more: a file of just one needs no upload of parts.
      if (part_.size() == options().part_bytes) status_ = SendPart();
      const std::size_t taken = std::min(bytes.size(), options().part_bytes - part_.size());
      part_.insert(part_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken));
      bytes.remove_prefix(taken);
    }
    return status_;
  }

  absl::Status Commit() override {
    if (status_.ok()) status_ = Finish();
    if (!status_.ok()) return status_;
    upload_id_.clear();
    status_ = absl::FailedPreconditionError(absl::StrCat(bucket_.Describe(key_), ": is committed already"));
    return absl::OkStatus();
  }

 private:
  const S3Options& options() const { return bucket_.client->options(); }

  absl::Status Finish() {
    if (upload_id_.empty()) {
      const absl::StatusOr<std::string> md5 = ContentMd5(part_);
      if (!md5.ok()) return md5.status();
      return CreateObject(
          {.method = "PUT", .key = key_, .headers = {{"content-md5", *md5}, {kWriterHeader, mark_}}, .body = part_});
    }
    if (absl::Status sent = SendPart(); !sent.ok()) return sent;
    const std::string body = S3CompleteUploadBody(etags_);
    return CreateObject({.method = "POST",
                         .key = key_,
                         .query = {{"uploadId", upload_id_}},
                         .body = absl::MakeConstSpan(reinterpret_cast<const std::uint8_t*>(body.data()), body.size())});
  }

  absl::Status BeginUpload() {
    S3Attempts attempts(options());
    const S3Answer answer = bucket_.client->Send(
        {.method = "POST", .key = key_, .query = {{"uploads", ""}}, .headers = {{kWriterHeader, mark_}}}, attempts);
    if (!answer.status.ok()) return answer.status;
    absl::StatusOr<std::string> upload_id = ParseS3UploadId(answer.body);
    if (!upload_id.ok()) return About(bucket_.Describe(key_), upload_id.status());
    upload_id_ = *std::move(upload_id);
    return absl::OkStatus();
  }

  absl::Status SendPart() {
    if (upload_id_.empty()) {
      if (absl::Status begun = BeginUpload(); !begun.ok()) return begun;
    }
    if (etags_.size() == kMaxParts) {
      return absl::ResourceExhaustedError(absl::StrCat(bucket_.Describe(key_), ": S3 takes no more than ", kMaxParts,
                                                       " parts, of ", options().part_bytes, " bytes here"));
    }
    const absl::StatusOr<std::string> md5 = ContentMd5(part_);
    if (!md5.ok()) return md5.status();
    S3Attempts attempts(options());
    const S3Answer answer =
        bucket_.client->Send({.method = "PUT",
                              .key = key_,
                              .query = {{"partNumber", absl::StrCat(etags_.size() + 1)}, {"uploadId", upload_id_}},
                              .headers = {{"content-md5", *md5}},
                              .body = part_},
                             attempts);
    if (!answer.status.ok()) return answer.status;
    std::string etag = answer.Header("etag");
    if (etag.empty()) return absl::InternalError(absl::StrCat(bucket_.Describe(key_), ": a part has no ETag"));
    etags_.push_back(std::move(etag));
    part_.clear();
    return absl::OkStatus();
  }

  // Sends the request with which the object comes to be, once or again. When an answer was lost, what is under the name
  // tells what became of it.
  absl::Status CreateObject(const S3Request& request) {
    S3Attempts attempts(options());
    absl::Status refusal;
    bool look = false;
    for (;;) {
      if (look) {
        S3Answer found = bucket_.client->SendOnce({.method = "HEAD", .key = key_}, attempts);
        if (found.status.ok()) {
          return found.Header(kWriterHeader) == mark_ ? absl::OkStatus() : AlreadyExists();
        }
        if (found.transient) {
          if (!attempts.Again(&found.status)) return found.status;
          continue;
        }
        if (!absl::IsNotFound(found.status)) return found.status;
        // Something was in the way and cannot be seen, or is gone again.
        if (absl::IsFailedPrecondition(refusal) && attempts.Again(&refusal)) refusal = absl::OkStatus();
        if (!refusal.ok()) return refusal;
      }
      const bool exclusive = bucket_.exclusive_requests;
      S3Request attempt = request;
      if (exclusive) attempt.headers.emplace_back("if-none-match", "*");
      S3Answer answer = bucket_.client->SendOnce(attempt, attempts);
      if (answer.status.ok()) return absl::OkStatus();
      look = true;
      if (exclusive && answer.http_status == 501) {
        bucket_.exclusive_requests = false;
      } else if (answer.http_status == 412 || answer.code == "NoSuchUpload") {
        // An earlier attempt may have made it so.
        refusal = answer.status;
      } else if (!answer.transient || !attempts.Again(&answer.status)) {
        return answer.status;
      }
    }
  }

  absl::Status AlreadyExists() const {
    return absl::AlreadyExistsError(absl::StrCat(bucket_.Describe(key_), ": is there already"));
  }

  Bucket& bucket_;
  const std::string key_;
  const std::string mark_;  // of whose the object is
  std::vector<std::uint8_t> part_;
  std::string upload_id_;  // empty: no part was sent
  std::vector<std::string> etags_;
  absl::Status status_;  // of all that is done from now on
};

class S3Reader : public StoreReader {
 public:
  S3Reader(Bucket& bucket, std::string key, std::uint64_t size, std::string etag)
      : bucket_(bucket), key_(std::move(key)), size_(size), etag_(std::move(etag)) {}

  std::uint64_t size() const override { return size_; }

  absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) override {
    if (offset > size_ || bytes.size() > size_ - offset) {
      return absl::OutOfRangeError(
          absl::StrCat(bucket_.Describe(key_), ": has ", size_, " bytes, asked for ", bytes.size(), " from ", offset));
    }
    // Reading ahead is of use to whoever goes on where they stopped.
    const bool sequential = offset == next_offset_;
    next_offset_ = offset + bytes.size();
    while (!bytes.empty()) {
      if (offset < window_offset_ || offset - window_offset_ >= window_.size()) {
        const std::uint64_t read_ahead = bucket_.client->options().read_ahead_bytes;
        const std::uint64_t wanted = sequential ? read_ahead : std::min<std::uint64_t>(read_ahead, bytes.size());
        if (absl::Status fetched = Fetch(offset, std::min(wanted, size_ - offset)); !fetched.ok()) return fetched;
      }
      const std::size_t begin = offset - window_offset_;
      const std::size_t taken = std::min(bytes.size(), window_.size() - begin);
      std::memcpy(bytes.data(), window_.data() + begin, taken);
      bytes.remove_prefix(taken);
      offset += taken;
    }
    return absl::OkStatus();
  }

 private:
  // Makes these bytes the window.
  absl::Status Fetch(std::uint64_t offset, std::uint64_t count) {
    window_.clear();
    S3Request request{.method = "GET",
                      .key = key_,
                      .headers = {{"range", absl::StrCat("bytes=", offset, "-", offset + count - 1)}},
                      .max_answer_bytes = count};
    if (!etag_.empty()) request.headers.emplace_back("if-match", etag_);
    S3Attempts attempts(bucket_.client->options());
    S3Answer answer = bucket_.client->Send(request, attempts);
    if (answer.http_status == 412) {
      return absl::DataLossError(absl::StrCat(bucket_.Describe(key_), ": has changed since it was opened"));
    }
    const std::string range = answer.Header("content-range");
    const bool shorter = answer.http_status == 416 || (answer.status.ok() && answer.body.size() < count);
    if (shorter) {
      return absl::DataLossError(absl::StrCat(bucket_.Describe(key_), ": has become shorter than ", size_, " bytes"));
    }
    if (!answer.status.ok()) return answer.status;
    const bool whole = answer.http_status == 200 && count == size_;
    if (answer.body.size() != count || (!whole && !absl::StartsWith(range, absl::StrCat("bytes ", offset, "-")))) {
      return absl::InternalError(absl::StrCat(bucket_.Describe(key_), ": the server does not answer with the range of ",
                                              count, " bytes from ", offset));
    }
    window_ = std::move(answer.body);
    window_offset_ = offset;
    return absl::OkStatus();
  }

  Bucket& bucket_;
  const std::string key_;
  const std::uint64_t size_;
  const std::string etag_;
  std::string window_;
  std::uint64_t window_offset_ = 0;
  std::uint64_t next_offset_ = 0;
};

class S3Store : public Store {
 public:
  explicit S3Store(std::unique_ptr<Bucket> bucket) : bucket_(std::move(bucket)) {}

  const std::string& uri() const override { return bucket_->uri; }

  absl::StatusOr<std::unique_ptr<StoreWriter>> Create(const std::string& name) override {
    if (absl::Status valid = About(uri(), CheckStoreName(name)); !valid.ok()) return valid;
    const std::string key = bucket_->key_prefix + name;
    const S3Answer answer = Head(key);
    if (answer.status.ok()) {
      return absl::AlreadyExistsError(absl::StrCat(bucket_->Describe(key), ": is there already"));
    }
    if (!absl::IsNotFound(answer.status)) return answer.status;
    return std::make_unique<S3Writer>(*bucket_, key);
  }

  absl::StatusOr<std::unique_ptr<StoreReader>> Open(const std::string& name) override {
    if (absl::Status valid = About(uri(), CheckStoreName(name)); !valid.ok()) return valid;
    const std::string key = bucket_->key_prefix + name;
    const S3Answer answer = Head(key);
    if (!answer.status.ok()) return answer.status;
    std::uint64_t size = 0;
    if (!absl::SimpleAtoi(answer.Header("content-length"), &size)) {
      return absl::InternalError(absl::StrCat(bucket_->Describe(key), ": the server does not say its size"));
    }
    return std::make_unique<S3Reader>(*bucket_, key, size, answer.Header("etag"));
  }

  absl::StatusOr<std::vector<StoredFile>> List(const std::string& prefix) override {
    S3Attempts attempts(bucket_->client->options());
    std::vector<StoredFile> files;
    std::string token;
    do {
      S3Request request{.method = "GET", .max_answer_bytes = kMaxListBytes};
      if (!token.empty()) request.query.emplace_back("continuation-token", token);
      request.query.emplace_back("list-type", "2");
      request.query.emplace_back("prefix", bucket_->key_prefix + prefix);
      const S3Answer answer = bucket_->client->Send(request, attempts);
      if (!answer.status.ok()) return answer.status;
      absl::StatusOr<S3ObjectPage> page = ParseS3ObjectPage(answer.body);
      if (!page.ok()) return About(uri(), page.status());
      for (const S3ObjectPage::Object& object : page->objects) {
        absl::string_view name = object.key;
        // What others put there, such as marks of folders, is none of ours.
        if (absl::ConsumePrefix(&name, bucket_->key_prefix) && CheckStoreName(name).ok()) {
          files.push_back({std::string(name), object.bytes});
        }
      }
      if (!page->next_token.empty() && page->next_token == token) {
        return absl::InternalError(absl::StrCat(uri(), ": the server's list of objects has no end"));
      }
      token = page->next_token;
    } while (!token.empty());
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return files;
  }

  absl::Status Remove(const std::string& name) override {
    if (absl::Status valid = About(uri(), CheckStoreName(name)); !valid.ok()) return valid;
    S3Attempts attempts(bucket_->client->options());
    const S3Answer answer = bucket_->client->Send({.method = "DELETE", .key = bucket_->key_prefix + name}, attempts);
    return answer.code == "NoSuchKey" ? absl::OkStatus() : answer.status;
  }

  absl::Status RemoveLeftovers(const std::string& prefix) override {
    S3Attempts attempts(bucket_->client->options());
    std::vector<S3UploadPage::Upload> uploads;
    S3UploadPage page;
    do {
      S3Request request{.method = "GET", .max_answer_bytes = kMaxListBytes};
      if (!page.next_key_marker.empty()) request.query.emplace_back("key-marker", page.next_key_marker);
      request.query.emplace_back("prefix", bucket_->key_prefix + prefix);
      if (!page.next_upload_id_marker.empty()) {
        request.query.emplace_back("upload-id-marker", page.next_upload_id_marker);
      }
      request.query.emplace_back("uploads", "");
      const S3Answer answer = bucket_->client->Send(request, attempts);
      if (!answer.status.ok()) return answer.status;
      absl::StatusOr<S3UploadPage> next = ParseS3UploadPage(answer.body);
      if (!next.ok()) return About(uri(), next.status());
      if (!next->next_key_marker.empty() && next->next_key_marker == page.next_key_marker &&
          next->next_upload_id_marker == page.next_upload_id_marker) {
        return absl::InternalError(absl::StrCat(uri(), ": the server's list of uploads has no end"));
      }
      page = *std::move(next);
      for (S3UploadPage::Upload& upload : page.uploads) uploads.push_back(std::move(upload));
    } while (!page.next_key_marker.empty());
    for (const S3UploadPage::Upload& upload : uploads) {
      absl::string_view name = upload.key;
      if (!absl::ConsumePrefix(&name, bucket_->key_prefix) || !CheckStoreName(name).ok()) continue;
      const S3Answer answer = bucket_->client->Send(
          {.method = "DELETE", .key = upload.key, .query = {{"uploadId", upload.upload_id}}}, attempts);
      // It may have been completed meanwhile, or removed by another.
      if (!answer.status.ok() && answer.code != "NoSuchUpload") return answer.status;
    }
    return absl::OkStatus();
  }

 private:
  S3Answer Head(const std::string& key) {
    S3Attempts attempts(bucket_->client->options());
    return bucket_->client->Send({.method = "HEAD", .key = key}, attempts);
  }

  const std::unique_ptr<Bucket> bucket_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenS3Store(const std::string& uri, S3Options options) {
  absl::string_view rest = uri;
  const bool has_scheme = absl::ConsumePrefix(&rest, kScheme);
  const absl::string_view name = rest.substr(0, rest.find('/'));
  rest.remove_prefix(std::min(rest.size(), name.size() + 1));
  while (absl::ConsumeSuffix(&rest, "/")) {
  }
  bool valid = has_scheme && !name.empty() && absl::ascii_isalnum(static_cast<unsigned char>(name.front())) &&
               std::all_of(name.begin(), name.end(), [](char c) {
                 return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_';
               });
  if (!rest.empty()) {
    for (const absl::string_view part : absl::StrSplit(rest, '/')) {
      valid = valid && !part.empty() && part != "." && part != "..";
    }
  }
  if (!valid) {
    return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(uri), "\", expected s3://BUCKET/PREFIX"));
  }
  auto bucket = std::make_unique<Bucket>();
  bucket->uri = uri;
  bucket->name = std::string(name);
  bucket->key_prefix = rest.empty() ? "" : absl::StrCat(rest, "/");
  absl::StatusOr<std::unique_ptr<S3Client>> client = S3Client::Create(std::move(options), bucket->name);
  if (!client.ok()) return About(uri, client.status());
  bucket->client = *std::move(client);
  return std::make_unique<S3Store>(std::move(bucket));
}

absl::StatusOr<std::unique_ptr<Store>> OpenS3Store(const std::string& uri) {
  absl::StatusOr<S3Options> options = S3OptionsFromEnvironment();
  if (!options.ok()) return About(uri, options.status());
  return OpenS3Store(uri, *std::move(options));
}

}  // namespace downpour::checkpoint
