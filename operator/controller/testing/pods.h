#ifndef DOWNPOUR_OPERATOR_CONTROLLER_TESTING_PODS_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_TESTING_PODS_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "operator/api/manifest.h"
#include "operator/controller/pod.h"

namespace downpour::controller {

inline constexpr char kNamespace[] = "team";

// A pod of the job "lenet" as a cache holds it. One that runs has an address. Its uid says which it is: "worker-2-1" is
// the first start.
inline Pod MakePod(api::Role role, int index = 0, const std::string& phase = "Running", int incarnation = 1) {
  Pod pod;
  pod.role = role;
  pod.index = index;
  pod.incarnation = incarnation;
  pod.phase = phase;
  if (phase == "Running") pod.address = "10.0.0.1";
  const std::string instance = absl::StrCat(std::string(api::ToString(role)), "-", index);
  pod.meta.namespace_name = kNamespace;
  pod.meta.name = absl::StrCat("lenet-", instance);
  pod.meta.uid = absl::StrCat(instance, "-", incarnation);
  return pod;
}

inline PodPointer Shared(Pod pod) { return std::make_shared<const Pod>(std::move(pod)); }

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_TESTING_PODS_H_
