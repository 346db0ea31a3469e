#include "coordinator/server/submission.h"

#include <filesystem>
#include <utility>

#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// `path` as seen from `directory`; `directory` itself when it is empty.
std::string Resolve(const std::string& directory, const std::string& path) {
  const std::filesystem::path joined =
      std::filesystem::path(directory) / std::filesystem::path(path);
  std::string text = joined.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

}  // namespace

std::string DefaultCheckpointDirectory(std::string_view state_directory,
                                       std::string_view cluster_id,
                                       std::string_view name, JobId id) {
  return StrCat(state_directory, "/checkpoints/", cluster_id, "-", id.value(),
                "-", name);
}

absl::StatusOr<JobSpec> ReadSubmission(const SubmitRequest& request,
                                       std::string_view state_directory,
                                       std::string_view cluster_id, JobId id) {
  GAVEL_ASSIGN_OR_RETURN(JobSpec spec,
                         ParseJobSpec(request.toml, request.source));
  if (!request.directory.starts_with('/')) {
    return absl::InvalidArgumentError(
        StrCat(request.source, ": the directory of the job file, \"",
               request.directory, "\", is not absolute"));
  }
  spec.working_directory = Resolve(request.directory, spec.working_directory);
  spec.checkpoint_directory =
      spec.checkpoint_directory.empty()
          ? DefaultCheckpointDirectory(state_directory, cluster_id, spec.name,
                                       id)
          : Resolve(request.directory, spec.checkpoint_directory);
  return spec;
}

}  // namespace gavel
