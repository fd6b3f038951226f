#include "operator/controller/own_writes.h"

#include <algorithm>
#include <charconv>

namespace downpour::controller {

std::uint64_t ParseVersion(std::string_view text) {
  std::uint64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  return error == std::errc() && end == text.data() + text.size() ? version : 0;
}

void OwnWrites::StoredStatus(std::string_view resource_version) { newest_.jobs = ParseVersion(resource_version); }

void OwnWrites::MadePod(std::string_view resource_version) {
  newest_.pods = std::max(newest_.pods, ParseVersion(resource_version));
}

void OwnWrites::DeletedPod(const std::string& uid) { deleted_.insert(uid); }

bool OwnWrites::AreSeen(const CacheVersions& seen, const Pods& pods) const {
  if (seen.jobs < newest_.jobs || seen.pods < newest_.pods) return false;
  return std::none_of(pods.begin(), pods.end(), [this](const PodPointer& pod) {
    return deleted_.contains(pod->meta.uid) && (HasEnded(*pod) || !pod->meta.deletion_time.has_value());
  });
}

}  // namespace downpour::controller
