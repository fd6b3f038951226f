#include "operator/kube/object.h"

#include <limits>

#include "absl/strings/ascii.h"

namespace downpour::kube {
namespace {

void AppendSegment(std::string& path, std::string_view segment) {
  constexpr char kHex[] = "0123456789ABCDEF";
  path += '/';
  for (const char c : segment) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '_' || c == '~' || (c == '.' && segment.size() > 2)) {
      path += c;
    } else {
      path += '%';
      path += kHex[byte >> 4];
      path += kHex[byte & 15];
    }
  }
}

std::map<std::string, std::string> ReadTexts(const Json& metadata, std::string_view key) {
  std::map<std::string, std::string> texts;
  const Json* const found = Find(metadata, {key});
  if (found == nullptr || !found->is_object()) return texts;
  for (const auto& [name, value] : found->items()) {
    if (value.is_string()) texts.emplace(name, value.get_ref<const std::string&>());
  }
  return texts;
}

std::string ControllerUid(const Json& metadata) {
  const Json* const owners = Find(metadata, {"ownerReferences"});
  if (owners == nullptr || !owners->is_array()) return {};
  for (const Json& owner : *owners) {
    const Json* const controller = Find(owner, {"controller"});
    if (controller != nullptr && controller->is_boolean() && controller->get<bool>()) return FindText(owner, {"uid"});
  }
  return {};
}

}  // namespace

std::string ResourcePath(const Resource& resource, std::string_view namespace_name, std::string_view name,
                         std::string_view subresource) {
  std::string path = resource.group.empty() ? "/api" : "/apis";
  if (!resource.group.empty()) AppendSegment(path, resource.group);
  AppendSegment(path, resource.version);
  if (resource.namespaced && !namespace_name.empty()) {
    path += "/namespaces";
    AppendSegment(path, namespace_name);
  }
  AppendSegment(path, resource.plural);
  if (!name.empty()) AppendSegment(path, name);
  if (!subresource.empty()) AppendSegment(path, subresource);
  return path;
}

ObjectMeta ReadMeta(const Json& object) {
  ObjectMeta meta;
  const Json* const metadata = Find(object, {"metadata"});
  if (metadata == nullptr) return meta;
  meta.namespace_name = FindText(*metadata, {"namespace"});
  meta.name = FindText(*metadata, {"name"});
  meta.uid = FindText(*metadata, {"uid"});
  meta.resource_version = FindText(*metadata, {"resourceVersion"});
  meta.generation = FindInteger(*metadata, {"generation"}).value_or(0);
  meta.labels = ReadTexts(*metadata, "labels");
  meta.annotations = ReadTexts(*metadata, "annotations");
  meta.creation_time = ParseTime(FindText(*metadata, {"creationTimestamp"}));
  meta.deletion_time = ParseTime(FindText(*metadata, {"deletionTimestamp"}));
  if (const auto grace = FindInteger(*metadata, {"deletionGracePeriodSeconds"})) {
    meta.deletion_grace_seconds = static_cast<double>(*grace);
  }
  meta.controller_uid = ControllerUid(*metadata);
  return meta;
}

std::string ReadKey(const Json& object) {
  ObjectMeta meta;
  meta.namespace_name = FindText(object, {"metadata", "namespace"});
  meta.name = FindText(object, {"metadata", "name"});
  return meta.Key();
}

const Json* Find(const Json& object, std::initializer_list<std::string_view> path) {
  const Json* at = &object;
  for (const std::string_view key : path) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

std::string FindText(const Json& object, std::initializer_list<std::string_view> path) {
  const Json* const found = Find(object, path);
  return found != nullptr && found->is_string() ? found->get_ref<const std::string&>() : std::string();
}

std::optional<std::int64_t> FindInteger(const Json& object, std::initializer_list<std::string_view> path) {
  const Json* const found = Find(object, path);
  if (found == nullptr || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() &&
      found->get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return std::nullopt;
  }
  return found->get<std::int64_t>();
}

}  // namespace downpour::kube
