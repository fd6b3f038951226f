#ifndef DOWNPOUR_OPERATOR_API_TESTING_CORPUS_H_
#define DOWNPOUR_OPERATOR_API_TESTING_CORPUS_H_

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/test_data.h"

// The manifests that parser and CRD must agree on.
namespace downpour::api::testing {

// From the root of the source tree, where tests run.
inline constexpr char kCorpus[] = "tests/testdata/manifests";

using downpour::ReadText;

// Of kind "valid" or "invalid", sorted.
inline std::vector<std::filesystem::path> Manifests(const std::string& kind) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(kCorpus) / kind)) {
    if (entry.path().extension() != ".expect") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace downpour::api::testing

#endif  // DOWNPOUR_OPERATOR_API_TESTING_CORPUS_H_
