// gavel checkpoint list, export, import and adopt.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/pytorch_files.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/json_fields.h"
#include "core/size_text.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "runtime/files/own_files.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"

namespace gavel {
namespace {

struct FilesOptions {
  std::string checkpoints;
  std::string pytorch;
};

absl::Status Export(const FilesOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const PyTorchFiles files,
                         ExportToPyTorch(options.checkpoints, options.pytorch));
  PrintNotices(files.notes);
  absl::PrintF(
      "%s has %s after step %d; gavel_checkpoint.py in it loads them\n",
      options.pytorch, absl::StrJoin(files.names, ", "), files.generation.step);
  return absl::OkStatus();
}

absl::Status Import(const FilesOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(
      const PyTorchFiles files,
      ImportFromPyTorch(options.pytorch, options.checkpoints));
  PrintNotices(files.notes);
  absl::PrintF("%s has %s of %s; the job continues after step %d\n",
               files.folder, absl::StrJoin(files.names, ", "), options.pytorch,
               files.generation.step);
  return absl::OkStatus();
}

struct ListOptions {
  std::string checkpoints;
  bool json = false;
};

std::string ScalarsOf(const Manifest& manifest) {
  return absl::StrJoin(
      manifest.scalars, " ", [](std::string* out, const auto& scalar) {
        StrAppend(out, scalar.first, "=", FormatScalar(scalar.second));
      });
}

uint64_t SizeOf(const Manifest& manifest) {
  uint64_t size_bytes = 0;
  for (const ShardSummary& shard : manifest.shards) {
    size_bytes += shard.size_bytes;
  }
  return size_bytes;
}

absl::Status List(const ListOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(
      const Attempts attempts,
      ListAttempts(FileSystem::Posix(), options.checkpoints));
  TableRows rows;
  Json json = Json::array();
  for (const Attempt& attempt : attempts.committed) {
    GAVEL_ASSIGN_OR_RETURN(
        const Manifest manifest,
        ReadManifest(StrCat(options.checkpoints, "/", AttemptName(attempt))));
    rows.push_back({AttemptName(attempt), StrCat(attempt.generation.step),
                    StrCat(manifest.world_size), SizeText(SizeOf(manifest)),
                    ScalarsOf(manifest)});
    json.push_back({{"folder", AttemptName(attempt)},
                    {"epoch", attempt.generation.epoch},
                    {"step", attempt.generation.step},
                    {"workers", manifest.world_size},
                    {"size_bytes", SizeOf(manifest)},
                    {"scalars", manifest.scalars}});
  }
  const std::string text =
      options.json
          ? json.dump(2) + "\n"
          : RenderTable({Left("GENERATION"), Right("STEP"), Right("WORKERS"),
                         Right("SIZE"), Left("SCALARS")},
                        rows, kUncut);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

struct AdoptOptions {
  std::string checkpoints;
  std::string job;
};

// By name: the job may be submitted later, and to another cluster.
absl::Status Adopt(const AdoptOptions& options) {
  FileSystem& disk = FileSystem::Posix();
  GAVEL_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                         disk.List(options.checkpoints));
  if (std::ranges::none_of(entries, [](const DirectoryEntry& entry) {
        return ParseGenerationName(entry.name).has_value();
      })) {
    return absl::FailedPreconditionError(
        StrCat(options.checkpoints,
               " has no checkpoints; name a job's checkpoint_directory"));
  }
  if (!IsValidName(options.job)) {
    return absl::InvalidArgumentError(
        StrCat("\"", options.job,
               "\" is no name of a job; give that of its job file"));
  }
  const absl::StatusOr<FileLock> lock =
      FileLock::Take(StrCat(options.checkpoints, "/", kInUseName));
  if (absl::IsAlreadyExists(lock.status())) {
    return absl::FailedPreconditionError(
        StrCat(options.checkpoints, " is in use (", lock.status().message(),
               "); hold or cancel that job before"));
  }
  GAVEL_RETURN_IF_ERROR(lock.status());
  const auto before = ReadOwner(disk, options.checkpoints);
  GAVEL_RETURN_IF_ERROR(
      WriteOwner(disk, options.checkpoints, {"", 0, options.job}));
  absl::PrintF("%s now has the checkpoints of job '%s'%s\n",
               options.checkpoints, options.job,
               before.ok() && before->has_value()
                   ? StrCat(", no longer of ", Describe(**before))
                   : "");
  return absl::OkStatus();
}

void Add(CLI::App& app, const char* name, const char* help,
         absl::Status (*run)(const FilesOptions&), const char* where,
         int* exit_code) {
  auto [command, options] =
      AddCommand<FilesOptions>(app, exit_code, name, help, run);
  AddOption(command, "checkpoints", options.checkpoints, "DIR", where)
      ->required();
  AddOption(command, "--pytorch", options.pytorch, "DIR",
            "the files for Python")
      ->required();
}

}  // namespace

void AddCheckpointFilesCommands(CLI::App& app, int* exit_code) {
  auto [list, options] = AddCommand<ListOptions>(
      app, exit_code, "list", "Shows the checkpoints in a job's directory",
      List);
  AddOption(list, "checkpoints", options.checkpoints, "DIR",
            "a job's checkpoint directory")
      ->required();
  list.add_flag("--json", options.json, "JSON instead of text");
  Add(app, "export",
      "Writes modules and optimizers of the newest generation as files that "
      "Python's load_state_dict takes",
      Export, "a job's checkpoint directory, or one generation in it",
      exit_code);
  Add(app, "import",
      "Commits what Python saved in such files as the newest generation; the "
      "job must not run",
      Import, "a job's checkpoint directory", exit_code);
  auto [adopt, adopted] = AddCommand<AdoptOptions>(
      app, exit_code, "adopt",
      "Gives a job's checkpoint directory to another job, which continues from "
      "what is there; no job may use it meanwhile",
      Adopt);
  AddOption(adopt, "checkpoints", adopted.checkpoints, "DIR",
            "a job's checkpoint directory")
      ->required();
  AddOption(adopt, "job", adopted.job, "JOB",
            "the name of the job that it is for")
      ->required();
}

}  // namespace gavel
