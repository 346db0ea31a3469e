#include "runtime/checkpoint/gang_commit.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// Short against a save, long against a look into a folder, also over NFS.
constexpr std::chrono::milliseconds kLookInterval(10);

using Deadline = std::chrono::time_point<std::chrono::steady_clock,
                                         std::chrono::duration<double>>;

Deadline After(const GangWait& wait) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration<double>(wait.wait_s);
}

// Calls `look`, which returns true when it has found what it looks for, until
// then. False: not before the deadline, which is put off while a rank has not
// begun.
template <class Look>
absl::StatusOr<bool> WaitUntil(Deadline deadline, const GangWait& wait,
                               Look look) {
  bool counts = !wait.all_have_begun;
  while (true) {
    GAVEL_ASSIGN_OR_RETURN(const bool found, look());
    if (found) return true;
    if (!counts) {
      counts = wait.all_have_begun();
      deadline = After(wait);
    }
    if (std::chrono::steady_clock::now() >= deadline) return false;
    if (wait.gives_up) {
      GAVEL_RETURN_IF_ERROR(wait.gives_up());
    }
    std::this_thread::sleep_for(kLookInterval);
  }
}

absl::StatusOr<bool> HasFile(FileSystem& file_system, const std::string& folder,
                             const std::string& name) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                         file_system.List(folder));
  return std::any_of(entries.begin(), entries.end(),
                     [&](const DirectoryEntry& entry) {
                       return entry.name == name && !entry.is_directory;
                     });
}

absl::Status DontFit(int rank, std::string_view why) {
  return absl::FailedPreconditionError(
      StrCat("rank ", rank, " ", why,
             "; all ranks must track the same state and checkpoint at the same "
             "step"));
}

absl::Status NamePart(FileSystem& file_system, const std::string& folder,
                      int rank) {
  return file_system.Rename(StrCat(folder, "/", PartTemporaryName(rank)),
                            StrCat(folder, "/", PartFileName(rank)));
}

absl::StatusOr<ManifestPart> ReadPart(FileSystem& file_system,
                                      const std::string& folder,
                                      const ManifestPart& own, int rank) {
  const std::string path = StrCat(folder, "/", PartFileName(rank));
  GAVEL_ASSIGN_OR_RETURN(
      const std::string text,
      ReadWholeFile(file_system, path, kManifestSizeBytesMax));
  absl::StatusOr<ManifestPart> part = DecodePart(text);
  if (!part.ok()) return Annotate(part.status(), path);
  if (part->generation != own.generation || part->rank != rank ||
      part->world_size != own.world_size) {
    return DontFit(rank, "wrote a part of another generation or gang");
  }
  if (part->cut != own.cut) {
    return DontFit(rank,
                   "cut the state into other shards than rank 0; unequal parts "
                   "(gavel::Sharded) need the size of the whole");
  }
  return part;
}

using IndexedShards = std::map<size_t, ManifestPart::IndexedShard>;

absl::Status Merge(const ManifestPart& part, IndexedShards* shards) {
  for (const ManifestPart::IndexedShard& shard : part.shards) {
    if (!shards->emplace(shard.index, shard).second) {
      return DontFit(part.rank, StrCat("wrote ", ShardFileName(shard.index),
                                       ", which another rank wrote, too"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Attempt> WaitForAttempt(FileSystem& file_system,
                                       const std::string& directory,
                                       Generation generation, int rank,
                                       const GangWait& wait) {
  std::optional<Attempt> found;
  const auto look = [&]() -> absl::StatusOr<bool> {
    GAVEL_ASSIGN_OR_RETURN(const Attempts attempts,
                           ListAttempts(file_system, directory));
    for (const Attempt& attempt : attempts.uncommitted) {
      if (attempt.generation != generation) continue;
      const std::string folder = StrCat(directory, "/", AttemptName(attempt));
      // One that this rank took part in is given up.
      absl::StatusOr<bool> old =
          HasFile(file_system, folder, PartFileName(rank));
      if (old.ok() && !*old) found = attempt;
    }
    return found.has_value();
  };
  GAVEL_ASSIGN_OR_RETURN(const bool in_time,
                         WaitUntil(After(wait), wait, look));
  if (in_time) return *found;
  return absl::DeadlineExceededError(
      StrCat("rank 0 has not begun ", GenerationName(generation), " in ",
             directory, " within ", wait.wait_s,
             " s; see its log, and that all ranks see the same directory"));
}

absl::Status WritePart(FileSystem& file_system, const std::string& folder,
                       const ManifestPart& part) {
  return WriteTextFile(file_system,
                       StrCat(folder, "/", PartTemporaryName(part.rank)),
                       EncodePart(part));
}

absl::Status PublishPart(FileSystem& file_system, const std::string& folder,
                         int rank) {
  GAVEL_RETURN_IF_ERROR(NamePart(file_system, folder, rank));
  return file_system.SyncDirectory(folder);
}

absl::Status AnnounceCommit(FileSystem& file_system,
                            const std::string& folder) {
  return NamePart(file_system, folder, 0);
}

absl::StatusOr<std::vector<ManifestPart::IndexedShard>> CollectParts(
    FileSystem& file_system, const std::string& folder, const ManifestPart& own,
    const GangWait& wait) {
  IndexedShards merged;
  GAVEL_RETURN_IF_ERROR(Merge(own, &merged));
  const Deadline deadline = After(wait);  // of all ranks together
  for (int rank = 1; rank < own.world_size; ++rank) {
    GAVEL_ASSIGN_OR_RETURN(const bool in_time, WaitUntil(deadline, wait, [&] {
                             return HasFile(file_system, folder,
                                            PartFileName(rank));
                           }));
    if (!in_time) {
      return absl::DeadlineExceededError(
          StrCat("rank ", rank, " of ", own.world_size,
                 " has not written its part within ", wait.wait_s,
                 " s; see its log, and that it uses this directory"));
    }
    GAVEL_ASSIGN_OR_RETURN(const ManifestPart part,
                           ReadPart(file_system, folder, own, rank));
    GAVEL_RETURN_IF_ERROR(Merge(part, &merged));
  }
  std::vector<ManifestPart::IndexedShard> shards;
  for (auto& [index, shard] : merged) {
    if (index != shards.size()) {
      return DontFit(own.rank, StrCat("misses ", ShardFileName(shards.size()),
                                      " of another rank"));
    }
    shards.push_back(std::move(shard));
  }
  return shards;
}

absl::Status WaitForCommit(FileSystem& file_system,
                           const std::string& directory, const Attempt& attempt,
                           const GangWait& wait) {
  const std::string folder = StrCat(directory, "/", AttemptName(attempt));
  absl::StatusOr<bool> committed = WaitUntil(After(wait), wait, [&] {
    return HasFile(file_system, folder, PartFileName(0));
  });
  if (!committed.ok()) return committed.status();
  if (*committed) return absl::OkStatus();
  return absl::DeadlineExceededError(StrCat(
      "rank 0 has not committed it within ", wait.wait_s, " s; see its log"));
}

}  // namespace gavel
