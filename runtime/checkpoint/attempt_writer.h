// How the generation store writes an attempt at a generation: which tensors
// have stopped changing, the shards of one rank, and the commit of all ranks
// together.
#ifndef GAVEL_RUNTIME_CHECKPOINT_ATTEMPT_WRITER_H_
#define GAVEL_RUNTIME_CHECKPOINT_ATTEMPT_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/generation.h"
#include "runtime/checkpoint/snapshot_stage.h"
#include "runtime/device/host_memory.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"

namespace gavel {

// Which tensors of a job no longer change, as the checksums of its generations
// tell: frozen layers and tables that a job only reads are to lie in shards of
// their own, which need not be written again. Called by GenerationStore after
// each commit.
//
// Functions of manifests alone: so every rank of a gang comes to the same cut,
// and so does a process that starts from the generation. Thread-safe.

// A tensor counts as unchanged after so many generations with the same checksum
// as the one before.
inline constexpr int kUnchangedGenerations = 3;

// Manifest::unchanged of the generation of `shards` that follows `before`;
// counts to kUnchangedGenerations.
std::map<std::string, int> CountUnchanged(
    const Manifest& before, const std::vector<ShardSummary>& shards);

// All tensors of manifest.shards[shard] count as unchanged.
bool IsUnchanged(const Manifest& manifest, size_t shard);

// The tensors that get shards of their own in the next generation.
// `sizes_bytes` has the sizes of all tensors. The choice changes only when
// unchanged tensors of more than `for_nothing_bytes_max` share shards with
// changed ones, and so are written again without need.
std::set<std::string> ChooseUnchanged(
    const Manifest& last, const std::map<std::string, uint64_t>& sizes_bytes,
    uint64_t for_nothing_bytes_max);

// How many generations share one file: damage is of no consequence after as
// many, and at most an eighth of what does not change is written per
// generation. Up to twice as many, by the shard's index, so that not all are
// written at once.
inline constexpr int kLinkedGenerations = 8;

// The last committed, undamaged generation, as far as this store knows it.
struct ShardHistory {
  std::string folder;  // empty: there is none
  Manifest manifest;
  std::vector<char> changed;  // by shard: since the generation before it
};

// Writes the staged shards of one rank into the folder of an attempt, and makes
// them and their names durable. Called by GenerationStore, which then gives the
// attempt its manifest.
//
// A shard that is as it was in the generation before is not written again but
// gets a second name (a hard link). That needs its checksum first; a shard that
// changed the last time is summed while it is written. A file that has been
// linked for kLinkedGenerations is written anew nevertheless: a block of it
// that the disk has lost is lost to all generations that share it.
//
// Not thread-safe; uses the pool's threads.
class AttemptWriter {
 public:
  using IndexedShard = ManifestPart::IndexedShard;
  // Called once by one of the threads, when all checksums are known and shards
  // may still be being made durable.
  using WhenSummed =
      std::function<absl::Status(const std::vector<IndexedShard>&)>;

  // Borrows all of them.
  AttemptWriter(FileSystem& file_system, WorkerPool& pool,
                const ShardHistory& history)
      : file_system_(file_system), pool_(pool), history_(history) {}

  // The FileSystem's errors; then files may be there in part. When it returns,
  // the shards, their names, and the folder's name are durable.
  absl::Status Write(const std::string& folder,
                     const std::vector<StagedShard>& shards,
                     const WhenSummed& when_summed);

  // The shards that the last Write linked instead of writing them.
  size_t linked_count() const { return linked_count_; }

 private:
  bool MayBeUnchanged(const StagedShard& shard) const;
  int LinkedBefore(size_t index) const;
  absl::Status LinkUnchanged();
  absl::Status CreateFiles();
  absl::Status SyncRest();
  absl::Status WriteShard(size_t shard);
  absl::Status Sum(size_t shard);

  FileSystem& file_system_;
  WorkerPool& pool_;
  const ShardHistory& history_;
  // The fields below belong to the present Write.
  std::string folder_;
  const std::vector<StagedShard>* shards_ = nullptr;
  const WhenSummed* when_summed_ = nullptr;
  std::vector<IndexedShard> summaries_;
  std::vector<char> summed_, linked_;
  std::vector<std::unique_ptr<WritableFile>> files_;
  size_t linked_count_ = 0;
};

// How the ranks of a gang commit one generation together. Rank 0 makes the
// folder; every rank writes its shards there and then, with the care of a
// manifest, its part: a file that lists them. Rank 0 waits for all parts, and
// only then commits the manifest of all shards. When that is durable it
// publishes its own part, which the others wait for: what goes wrong before,
// goes wrong for all.
//
// Called by GenerationStore. Functions over a FileSystem that all ranks see;
// each wait is bounded.

// How the functions below wait; see CommitOptions. They look some hundred times
// a second.
struct GangWait {
  double wait_s = 60;
  std::function<absl::Status()> gives_up = nullptr;
  std::function<bool()> all_have_begun = nullptr;
};

// Rank > 0: the attempt at `generation` that rank 0 has begun and that has no
// part of `rank` yet. DEADLINE_EXCEEDED: none within the time.
absl::StatusOr<Attempt> WaitForAttempt(FileSystem& file_system,
                                       const std::string& directory,
                                       Generation generation, int rank,
                                       const GangWait& wait);

// Writes the part under its temporary name, durably.
absl::Status WritePart(FileSystem& file_system, const std::string& folder,
                       const ManifestPart& part);
// Rank > 0, when its shards are durable: gives the part its name, durably.
absl::Status PublishPart(FileSystem& file_system, const std::string& folder,
                         int rank);

// Rank 0, when the manifest is durable: gives its part its name. No error after
// this one is the other ranks' business.
absl::Status AnnounceCommit(FileSystem& file_system, const std::string& folder);

// Rank 0: the shards of all ranks in order; `own` is rank 0's part.
// DEADLINE_EXCEEDED names the rank whose part is not there in time.
// FAILED_PRECONDITION: the ranks' parts don't fit together, so they are not at
// the same step of the same model. DATA_LOSS: a part is damaged.
absl::StatusOr<std::vector<ManifestPart::IndexedShard>> CollectParts(
    FileSystem& file_system, const std::string& folder, const ManifestPart& own,
    const GangWait& wait);

// Rank > 0: until rank 0 has announced that `attempt` is committed.
// DEADLINE_EXCEEDED: not in time. NOT_FOUND: it gave the attempt up.
absl::Status WaitForCommit(FileSystem& file_system,
                           const std::string& directory, const Attempt& attempt,
                           const GangWait& wait);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_ATTEMPT_WRITER_H_
