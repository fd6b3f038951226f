#ifndef DOWNPOUR_TESTS_SUPPORT_TEST_DATA_H_
#define DOWNPOUR_TESTS_SUPPORT_TEST_DATA_H_

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace downpour {

// What is in a file of tests/testdata/kubernetes; throws if there is none. Tests run in the root of the checkout.
inline std::string ReadTestData(const std::string& name) {
  std::ifstream file("tests/testdata/kubernetes/" + name, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read tests/testdata/kubernetes/" + name);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace downpour

#endif  // DOWNPOUR_TESTS_SUPPORT_TEST_DATA_H_
