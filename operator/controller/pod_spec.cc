#include "operator/controller/pod_spec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "operator/api/pod_template.h"

namespace downpour::controller {
namespace {

using kube::Find;
using kube::FindText;
using kube::Json;

std::string NameOf(const Json& item) { return FindText(item, {"name"}); }

std::string PathOf(const Json& mount) {
  const std::string path = FindText(mount, {"mountPath"});
  return path.empty() ? "" : api::CleanMountPath(path);
}

std::string PortOf(const Json& port) {
  const auto number = kube::FindInteger(port, {"containerPort"});
  if (!number.has_value()) return "";
  const std::string protocol = FindText(port, {"protocol"});
  return absl::StrCat(*number, "/", protocol.empty() ? "TCP" : protocol);
}

// What becomes of an item that is in both lists.
enum class Same { kMerged, kTheirs, kOurs };

struct ListRule {
  std::string_view list;
  std::string (*key)(const Json& item);  // "": equal to nothing
  Same same;
};
constexpr ListRule kListRules[] = {{"containers", NameOf, Same::kMerged},
                                   {"env", NameOf, Same::kOurs},
                                   {"ports", PortOf, Same::kMerged},
                                   {"volumeMounts", PathOf, Same::kTheirs},
                                   {"volumes", NameOf, Same::kTheirs}};

void MergeMap(Json& ours, const Json& theirs);

Json MergeList(const Json& ours, const Json& theirs, const ListRule& rule) {
  const auto find = [&rule](const Json& list, const Json& wanted) {
    const std::string key = rule.key(wanted);
    return std::find_if(list.begin(), list.end(),
                        [&](const Json& item) { return !key.empty() && rule.key(item) == key; });
  };
  Json merged = Json::array();
  std::copy_if(ours.begin(), ours.end(), std::back_inserter(merged),
               [&](const Json& item) { return find(theirs, item) == theirs.end(); });
  for (const Json& item : theirs) {
    const auto known = find(ours, item);
    if (known == ours.end() || rule.same == Same::kTheirs) {
      merged.push_back(item);
      continue;
    }
    merged.push_back(*known);
    if (rule.same == Same::kMerged) MergeMap(merged.back(), item);
  }
  return merged;
}

void MergeMap(Json& ours, const Json& theirs) {
  for (const auto& [key, value] : theirs.items()) {
    const auto found = ours.find(key);
    if (found == ours.end()) {
      ours[key] = value;
    } else if (value.is_null()) {
      if (!found->is_structured()) ours.erase(found);
    } else if (found->is_object() && value.is_object()) {
      // A probe has one way to ask.
      for (const char* handler : {"exec", "grpc", "httpGet", "tcpSocket"}) {
        if (value.contains(handler)) found->erase("grpc");
      }
      MergeMap(*found, value);
    } else {
      const std::string& name = key;
      const auto* const rule = std::find_if(std::begin(kListRules), std::end(kListRules),
                                            [&name](const ListRule& one) { return one.list == name; });
      const bool lists = found->is_array() && value.is_array() && rule != std::end(kListRules);
      *found = lists ? MergeList(*found, value, *rule) : value;
    }
  }
}

}  // namespace

Json MergePodSpec(Json ours, const Json& theirs) {
  if (theirs.is_object()) MergeMap(ours, theirs);
  return ours;
}

const Json* FindTrainer(const Json& spec) {
  const Json* const containers = Find(spec, {"containers"});
  if (containers == nullptr || !containers->is_array()) return nullptr;
  for (const Json& container : *containers) {
    if (NameOf(container) == api::kContainerName) return &container;
  }
  return nullptr;
}

Json* FindTrainer(Json& spec) { return const_cast<Json*>(FindTrainer(std::as_const(spec))); }

const Json* FindMount(const Json& container, const std::string& path) {
  const Json* const mounts = Find(container, {"volumeMounts"});
  if (mounts == nullptr || !mounts->is_array()) return nullptr;
  const std::string wanted = api::CleanMountPath(path) + "/";
  const Json* innermost = nullptr;
  std::size_t length = 0;
  for (const Json& mount : *mounts) {
    std::string at = PathOf(mount);
    if (at.empty()) continue;
    if (at != "/") at += '/';
    if (!wanted.starts_with(at) || at.size() <= length) continue;
    innermost = &mount;
    length = at.size();
  }
  return innermost;
}

std::string EscapeReferences(std::string_view text) { return absl::StrReplaceAll(std::string(text), {{"$", "$$"}}); }

}  // namespace downpour::controller
