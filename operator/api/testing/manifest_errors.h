#ifndef DOWNPOUR_OPERATOR_API_TESTING_MANIFEST_ERRORS_H_
#define DOWNPOUR_OPERATOR_API_TESTING_MANIFEST_ERRORS_H_

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "operator/api/manifest.h"
#include "operator/api/testing/corpus.h"

// What the parser says of a text, as lines to compare.
namespace downpour::api::testing {

inline std::vector<std::string> Lines(const std::vector<FieldError>& errors) {
  std::vector<std::string> lines;
  lines.reserve(errors.size());
  for (const FieldError& error : errors) lines.push_back(error.ToString());
  return lines;
}

inline std::vector<std::string> Errors(std::string_view text,
                                       const std::vector<std::pair<std::string, std::string>>& overrides = {}) {
  return Lines(ParseManifest(text, overrides).errors);
}

// A manifest that states only what it must.
inline std::string Minimal() { return ReadText(std::filesystem::path(kCorpus) / "valid/minimal.yaml"); }

}  // namespace downpour::api::testing

#endif  // DOWNPOUR_OPERATOR_API_TESTING_MANIFEST_ERRORS_H_
