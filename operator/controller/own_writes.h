#ifndef DOWNPOUR_OPERATOR_CONTROLLER_OWN_WRITES_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_OWN_WRITES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>

#include "operator/controller/pod.h"

namespace downpour::controller {

// How far the caches have seen everything. To be read before what is taken out of them.
struct CacheVersions {
  std::uint64_t jobs = 0;
  std::uint64_t pods = 0;
};

// Resource versions are numbers within one resource; 0 where they are not, which compares as long seen.
std::uint64_t ParseVersion(std::string_view text);

// What this process wrote of one job: until the caches have seen it, they are not to be acted on. Not thread-safe.
class OwnWrites {
 public:
  // Versions as the server told them in its answers.
  void StoredStatus(std::string_view resource_version);
  void MadePod(std::string_view resource_version);
  void DeletedPod(const std::string& uid);

  // Whether caches of these versions, with these pods of the job, have seen all of it.
  bool AreSeen(const CacheVersions& seen, const Pods& pods) const;
  // To be called once they are seen: what was deleted needs no memory any more.
  void ForgetDeleted() { deleted_.clear(); }

 private:
  CacheVersions newest_;
  std::unordered_set<std::string> deleted_;
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_OWN_WRITES_H_
