#ifndef DOWNPOUR_OPERATOR_CONTROLLER_CORDONED_NODES_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_CORDONED_NODES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "operator/kube/client.h"
#include "operator/kube/informer.h"
#include "operator/kube/transport.h"

namespace downpour::controller {

// Which nodes are drained, as far as the platform knows: those on which nothing is scheduled any more (kubectl cordon,
// which is how each drain begins). An operator that may not see nodes works on without, and says so once in its log.
// Thread-safe.
class CordonedNodes {
 public:
  // `watch`: times. `on_change` is called with a node that was cordoned, or is not any more, on a thread of this
  // object. `client` and `transport` outlive it.
  CordonedNodes(const kube::ReflectorOptions& watch, kube::Client* client, kube::Transport* transport,
                std::function<void(const std::string& node)> on_change, std::uint32_t seed);

  void Start() { reflector_.Start(); }
  kube::ReflectorState state() const { return reflector_.state(); }
  // Absent: nobody knows, as they were not listed yet or may not be.
  std::optional<std::vector<std::string>> Names() const;

 private:
  struct Node {
    kube::ObjectMeta meta;
  };

  kube::Store<Node> nodes_;
  kube::Reflector reflector_;
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_CORDONED_NODES_H_
