#ifndef DOWNPOUR_OPERATOR_KUBE_INFORMER_H_
#define DOWNPOUR_OPERATOR_KUBE_INFORMER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "operator/kube/client.h"
#include "operator/kube/object.h"
#include "operator/kube/transport.h"

namespace downpour::kube {

// Who hears of a reflector's objects; called by its thread, one call at a time.
class ReflectorSink {
 public:
  virtual ~ReflectorSink() = default;
  // A list begins; its pages come through OnListed; it is whole at OnListEnd, and only then counts. One that fails
  // half-way is begun again.
  virtual void OnListBegin() = 0;
  virtual void OnListed(const Json& object) = 0;
  virtual void OnListEnd(const std::string& resource_version) = 0;
  virtual void OnUpserted(const Json& object) = 0;
  virtual void OnDeleted(const Json& object) = 0;
  // Nothing changed up to this version.
  virtual void OnBookmark(const std::string& resource_version) = 0;
};

struct ReflectorOptions {
  Resource resource;
  std::string namespace_name;  // empty: all
  std::string label_selector;
  std::string field_selector;
  ProtobufFields fields;  // as of ListOptions; outlive the reflector
  std::int64_t page_size = 500;
  // Servers end a watch after a random time in this range; the client hangs up `slack` after that.
  absl::Duration watch_shortest = absl::Seconds(240);
  absl::Duration watch_longest = absl::Seconds(290);
  absl::Duration slack = absl::Seconds(15);
  // A watch on which nothing came for so long, bookmarks included, is taken for dead (half-open sockets).
  absl::Duration silence = absl::Seconds(100);
  absl::Duration first_backoff = absl::Milliseconds(800);
  absl::Duration most_backoff = absl::Seconds(5);  // few processes watch: that the server is back should be seen soon
  // Called with why a list or a watch failed, by the reflector's thread, without locks; may be empty.
  std::function<void(const absl::Status&)> on_failure;
};

struct ReflectorState {
  bool synced = false;                                      // a list has been whole
  absl::Duration last_contact = -absl::InfiniteDuration();  // the newest list, event or bookmark: by MonotonicNow
  std::uint64_t lists = 0, watches = 0, failures = 0;
  std::string last_error;
};

// Lists and then watches one resource until it is destroyed, on a thread of its own. It lists again after 410 (as a
// status, as an event or as watches that end at once), never goes back in time, and backs off with jitter.
class Reflector {
 public:
  // All outlive it. `transport` should be one for watches alone.
  Reflector(ReflectorOptions options, Client* client, Transport* transport, ReflectorSink* sink, std::uint32_t seed);
  ~Reflector();
  void Start();
  ReflectorState state() const;
  // Waits until the first list is whole; false: not within `limit`.
  bool WaitForSync(absl::Duration limit) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A cache of one resource as values of type T, which has an ObjectMeta `meta`. `decode` makes a T of an object; what it
// refuses is left out and counted. `before` is what the cache has under the same name, or nullptr: parts of it that
// cannot have changed need not be read again. Thread-safe.
//
// `index` groups objects, by the uid of their controller for instance; empty: in no group. `on_change` is called after
// each change with the old value (nullptr: new) and the new one (nullptr: gone), by the reflector's thread, without
// locks; not for values that a new list shows unchanged. An object whose uid changed is first gone and then new.
template <class T>
class Store final : public ReflectorSink {
 public:
  using Pointer = std::shared_ptr<const T>;
  using Decode = std::function<std::optional<T>(const Json& object, const T* before)>;
  using Index = std::function<std::string(const T& value)>;
  using OnChange = std::function<void(const Pointer& before, const Pointer& after)>;

  Store(Decode decode, Index index, OnChange on_change)
      : decode_(std::move(decode)), index_(std::move(index)), on_change_(std::move(on_change)) {}

  Pointer Get(const std::string& key) const {
    absl::MutexLock lock(&mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : found->second;
  }
  std::vector<Pointer> Group(const std::string& group) const {
    absl::MutexLock lock(&mutex_);
    std::vector<Pointer> values;
    const auto found = groups_.find(group);
    if (found == groups_.end()) return values;
    for (const std::string& key : found->second) values.push_back(values_.at(key));
    return values;
  }
  bool HasGroup(const std::string& group) const {
    absl::MutexLock lock(&mutex_);
    return groups_.contains(group);
  }
  std::vector<Pointer> All() const {
    absl::MutexLock lock(&mutex_);
    std::vector<Pointer> values;
    values.reserve(values_.size());
    for (const auto& [key, value] : values_) values.push_back(value);
    return values;
  }
  std::size_t size() const {
    absl::MutexLock lock(&mutex_);
    return values_.size();
  }
  // The version up to which this cache has seen everything; empty: not synced.
  std::string resource_version() const {
    absl::MutexLock lock(&mutex_);
    return resource_version_;
  }
  std::uint64_t refused() const {
    absl::MutexLock lock(&mutex_);
    return refused_;
  }

  void OnListBegin() override { listed_.clear(); }
  void OnListed(const Json& object) override {
    if (std::optional<T> value = DecodeCounted(object)) {
      std::string key = value->meta.Key();
      listed_[std::move(key)] = std::make_shared<const T>(*std::move(value));
    }
  }
  void OnListEnd(const std::string& resource_version) override {
    std::vector<std::string> gone;
    {
      absl::MutexLock lock(&mutex_);
      for (const auto& [key, value] : values_) {
        if (listed_.find(key) == listed_.end()) gone.push_back(key);
      }
    }
    for (const std::string& key : gone) Put(key, nullptr, {});
    for (auto& [key, value] : listed_) Put(key, value, {});
    listed_.clear();
    absl::MutexLock lock(&mutex_);
    resource_version_ = resource_version;
  }
  void OnUpserted(const Json& object) override {
    if (std::optional<T> value = DecodeCounted(object)) {
      const std::string key = value->meta.Key();
      const std::string version = value->meta.resource_version;
      Put(key, std::make_shared<const T>(*std::move(value)), version);
    }
  }
  void OnDeleted(const Json& object) override {
    const ObjectMeta meta = ReadMeta(object);
    Put(meta.Key(), nullptr, meta.resource_version);
  }
  void OnBookmark(const std::string& resource_version) override {
    absl::MutexLock lock(&mutex_);
    resource_version_ = resource_version;
  }

 private:
  std::optional<T> DecodeCounted(const Json& object) {
    const Pointer before = Get(ReadKey(object));
    std::optional<T> value = decode_(object, before.get());
    if (!value.has_value()) {
      absl::MutexLock lock(&mutex_);
      ++refused_;
    }
    return value;
  }

  // Replaces, adds or (nullptr) removes; tells `on_change` if that changed anything.
  void Put(const std::string& key, Pointer after, const std::string& resource_version) {
    Pointer before;
    {
      absl::MutexLock lock(&mutex_);
      const auto found = values_.find(key);
      if (found != values_.end()) before = found->second;
      if (!resource_version.empty()) resource_version_ = resource_version;
      if (before != nullptr) Ungroup(key, *before);
      if (after != nullptr) {
        values_[key] = after;
        if (std::string group = index_(*after); !group.empty()) groups_[std::move(group)].insert(key);
      } else {
        values_.erase(key);
      }
    }
    if (before == nullptr && after == nullptr) return;
    if (before != nullptr && after != nullptr && before->meta.uid != after->meta.uid) {
      on_change_(before, nullptr);
      on_change_(nullptr, after);
    } else if (before == nullptr || after == nullptr || before->meta.resource_version != after->meta.resource_version) {
      on_change_(before, after);
    }
  }

  void Ungroup(const std::string& key, const T& value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto group = groups_.find(index_(value));
    if (group == groups_.end()) return;
    group->second.erase(key);
    if (group->second.empty()) groups_.erase(group);
  }

  const Decode decode_;
  const Index index_;
  const OnChange on_change_;
  mutable absl::Mutex mutex_;
  std::unordered_map<std::string, Pointer> values_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::unordered_set<std::string>> groups_ ABSL_GUARDED_BY(mutex_);
  std::string resource_version_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, Pointer> listed_;  // of the list under way; the reflector's thread alone
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_INFORMER_H_
