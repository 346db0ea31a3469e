#include "coordinator/cli/pytorch_files.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/json_fields.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "gavel_checkpoint_text.h"
#include "runtime/files/files.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"
#include "runtime/generation/safetensors_files.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHelperName = "gavel_checkpoint.py";
constexpr std::string_view kIndexName = "checkpoint.json";
constexpr size_t kIndexBytesMax = size_t{64} << 20;
constexpr int64_t kIndexVersion = 1;
constexpr int64_t kStepMax = int64_t{1} << 52;
constexpr uint64_t kPieceBytes = uint64_t{8} << 20;
constexpr size_t kOutputBytesMax = size_t{1} << 20;
// As in runtime/checkpoint/snapshot.h, which needs LibTorch.
constexpr std::string_view kPartPrefix = "gavel.part/";

// ---- A generation, as it is on disk ----

// Reads the file piece by piece.
absl::StatusOr<ShardSummary> SummarizeShardFile(const std::string& path,
                                                ShardChecksum kind) {
  GAVEL_ASSIGN_OR_RETURN(
      const std::unique_ptr<ReadableFile> file,
      FileSystem::Posix().OpenFile(path, FileAccess::kBuffered));
  const uint64_t size = file->size_bytes();
  ShardSummer summer(size, kind);
  std::string buffer(std::min(kPieceBytes, size), '\0');
  for (uint64_t at = 0; at < size; at += buffer.size()) {
    const uint64_t piece = std::min<uint64_t>(buffer.size(), size - at);
    GAVEL_RETURN_IF_ERROR(file->Read(at, buffer.data(), piece));
    GAVEL_RETURN_IF_ERROR(
        summer.Add(std::string_view(buffer).substr(0, piece)));
  }
  return summer.Finish();
}

struct OpenedGeneration {
  std::string directory;  // of the job's checkpoints
  Attempt attempt;
  Manifest manifest;

  std::string folder() const {
    return StrCat(directory, "/", AttemptName(attempt));
  }
};

absl::StatusOr<Attempt> NewestOf(const std::string& directory) {
  GAVEL_ASSIGN_OR_RETURN(const Attempts attempts,
                         ListAttempts(FileSystem::Posix(), directory));
  if (!attempts.committed.empty()) return attempts.committed.back();
  return absl::NotFoundError(
      StrCat(directory,
             " has no committed checkpoint; give a job's checkpoint "
             "directory, or one generation in it"));
}

absl::Status CheckShard(const std::string& path, const ShardSummary& expected,
                        ShardChecksum kind) {
  const absl::StatusOr<ShardSummary> summary = SummarizeShardFile(path, kind);
  if (summary.ok() && *summary == expected) return absl::OkStatus();
  if (!summary.ok() && !absl::IsDataLoss(summary.status())) {
    return summary.status();
  }
  return absl::DataLossError(
      StrCat(path,
             " is damaged: it is not what its manifest says; export or "
             "import an earlier generation"));
}

// The torch.cat of docs/iterator.md makes a whole of the parts.
absl::Status CheckWhole(const OpenedGeneration& generation) {
  for (const ShardSummary& shard : generation.manifest.shards) {
    for (const TensorChecksum& tensor : shard.tensors) {
      if (!tensor.name.starts_with(kPartPrefix)) continue;
      return absl::UnimplementedError(
          StrCat(generation.folder(),
                 " has tensors that are sharded over workers (", tensor.name,
                 "), for which there is no export or import; let one worker "
                 "save a checkpoint, and take that"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<OpenedGeneration> OpenGeneration(const std::string& path) {
  OpenedGeneration generation;
  // Without "/" at the end.
  const fs::path given = (fs::path(path) / "").lexically_normal().parent_path();
  const std::optional<Attempt> named =
      ParseAttemptName(given.filename().string());
  generation.directory =
      named ? (given.has_parent_path() ? given.parent_path().string() : ".")
            : path;
  if (named) {
    generation.attempt = *named;
  } else {
    GAVEL_ASSIGN_OR_RETURN(generation.attempt, NewestOf(path));
  }
  GAVEL_ASSIGN_OR_RETURN(generation.manifest,
                         ReadManifest(generation.folder()));
  for (size_t i = 0; i < generation.manifest.shards.size(); ++i) {
    GAVEL_RETURN_IF_ERROR(CheckShard(
        StrCat(generation.folder(), "/", ShardFileName(i)),
        generation.manifest.shards[i], generation.manifest.shard_checksum()));
  }
  GAVEL_RETURN_IF_ERROR(CheckWhole(generation));
  return generation;
}

// ---- Python ----

// Until the other end is closed, by the end of the program.
std::string ReadOutput(int descriptor) {
  std::string output;
  std::string buffer(size_t{4096}, '\0');
  while (true) {
    const ssize_t size = ::read(descriptor, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return output;
    if (output.size() < kOutputBytesMax) {
      output.append(buffer, 0, static_cast<size_t>(size));
    }
  }
}

absl::StatusOr<pid_t> StartPython(std::vector<std::string> words, int errors) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  pid_t process = 0;
  const int error = posix_spawnp(&process, arguments[0], &actions, nullptr,
                                 arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return process;
  return absl::FailedPreconditionError(
      StrCat("python3 does not start (", std::strerror(error),
             "); install Python 3.6 or later, so that PATH has python3"));
}

// Runs gavel_checkpoint.py with the interpreter in PATH, which needs no
// packages and sees none of the user's. Returns its notes.
absl::StatusOr<std::vector<std::string>> RunHelper(
    const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe for python3");
  }
  const Descriptor output(ends[0]);
  Descriptor errors(ends[1]);
  std::vector<std::string> words = {"python3", "-I", "-c",
                                    kGavelCheckpointText};
  words.insert(words.end(), arguments.begin(), arguments.end());
  GAVEL_ASSIGN_OR_RETURN(const pid_t process,
                         StartPython(std::move(words), errors.get()));
  errors.Close();
  std::string text = ReadOutput(output.get());
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (status == 0) return absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (text.empty()) {
    return absl::InternalError(StrCat(
        WIFSIGNALED(status)
            ? StrCat("python3 was ended by signal ", WTERMSIG(status))
            : StrCat("python3 ended with code ", WEXITSTATUS(status)),
        " and gave no reason; check that the machine has enough memory, and "
        "try again"));
  }
  if (text.back() == '\n') text.pop_back();
  return absl::InvalidArgumentError(text);
}

absl::StatusOr<ParsedJson> ReadIndex(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(path, kIndexBytesMax));
  GAVEL_ASSIGN_OR_RETURN(ParsedJson json, ParseJson(text));
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* const version,
      Field(json, "format_version", ParsedJson::value_t::number_unsigned, "1"));
  if (*version != kIndexVersion) {
    return absl::FailedPreconditionError(
        StrCat("format version ", version->dump(),
               " is not known here; use the version of Gavel that wrote it"));
  }
  return json;
}

// `index`: one that Python has read or written without an error.
std::vector<std::string> NamesIn(const ParsedJson& index) {
  auto names = index.at("modules").get<std::vector<std::string>>();
  for (const auto& [name, optimizer] : index.at("optimizers").items()) {
    names.push_back(name);
  }
  return names;
}

}  // namespace

absl::StatusOr<Manifest> ReadManifest(const std::string& folder) {
  const std::string file = StrCat(folder, "/", kManifestFileName);
  GAVEL_ASSIGN_OR_RETURN(
      const std::string text,
      ReadWholeFile(FileSystem::Posix(), file, kManifestSizeBytesMax));
  absl::StatusOr<Manifest> manifest = DecodeManifest(text);
  if (!manifest.ok()) return Annotate(manifest.status(), file);
  return manifest;
}

absl::StatusOr<PyTorchFiles> ExportToPyTorch(const std::string& from,
                                             const std::string& to) {
  GAVEL_ASSIGN_OR_RETURN(const OpenedGeneration generation,
                         OpenGeneration(from));
  PyTorchFiles files;
  files.generation = generation.attempt.generation;
  files.folder = generation.folder();
  GAVEL_ASSIGN_OR_RETURN(
      files.notes,
      RunHelper({"export", files.folder, to, StrCat(files.generation.epoch),
                 StrCat(files.generation.step)}));
  GAVEL_RETURN_IF_ERROR(
      WriteFile(StrCat(to, "/", kHelperName), kGavelCheckpointText));
  GAVEL_ASSIGN_OR_RETURN(const ParsedJson index,
                         ReadIndex(StrCat(to, "/", kIndexName)));
  files.names = NamesIn(index);
  return files;
}

// ---- Import ----

namespace {

// A new attempt, when its generation is there already: it counts more.
absl::StatusOr<Attempt> NextAttempt(const OpenedGeneration& newest,
                                    const ParsedJson& index) {
  const Generation before = newest.attempt.generation;
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* const given,
      Field(index, "step", ParsedJson::value_t::number_unsigned,
            "the steps that the state has been trained for"));
  GAVEL_ASSIGN_OR_RETURN(const int64_t step,
                         Whole(*given, "step", 0, kStepMax));
  if (static_cast<uint64_t>(step) < before.step) {
    return Refuse("its step is ", step, ", and ", newest.directory,
                  " has one of step ", before.step,
                  "; export that, or import into a copy of the directory");
  }
  Attempt attempt{{before.epoch, static_cast<uint64_t>(step)}, 0};
  GAVEL_ASSIGN_OR_RETURN(const Attempts all,
                         ListAttempts(FileSystem::Posix(), newest.directory));
  for (const auto* list : {&all.committed, &all.uncommitted}) {
    for (const Attempt& other : *list) {
      if (other.generation != attempt.generation) continue;
      attempt.number = std::max(attempt.number, other.number + 1);
    }
  }
  return attempt;
}

// Commits the shards that Python has written and synced, in the order of
// GenerationStore's protocol.
absl::Status Commit(const OpenedGeneration& newest, const Attempt& attempt,
                    const std::string& folder) {
  FileSystem& disk = FileSystem::Posix();
  Manifest manifest;
  manifest.generation = attempt.generation;
  manifest.world_size = newest.manifest.world_size;
  GAVEL_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                         disk.List(folder));
  for (size_t i = 0; i < entries.size(); ++i) {
    GAVEL_ASSIGN_OR_RETURN(
        ShardSummary summary,
        SummarizeShardFile(StrCat(folder, "/", ShardFileName(i)),
                           manifest.shard_checksum()));
    manifest.shards.push_back(std::move(summary));
  }
  const std::string temporary = StrCat(folder, "/", kManifestTemporaryName);
  GAVEL_RETURN_IF_ERROR(
      WriteTextFile(disk, temporary, EncodeManifest(manifest)));
  GAVEL_RETURN_IF_ERROR(disk.SyncDirectory(folder));
  GAVEL_RETURN_IF_ERROR(disk.SyncDirectory(newest.directory));
  GAVEL_RETURN_IF_ERROR(
      disk.Rename(temporary, StrCat(folder, "/", kManifestFileName)));
  return disk.SyncDirectory(folder);
}

}  // namespace

absl::StatusOr<PyTorchFiles> ImportFromPyTorch(const std::string& from,
                                               const std::string& directory) {
  const std::string path = StrCat(from, "/", kIndexName);
  const absl::StatusOr<ParsedJson> index = ReadIndex(path);
  if (!index.ok()) return Annotate(index.status(), path);
  GAVEL_ASSIGN_OR_RETURN(const OpenedGeneration newest,
                         OpenGeneration(directory));
  if (newest.directory != directory) {
    return Refuse(directory,
                  " is one generation; give the checkpoint "
                  "directory that it lies in");
  }
  const absl::StatusOr<FileLock> lock =
      FileLock::Take(StrCat(directory, "/", kInUseName));
  if (absl::IsAlreadyExists(lock.status())) {
    return absl::FailedPreconditionError(
        StrCat("a program that runs saves its checkpoints in ", directory, " (",
               lock.status().message(),
               "); let it end first, a job by gavel hold JOB"));
  }
  const absl::StatusOr<Attempt> attempt = NextAttempt(newest, *index);
  if (!attempt.ok()) return Annotate(attempt.status(), path);
  PyTorchFiles files;
  files.generation = attempt->generation;
  files.folder = StrCat(directory, "/", AttemptName(*attempt));
  FileSystem& disk = FileSystem::Posix();
  GAVEL_RETURN_IF_ERROR(disk.CreateDirectory(files.folder));
  absl::StatusOr<std::vector<std::string>> notes =
      RunHelper({"import", from, newest.folder(), files.folder});
  const absl::Status status =
      notes.ok() ? Annotate(Commit(newest, *attempt, files.folder),
                            "nothing is imported")
                 : notes.status();
  if (!status.ok()) {
    RemoveAttempt(disk, directory, *attempt).IgnoreError();
    return status;
  }
  files.notes = *std::move(notes);
  files.names = NamesIn(*index);
  return files;
}

// ---- gavel checkpoint list, export, import and adopt.

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
