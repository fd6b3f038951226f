#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/manifest_input.h"

namespace downpour::cli {

int ValidateCommand(const std::string& file, const Overrides& overrides, bool json) {
  const api::ParsedManifest manifest = LoadManifest(file, overrides);
  if (json) {
    nlohmann::ordered_json errors = nlohmann::ordered_json::array();
    for (const api::FieldError& error : manifest.errors) {
      errors.push_back({{"path", error.path}, {"message", error.message}});
    }
    const nlohmann::ordered_json document = {
        {"file", file}, {"valid", manifest.errors.empty()}, {"errors", std::move(errors)}};
    std::cout << document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << std::endl;
  } else {
    for (const api::FieldError& error : manifest.errors) std::cerr << file << ": " << error.ToString() << '\n';
    if (manifest.errors.empty()) std::cout << file << ": valid" << std::endl;
  }
  return manifest.errors.empty() ? kExitDone : kExitBadInput;
}

}  // namespace downpour::cli
