// A new folder that goes with its owner; in memory where there is such a place,
// since a journal syncs often.
#ifndef GAVEL_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
#define GAVEL_TESTS_SUPPORT_TEMPORARY_FOLDER_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "tests/support/files.h"
#include "tests/support/test.h"

namespace gavel::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_("/dev/shm/gavel-test-XXXXXX") {
    if (mkdtemp(path_.data()) != nullptr) return;
    path_ = ::testing::TempDir() + "gavel-test-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string PathOf(std::string_view name) const {
    return path_ + "/" + std::string(name);
  }
  void Write(std::string_view name, std::string_view bytes) const {
    std::ofstream(PathOf(name), std::ios::binary) << bytes;
  }
  std::string Read(std::string_view name) const {
    return ReadText(PathOf(name));
  }

 private:
  std::string path_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
