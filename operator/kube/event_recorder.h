#ifndef DOWNPOUR_OPERATOR_KUBE_EVENT_RECORDER_H_
#define DOWNPOUR_OPERATOR_KUBE_EVENT_RECORDER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "operator/kube/client.h"
#include "operator/kube/object.h"

namespace downpour::kube {

struct EventToRecord {
  Resource resource;  // of the object it is about
  ObjectMeta about;
  bool warning = false;
  std::string reason;
  std::string message;
};

// Writes events from a thread of its own and never makes its caller wait: what does not fit into the queue, or is more
// than 25 at once and then one in five minutes about one object, is dropped and counted. The same event again within
// ten minutes raises the count of the one that is there; so do those beyond ten that differ in the message alone.
class EventRecorder {
 public:
  // `client` outlives it.
  EventRecorder(Client* client, std::string component, std::string instance);
  // Drops what waits; waits for a running request: Client::Stop ends that.
  ~EventRecorder();
  void Record(EventToRecord event);
  std::uint64_t dropped() const;
  // Waits until everything recorded so far was written or given up; false: not within `limit`.
  bool Flush(absl::Duration limit);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_EVENT_RECORDER_H_
