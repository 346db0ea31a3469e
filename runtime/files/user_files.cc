#include "runtime/files/user_files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <system_error>

#include "core/text.h"

namespace gavel {

namespace fs = std::filesystem;

namespace {

std::string ReadAtMost(std::istream& file, size_t bytes_max) {
  constexpr size_t kChunk = size_t{1} << 20;
  std::string text;
  while (file && text.size() < bytes_max) {
    const size_t begin = text.size();
    const size_t wanted = std::min(kChunk, bytes_max - begin);
    text.resize(begin + wanted);
    file.read(text.data() + begin, static_cast<std::streamsize>(wanted));
    text.resize(begin + static_cast<size_t>(file.gcount()));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     size_t bytes_max) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(StrCat(
        path, ": ",
        error ? error.message() : "no such file or directory; check the path"));
  }
  if (fs::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        StrCat(path, ": this is a directory; name a file in it"));
  }
  // A FIFO would wait for somebody who writes to it.
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::fifo || type == fs::file_type::socket ||
      type == fs::file_type::block) {
    return absl::InvalidArgumentError(
        StrCat(path, ": this is not a regular file; name one"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::PermissionDeniedError(
        StrCat(path, ": ", std::strerror(errno)));
  }
  std::string text = ReadAtMost(file, bytes_max + 1);
  if (text.size() > bytes_max) {
    return absl::InvalidArgumentError(StrCat(path, ": longer than ", bytes_max,
                                             " bytes; is it the right file?"));
  }
  return text;
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::PermissionDeniedError(
      StrCat(path, " can't be written: ", std::strerror(errno)));
}

absl::Status MakeDirectory(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(
      StrCat(path, " can't be made: ", error.message()));
}

absl::Status CheckWritable(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        StrCat(path, ": this is a directory; name a file in it"));
  }
  const fs::path folder = fs::absolute(path, error).parent_path();
  const bool exists = fs::exists(path, error);
  if (access(exists ? path.c_str() : folder.c_str(), W_OK) == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      StrCat(path, " can't be written: ", std::strerror(errno),
             "; name another file"));
}

}  // namespace gavel
