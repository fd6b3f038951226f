#include "tests/support/fake_api_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <mutex>
#include <thread>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "operator/kube/json_text.h"

namespace downpour::kube {
namespace {

using Clock = std::chrono::steady_clock;

// A refused request.
struct Failure {
  int code;
  std::string reason;
  std::string message;
};

Json StatusObject(const Failure& failure) {
  return {{"kind", "Status"},     {"apiVersion", "v1"},       {"status", "Failure"},
          {"code", failure.code}, {"reason", failure.reason}, {"message", failure.message}};
}

std::string Response(int status, const std::string& body, const FakeApiServer::Headers& headers) {
  std::string text = absl::StrCat("HTTP/1.1 ", status, " Text\r\nContent-Length: ", body.size(), "\r\n");
  bool typed = false;
  for (const auto& [name, value] : headers) {
    absl::StrAppend(&text, name, ": ", value, "\r\n");
    typed = typed || absl::AsciiStrToLower(name) == "content-type";
  }
  if (!typed) text += "Content-Type: application/json\r\n";
  return text + "\r\n" + body;
}

std::string Chunk(const std::string& bytes) { return absl::StrCat(absl::Hex(bytes.size()), "\r\n", bytes, "\r\n"); }

constexpr char kStreamHead[] =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr char kLastChunk[] = "0\r\n\r\n";

std::string Decode(std::string_view text, bool plus_is_blank) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int byte;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::sscanf(std::string(text.substr(i + 1, 2)).c_str(), "%2x", reinterpret_cast<unsigned*>(&byte)) == 1) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += plus_is_blank && text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

// The end of a TCP connection. One thread reads, writes and closes; any may shut it down.
class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {
    const int on = 1;
    setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  ~Socket() { Close(); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // Wakes a thread that reads or writes.
  void Shutdown() {
    const std::lock_guard lock(mutex_);
    if (descriptor_ >= 0) shutdown(descriptor_, SHUT_RDWR);
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = -1;
  }
  // Without the farewell that ends a connection in good order.
  void Reset() {
    const linger hard{1, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    Close();
  }
  bool Write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // False: the connection has ended.
  bool Read(std::string* buffer) const {
    char bytes[16384];
    const ssize_t got = recv(descriptor_, bytes, sizeof(bytes), 0);
    if (got <= 0) return false;
    buffer->append(bytes, static_cast<std::size_t>(got));
    return true;
  }
  // Whether the other side has hung up.
  bool Gone() const {
    char byte;
    const ssize_t got = recv(descriptor_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
  }

 private:
  std::mutex mutex_;
  int descriptor_;
};

// One term of a label selector against an object's labels.
bool MatchesTerm(const Json* labels, std::string_view term) {
  const auto value = [&](std::string_view key) -> std::optional<std::string> {
    if (labels == nullptr) return std::nullopt;
    const Json* const found = Find(*labels, {key});
    if (found == nullptr || !found->is_string()) return std::nullopt;
    return found->get<std::string>();
  };
  const auto trimmed = [](std::string_view text) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    return text;
  };
  term = trimmed(term);
  for (const std::string_view word : {" notin ", " in "}) {
    const std::size_t at = term.find(word);
    if (at == std::string_view::npos) continue;
    std::string_view list = trimmed(term.substr(at + word.size()));
    if (list.starts_with('(') && list.ends_with(')')) list = list.substr(1, list.size() - 2);
    const auto has = value(trimmed(term.substr(0, at)));
    bool found = false;
    for (const auto& item : absl::StrSplit(std::string(list), ',')) {
      found = found || (has.has_value() && *has == trimmed(std::string(item)));
    }
    return (word == " in ") == found;
  }
  for (const std::string_view mark : {"!=", "==", "="}) {
    const std::size_t at = term.find(mark);
    if (at == std::string_view::npos) continue;
    const auto has = value(trimmed(term.substr(0, at)));
    const bool equal = has.has_value() && *has == trimmed(term.substr(at + mark.size()));
    return (mark == "!=") != equal;
  }
  if (term.starts_with('!')) return !value(trimmed(term.substr(1))).has_value();
  return value(term).has_value();
}

// Splits at commas outside brackets.
std::vector<std::string> Terms(const std::string& selector) {
  std::vector<std::string> terms;
  std::string term;
  int depth = 0;
  for (const char c : selector) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth == 0) {
      terms.push_back(std::exchange(term, {}));
    } else {
      term += c;
    }
  }
  if (!term.empty()) terms.push_back(term);
  return terms;
}

struct Selector {
  std::string labels, fields;

  bool Matches(const Json& object) const {
    const Json* const map = Find(object, {"metadata", "labels"});
    for (const std::string& term : Terms(labels)) {
      if (!MatchesTerm(map, term)) return false;
    }
    for (const std::string& term : Terms(fields)) {
      const bool unequal = term.find("!=") != std::string::npos;
      const std::size_t at = term.find(unequal ? "!=" : "=");
      if (at == std::string::npos) continue;
      std::string want = term.substr(
          term.find_first_not_of("!=", at) == std::string::npos ? term.size() : term.find_first_not_of("!=", at));
      const Json* value = &object;
      for (const auto& key : absl::StrSplit(term.substr(0, at), '.')) {
        if (value != nullptr) value = Find(*value, {std::string(key)});
      }
      const std::string has = value != nullptr && value->is_string()    ? value->get<std::string>()
                              : value != nullptr && value->is_boolean() ? value->dump()
                                                                        : "";
      if ((has == want) == unequal) return false;
    }
    return true;
  }
};

// Where a request's path leads.
struct Address {
  std::string collection;  // "/api/v1/pods"
  bool namespaced = false;
  std::string namespace_name, name, subresource;
  std::string plural;
  bool built_in = true;
};

std::optional<Address> ParsePath(const std::string& path) {
  const std::vector<std::string> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  Address address;
  std::size_t at;
  std::string prefix;
  if (parts.size() >= 3 && parts[0] == "api") {
    prefix = "/api/" + parts[1];
    at = 2;
  } else if (parts.size() >= 4 && parts[0] == "apis") {
    prefix = "/apis/" + parts[1] + "/" + parts[2];
    const std::string& group = parts[1];
    address.built_in = group.find('.') == std::string::npos || group.ends_with(".k8s.io");
    at = 3;
  } else {
    return std::nullopt;
  }
  if (parts[at] == "namespaces" && parts.size() >= at + 3 && parts[at + 2] != "status" && parts[at + 2] != "finalize") {
    address.namespaced = true;
    address.namespace_name = parts[at + 1];
    at += 2;
  }
  address.plural = parts[at];
  address.collection = prefix + "/" + address.plural;
  if (parts.size() > at + 1) address.name = parts[at + 1];
  if (parts.size() > at + 2) address.subresource = parts[at + 2];
  if (parts.size() > at + 3) return std::nullopt;
  return address;
}

std::string CollectionOf(const Resource& resource) {
  return absl::StrCat(resource.group.empty() ? "/api/" : "/apis/" + resource.group + "/", resource.version, "/",
                      resource.plural);
}

}  // namespace

std::string FakeApiServer::Request::Target() const {
  std::string target = path;
  char mark = '?';
  for (const auto& [name, value] : query) {
    absl::StrAppend(&target, std::string(1, mark), name, "=", value);
    mark = '&';
  }
  return target;
}

class FakeApiServer::Impl {
 public:
  ~Impl() { Stop(); }

  std::string Start(const std::string& host) {
    const std::lock_guard lock(mutex_);
    if (listener_ >= 0) return url_;
    const bool six = host.find(':') != std::string::npos;
    sockaddr_in6 address6{};
    sockaddr_in address4{};
    address6.sin6_family = AF_INET6;
    address4.sin_family = AF_INET;
    inet_pton(AF_INET6, host.c_str(), &address6.sin6_addr);
    inet_pton(AF_INET, host.c_str(), &address4.sin_addr);
    void* const address = six ? static_cast<void*>(&address6) : &address4;
    socklen_t length = six ? sizeof(address6) : sizeof(address4);
    listener_ = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener_ < 0 || bind(listener_, static_cast<sockaddr*>(address), length) != 0 || listen(listener_, 64) != 0 ||
        getsockname(listener_, static_cast<sockaddr*>(address), &length) != 0) {
      std::perror("FakeApiServer");
      std::abort();
    }
    const int port = ntohs(six ? address6.sin6_port : address4.sin_port);
    url_ = absl::StrCat("http://", six ? "[" : "", host, six ? "]" : "", ":", port);
    stopping_ = false;
    acceptor_ = std::thread([this, listener = listener_] { Accept(listener); });
    return url_;
  }

  void Stop() {
    std::list<Connection> connections;
    std::thread acceptor;
    int listener;
    {
      const std::lock_guard lock(mutex_);
      if (listener_ < 0) return;
      stopping_ = true;
      listener = std::exchange(listener_, -1);
      shutdown(listener, SHUT_RDWR);
      acceptor.swap(acceptor_);
      changed_.notify_all();
    }
    acceptor.join();
    {
      const std::lock_guard lock(mutex_);
      for (Connection& connection : connections_) connection.socket->Shutdown();
      connections.swap(connections_);
      changed_.notify_all();
    }
    for (Connection& connection : connections) connection.thread.join();
    close(listener);
  }

  // --- the store ---

  Json Put(const Resource& resource, Json object) {
    const std::lock_guard lock(mutex_);
    return PutLocked(resource, std::move(object));
  }

  bool Modify(const Resource& resource, const std::string& namespace_name, const std::string& name,
              const std::function<void(Json& object)>& change) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find({CollectionOf(resource), namespace_name, name});
    if (found == objects_.end()) return false;
    Json object = found->second;
    change(object);
    PutLocked(resource, std::move(object));
    return true;
  }

  std::optional<Json> Get(const Resource& resource, const std::string& namespace_name, const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find({CollectionOf(resource), namespace_name, name});
    if (found == objects_.end()) return std::nullopt;
    return found->second;
  }

  std::vector<Json> List(const Resource& resource) const {
    const std::lock_guard lock(mutex_);
    std::vector<Json> objects;
    for (const auto& [key, object] : objects_) {
      if (std::get<0>(key) == CollectionOf(resource)) objects.push_back(object);
    }
    return objects;
  }

  bool Remove(const Resource& resource, const std::string& namespace_name, const std::string& name) {
    const std::lock_guard lock(mutex_);
    const Key key{CollectionOf(resource), namespace_name, name};
    if (objects_.find(key) == objects_.end()) return false;
    Erase(key, /*orphan=*/false);
    return true;
  }

  std::string resource_version() const {
    const std::lock_guard lock(mutex_);
    return std::to_string(version_);
  }

  template <typename Setter>
  void Configure(const Setter& change) {
    const std::lock_guard lock(mutex_);
    change(*this);
    changed_.notify_all();
  }

  void Inject(const std::string& method, const std::string& target, Reaction reaction, int count) {
    const std::lock_guard lock(mutex_);
    faults_.push_back({method, target, std::move(reaction), count});
  }

  // --- what it saw ---

  std::vector<Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  bool WaitForRequests(const std::string& method, const std::string& target, int count, absl::Duration limit) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, Clock::now() + absl::ToChronoNanoseconds(limit),
                               [&] { return CountLocked(method, target) >= count; });
  }

  int CountRequests(const std::string& method, const std::string& target) const {
    const std::lock_guard lock(mutex_);
    return CountLocked(method, target);
  }

  std::size_t CountRequests() const {
    const std::lock_guard lock(mutex_);
    return requests_.size();
  }

  bool WaitForWatches(int count, absl::Duration limit) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, Clock::now() + absl::ToChronoNanoseconds(limit),
                               [&] { return watches_ >= count; });
  }

  int connections() const {
    const std::lock_guard lock(mutex_);
    return accepted_;
  }

  // Under Configure.
  std::function<double()> now_ = [] { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); };
  bool graceful_pods_ = false;
  bool collect_garbage_ = true;
  bool expired_as_status_ = false;
  bool close_after_response_ = false;
  std::map<std::pair<std::string, std::string>, std::string> logs_;
  int bookmark_round_ = 0;
  int end_round_ = 0;
  bool end_by_reset_ = false;
  void CompactLocked() { compacted_ = version_; }
  void ClearFaultsLocked() { faults_.clear(); }

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // collection, namespace, name

  struct Change {
    std::uint64_t version;
    Key key;
    std::optional<Json> before, after;
  };
  struct Fault {
    std::string method, target;
    Reaction reaction;
    int count;
  };
  struct Connection {
    std::shared_ptr<Socket> socket;
    std::thread thread;
  };
  struct Answer {
    int status = 200;
    std::string body;
    std::string content_type = "application/json";
  };

  // --- sockets ---

  void Accept(int listener) {
    for (;;) {
      const int descriptor = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      const std::lock_guard lock(mutex_);
      if (stopping_) {
        if (descriptor >= 0) close(descriptor);
        return;
      }
      if (descriptor < 0) continue;
      ++accepted_;
      auto socket = std::make_shared<Socket>(descriptor);
      connections_.push_back({socket, std::thread([this, socket] { Serve(*socket); })});
    }
  }

  void Serve(Socket& socket) {
    std::string buffer;
    Request request;
    while (ReadRequest(socket, &buffer, &request)) {
      Reaction fault;
      if (TakeFault(request, &fault) ? !React(socket, fault) : !Respond(socket, request)) break;
    }
    socket.Close();
  }

  static bool ReadRequest(const Socket& socket, std::string* buffer, Request* request) {
    std::size_t end;
    while ((end = buffer->find("\r\n\r\n")) == std::string::npos) {
      if (!socket.Read(buffer)) return false;
    }
    *request = {};
    std::vector<std::string> lines = absl::StrSplit(buffer->substr(0, end), "\r\n");
    buffer->erase(0, end + 4);
    const std::vector<std::string> first = absl::StrSplit(lines[0], ' ');
    if (first.size() != 3) return false;
    request->method = first[0];
    const std::size_t mark = first[1].find('?');
    request->path = Decode(first[1].substr(0, mark), false);
    if (mark != std::string::npos) {
      for (const auto& pair : absl::StrSplit(first[1].substr(mark + 1), '&', absl::SkipEmpty())) {
        const std::string text(pair);
        const std::size_t equal = std::min(text.find('='), text.size());
        request->query[Decode(text.substr(0, equal), true)] =
            equal < text.size() ? Decode(text.substr(equal + 1), true) : "";
      }
    }
    for (std::size_t i = 1; i < lines.size(); ++i) {
      const std::size_t colon = lines[i].find(':');
      if (colon == std::string::npos) continue;
      request->headers[absl::AsciiStrToLower(lines[i].substr(0, colon))] =
          std::string(absl::StripAsciiWhitespace(lines[i].substr(colon + 1)));
    }
    std::size_t length = 0;
    const auto header = request->headers.find("content-length");
    if (header != request->headers.end() && !absl::SimpleAtoi(header->second, &length)) return false;
    while (buffer->size() < length) {
      if (!socket.Read(buffer)) return false;
    }
    request->body = buffer->substr(0, length);
    buffer->erase(0, length);
    return true;
  }

  bool TakeFault(const Request& request, Reaction* reaction) {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    changed_.notify_all();
    for (auto fault = faults_.begin(); fault != faults_.end(); ++fault) {
      if (!Matches(request, fault->method, fault->target)) continue;
      *reaction = fault->reaction;
      if (fault->count > 0 && --fault->count == 0) faults_.erase(fault);
      return true;
    }
    return false;
  }

  static bool Matches(const Request& request, const std::string& method, const std::string& target) {
    return (method.empty() || method == request.method) && request.Target().find(target) != std::string::npos;
  }

  int CountLocked(const std::string& method, const std::string& target) const {
    return static_cast<int>(std::count_if(requests_.begin(), requests_.end(),
                                          [&](const Request& request) { return Matches(request, method, target); }));
  }

  // Whether the connection goes on.
  bool React(Socket& socket, const Reaction& reaction) {
    if (reaction.before) reaction.before();
    bool first = true;
    for (const std::string& piece : reaction.pieces) {
      if (!first && reaction.gap > absl::ZeroDuration() && !Pause(reaction.gap)) return false;
      first = false;
      if (!socket.Write(piece)) return false;
    }
    switch (reaction.end) {
      case Reaction::End::kKeepAlive:
        return true;
      case Reaction::End::kClose:
        return false;
      case Reaction::End::kReset:
        socket.Reset();
        return false;
      case Reaction::End::kHang: {
        std::string ignored;
        while (socket.Read(&ignored)) ignored.clear();
        return false;
      }
    }
    return false;
  }

  // False: the server stops.
  bool Pause(absl::Duration duration) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_until(lock, Clock::now() + absl::ToChronoNanoseconds(duration), [this] { return stopping_; });
  }

  bool Respond(Socket& socket, const Request& request) {
    const auto watch = request.query.find("watch");
    Answer answer;
    try {
      const std::optional<Address> address = ParsePath(request.path);
      if (!address.has_value()) throw Failure{404, "NotFound", "the server could not find the requested resource"};
      if (request.method == "GET" && watch != request.query.end() &&
          (watch->second == "true" || watch->second == "1")) {
        return Watch(socket, *address, request);
      }
      const std::lock_guard lock(mutex_);
      answer = Handle(*address, request);
      KeepWhatIsAccepted(request, answer);
    } catch (const Failure& failure) {
      answer = {failure.code, DumpJson(StatusObject(failure))};
    } catch (const Json::exception& error) {
      answer = {400, DumpJson(StatusObject({400, "BadRequest", error.what()}))};
    }
    bool close;
    {
      const std::lock_guard lock(mutex_);
      close = close_after_response_;
    }
    return socket.Write(kube::Response(answer.status, answer.body, {{"Content-Type", answer.content_type}})) && !close;
  }

  // A client may ask for the metadata alone of what it writes or lists.
  static void KeepWhatIsAccepted(const Request& request, Answer& answer) {
    const auto accept = request.headers.find("accept");
    if (accept == request.headers.end() || accept->second.find("as=PartialObjectMetadata") == std::string::npos) return;
    if (request.method == "GET" && accept->second.find("as=PartialObjectMetadataList") == std::string::npos) return;
    Json whole = Json::parse(answer.body);
    if (whole.is_object() && whole.contains("items")) {
      whole["kind"] = "PartialObjectMetadataList";
      whole["apiVersion"] = "meta.k8s.io/v1";
      for (Json& item : whole["items"]) item = MetadataOf(item);
      answer.body = DumpJson(whole);
      return;
    }
    if (!whole.is_object() || !whole.contains("metadata") || whole.value("kind", "") == "Status") return;
    answer.body = DumpJson(MetadataOf(whole));
  }
  static Json MetadataOf(const Json& whole) {
    return {{"apiVersion", "meta.k8s.io/v1"}, {"kind", "PartialObjectMetadata"}, {"metadata", whole.at("metadata")}};
  }

  // --- verbs; all with the lock ---

  Answer Handle(const Address& address, const Request& request) {
    if (request.method == "GET" && address.subresource == "log") return Log(address);
    if (request.method == "GET" && address.name.empty()) return ListPage(address, request);
    if (request.method == "GET") return {200, DumpJson(Existing(address)->second)};
    if (request.method == "POST" && address.name.empty()) return Create(address, request);
    if (request.method == "PUT" || request.method == "PATCH") return Update(address, request);
    if (request.method == "DELETE" && address.name.empty()) return DeleteCollection(address, request);
    if (request.method == "DELETE") return Delete(address, request);
    throw Failure{405, "MethodNotAllowed", "the server does not allow this method on the requested resource"};
  }

  std::map<Key, Json>::iterator Existing(const Address& address) {
    const auto found = objects_.find({address.collection, address.namespace_name, address.name});
    if (found == objects_.end()) {
      throw Failure{404, "NotFound", absl::StrCat(address.plural, " \"", address.name, "\" not found")};
    }
    return found;
  }

  Answer Log(const Address& address) {
    const auto found = logs_.find({address.namespace_name, address.name});
    if (found == logs_.end()) throw Failure{404, "NotFound", "no such log"};
    return {200, found->second, "text/plain"};
  }

  static std::string Query(const Request& request, const std::string& name) {
    const auto found = request.query.find(name);
    return found == request.query.end() ? "" : found->second;
  }

  Answer ListPage(const Address& address, const Request& request) {
    const Selector selector{Query(request, "labelSelector"), Query(request, "fieldSelector")};
    std::uint64_t version = version_;
    Key after;
    const std::string token = Query(request, "continue");
    if (!token.empty()) {
      if (!Query(request, "resourceVersion").empty()) {
        throw Failure{400, "BadRequest", "specifying resource version is not allowed when using continue"};
      }
      const std::vector<std::string> parts = absl::StrSplit(token, '|');
      if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &version)) {
        throw Failure{400, "BadRequest", "continue key is not valid"};
      }
      if (version < compacted_) {
        throw Failure{410, "Expired",
                      "The provided continue parameter is too old to display a consistent list result."};
      }
      after = {address.collection, parts[1], parts[2]};
    }
    std::size_t limit = 0;
    if (const std::string text = Query(request, "limit"); !text.empty() && !absl::SimpleAtoi(text, &limit)) {
      throw Failure{400, "BadRequest", "limit is not a number"};
    }
    if (Query(request, "resourceVersion") == "0") limit = 0;  // from its cache the server gives all at once
    Json list = {{"kind", "List"},
                 {"apiVersion", "v1"},
                 {"metadata", {{"resourceVersion", std::to_string(version)}}},
                 {"items", Json::array()}};
    for (auto at = objects_.lower_bound({address.collection, "", ""});
         at != objects_.end() && std::get<0>(at->first) == address.collection; ++at) {
      if (!token.empty() && at->first <= after) continue;
      if (address.namespaced && std::get<1>(at->first) != address.namespace_name) continue;
      if (!selector.Matches(at->second)) continue;
      if (limit > 0 && list["items"].size() == limit) {
        const Json& last = list["items"].back();
        list["metadata"]["continue"] = absl::StrCat(version, "|", FindText(last, {"metadata", "namespace"}), "|",
                                                    FindText(last, {"metadata", "name"}));
        break;
      }
      list["items"].push_back(at->second);
    }
    return {200, DumpJson(list)};
  }

  Answer Create(const Address& address, const Request& request) {
    Json object = Json::parse(request.body);
    Json& metadata = object["metadata"];
    if (!metadata.is_object()) metadata = Json::object();
    if (address.namespaced) {
      if (!FindText(metadata, {"namespace"}).empty() && FindText(metadata, {"namespace"}) != address.namespace_name) {
        throw Failure{400, "BadRequest", "the namespace of the object does not match the one of the request"};
      }
      metadata["namespace"] = address.namespace_name;
    }
    std::string name = FindText(metadata, {"name"});
    if (name.empty() && !FindText(metadata, {"generateName"}).empty()) {
      name = absl::StrCat(FindText(metadata, {"generateName"}), absl::Hex(++generated_, absl::kZeroPad5));
      metadata["name"] = name;
    }
    if (name.empty()) throw Failure{422, "Invalid", "metadata.name: Required value: name or generateName is required"};
    const Key key{address.collection, address.namespace_name, name};
    if (objects_.find(key) != objects_.end()) {
      throw Failure{409, "AlreadyExists", absl::StrCat(address.plural, " \"", name, "\" already exists")};
    }
    if (!FindText(metadata, {"resourceVersion"}).empty()) {
      throw Failure{400, "BadRequest", "resourceVersion should not be set on objects to be created"};
    }
    object.erase("status");
    metadata.erase("uid");
    Stamp(object);
    if (Query(request, "dryRun") == "All") return {201, DumpJson(object)};
    Store(key, std::move(object));
    return {201, DumpJson(objects_[key])};
  }

  Answer Update(const Address& address, const Request& request) {
    const std::string type = ContentType(request);
    const bool apply = type == "application/apply-patch+yaml";
    const Key key{address.collection, address.namespace_name, address.name};
    if (apply && objects_.find(key) == objects_.end()) {
      if (Query(request, "fieldManager").empty())
        throw Failure{400, "BadRequest", "fieldManager is required for apply"};
      Request create = request;
      Json object = Json::parse(request.body);
      if (!FindText(object, {"metadata", "uid"}).empty()) {
        throw Failure{409, "Conflict", "uid mismatch: the provided object specified uid, and no existing object"};
      }
      object["metadata"]["name"] = address.name;
      create.body = DumpJson(object);
      return Create(address, create);
    }
    const Json& before = Existing(address)->second;
    Json after;
    if (request.method == "PUT") {
      after = Json::parse(request.body);
    } else if (apply || type == "application/merge-patch+json" ||
               (type == "application/strategic-merge-patch+json" && address.built_in)) {
      after = before;
      after.merge_patch(Json::parse(request.body));
    } else {
      throw Failure{415, "UnsupportedMediaType", "the body of the request was in an unknown format: " + type};
    }
    CheckConflict(address, before, after);

    Json stored = address.subresource == "status" ? before : std::move(after);
    if (address.subresource == "status") {
      if (const auto status = after.find("status"); status != after.end()) {
        stored["status"] = *status;
      } else {
        stored.erase("status");
      }
    } else {
      if (const auto status = before.find("status"); status != before.end()) {
        stored["status"] = *status;
      } else {
        stored.erase("status");
      }
      for (const char* field : {"uid", "creationTimestamp", "generation", "namespace", "name", "deletionTimestamp",
                                "deletionGracePeriodSeconds"}) {
        if (const Json* value = Find(before, {"metadata", field})) {
          stored["metadata"][field] = *value;
        } else {
          stored["metadata"].erase(field);
        }
      }
    }
    stored["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"];
    if (stored == before) return {200, DumpJson(before)};
    if (!SameSpec(before, stored))
      stored["metadata"]["generation"] = FindInteger(before, {"metadata", "generation"}).value_or(0) + 1;
    const Json* const finalizers = Find(stored, {"metadata", "finalizers"});
    if (Find(stored, {"metadata", "deletionTimestamp"}) != nullptr &&
        Find(before, {"metadata", "finalizers"}) != nullptr && (finalizers == nullptr || finalizers->empty())) {
      Erase(key, /*orphan=*/false);
      return {200, DumpJson(stored)};
    }
    Store(key, std::move(stored));
    return {200, DumpJson(objects_[key])};
  }

  static std::string ContentType(const Request& request) {
    const auto found = request.headers.find("content-type");
    if (found == request.headers.end()) return "";
    return found->second.substr(0, found->second.find(';'));
  }

  static void CheckConflict(const Address& address, const Json& before, const Json& after) {
    const auto conflict = [&](const char* what) {
      return Failure{
          409, "Conflict",
          absl::StrCat("Operation cannot be fulfilled on ", address.plural, " \"", address.name, "\": ", what)};
    };
    const std::string version = FindText(after, {"metadata", "resourceVersion"});
    if (!version.empty() && version != FindText(before, {"metadata", "resourceVersion"})) {
      throw conflict("the object has been modified; please apply your changes to the latest version and try again");
    }
    const std::string uid = FindText(after, {"metadata", "uid"});
    if (!uid.empty() && uid != FindText(before, {"metadata", "uid"})) throw conflict("the uid does not match");
    const std::string name = FindText(after, {"metadata", "name"});
    if (!name.empty() && name != address.name)
      throw Failure{400, "BadRequest", "the name of the object does not match"};
  }

  static bool SameSpec(Json a, Json b) {
    for (Json* object : {&a, &b}) {
      object->erase("metadata");
      object->erase("status");
    }
    return a == b;
  }

  Answer Delete(const Address& address, const Request& request) {
    const auto found = Existing(address);
    const Json options = request.body.empty() ? Json::object() : Json::parse(request.body);
    for (const char* field : {"uid", "resourceVersion"}) {
      const std::string wanted = FindText(options, {"preconditions", field});
      const std::string has = FindText(found->second, {"metadata", field});
      if (!wanted.empty() && wanted != has) {
        throw Failure{409, "Conflict",
                      absl::StrCat("Precondition failed: ", field, " in precondition: ", wanted, ", in object: ", has)};
      }
    }
    const bool orphan = FindText(options, {"propagationPolicy"}) == "Orphan";
    const auto grace = FindInteger(options, {"gracePeriodSeconds"});
    const Json* const finalizers = Find(found->second, {"metadata", "finalizers"});
    const bool finalized = finalizers != nullptr && !finalizers->empty();
    const bool graceful = graceful_pods_ && address.collection == "/api/v1/pods" && grace.value_or(30) > 0;
    if (finalized || graceful) {
      const std::int64_t seconds = graceful ? grace.value_or(30) : 0;
      if (Find(found->second, {"metadata", "deletionTimestamp"}) == nullptr) {
        Json object = found->second;
        object["metadata"]["deletionTimestamp"] = FormatTime(now_() + static_cast<double>(seconds));
        object["metadata"]["deletionGracePeriodSeconds"] = seconds;
        Store(found->first, std::move(object));
      }
      return {200, DumpJson(found->second)};
    }
    const Key key = found->first;
    Erase(key, orphan);
    return {200, DumpJson({{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Success"}})};
  }

  Answer DeleteCollection(Address address, const Request& request) {
    const Selector selector{Query(request, "labelSelector"), Query(request, "fieldSelector")};
    std::vector<std::string> names;
    for (const auto& [key, object] : objects_) {
      const bool inside = std::get<0>(key) == address.collection && std::get<1>(key) == address.namespace_name;
      if (inside && selector.Matches(object)) names.push_back(std::get<2>(key));
    }
    for (std::string& name : names) {
      address.name = std::move(name);
      Delete(address, request);
    }
    return {200, DumpJson({{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Success"}})};
  }

  // --- the store, with the lock ---

  Json PutLocked(const Resource& resource, Json object) {
    object["apiVersion"] = resource.ApiVersion();
    object["kind"] = resource.kind;
    const ObjectMeta meta = ReadMeta(object);
    const Key key{CollectionOf(resource), meta.namespace_name, meta.name};
    const auto found = objects_.find(key);
    if (found == objects_.end()) {
      Stamp(object);
    } else {
      for (const char* field : {"uid", "creationTimestamp", "generation"}) {
        if (!object["metadata"].contains(field)) object["metadata"][field] = found->second["metadata"][field];
      }
      Json& generation = object["metadata"]["generation"];
      if (object.value("spec", Json()) != found->second.value("spec", Json()) &&
          generation == found->second["metadata"]["generation"]) {
        generation = generation.get<std::int64_t>() + 1;
      }
    }
    Store(key, std::move(object));
    return objects_[key];
  }

  // What a new object gets, where it has none.
  void Stamp(Json& object) {
    Json& metadata = object["metadata"];
    const std::string number = absl::StrCat(absl::Hex(++uids_, absl::kZeroPad12));
    if (FindText(metadata, {"uid"}).empty()) metadata["uid"] = "00000000-0000-4000-8000-" + number;
    if (!metadata.contains("creationTimestamp")) metadata["creationTimestamp"] = FormatTime(now_());
    if (!metadata.contains("generation")) metadata["generation"] = 1;
  }

  void Store(const Key& key, Json object) {
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
    const auto found = objects_.find(key);
    Change change{version_, key, std::nullopt, object};
    if (found != objects_.end()) change.before = found->second;
    changes_.push_back(std::move(change));
    objects_[key] = std::move(object);
    changed_.notify_all();
  }

  void Erase(const Key& key, bool orphan) {
    const auto found = objects_.find(key);
    const std::string uid = FindText(found->second, {"metadata", "uid"});
    changes_.push_back({++version_, key, std::move(found->second), std::nullopt});
    objects_.erase(found);
    changed_.notify_all();
    if (orphan || !collect_garbage_) return;
    for (;;) {
      const auto dependent = std::find_if(objects_.begin(), objects_.end(), [&](const auto& entry) {
        const Json* const owners = Find(entry.second, {"metadata", "ownerReferences"});
        return owners != nullptr && owners->is_array() &&
               std::any_of(owners->begin(), owners->end(),
                           [&](const Json& owner) { return FindText(owner, {"uid"}) == uid; });
      });
      if (dependent == objects_.end()) return;
      const Key next = dependent->first;
      Erase(next, false);
    }
  }

  // --- watches ---

  static std::string EventLine(const char* type, const Json& object) {
    return DumpJson({{"type", type}, {"object", object}}) + "\n";
  }

  // Whether the connection goes on.
  bool Watch(Socket& socket, const Address& address, const Request& request) {
    const Selector selector{Query(request, "labelSelector"), Query(request, "fieldSelector")};
    std::string lines;
    std::uint64_t seen = 0;
    int bookmarks, ends;
    {
      std::unique_lock lock(mutex_);
      const std::string from = Query(request, "resourceVersion");
      bookmarks = bookmark_round_;
      ends = end_round_;
      if (from.empty() || from == "0") {
        seen = version_;
        for (const auto& [key, object] : objects_) {
          if (InScope(address, key) && selector.Matches(object)) lines += EventLine("ADDED", object);
        }
      } else if (!absl::SimpleAtoi(from, &seen)) {
        throw Failure{400, "BadRequest", "Invalid value: \"" + from + "\": resource version is not a number"};
      } else if (seen < compacted_) {
        const Failure expired{410, "Expired", absl::StrCat("too old resource version: ", seen, " (", compacted_, ")")};
        if (expired_as_status_) throw expired;
        lock.unlock();
        return socket.Write(absl::StrCat(kStreamHead, Chunk(EventLine("ERROR", StatusObject(expired))), kLastChunk));
      }
    }
    if (!socket.Write(kStreamHead)) return false;
    if (!lines.empty() && !socket.Write(Chunk(lines))) return false;

    double seconds = 1800;
    if (const std::string text = Query(request, "timeoutSeconds"); !text.empty())
      (void)absl::SimpleAtod(text, &seconds);
    const auto deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    const bool wants_bookmarks = Query(request, "allowWatchBookmarks") == "true";
    const WatchCount counted(this);
    for (;;) {
      bool bookmark = false;
      bool end = false;
      bool reset = false;
      lines.clear();
      {
        std::unique_lock lock(mutex_);
        // Looks up now and then whether the client is there still.
        changed_.wait_until(lock, std::min(deadline, Clock::now() + std::chrono::milliseconds(50)), [&] {
          return stopping_ || version_ > seen || bookmark_round_ != bookmarks || end_round_ != ends;
        });
        if (stopping_) return false;
        for (auto change = std::upper_bound(changes_.begin(), changes_.end(), seen,
                                            [](std::uint64_t version, const Change&c) { return version < c.version; });
             change != changes_.end(); ++change) {
          if (!InScope(address, change->key)) continue;
          AppendEvent(*change, selector, &lines);
        }
        seen = version_;
        bookmark = std::exchange(bookmarks, bookmark_round_) != bookmark_round_;
        end = end_round_ != ends;
        reset = end_by_reset_;
      }
      if (bookmark && wants_bookmarks) {
        lines += EventLine("BOOKMARK", {{"metadata", {{"resourceVersion", std::to_string(seen)}}}});
      }
      if (!lines.empty() && !socket.Write(Chunk(lines))) return false;
      if (end && reset) {
        socket.Reset();
        return false;
      }
      if (end || Clock::now() >= deadline) return socket.Write(kLastChunk);
      if (socket.Gone()) return false;
    }
  }

  static bool InScope(const Address& address, const Key& key) {
    return std::get<0>(key) == address.collection &&
           (!address.namespaced || std::get<1>(key) == address.namespace_name) &&
           (address.name.empty() || std::get<2>(key) == address.name);
  }

  static void AppendEvent(const Change& change, const Selector& selector, std::string* lines) {
    const bool before = change.before.has_value() && selector.Matches(*change.before);
    const bool after = change.after.has_value() && selector.Matches(*change.after);
    if (after) {
      *lines += EventLine(before ? "MODIFIED" : "ADDED", *change.after);
    } else if (before) {
      Json object = *change.before;
      object["metadata"]["resourceVersion"] = std::to_string(change.version);
      *lines += EventLine("DELETED", object);
    }
  }

  class WatchCount {
   public:
    explicit WatchCount(Impl* server) : server_(server) { Add(1); }
    ~WatchCount() { Add(-1); }
    WatchCount(const WatchCount&) = delete;
    WatchCount& operator=(const WatchCount&) = delete;

   private:
    void Add(int by) {
      const std::lock_guard lock(server_->mutex_);
      server_->watches_ += by;
      server_->changed_.notify_all();
    }
    Impl* const server_;
  };

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  int listener_ = -1;
  std::string url_;
  bool stopping_ = false;
  std::thread acceptor_;
  std::list<Connection> connections_;
  int accepted_ = 0;
  int watches_ = 0;
  std::map<Key, Json> objects_;
  std::vector<Change> changes_;
  std::uint64_t version_ = 100;
  std::uint64_t compacted_ = 0;
  std::uint64_t uids_ = 0;
  std::uint64_t generated_ = 0;
  std::list<Fault> faults_;
  std::vector<Request> requests_;
};

FakeApiServer::FakeApiServer() : impl_(std::make_unique<Impl>()) {}

FakeApiServer::~FakeApiServer() = default;

std::string FakeApiServer::Start(const std::string& host) { return impl_->Start(host); }
void FakeApiServer::Stop() { impl_->Stop(); }

Json FakeApiServer::Put(const Resource& resource, Json object) { return impl_->Put(resource, std::move(object)); }
bool FakeApiServer::Modify(const Resource& resource, const std::string& namespace_name, const std::string& name,
                           const std::function<void(Json& object)>& change) {
  return impl_->Modify(resource, namespace_name, name, change);
}
std::optional<Json> FakeApiServer::Get(const Resource& resource, const std::string& namespace_name,
                                       const std::string& name) const {
  return impl_->Get(resource, namespace_name, name);
}
std::vector<Json> FakeApiServer::List(const Resource& resource) const { return impl_->List(resource); }
bool FakeApiServer::Remove(const Resource& resource, const std::string& namespace_name, const std::string& name) {
  return impl_->Remove(resource, namespace_name, name);
}
std::string FakeApiServer::resource_version() const { return impl_->resource_version(); }

void FakeApiServer::SetClock(std::function<double()> now) {
  impl_->Configure([&](Impl& impl) { impl.now_ = std::move(now); });
}
void FakeApiServer::SetGracefulPods(bool graceful) {
  impl_->Configure([&](Impl& impl) { impl.graceful_pods_ = graceful; });
}
void FakeApiServer::SetGarbageCollection(bool collect) {
  impl_->Configure([&](Impl& impl) { impl.collect_garbage_ = collect; });
}
void FakeApiServer::SetLog(const std::string& namespace_name, const std::string& pod, const std::string& text) {
  impl_->Configure([&](Impl& impl) { impl.logs_[{namespace_name, pod}] = text; });
}
void FakeApiServer::Compact() {
  impl_->Configure([](Impl& impl) { impl.CompactLocked(); });
}
void FakeApiServer::SetExpiredAsStatus(bool as_status) {
  impl_->Configure([&](Impl& impl) { impl.expired_as_status_ = as_status; });
}
void FakeApiServer::SetCloseAfterResponse(bool close) {
  impl_->Configure([&](Impl& impl) { impl.close_after_response_ = close; });
}
void FakeApiServer::SendBookmarks() {
  impl_->Configure([](Impl& impl) { ++impl.bookmark_round_; });
}
void FakeApiServer::EndWatches(bool reset) {
  impl_->Configure([&](Impl& impl) {
    ++impl.end_round_;
    impl.end_by_reset_ = reset;
  });
}

FakeApiServer::Reaction FakeApiServer::Respond(int status, const std::string& body, const Headers& headers) {
  Reaction reaction;
  reaction.pieces = {kube::Response(status, body, headers)};
  return reaction;
}

FakeApiServer::Reaction FakeApiServer::Refuse(int status, const std::string& reason, const std::string& message,
                                              const Headers& headers) {
  return Respond(status, DumpJson(StatusObject({status, reason, message})), headers);
}

FakeApiServer::Reaction FakeApiServer::Stream(const std::vector<std::string>& chunks, Reaction::End end) {
  Reaction reaction;
  reaction.pieces.emplace_back(kStreamHead);
  for (const std::string& chunk : chunks) reaction.pieces.push_back(Chunk(chunk));
  if (end == Reaction::End::kKeepAlive) reaction.pieces.emplace_back(kLastChunk);
  reaction.end = end;
  return reaction;
}

FakeApiServer::Reaction FakeApiServer::End(Reaction::End end) {
  Reaction reaction;
  reaction.end = end;
  return reaction;
}

void FakeApiServer::Inject(const std::string& method, const std::string& target, Reaction reaction, int count) {
  impl_->Inject(method, target, std::move(reaction), count);
}
void FakeApiServer::ClearFaults() {
  impl_->Configure([](Impl& impl) { impl.ClearFaultsLocked(); });
}

std::vector<FakeApiServer::Request> FakeApiServer::requests() const { return impl_->requests(); }
int FakeApiServer::CountRequests(const std::string& method, const std::string& target) const {
  return impl_->CountRequests(method, target);
}
std::size_t FakeApiServer::CountRequests() const { return impl_->CountRequests(); }
bool FakeApiServer::WaitForRequests(const std::string& method, const std::string& target, int count,
                                    absl::Duration limit) const {
  return impl_->WaitForRequests(method, target, count, limit);
}
int FakeApiServer::connections() const { return impl_->connections(); }
bool FakeApiServer::WaitForWatches(int count, absl::Duration limit) const {
  return impl_->WaitForWatches(count, limit);
}

}  // namespace downpour::kube
