// Whole files, for tests.
#ifndef GAVEL_TESTS_SUPPORT_FILES_H_
#define GAVEL_TESTS_SUPPORT_FILES_H_

#include <fstream>
#include <iterator>
#include <string>

namespace gavel::testing {

// All bytes; empty when it is not there.
inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_FILES_H_
