// The folders in which generations lie, one of each attempt to commit one:
//
//   generation-000000000007-000000001200/     the first attempt
//   generation-000000000007-000000001200.1/   the next, after a failure
//     shard-00000.safetensors
//     manifest.json                           there: the attempt was committed
//
// Called by GenerationStore. Functions over a FileSystem, safe on different
// directories.
#ifndef GAVEL_RUNTIME_GENERATION_GENERATION_DIRECTORY_H_
#define GAVEL_RUNTIME_GENERATION_GENERATION_DIRECTORY_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/generation.h"
#include "runtime/generation/file_system.h"

namespace gavel {

// A file beside them that the program which saves there keeps locked: see
// runtime/files/file_lock.h.
inline constexpr std::string_view kInUseName = ".in-use";

// A file beside them that says that a generation was committed here: a
// directory that has it, and folders of which none has a manifest, has lost
// its generations, and is not a new one.
inline constexpr std::string_view kCommittedName = ".committed";

// The job that the checkpoints of a directory are of, kept in a file beside
// them. A job that is submitted again under its name is the same.
inline constexpr std::string_view kOwnerName = ".job";

struct DirectoryOwner {
  std::string cluster;  // Journal::cluster_id; empty: any that has the name
  uint64_t job = 0;
  std::string name;

  bool IsSameAs(const DirectoryOwner& other) const {
    const bool any_cluster = cluster.empty() || other.cluster.empty();
    return name == other.name && (any_cluster || cluster == other.cluster);
  }
};

// "job 'lm' (7 of cluster 5eed)".
std::string Describe(const DirectoryOwner& owner);

// Ordered by generation, then number: a later attempt at the same generation
// counts more.
struct Attempt {
  Generation generation;
  int number = 0;
  friend auto operator<=>(const Attempt&, const Attempt&) = default;
};

std::string AttemptName(const Attempt& attempt);
// The inverse; nothing else is accepted.
std::optional<Attempt> ParseAttemptName(std::string_view name);

// What lies in a checkpoint directory, each sorted.
struct Attempts {
  std::vector<Attempt> committed;    // with a manifest, unverified
  std::vector<Attempt> uncommitted;  // left over from a crash, or under way
};

// Ignores files, symbolic links and folders of other names.
absl::StatusOr<Attempts> ListAttempts(FileSystem& file_system,
                                      const std::string& directory);

// Removes the files of a generation and the folder; the manifest first and
// durably, so that a half removed generation never looks like a whole one.
// Files of other names are left, and the folder with them.
absl::Status RemoveAttempt(FileSystem& file_system,
                           const std::string& directory,
                           const Attempt& attempt);

// Nothing: the directory is of no job yet, or not there. DATA_LOSS: the file
// can't be read.
absl::StatusOr<std::optional<DirectoryOwner>> ReadOwner(
    FileSystem& file_system, const std::string& directory);
// Replaces the owner, durably.
absl::Status WriteOwner(FileSystem& file_system, const std::string& directory,
                        const DirectoryOwner& owner);
// Writes `owner` unless it is there already. FAILED_PRECONDITION: the directory
// is another job's; the message has both.
absl::Status ClaimDirectory(FileSystem& file_system,
                            const std::string& directory,
                            const DirectoryOwner& owner);

// Creates `directory` and its missing parents, durably.
absl::Status CreateDirectories(FileSystem& file_system,
                               const std::string& directory);

// The directory that holds `path`: "/" or "." at the end of the road.
std::string ParentOf(const std::string& path);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_GENERATION_GENERATION_DIRECTORY_H_
