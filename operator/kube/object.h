#ifndef DOWNPOUR_OPERATOR_KUBE_OBJECT_H_
#define DOWNPOUR_OPERATOR_KUBE_OBJECT_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"
#include "operator/api/rfc3339.h"

// Objects of the Kubernetes API: their addresses and what they all have in common. Plain values.
namespace downpour::kube {

using Json = nlohmann::json;

struct Resource {
  std::string group;  // empty: the core group
  std::string version;
  std::string plural;
  std::string kind;
  bool namespaced = true;
  std::string ApiVersion() const { return group.empty() ? version : group + "/" + version; }
  friend bool operator==(const Resource&, const Resource&) = default;
};

inline const Resource kPods{"", "v1", "pods", "Pod"};
inline const Resource kServices{"", "v1", "services", "Service"};
inline const Resource kEndpointSlices{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"};
inline const Resource kEvents{"", "v1", "events", "Event"};
inline const Resource kNodes{"", "v1", "nodes", "Node", false};
inline const Resource kNamespaces{"", "v1", "namespaces", "Namespace", false};
inline const Resource kLeases{"coordination.k8s.io", "v1", "leases", "Lease"};
inline const Resource kPodDisruptionBudgets{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"};
inline const Resource kTrainingJobs{"training.downpour.dev", "v1alpha1", "trainingjobs", "TrainingJob"};

// "/api/v1/namespaces/NAMESPACE/pods/NAME/SUBRESOURCE"; what is empty is left out. Names are percent-encoded.
std::string ResourcePath(const Resource& resource, std::string_view namespace_name, std::string_view name = {},
                         std::string_view subresource = {});

struct ObjectMeta {
  std::string namespace_name;
  std::string name;
  std::string uid;
  std::string resource_version;
  std::int64_t generation = 0;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  std::optional<double> creation_time;  // seconds since 1970
  std::optional<double> deletion_time;  // metadata.deletionTimestamp: when the grace period ends
  std::optional<double> deletion_grace_seconds;
  std::string controller_uid;  // of the owner with controller: true; empty: none
  // "namespace/name", or "name" of a resource without namespaces.
  std::string Key() const { return namespace_name.empty() ? name : namespace_name + "/" + name; }
  friend bool operator==(const ObjectMeta&, const ObjectMeta&) = default;
};

// ReadMeta(object).Key() without reading the rest.
std::string ReadKey(const Json& object);

// Reads `metadata`; what is missing or of a wrong type stays empty.
ObjectMeta ReadMeta(const Json& object);

// The value at a path of keys, or nullptr; never throws.
const Json* Find(const Json& object, std::initializer_list<std::string_view> path);
// The string at a path, or "".
std::string FindText(const Json& object, std::initializer_list<std::string_view> path);
// The integer at a path, or nothing.
std::optional<std::int64_t> FindInteger(const Json& object, std::initializer_list<std::string_view> path);

using api::FormatMicroTime;
using api::FormatTime;
using api::ParseTime;

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_OBJECT_H_
