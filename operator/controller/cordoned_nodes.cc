#include "operator/controller/cordoned_nodes.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "operator/kube/protobuf_object.h"
#include "spdlog/spdlog.h"

namespace downpour::controller {
namespace {

// Where it is refused, it is asked again now and then: somebody may give the right.
constexpr absl::Duration kMostBackoff = absl::Minutes(1);

kube::ProtobufFields NodeFields() {
  static const kube::ProtobufField fields[] = {
      {1, "metadata", kube::ProtobufField::Kind::kMessage, kube::MetadataFields()}};
  return fields;
}

kube::ReflectorOptions OfCordonedNodes(kube::ReflectorOptions watch) {
  watch.resource = kube::kNodes;
  watch.namespace_name.clear();
  watch.label_selector.clear();
  watch.field_selector = "spec.unschedulable=true";
  watch.fields = NodeFields();
  watch.most_backoff = std::max(watch.most_backoff, kMostBackoff);
  watch.on_failure = [told = false](const absl::Status& failure) mutable {
    if (!absl::IsPermissionDenied(failure) || std::exchange(told, true)) return;
    spdlog::warn(
        "drains of nodes are not seen; parameter servers are protected from them as long as "
        "spec.parameterServer.disruption is Protect: {}",
        std::string(failure.message()));
  };
  return watch;
}

}  // namespace

CordonedNodes::CordonedNodes(const kube::ReflectorOptions& watch, kube::Client* client, kube::Transport* transport,
                             std::function<void(const std::string& node)> on_change, std::uint32_t seed)
    : nodes_([](const kube::Json& object, const Node*) { return std::optional<Node>(Node{kube::ReadMeta(object)}); },
             [](const Node&) { return std::string(); },
             [on_change = std::move(on_change)](const auto& before, const auto& after) {
               // Nodes tell of themselves every few minutes; that is no news.
               if (before == nullptr || after == nullptr) on_change((after != nullptr ? after : before)->meta.name);
             }),
      reflector_(OfCordonedNodes(watch), client, transport, &nodes_, seed) {}

std::optional<std::vector<std::string>> CordonedNodes::Names() const {
  if (!reflector_.state().synced) return std::nullopt;
  std::vector<std::string> names;
  for (const auto& node : nodes_.All()) names.push_back(node->meta.name);
  return names;
}

}  // namespace downpour::controller
