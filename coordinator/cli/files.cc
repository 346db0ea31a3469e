#include "coordinator/cli/files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include "coordinator/workload/job_spec.h"
#include "core/status.h"
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

absl::StatusOr<std::string> MakeResultsPath(const std::string& name) {
  const fs::path directory = "gavel-results";
  GAVEL_RETURN_IF_ERROR(MakeDirectory(directory.string()));
  return (directory / name).string();
}

std::string JournalIn(const std::string& path) {
  std::error_code error;
  const fs::path journal = fs::path(path) / "journal.db";
  return fs::is_regular_file(journal, error) ? journal.string() : path;
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

absl::StatusOr<ClusterSpec> ReadClusterFile(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const auto text, ReadFile(path, kClusterSpecBytesMax));
  return ParseClusterSpec(text, path);
}

absl::StatusOr<std::vector<JobFile>> ReadJobFiles(
    const std::vector<std::string>& paths) {
  std::vector<JobFile> files;
  std::map<std::string, std::string> path_of_name;
  for (const std::string& path : paths) {
    JobFile file;
    file.path = path;
    GAVEL_ASSIGN_OR_RETURN(file.text, ReadFile(path, kJobSpecBytesMax));
    GAVEL_ASSIGN_OR_RETURN(const JobSpec spec, ParseJobSpec(file.text, path));
    file.name = spec.name;
    std::error_code error;
    file.directory =
        fs::absolute(path, error).lexically_normal().parent_path().string();
    const auto [other, is_new] = path_of_name.emplace(spec.name, path);
    if (!is_new) {
      return absl::InvalidArgumentError(StrCat(path, ": the name \"", spec.name,
                                               "\" is taken by ", other->second,
                                               "; give each job its own"));
    }
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace gavel
