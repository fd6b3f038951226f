#include "operator/kube/event_correlator.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace downpour::kube {
namespace {

constexpr double kBurst = 25;
constexpr double kEventsPerSecond = 1.0 / 300;
constexpr double kSameWithinSeconds = 600;
constexpr std::size_t kMostSimilar = 10;
constexpr std::size_t kMostRemembered = 4096;
constexpr std::size_t kLongestMessage = 1024;
constexpr std::size_t kLongestObjectName = 230;  // 253 with what is added

std::string ObjectKey(const EventToRecord& event) {
  return absl::StrCat(event.resource.kind, "/", event.about.Key(), "/", event.about.uid);
}

// No field may contain a line break.
std::string SimilarKey(const EventToRecord& event) {
  return absl::StrCat(ObjectKey(event), "\n", event.warning ? "W" : "N", "\n", event.reason);
}

// FNV-1a: the same in every process.
std::uint64_t Hash(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// At most so many bytes, without cutting a character of UTF-8 in two.
std::string Shortened(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace

bool EventCorrelator::Admit(const EventToRecord& event, double now) {
  DropOld(now);
  const auto [budget, added] =
      budgets_.try_emplace(ObjectKey(event), Budget{TokenBucket(kEventsPerSecond, kBurst), now});
  budget->second.used_at = now;
  return budget->second.bucket.Take(absl::Seconds(now), absl::ZeroDuration()).has_value();
}

EventCorrelator::Written EventCorrelator::Correlate(const EventToRecord& event, double now) {
  const std::string similar_key = SimilarKey(event);
  Similar& similar = similar_[similar_key];
  if (now - similar.last_time >= kSameWithinSeconds) similar.messages.clear();
  similar.last_time = now;
  if (similar.messages.size() < kMostSimilar) similar.messages.insert(event.message);
  Written written;
  written.combined = similar.messages.count(event.message) == 0;
  written.series = written.combined ? similar_key : absl::StrCat(similar_key, "\n", event.message);
  const auto found = written_.find(written.series);
  if (found != written_.end() && now - found->second.last_time < kSameWithinSeconds) {
    found->second.last_time = now;
    ++found->second.written.count;
    found->second.written.is_new = false;
    return found->second.written;
  }
  // After a restart the same name comes out for a while, so that the events that are there are found.
  const auto slot = static_cast<std::int64_t>(now / kSameWithinSeconds);
  written.name = absl::StrCat(Shortened(event.about.name, kLongestObjectName), ".",
                              absl::Hex(Hash(absl::StrCat(written.series, "\n", slot)), absl::kZeroPad16));
  written.first_time = now;
  written_[written.series] = {written, now};
  return written;
}

void EventCorrelator::Forget(const Written& written) { written_.erase(written.series); }

void EventCorrelator::SetCount(const Written& written, std::int64_t count) {
  const auto found = written_.find(written.series);
  if (found != written_.end()) found->second.written.count = count;
}

void EventCorrelator::DropOld(double now) {
  if (size() < kMostRemembered) return;
  std::erase_if(written_, [&](const auto& entry) { return now - entry.second.last_time >= kSameWithinSeconds; });
  std::erase_if(similar_, [&](const auto& entry) { return now - entry.second.last_time >= kSameWithinSeconds; });
  // By then a budget is whole again.
  std::erase_if(budgets_, [&](const auto& entry) { return now - entry.second.used_at >= kBurst / kEventsPerSecond; });
  if (size() < kMostRemembered) return;
  written_.clear();
  similar_.clear();
  budgets_.clear();
}

std::string EventMessage(const EventToRecord& event, const EventCorrelator::Written& written) {
  return Shortened(absl::StrCat(written.combined ? "(combined from similar events): " : "", event.message),
                   kLongestMessage);
}

Json EventObject(const EventToRecord& event, const EventCorrelator::Written& written, double now,
                 const std::string& component, const std::string& instance) {
  Json about = {{"apiVersion", event.resource.ApiVersion()},
                {"kind", event.resource.kind},
                {"name", event.about.name},
                {"uid", event.about.uid},
                {"resourceVersion", event.about.resource_version}};
  if (!event.about.namespace_name.empty()) about["namespace"] = event.about.namespace_name;
  return {{"apiVersion", "v1"},
          {"kind", "Event"},
          {"metadata", {{"name", written.name}, {"namespace", EventNamespace(event)}}},
          {"involvedObject", about},
          {"type", event.warning ? "Warning" : "Normal"},
          {"reason", event.reason},
          {"message", EventMessage(event, written)},
          {"firstTimestamp", FormatTime(written.first_time)},
          {"lastTimestamp", FormatTime(now)},
          {"count", written.count},
          {"source", {{"component", component}}},
          {"reportingComponent", component},
          {"reportingInstance", instance}};
}

std::string EventNamespace(const EventToRecord& event) {
  return event.about.namespace_name.empty() ? "default" : event.about.namespace_name;
}

}  // namespace downpour::kube
