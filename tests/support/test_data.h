#ifndef DOWNPOUR_TESTS_SUPPORT_TEST_DATA_H_
#define DOWNPOUR_TESTS_SUPPORT_TEST_DATA_H_

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

// Tests run in the root of the source tree.
namespace downpour {

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// What an API server wrote: tests/testdata/kubernetes/README.md.
inline std::string ReadTestData(const std::string& name) {
  return ReadText(std::filesystem::path("tests/testdata/kubernetes") / name);
}

}  // namespace downpour

#endif  // DOWNPOUR_TESTS_SUPPORT_TEST_DATA_H_
