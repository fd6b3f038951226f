#ifndef DOWNPOUR_OPERATOR_CONTROLLER_POD_SPEC_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_POD_SPEC_H_

#include <string>
#include <string_view>

#include "operator/kube/object.h"

// Pod specs as Kubernetes reads them. Pure functions; they take whatever JSON there is, as the platform says what is
// wrong with it.
namespace downpour::controller {

// What the spec of a pod template makes of `ours`. As with a strategic merge patch: maps field by field, containers,
// volumes and variables by name, ports by number and protocol, mounts by path; another list takes the place of ours. A
// volume or a mount of the template stands for itself alone, and a variable of ours stays. The order of the template's
// lists is kept, with what it does not name before. A null takes the place of no map or list, and a single value away.
kube::Json MergePodSpec(kube::Json ours, const kube::Json& theirs);

// Our container; nullptr: there is none.
kube::Json* FindTrainer(kube::Json& spec);
const kube::Json* FindTrainer(const kube::Json& spec);

// The mount at this path of the container, or around it: the innermost; nullptr: the path is on the image.
const kube::Json* FindMount(const kube::Json& container, const std::string& path);

// So that it is what the process gets when it stands in `value` of a variable, in `command` or in `args`: there "$(X)"
// is a reference and "$$" is "$".
std::string EscapeReferences(std::string_view text);

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_POD_SPEC_H_
