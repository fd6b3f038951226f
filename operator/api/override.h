#ifndef DOWNPOUR_OPERATOR_API_OVERRIDE_H_
#define DOWNPOUR_OPERATOR_API_OVERRIDE_H_

#include <string>

#include "operator/api/document.h"

namespace downpour::api {

// Puts the value of one --set in its place; makes the maps on the way, but no list items. `name` is a path, which may
// leave out "spec."; `text` is YAML. What is wrong is added to the document's errors.
void Override(Document& document, const std::string& name, const std::string& text);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_OVERRIDE_H_
