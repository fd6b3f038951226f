#ifndef DOWNPOUR_TESTS_SUPPORT_FAKE_API_SERVER_H_
#define DOWNPOUR_TESTS_SUPPORT_FAKE_API_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "operator/kube/object.h"

namespace downpour::kube {

// An API server for tests, on a loopback socket: a small store of objects of any resource with the parts of the real
// one's behaviour that clients depend on (versions, uids, conflicts, preconditions, the status subresource, selectors,
// pages, watches, finalizers, garbage collection), and faults on demand. Thread-safe.
//
// What it does not do: schemas, defaults, admission, authentication, strategic merges (they are merged like RFC 7396),
// field ownership of server-side apply (what an applier leaves out stays).
class FakeApiServer {
 public:
  FakeApiServer();
  ~FakeApiServer();
  FakeApiServer(const FakeApiServer&) = delete;
  FakeApiServer& operator=(const FakeApiServer&) = delete;

  // Listens; answers "http://127.0.0.1:PORT", the same each time it is called. `host` "::1": "http://[::1]:PORT".
  // Aborts if it cannot.
  std::string Start(const std::string& host = "127.0.0.1");
  // Ends all connections and waits for their threads. The objects stay.
  void Stop();

  // --- the store, past HTTP ---

  // Creates or replaces, status and all. Fills in uid, version and creation time; answers what is stored.
  Json Put(const Resource& resource, Json object);
  // Changes an object in place, as Put does. False: there is none.
  bool Modify(const Resource& resource, const std::string& namespace_name, const std::string& name,
              const std::function<void(Json& object)>& change);
  std::optional<Json> Get(const Resource& resource, const std::string& namespace_name, const std::string& name) const;
  // Of all namespaces.
  std::vector<Json> List(const Resource& resource) const;
  // At once, whatever its finalizers. False: there is none.
  bool Remove(const Resource& resource, const std::string& namespace_name, const std::string& name);
  std::string resource_version() const;

  // --- its behaviour ---

  // Of timestamps; seconds since 1970. The default is the clock of the machine.
  void SetClock(std::function<double()> now);
  // Pods that are deleted stay, with a deletionTimestamp, until Remove; what a kubelet would do. Default: they go.
  void SetGracefulPods(bool graceful);
  // Whether the dependents of a deleted object are deleted. Default: true.
  void SetGarbageCollection(bool collect);
  // What a container wrote; else 404.
  void SetLog(const std::string& namespace_name, const std::string& pod, const std::string& text);
  // Forgets what happened until now: watches from an older version and tokens of older lists get 410.
  void Compact();
  // Whether that 410 of a watch is the status of the response. Default: an event in a 200, as the real one does.
  void SetExpiredAsStatus(bool as_status);
  // Ends each connection without a word after each response, as if it had been idle for too long.
  void SetCloseAfterResponse(bool close);
  // To all running watches that allow them.
  void SendBookmarks();
  // Ends all running watches: in good order, or by a reset of their connections.
  void EndWatches(bool reset = false);

  // --- faults ---

  struct Reaction {
    std::vector<std::string> pieces;  // raw bytes of the response, each written for itself
    absl::Duration gap;               // between them
    enum class End {
      kKeepAlive,  // the next request is read from the same connection
      kClose,
      kReset,
      kHang,  // nothing more, on an open connection
    };
    End end = End::kKeepAlive;
    std::function<void()> before;  // called before it, without locks
  };
  using Headers = std::vector<std::pair<std::string, std::string>>;
  static Reaction Respond(int status, const std::string& body, const Headers& headers = {});
  // A Status object with this code and reason.
  static Reaction Refuse(int status, const std::string& reason, const std::string& message,
                         const Headers& headers = {});
  // A 200 in chunks; kKeepAlive ends it in good order, the other ends cut it off.
  static Reaction Stream(const std::vector<std::string>& chunks, Reaction::End end = Reaction::End::kKeepAlive);
  static Reaction End(Reaction::End end);

  // The next `count` requests (-1: all) with this method (empty: any) whose "PATH?QUERY", decoded, contains `target`
  // get the reaction instead of an answer. Faults are tried in the order in which they came.
  void Inject(const std::string& method, const std::string& target, Reaction reaction, int count = 1);
  void ClearFaults();

  // --- what it saw ---

  struct Request {
    std::string method;
    std::string path;  // decoded
    std::map<std::string, std::string> query;
    std::map<std::string, std::string> headers;  // names in small letters
    std::string body;
    std::string Target() const;  // "PATH?QUERY", decoded
  };
  std::vector<Request> requests() const;
  // With this method (empty: any) and a target that contains `target`.
  int CountRequests(const std::string& method, const std::string& target) const;
  std::size_t CountRequests() const;  // all of them
  // Waits until there are so many; false: not within `limit`.
  bool WaitForRequests(const std::string& method, const std::string& target, int count, absl::Duration limit) const;
  int connections() const;  // accepted since the start
  // Waits until so many watches are open.
  bool WaitForWatches(int count, absl::Duration limit) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_TESTS_SUPPORT_FAKE_API_SERVER_H_
