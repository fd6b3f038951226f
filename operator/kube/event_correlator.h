#ifndef DOWNPOUR_OPERATOR_KUBE_EVENT_CORRELATOR_H_
#define DOWNPOUR_OPERATOR_KUBE_EVENT_CORRELATOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "absl/time/time.h"
#include "operator/kube/event_recorder.h"
#include "operator/kube/retry.h"

namespace downpour::kube {

// Which events are written, and as what: pure, with the time in seconds since 1970. Not thread-safe.
class EventCorrelator {
 public:
  // Whether the budget of the object it is about allows for another event.
  bool Admit(const EventToRecord& event, double now);

  struct Written {
    std::string name;  // of the Event object
    std::int64_t count = 1;
    double first_time = 0;
    bool is_new = true;     // to be created, not raised
    bool combined = false;  // stands for all that differ in their messages alone, and has the newest of these
    std::string series;     // of what it is one
  };
  // The same event within ten minutes is the one that is there, once more; so is, from the eleventh on, one of which
  // ten others differ in the message alone.
  Written Correlate(const EventToRecord& event, double now);
  // What Correlate said was not stored, or stored as `count`.
  void Forget(const Written& written);
  void SetCount(const Written& written, std::int64_t count);

  std::size_t size() const { return budgets_.size() + written_.size() + similar_.size(); }

 private:
  struct Budget {
    TokenBucket bucket;
    double used_at = 0;
  };
  struct Series {
    Written written;
    double last_time = 0;
  };
  struct Similar {
    std::unordered_set<std::string> messages;  // those that have events of their own
    double last_time = 0;
  };
  void DropOld(double now);

  std::unordered_map<std::string, Budget> budgets_;   // by the object
  std::unordered_map<std::string, Series> written_;   // by the object and what is said of it
  std::unordered_map<std::string, Similar> similar_;  // by the object and the reason
};

// What its message says.
std::string EventMessage(const EventToRecord& event, const EventCorrelator::Written& written);
// The Event object; `now` in seconds since 1970.
Json EventObject(const EventToRecord& event, const EventCorrelator::Written& written, double now,
                 const std::string& component, const std::string& instance);
// Where it is stored: beside the object it is about, or in "default" if that has no namespace.
std::string EventNamespace(const EventToRecord& event);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_EVENT_CORRELATOR_H_
