#ifndef DOWNPOUR_OPERATOR_API_POD_TEMPLATE_FIELDS_H_
#define DOWNPOUR_OPERATOR_API_POD_TEMPLATE_FIELDS_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/field_names.h"
#include "operator/api/field_rules.h"
#include "operator/api/text_checks.h"

// The fields of a pod template that are looked at; see fields.h.
namespace downpour::api::schema {

struct PodTemplateMetadata {
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  OpaqueValue creation_timestamp;
};
struct PodSpec {
  std::string restart_policy;
  std::vector<OpaqueValue> containers;
  OpaqueValue others;
};
struct PodTemplate {
  PodTemplateMetadata metadata;
  PodSpec spec;
};

template <class Visitor>
void Fields(Visitor& v, PodTemplateMetadata& s) {
  v.Field("labels", s.labels, MapOf<Text>{AnyText, {AnyText}});
  v.Field("annotations", s.annotations, MapOf<Text>{AnyText, {AnyText}});
  v.Field("creationTimestamp", s.creation_timestamp, Opaque{});  // null: so kubectl writes templates
}

// A PodSpec of Kubernetes 1.34. The API server compares only fields that it knows when it looks for changes.
inline constexpr std::string_view kPodFields[] = {"activeDeadlineSeconds",
                                                  "affinity",
                                                  "automountServiceAccountToken",
                                                  "dnsConfig",
                                                  "dnsPolicy",
                                                  "enableServiceLinks",
                                                  "ephemeralContainers",
                                                  "hostAliases",
                                                  "hostIPC",
                                                  "hostNetwork",
                                                  "hostPID",
                                                  "hostUsers",
                                                  "hostname",
                                                  "hostnameOverride",
                                                  "imagePullSecrets",
                                                  "initContainers",
                                                  "nodeName",
                                                  "nodeSelector",
                                                  "os",
                                                  "overhead",
                                                  "preemptionPolicy",
                                                  "priority",
                                                  "priorityClassName",
                                                  "readinessGates",
                                                  "resourceClaims",
                                                  "resources",
                                                  "runtimeClassName",
                                                  "schedulerName",
                                                  "schedulingGates",
                                                  "securityContext",
                                                  "serviceAccount",
                                                  "serviceAccountName",
                                                  "setHostnameAsFQDN",
                                                  "shareProcessNamespace",
                                                  "subdomain",
                                                  "terminationGracePeriodSeconds",
                                                  "tolerations",
                                                  "topologySpreadConstraints",
                                                  "volumes"};

template <class Visitor>
void Fields(Visitor& v, PodSpec& s) {
  v.Field("restartPolicy", s.restart_policy, Choice(kPodRestartPolicies));
  v.Field("containers", s.containers, ListOf<Opaque>{});
  for (const std::string_view name : kPodFields) v.Field(name, s.others, Opaque{});
}

template <class Visitor>
void Fields(Visitor& v, PodTemplate& s) {
  v.Field("metadata", s.metadata, ClosedObject{});  // the others would be lost
  v.Field("spec", s.spec, Object{});
}

}  // namespace downpour::api::schema

#endif  // DOWNPOUR_OPERATOR_API_POD_TEMPLATE_FIELDS_H_
