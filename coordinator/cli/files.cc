#include "coordinator/cli/files.h"

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

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     size_t bytes_max) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(
        StrCat(path, ": ",
               error ? error.message()
                     : "no such file or directory; give the path of a job or "
                       "cluster file"));
  }
  if (fs::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        StrCat(path, ": this is a directory; name a file in it"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::PermissionDeniedError(
        StrCat(path, ": ", std::strerror(errno)));
  }
  // One byte more than allowed tells a file that is too long.
  std::string text(bytes_max + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > bytes_max) {
    return absl::InvalidArgumentError(StrCat(path, ": longer than ", bytes_max,
                                             " bytes; is it the right "
                                             "file?"));
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

absl::StatusOr<ClusterSpec> ReadClusterFile(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(path, kClusterSpecBytesMax));
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
