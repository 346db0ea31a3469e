// A folder of its own for each test that reads files.
#ifndef GAVEL_TESTS_MODELS_TEMPORARY_FOLDER_H_
#define GAVEL_TESTS_MODELS_TEMPORARY_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace gavel::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "gavel-models-XXXXXX")
            .string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
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
    std::ifstream file(PathOf(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string path_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_MODELS_TEMPORARY_FOLDER_H_
