#include "coordinator/server/submission.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "core/error_line.h"
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

// What agents tell workers (agent_environment.cc; the ranks on a server are
// engine/workers/processes.cc's).
constexpr std::string_view kOfAgent[] = {"GAVEL_ADDRESS",
                                         "GAVEL_CHECKPOINT_DIRECTORY",
                                         "GAVEL_CLUSTER",
                                         "GAVEL_COORDINATOR",
                                         "GAVEL_COORDINATOR_KEY",
                                         "GAVEL_INCARNATION",
                                         "GAVEL_JOB",
                                         "GAVEL_JOB_NAME",
                                         "GAVEL_KEY_FILE",
                                         "GAVEL_PROCESS",
                                         "GAVEL_RANK",
                                         "GAVEL_RUN_DIRECTORY",
                                         "GAVEL_SERVER",
                                         "GAVEL_WORLD_SIZE",
                                         "GAVEL_WORKER_COORDINATOR",
                                         "GAVEL_WORLD_SIZE_MIN",
                                         "GAVEL_WORLD_SIZE_MAX",
                                         "GROUP_RANK",
                                         "LOCAL_RANK",
                                         "LOCAL_WORLD_SIZE",
                                         "RANK",
                                         "WORLD_SIZE"};

// Commands would take the name for an id, or for an option. Jobs of earlier
// versions, in the journal, may be called so.
absl::Status CheckJobName(const std::string& source, const std::string& name) {
  const bool number =
      std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
  if (!number && !name.starts_with('-')) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(source, ": the name \"", name, "\" is taken for ",
             number ? "the id of a job" : "an option",
             " by commands; write one with a letter in front, \"job",
             number ? "-" : "", name, "\" say"));
}

// Others see it on their terminals.
absl::Status CheckApp(const std::string& source, const std::string& app) {
  if (PrintableLine(app, app.size()) == app) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(source,
             ": app has control characters, or blanks at its ends; "
             "write the name of what the job is a part of"));
}

absl::Status CheckEnvironment(const std::string& source, const JobSpec& spec) {
  for (const auto& [name, value] : spec.environment) {
    if (std::ranges::find(kOfAgent, name) == std::end(kOfAgent)) continue;
    return absl::InvalidArgumentError(
        StrCat(source, ": [environment] can't set ", name,
               ", which the agent sets; leave it out, or choose another name"));
  }
  return absl::OkStatus();
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
  GAVEL_RETURN_IF_ERROR(CheckJobName(request.source, spec.name));
  GAVEL_RETURN_IF_ERROR(CheckApp(request.source, spec.app));
  GAVEL_RETURN_IF_ERROR(CheckEnvironment(request.source, spec));
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
