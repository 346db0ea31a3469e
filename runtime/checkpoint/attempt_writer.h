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
#ifndef GAVEL_RUNTIME_CHECKPOINT_ATTEMPT_WRITER_H_
#define GAVEL_RUNTIME_CHECKPOINT_ATTEMPT_WRITER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/checkpoint/snapshot_stage.h"
#include "runtime/device/worker_pool.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"

namespace gavel {

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

  // Of what Write has written.
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
  // Of the present Write.
  std::string folder_;
  const std::vector<StagedShard>* shards_ = nullptr;
  const WhenSummed* when_summed_ = nullptr;
  std::vector<IndexedShard> summaries_;
  std::vector<char> summed_, linked_;
  std::vector<std::unique_ptr<WritableFile>> files_;
  size_t linked_count_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_ATTEMPT_WRITER_H_
