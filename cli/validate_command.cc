#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/manifest_input.h"

namespace downpour::cli {

int ValidateCommand(const std::string& file, const Overrides& overrides, bool json) {
  const api::ParsedManifest manifest = LoadManifest(file, overrides);
  const std::vector<api::FieldError> warnings =
      manifest.errors.empty() ? FindWarnings(manifest.job.spec) : std::vector<api::FieldError>();
  if (json) {
    const auto list = [](const std::vector<api::FieldError>& found) {
      nlohmann::ordered_json items = nlohmann::ordered_json::array();
      for (const api::FieldError& one : found) items.push_back({{"path", one.path}, {"message", one.message}});
      return items;
    };
    const nlohmann::ordered_json document = {{"file", file},
                                             {"valid", manifest.errors.empty()},
                                             {"errors", list(manifest.errors)},
                                             {"warnings", list(warnings)}};
    std::cout << document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << std::endl;
  } else {
    for (const api::FieldError& error : manifest.errors) std::cerr << file << ": " << error.ToString() << '\n';
    for (const api::FieldError& warning : warnings) {
      std::cerr << file << ": warning: " << warning.ToString() << '\n';
    }
    if (manifest.errors.empty()) std::cout << file << ": valid" << std::endl;
  }
  return manifest.errors.empty() ? kExitDone : kExitBadInput;
}

}  // namespace downpour::cli
