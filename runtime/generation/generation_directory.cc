#include "runtime/generation/generation_directory.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/generation/manifest.h"

namespace gavel {
namespace {

constexpr uint64_t kOwnerBytesMax = 4096;
constexpr size_t kOwnerLines = 3;  // cluster, number, name

bool IsOurs(std::string_view name) {
  return name == kManifestFileName || name == kManifestTemporaryName ||
         ParseShardFileName(name) || IsPartFileName(name);
}

bool HasFile(const std::vector<DirectoryEntry>& entries,
             std::string_view name) {
  return std::ranges::any_of(entries, [name](const DirectoryEntry& entry) {
    return entry.name == name && !entry.is_directory;
  });
}

}  // namespace

std::string AttemptName(const Attempt& attempt) {
  std::string name = GenerationName(attempt.generation);
  if (attempt.number > 0) StrAppend(&name, ".", attempt.number);
  return name;
}

std::optional<Attempt> ParseAttemptName(std::string_view name) {
  Attempt attempt;
  size_t dot = name.find('.');
  std::optional<Generation> generation =
      ParseGenerationName(name.substr(0, dot));
  if (!generation) return std::nullopt;
  attempt.generation = *generation;
  if (dot != std::string_view::npos &&
      !absl::SimpleAtoi(ToAbsl(name.substr(dot + 1)), &attempt.number)) {
    return std::nullopt;
  }
  // Leading zeros, signs and ".0" are not ours.
  if (AttemptName(attempt) != name) return std::nullopt;
  return attempt;
}

absl::StatusOr<Attempts> ListAttempts(FileSystem& file_system,
                                      const std::string& directory) {
  GAVEL_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries,
                         file_system.List(directory));
  Attempts attempts;
  for (const DirectoryEntry& entry : entries) {
    std::optional<Attempt> attempt = ParseAttemptName(entry.name);
    if (!attempt || !entry.is_directory) continue;
    absl::StatusOr<std::vector<DirectoryEntry>> files =
        file_system.List(StrCat(directory, "/", entry.name));
    // Another process may have removed it since.
    if (absl::IsNotFound(files.status())) continue;
    if (!files.ok()) return files.status();
    bool committed = HasFile(*files, kManifestFileName);
    (committed ? attempts.committed : attempts.uncommitted).push_back(*attempt);
  }
  std::sort(attempts.committed.begin(), attempts.committed.end());
  std::sort(attempts.uncommitted.begin(), attempts.uncommitted.end());
  return attempts;
}

absl::Status RemoveAttempt(FileSystem& file_system,
                           const std::string& directory,
                           const Attempt& attempt) {
  std::string folder = StrCat(directory, "/", AttemptName(attempt));
  GAVEL_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries,
                         file_system.List(folder));
  if (HasFile(entries, kManifestFileName)) {
    GAVEL_RETURN_IF_ERROR(
        file_system.RemoveFile(StrCat(folder, "/", kManifestFileName)));
    GAVEL_RETURN_IF_ERROR(file_system.SyncDirectory(folder));
  }
  for (const DirectoryEntry& entry : entries) {
    if (entry.name == kManifestFileName || !IsOurs(entry.name)) continue;
    GAVEL_RETURN_IF_ERROR(
        file_system.RemoveFile(StrCat(folder, "/", entry.name)));
  }
  return file_system.RemoveDirectory(folder);
}

std::string Describe(const DirectoryOwner& owner) {
  if (owner.cluster.empty()) return StrCat("job '", owner.name, "'");
  return StrCat("job '", owner.name, "' (", owner.job, " of cluster ",
                owner.cluster, ")");
}

absl::StatusOr<std::optional<DirectoryOwner>> ReadOwner(
    FileSystem& file_system, const std::string& directory) {
  const std::string path = StrCat(directory, "/", kOwnerName);
  const absl::StatusOr<std::string> text =
      ReadWholeFile(file_system, path, kOwnerBytesMax);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  if (!text.ok()) return text.status();
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  DirectoryOwner owner;
  if (lines.size() != kOwnerLines + 1 || lines[2].empty() ||
      !absl::SimpleAtoi(lines[1], &owner.job)) {
    return absl::DataLossError(
        StrCat(path,
               " names no job; say whose the checkpoints are by `gavel "
               "checkpoint adopt ",
               directory, " JOB`"));
  }
  owner.cluster = lines[0];
  owner.name = lines[2];
  return owner;
}

namespace {

// `if_none`: an owner that is there already stays, where the file system has
// links.
absl::Status PutOwner(FileSystem& file_system, const std::string& directory,
                      const DirectoryOwner& owner, bool if_none) {
  const std::string path = StrCat(directory, "/", kOwnerName);
  // One name for each process that writes it at once.
  const std::string part = StrCat(path, ".", owner.job, ".", getpid());
  file_system.RemoveFile(part).IgnoreError();  // of one that was killed
  GAVEL_RETURN_IF_ERROR(WriteTextFile(
      file_system, part,
      StrCat(owner.cluster, "\n", owner.job, "\n", owner.name, "\n")));
  absl::Status status = if_none ? file_system.Link(part, path)
                                : absl::UnimplementedError("replaces it");
  if (status.ok() || absl::IsAlreadyExists(status)) {
    file_system.RemoveFile(part).IgnoreError();
  } else {  // not every file system has links
    GAVEL_RETURN_IF_ERROR(file_system.Rename(part, path));
  }
  return file_system.SyncDirectory(directory);
}

}  // namespace

absl::Status WriteOwner(FileSystem& file_system, const std::string& directory,
                        const DirectoryOwner& owner) {
  return PutOwner(file_system, directory, owner, /*if_none=*/false);
}

absl::Status ClaimDirectory(FileSystem& file_system,
                            const std::string& directory,
                            const DirectoryOwner& owner) {
  GAVEL_ASSIGN_OR_RETURN(std::optional<DirectoryOwner> present,
                         ReadOwner(file_system, directory));
  const bool is_whole = present && !present->cluster.empty();
  if (!is_whole && (!present || present->IsSameAs(owner))) {
    // Another job may claim it at the same time.
    GAVEL_RETURN_IF_ERROR(
        PutOwner(file_system, directory, owner, /*if_none=*/!present));
    GAVEL_ASSIGN_OR_RETURN(present, ReadOwner(file_system, directory));
  }
  if (!present || present->IsSameAs(owner)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat(directory, " has the checkpoints of ", Describe(*present),
             ", not of ", Describe(owner),
             "; give it a checkpoint_directory of its own, or hand these over: "
             "gavel checkpoint adopt ",
             directory, " ", owner.name));
}

absl::Status CreateDirectories(FileSystem& file_system,
                               const std::string& directory) {
  absl::Status status = file_system.CreateDirectory(directory);
  if (absl::IsNotFound(status) && ParentOf(directory) != directory) {
    GAVEL_RETURN_IF_ERROR(CreateDirectories(file_system, ParentOf(directory)));
    status = file_system.CreateDirectory(directory);
  }
  if (absl::IsAlreadyExists(status)) return absl::OkStatus();
  GAVEL_RETURN_IF_ERROR(status);
  return file_system.SyncDirectory(ParentOf(directory));
}

std::string ParentOf(const std::string& path) {
  size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path.empty() ? "." : "/";
  size_t slash = path.find_last_of('/', end);
  if (slash == std::string::npos) return ".";
  size_t parent_end = path.find_last_not_of('/', slash);
  return parent_end == std::string::npos ? "/" : path.substr(0, parent_end + 1);
}

}  // namespace gavel
