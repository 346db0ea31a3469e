// A manifest lists the files of a generation. It is the last file written of
// it, and so the proof that the generation is complete: JSON that carries its
// own checksum.
//
// Called by GenerationStore, and by agents that stream generations; tests and
// `gavel doctor` compare the manifests of two runs to see whether they are
// equal bit for bit. Values and pure functions, thread-safe.
#ifndef GAVEL_RUNTIME_GENERATION_MANIFEST_H_
#define GAVEL_RUNTIME_GENERATION_MANIFEST_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/generation.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/safetensors_files.h"

namespace gavel {

inline constexpr std::string_view kManifestFileName = "manifest.json";
inline constexpr std::string_view kManifestTemporaryName = "manifest.json.tmp";
// 1: ShardChecksum::kAllBytes. 2: kHeaderAndTensors.
inline constexpr int kManifestFormatVersion = 2;
inline constexpr uint64_t kManifestSizeBytesMax = uint64_t{256} << 20;

struct Manifest {
  Generation generation;
  // Workers that trained up to here; a generation restores onto any number.
  int world_size = 1;
  // Shard i lies in ShardFileName(i).
  std::vector<ShardSummary> shards;
  // The version of the manifest that was read.
  int format_version = kManifestFormatVersion;
  // For shards that share the file of earlier generations (a hard link): for
  // how many generations the file has not been written.
  std::map<size_t, int> linked = {};
  // How the next generation is cut (runtime/checkpoint/attempt_writer.h): for
  // how many generations, up to a few, each tensor has been unchanged, and how
  // many of the first shards have unchanged tensors only.
  std::map<std::string, int> unchanged = {};
  size_t unchanged_shards = 0;
  // The values that the job reported last, by name; finite ones.
  std::map<std::string, double> scalars = {};
  ShardChecksum shard_checksum() const {
    return format_version == 1 ? ShardChecksum::kAllBytes
                               : ShardChecksum::kHeaderAndTensors;
  }
};

// The part of a generation that one rank of a gang writes; rank 0 makes the
// manifest from its own shards and the other ranks' parts.
struct ManifestPart {
  Generation generation;
  int rank = 0;
  int world_size = 1;
  struct IndexedShard {
    size_t index = 0;
    ShardSummary summary;
    int linked = 0;  // see Manifest::linked
  };
  std::vector<IndexedShard> shards;  // by index
  // XXH3-64 of how this rank has cut the state of all ranks into shards.
  uint64_t cut = 0;
};

// "shard-00003.safetensors".
std::string ShardFileName(size_t index);
// The inverse; nothing else is accepted.
std::optional<size_t> ParseShardFileName(std::string_view name);

// "part-00003.json", and how its name begins while it is written.
std::string PartFileName(int rank);
std::string PartTemporaryName(int rank);
// Whether `name` is one that one of the two gives.
bool IsPartFileName(std::string_view name);

// `format_version` is for tests of what later versions write.
std::string EncodeManifest(const Manifest& manifest,
                           int format_version = kManifestFormatVersion);

// DATA_LOSS: not a manifest, or altered. FAILED_PRECONDITION: written by a
// newer version of Gavel.
absl::StatusOr<Manifest> DecodeManifest(std::string_view text);

std::string EncodePart(const ManifestPart& part);
// As DecodeManifest.
absl::StatusOr<ManifestPart> DecodePart(std::string_view text);

// Names of the tensors and bytes entries (with kBytesPrefix) that differ or
// are in one of them only, sorted. Empty when the states are equal bit for
// bit, however they are cut into shards.
std::vector<std::string> DifferingTensors(const Manifest& a, const Manifest& b);

// The folders in which generations lie, one of each attempt to commit one:
//
//   generation-000000000007-000000001200/     the first attempt
//   generation-000000000007-000000001200.1/   the next, after a failure
//     shard-00000.safetensors
//     manifest.json                           there: the attempt was committed
//
// Called by GenerationStore. Functions over a FileSystem, safe on different
// directories.

// A file beside them that the program which saves there keeps locked: see
// runtime/files/files.h.
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

// The folders in a checkpoint directory, each list sorted.
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
// Creates the directory if it is missing, and writes `owner` unless it is there
// already. FAILED_PRECONDITION: the directory is another job's; the message has
// both. The ranks of a gang may claim it at the same time.
absl::Status ClaimDirectory(FileSystem& file_system,
                            const std::string& directory,
                            const DirectoryOwner& owner);

// Creates `directory` and its missing parents, durably.
absl::Status CreateDirectories(FileSystem& file_system,
                               const std::string& directory);

// The directory that holds `path`: "/" or "." at the end of the road.
std::string ParentOf(const std::string& path);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_GENERATION_MANIFEST_H_
