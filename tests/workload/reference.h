// Recorded results of the original Gavel, where they are at hand
// (GAVEL_REFERENCE_DIR); tests that need them skip elsewhere.
#ifndef GAVEL_TESTS_WORKLOAD_REFERENCE_H_
#define GAVEL_TESTS_WORKLOAD_REFERENCE_H_

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "gavel_paths.h"
#include "tests/support/files.h"

namespace gavel::testing {

#ifdef GAVEL_REFERENCE_DIR
inline constexpr const char* kReferenceDirectory = GAVEL_REFERENCE_DIR;
#else
inline constexpr const char* kReferenceDirectory = "";
#endif
inline constexpr const char* kNoReference =
    "GAVEL_REFERENCE_DIR has no recorded results";

// Empty when the file is not there.
inline std::string ReadReference(const std::string& path) {
  return ReadText(std::string(kReferenceDirectory) + "/" + path);
}

// Paths of all traces below a folder, sorted; none when it is not there.
inline std::vector<std::string> ReferenceTraces(const std::string& folder) {
  std::vector<std::string> paths;
  const std::filesystem::path root =
      std::filesystem::path(kReferenceDirectory) / folder;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(root, error)) {
    if (entry.path().extension() != ".trace") continue;
    paths.push_back(
        std::filesystem::relative(entry.path(), kReferenceDirectory).string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_WORKLOAD_REFERENCE_H_
