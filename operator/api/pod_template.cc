#include "operator/api/pod_template.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "operator/api/document.h"
#include "operator/api/field_names.h"

namespace downpour::api {
namespace {

using Json = nlohmann::json;

constexpr char kSetByOperator[] = "is set by the operator";
constexpr char kGpuResource[] = "nvidia.com/gpu";

// nullptr: it is not there, or null.
const Json* Find(const Json* object, const char* key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  return found == object->end() || found->is_null() ? nullptr : &*found;
}

std::string Text(const Json* object, const char* key) {
  const Json* value = Find(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

// Its items; none if it is no list.
const std::vector<Json>& Items(const Json* list) {
  static const std::vector<Json> none;
  return list != nullptr && list->is_array() ? list->get_ref<const Json::array_t&>() : none;
}

class TemplateCheck {
 public:
  TemplateCheck(Role role, bool in_ring, std::vector<FieldError>& errors)
      : role_(role), in_ring_(in_ring), errors_(errors) {}

  void Check(const Json& pod_template) {
    const std::string path = TemplatePath(role_);
    const Json* const labels = Find(Find(&pod_template, "metadata"), "labels");
    if (labels != nullptr && labels->is_object()) {
      for (const auto& [key, value] : labels->items()) {
        if (key.starts_with(kLabelPrefix) || key == kManagedByLabel) {
          Add(JoinPath(path + ".metadata.labels", key), kSetByOperator);
        }
      }
    }
    const Json* const spec = Find(&pod_template, "spec");
    const std::string at = path + ".spec";
    for (const char* key : {"hostname", "subdomain"}) {
      if (Find(spec, key) != nullptr) Add(JoinPath(at, key), kSetByOperator);
    }
    const std::vector<Json>& init_containers = Items(Find(spec, "initContainers"));
    for (std::size_t i = 0; i < init_containers.size(); ++i) {
      const std::string where = JoinPath(at + ".initContainers", i);
      if (Text(&init_containers[i], "name") == kContainerName) {
        Add(where + ".name", absl::StrCat(kContainerName, " is the container of Downpour"));
      }
      CheckPortsOfOthers(init_containers[i], where);
    }
    const std::vector<Json>& containers = Items(Find(spec, "containers"));
    bool found = false;
    for (std::size_t i = 0; i < containers.size(); ++i) {
      const std::string where = JoinPath(at + ".containers", i);
      if (Text(&containers[i], "name") != kContainerName) {
        CheckPortsOfOthers(containers[i], where);
      } else if (std::exchange(found, true)) {
        Add(where + ".name", absl::StrCat("must be unique, got ", kContainerName, " again"));
      } else {
        CheckTrainer(containers[i], where);
        CheckUser(Find(spec, "securityContext"), at, Find(&containers[i], "securityContext"), where);
      }
    }
    if (containers.empty()) CheckUser(Find(spec, "securityContext"), at, nullptr, "");
    if (!found && !containers.empty()) {
      Add(at + ".containers", absl::StrCat("none is named ", kContainerName,
                                           ", as the one that runs Downpour: rename it, or add \"- name: ",
                                           kContainerName, "\" if all of them run beside it"));
    }
  }

 private:
  struct Port {
    const char* name;
    int number;
  };

  void Add(std::string path, std::string message) { errors_.push_back({std::move(path), std::move(message)}); }

  std::vector<Port> OurPorts() const {
    std::vector<Port> ports = {{kMetricsPortName, kMetricsPort}};
    if (role_ != Role::kWorker || in_ring_) ports.push_back({kControlPortName, kControlPort});
    if (in_ring_) ports.push_back({kRingPortName, kRingPort});
    return ports;
  }

  static bool Is(const Json& port, int number) {
    const Json* const wanted = Find(&port, "containerPort");
    const std::string protocol = Text(&port, "protocol");
    return wanted != nullptr && *wanted == number && (protocol.empty() || protocol == "TCP");
  }

  void CheckPortsOfOthers(const Json& container, const std::string& path) {
    const std::vector<Json>& ports = Items(Find(&container, "ports"));
    for (std::size_t i = 0; i < ports.size(); ++i) {
      for (const Port& ours : OurPorts()) {
        if (!Is(ports[i], ours.number)) continue;
        Add(JoinPath(path + ".ports", i) + ".containerPort",
            absl::StrCat(ours.number, " is taken, the container ", kContainerName, " listens there"));
      }
    }
  }

  void CheckTrainer(const Json& container, const std::string& path) {
    if (Find(&container, "args") != nullptr) {
      Add(path + ".args", absl::StrCat(kSetByOperator, "; a program of your own goes into command, and is given them"));
    }
    if (const std::string policy = Text(&container, "restartPolicy"); !policy.empty() && policy != "Never") {
      Add(path + ".restartPolicy", absl::StrCat("must be Never, got ", Quote(policy)));
    }
    const std::vector<Json>& variables = Items(Find(&container, "env"));
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const std::string name = Text(&variables[i], "name");
      if (name == kConfigVariable || name == kAddressVariable || name == kNodeVariable) {
        Add(JoinPath(path + ".env", i), absl::StrCat(name, " ", kSetByOperator));
      }
    }
    const std::vector<Json>& ports = Items(Find(&container, "ports"));
    for (std::size_t i = 0; i < ports.size(); ++i) CheckPort(ports[i], JoinPath(path + ".ports", i));
    std::map<std::string, std::size_t> first;
    const std::vector<Json>& mounts = Items(Find(&container, "volumeMounts"));
    for (std::size_t i = 0; i < mounts.size(); ++i) {
      const std::string mount_path = Text(&mounts[i], "mountPath");
      if (mount_path.empty()) continue;
      const auto [known, is_new] = first.emplace(CleanMountPath(mount_path), i);
      if (is_new) continue;
      Add(JoinPath(path + ".volumeMounts", i) + ".mountPath",
          absl::StrCat("must be unique, is the same as [", known->second, "]"));
    }
  }

  // A port with the number or the name of one of ours is that one: number and name go together.
  void CheckPort(const Json& port, const std::string& path) {
    const std::string name = Text(&port, "name");
    for (const Port& ours : OurPorts()) {
      const bool same_number = Is(port, ours.number);
      if (same_number && !name.empty() && name != ours.name) {
        Add(path + ".name", absl::StrCat("must be ", ours.name, ", got ", Quote(name), ": ", ours.number,
                                         " is the port on which Downpour listens"));
      } else if (!same_number && name == ours.name) {
        Add(path + ".name", absl::StrCat(ours.name, " is the name of Downpour's own port, ", ours.number));
      }
    }
  }

  // Who is root has to say so in full, as the operator asks for somebody who is not.
  void CheckUser(const Json* of_pod, const std::string& pod_path, const Json* of_container,
                 const std::string& container_path) {
    const bool in_container = Find(of_container, "runAsUser") != nullptr;
    const Json* const user = Find(in_container ? of_container : of_pod, "runAsUser");
    const Json* may_not = Find(of_container, "runAsNonRoot");
    if (may_not == nullptr) may_not = Find(of_pod, "runAsNonRoot");
    if (user == nullptr || *user != 0 || (may_not != nullptr && *may_not == false)) return;
    Add((in_container ? container_path : pod_path) + ".securityContext.runAsUser",
        "0 is root, which needs runAsNonRoot: false beside it");
  }

  const Role role_;
  const bool in_ring_;  // a worker of all-reduce
  std::vector<FieldError>& errors_;
};

}  // namespace

const char* TemplatePath(Role role) {
  return role == Role::kCoordinator       ? "spec.coordinator.template"
         : role == Role::kParameterServer ? "spec.parameterServer.template"
                                          : "spec.worker.template";
}

const std::string& PodTemplate(const TrainingJobSpec& spec, Role role) {
  static const std::string none;
  switch (role) {
    case Role::kCoordinator:
      return spec.coordinator.has_value() ? spec.coordinator->pod_template : none;
    case Role::kParameterServer:
      return spec.parameter_server.has_value() ? spec.parameter_server->pod_template : none;
    case Role::kWorker:
      return spec.worker.pod_template;
  }
  return none;
}

int WorkerGpus(const TrainingJobSpec& spec) {
  if (spec.worker.gpus.has_value()) return *spec.worker.gpus;
  const std::string& text = PodTemplate(spec, Role::kWorker);
  if (spec.update.local_steps > 1 || text.find(kGpuResource) == std::string::npos) return 1;
  const Json pod = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  for (const Json& container : Items(Find(Find(&pod, "spec"), "containers"))) {
    if (Text(&container, "name") != kContainerName) continue;
    const Json* const limit = Find(Find(Find(&container, "resources"), "limits"), kGpuResource);
    int count = 0;
    // A quantity, so it may be a text.
    const bool known =
        limit != nullptr && absl::SimpleAtoi(limit->is_string() ? limit->get<std::string>() : limit->dump(), &count);
    return known ? std::clamp(count, 1, std::min(spec.training.batch_size, schema::kMaxGpus)) : 1;
  }
  return 1;
}

std::string CleanMountPath(std::string_view path) {
  std::string clean = std::filesystem::path(absl::StrCat("/", std::string(path))).lexically_normal().string();
  while (clean.size() > 1 && clean.ends_with('/')) clean.pop_back();
  // Two slashes at the beginning may stay, as they mean something on other systems.
  const std::size_t first = clean.find_first_not_of('/');
  return first == std::string::npos ? "/" : clean.substr(first - 1);
}

std::vector<FieldError> CheckPodTemplates(const TrainingJobSpec& spec) {
  std::vector<FieldError> errors;
  for (const Role role : {Role::kCoordinator, Role::kParameterServer, Role::kWorker}) {
    const std::string& text = PodTemplate(spec, role);
    if (text.empty()) continue;
    const bool in_ring = role == Role::kWorker && spec.strategy == Strategy::kAllReduce;
    TemplateCheck(role, in_ring, errors).Check(Json::parse(text, nullptr, /*allow_exceptions=*/false));
  }
  return errors;
}

}  // namespace downpour::api
