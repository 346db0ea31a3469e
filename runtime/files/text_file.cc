#include "runtime/files/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/text.h"
#include "runtime/descriptor.h"

namespace gavel {
namespace {

absl::Status TextFileErrno(const std::string& path) {
  return absl::ErrnoToStatus(errno, ToAbsl(StrCat(path, " can't be written")));
}

}  // namespace

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::Status ReplaceFile(const std::string& path, std::string_view text,
                         mode_t mode) {
  const std::string written = path + ".new";
  const Descriptor file(
      open(written.c_str(),
           O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (file.get() < 0 ||
      write(file.get(), text.data(), text.size()) !=
          static_cast<ssize_t>(text.size()) ||
      fsync(file.get()) != 0) {
    return TextFileErrno(written);
  }
  if (std::rename(written.c_str(), path.c_str()) != 0) {
    return TextFileErrno(path);
  }
  // The new name, too.
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const Descriptor directory(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || fsync(directory.get()) != 0) {
    return TextFileErrno(folder);
  }
  return absl::OkStatus();
}

}  // namespace gavel
