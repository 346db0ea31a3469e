#include "coordinator/cli/files.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "coordinator/workload/job_spec.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"

namespace gavel {

namespace fs = std::filesystem;

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

absl::StatusOr<ClusterSpec> ReadClusterFile(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const auto text, ReadFile(path, kClusterSpecBytesMax));
  return ParseClusterSpec(text, path);
}

namespace {

// A pipe is not looked into: what is read is gone.
bool IsProgram(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  char begin[4] = {};
  std::ifstream(path, std::ios::binary).read(begin, sizeof begin);
  const std::string_view text(begin, sizeof begin);
  return text.starts_with("#!") || text == "\177ELF";
}

absl::Status Parse(std::span<const JobSetting> settings, JobFile* file) {
  GAVEL_ASSIGN_OR_RETURN(file->spec,
                         ParseJobSpec(file->text, file->path, settings));
  if (!settings.empty()) file->text = FormatJobSpec(file->spec);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<JobFile>> ReadJobFiles(
    const std::vector<std::string>& paths,
    std::span<const JobSetting> settings) {
  std::vector<JobFile> files;
  std::map<std::string, std::string> path_of_name;
  for (const std::string& path : paths) {
    JobFile file;
    file.path = path;
    if (IsProgram(path)) {
      return absl::InvalidArgumentError(
          StrCat(path, " is a program and no job file; `gavel submit -- ", path,
                 " ARGUMENTS...` submits it"));
    }
    GAVEL_ASSIGN_OR_RETURN(file.text, ReadFile(path, kJobSpecBytesMax));
    GAVEL_RETURN_IF_ERROR(Parse(settings, &file));
    std::error_code error;
    file.directory =
        fs::absolute(path, error).lexically_normal().parent_path().string();
    const auto [other, is_new] = path_of_name.emplace(file.spec.name, path);
    if (!is_new) {
      return absl::InvalidArgumentError(
          StrCat(path, ": the name \"", file.spec.name, "\" is taken by ",
                 other->second, "; give each job its own"));
    }
    files.push_back(std::move(file));
  }
  return files;
}

absl::StatusOr<JobFile> MakeJobFile(const std::string& path,
                                    std::span<const JobSetting> settings) {
  JobFile file;
  file.path = path;
  GAVEL_RETURN_IF_ERROR(Parse(settings, &file));
  std::error_code error;
  file.directory = fs::current_path(error).string();
  if (!error) return file;
  return absl::FailedPreconditionError(
      StrCat("the directory that you are in is gone: ", error.message(),
             "; change to another one"));
}

}  // namespace gavel
