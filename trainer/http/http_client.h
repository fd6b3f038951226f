#ifndef DOWNPOUR_TRAINER_HTTP_HTTP_CLIENT_H_
#define DOWNPOUR_TRAINER_HTTP_HTTP_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace downpour::http {

struct ClientOptions {
  // A file of certificate authorities in place of the system's; empty: the system's.
  std::string ca_bundle;
  // To connect, TLS included.
  absl::Duration connect_timeout = absl::Seconds(10);
  // A request ends when less than 1 KiB/s has moved for so long; whole seconds, at least one.
  absl::Duration stall_timeout = absl::Seconds(20);
};

// Of AWS, version 4.
struct Signature {
  std::string provider;  // as "aws:amz:us-east-1:s3"
  std::string access_key_id;
  std::string secret_access_key;
};

struct Request {
  std::string method;
  std::string url;  // http or https, encoded, without a user
  std::vector<std::pair<std::string, std::string>> headers = {};
  absl::Span<const std::uint8_t> body = {};  // of PUT and POST; must outlive the call
  std::size_t max_answer_bytes = 1 << 20;
  const Signature* signature = nullptr;  // must outlive the call; null: it is not signed
  // Asked at least about once a second while the call lasts: true ends it, with kUnavailable.
  std::function<bool()> cancelled = {};
};

struct Answer {
  // Of the transport alone, whatever the server answered. kUnavailable: no whole answer came; kInternal: one longer
  // than was asked for. The message is one line, without headers.
  absl::Status status;
  bool transient = false;                      // such a failure may be over in a moment
  int http_status = 0;                         // 0: no answer
  std::map<std::string, std::string> headers;  // names in small letters
  std::string body;

  // Empty: it is not there.
  std::string Header(const std::string& name) const;
};

// The one place that knows libcurl. Connections are kept, redirects are not followed, proxies of the environment are
// heeded as libcurl does. Thread-safe.
class Client {
 public:
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options);
  ~Client();

  // One attempt, at most so long. libcurl by itself repeats a request whose kept connection turns out to be closed.
  Answer Send(const Request& request, absl::Duration limit);

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// For a path (`keep_slashes`) or a query, as signatures want it.
std::string Encode(absl::string_view text, bool keep_slashes);
// One line that can be printed, of the beginning of whatever a server sent.
std::string Printable(absl::string_view text);
bool HasControlCharacters(absl::string_view text);

}  // namespace downpour::http

#endif  // DOWNPOUR_TRAINER_HTTP_HTTP_CLIENT_H_
