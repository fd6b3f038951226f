#ifndef DOWNPOUR_OPERATOR_API_TESTING_CORPUS_H_
#define DOWNPOUR_OPERATOR_API_TESTING_CORPUS_H_

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"

// The manifests that parser and CRD must agree on.
namespace downpour::api::testing {

// Tests run in the root of the source tree.
inline constexpr char kCorpus[] = "tests/testdata/manifests";

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

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
