#ifndef DOWNPOUR_OPERATOR_KUBE_CLIENT_H_
#define DOWNPOUR_OPERATOR_KUBE_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "operator/kube/object.h"
#include "operator/kube/protobuf_object.h"
#include "operator/kube/transport.h"

namespace downpour::kube {

struct ListOptions {
  std::string label_selector;
  std::string field_selector;
  std::string resource_version;  // empty: the newest; "0": whatever the server has in its cache
  std::int64_t limit = 0;        // 0: everything
  std::string continue_token;
  // Of a built-in resource: it is asked for in Protocol Buffers, and of an item these alone are read; empty: in JSON.
  // Not owned.
  ProtobufFields fields;
  bool metadata_only = false;  // of the items, without `fields`; servers that cannot answer with the whole
  std::stop_token stop;        // ends this call with kCancelled
};

struct ListPage {
  std::vector<Json> items;  // without metadata.managedFields
  std::string resource_version;
  std::string continue_token;  // empty: the last page
};

struct Preconditions {
  std::string uid;               // empty: any
  std::string resource_version;  // empty: any
};

struct CreateOptions {
  bool dry_run = false;        // nothing is stored, and fields that the server does not know are an error
  bool metadata_only = false;  // of the answer; servers that cannot answer with the whole
  bool unchecked = false;      // fields that the server does not know are dropped without a word
};

struct DeleteOptions {
  Preconditions preconditions;
  std::optional<std::int64_t> grace_seconds;  // 0: at once
  std::string propagation = "Background";
};

struct LogOptions {
  std::string container;                   // empty: the only one
  std::optional<std::int64_t> tail_lines;  // the newest; absent: all
  std::string since_time;                  // RFC 3339; the server cuts it to the second; empty: from the start
  bool follow = false;                     // goes on until the container ends
};

// A connection that says nothing for so long may be dead without anybody knowing.
inline constexpr absl::Duration kLogSilence = absl::Minutes(5);

struct ClientMetrics;  // rest_client_*; see client_metrics.h

struct ClientOptions {
  absl::Duration timeout = absl::Seconds(30);  // of one request, retries and waiting for a permit included
  double requests_per_second = 200;
  double burst = 400;
};

// Verbs of the API. Blocking, with a deadline; thread-safe. Errors carry an ApiError (api_error.h) if the server
// answered. 429 and 5xx with Retry-After, and broken connections, are tried again within the deadline; a Create that
// broke may have happened, so a retry may answer kAlreadyExists: names are deterministic, look at the owner.
class Client {
 public:
  Client(std::shared_ptr<Transport> transport, ClientOptions options = {}, ClientMetrics* metrics = nullptr);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  absl::StatusOr<Json> Get(const Resource& resource, std::string_view namespace_name, std::string_view name);
  // An empty namespace: all of them.
  absl::StatusOr<ListPage> List(const Resource& resource, std::string_view namespace_name, const ListOptions& options);
  absl::StatusOr<Json> Create(const Resource& resource, std::string_view namespace_name, const Json& object,
                              const CreateOptions& options = {});
  // Server-side apply, by force, of all that `field_manager` intends.
  absl::StatusOr<Json> Apply(const Resource& resource, std::string_view namespace_name, std::string_view name,
                             const Json& object, std::string_view field_manager, std::string_view subresource = {});
  // RFC 7396; arrays are replaced whole, null removes. Put metadata.resourceVersion or uid in it to make it
  // conditional.
  absl::StatusOr<Json> MergePatch(const Resource& resource, std::string_view namespace_name, std::string_view name,
                                  const Json& patch, std::string_view subresource = {});
  // Replaces the status as a whole by `status`, JSON text, if the object still has this uid and resourceVersion; else
  // kAborted or kNotFound. Returns the object as stored: of servers that can, its metadata only.
  absl::StatusOr<Json> ReplaceStatus(const Resource& resource, const ObjectMeta& meta, std::string_view status);
  // kNotFound: it is gone. kAborted: a precondition does not hold.
  absl::Status Delete(const Resource& resource, std::string_view namespace_name, std::string_view name,
                      const DeleteOptions& options = {});
  // Deletes all objects of the namespace that the selector names, whichever they are by then; without any it is well.
  absl::Status DeleteCollection(const Resource& resource, std::string_view namespace_name,
                                std::string_view label_selector, const DeleteOptions& options = {});
  // Calls `on_line` with each line of a container's log, without its end, and the time that the node gave it (RFC 3339,
  // nanoseconds; text that begins without a time has none), until the log ends, `on_line` returns false or `stop` is
  // requested (kCancelled). Is not tried again. kUnavailable: it broke; kDeadlineExceeded: nothing came for the timeout
  // of a request, of one that follows for kLogSilence: go on from the newest time.
  absl::Status ReadLog(std::string_view namespace_name, std::string_view pod, const LogOptions& options,
                       const std::stop_token& stop,
                       const std::function<bool(std::string_view time, std::string_view line)>& on_line);

  // Ends waiting and running requests with kCancelled; for shutting down.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_CLIENT_H_
