// The checkpoints of one job in one directory. Commit writes a generation so
// that after a crash at any moment either it or an earlier one can be restored;
// Restore gives the latest that verifies.
//
// Called by the iterator at boundaries. Not thread-safe; one committing store
// per directory at a time, which the lease ensures, and if it does not, the
// higher epoch wins. Restoring from another process meanwhile is safe.
//
// The protocol (design section 6), in this order: shards written and fsynced,
// their folder fsynced; the manifest written under another name, fsynced,
// renamed; folder and parent fsynced; only then acknowledged, and only after
// that older generations deleted, never one of a higher epoch.
#ifndef GAVEL_RUNTIME_CHECKPOINT_GENERATION_STORE_H_
#define GAVEL_RUNTIME_CHECKPOINT_GENERATION_STORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/generation.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/generation_directory.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/snapshot.h"

namespace gavel {

struct GenerationStoreOptions {
  // Committed generations that stay, at least 2.
  int keep_last = 2;
  // A new shard is begun when the tensors of one reach this many bytes; a
  // larger tensor has a shard of its own.
  uint64_t shard_size_bytes_max = uint64_t{2} << 30;
  // Borrowed; must outlive the store.
  FileSystem* file_system = &FileSystem::Posix();
};

struct CommitOptions {
  // Number of workers that trained up to this generation, >= 1; recorded only.
  int world_size = 1;
  // Asked when all is durable but the manifest's name: anything but OK (the
  // lease ran out) gives the attempt up and is returned. May be empty.
  std::function<absl::Status()> before_commit = nullptr;
};

struct Restored {
  Generation generation;
  int world_size = 1;
  Snapshot snapshot;
  // Later generations that were rejected, and why; empty when all is well.
  std::vector<std::string> notes;
};

class GenerationStore {
 public:
  using Options = GenerationStoreOptions;

  // Creates the directory when there is none. INVALID_ARGUMENT: options out of
  // range; else the FileSystem's errors.
  static absl::StatusOr<GenerationStore> Open(const std::string& directory,
                                              const Options& options = {});

  // OK: the generation is durable. On any error the attempt is removed and all
  // earlier generations are as they were; calling again makes a new attempt
  // with new files, as a file whose fsync failed is lost.
  // FAILED_PRECONDITION: a generation of a higher epoch is there, so this
  // worker was replaced. INVALID_ARGUMENT: see ToTensors. RESOURCE_EXHAUSTED:
  // the disk is full. Else before_commit's or the FileSystem's errors.
  absl::Status Commit(Generation generation, const Snapshot& snapshot,
                      const CommitOptions& options = {});

  // The latest by (epoch, step) that verifies. NOT_FOUND: nothing was committed
  // yet. DATA_LOSS: all that was committed is damaged; the message lists why.
  // FAILED_PRECONDITION: the latest was written by a newer version. Other
  // errors (memory, permission) concern the latest and are no reason to fall
  // back to an older state.
  absl::StatusOr<Restored> Restore();

  // The latest committed, by its name, without reading it. NOT_FOUND if none.
  absl::StatusOr<Generation> LatestGeneration() const;

  // Verified by its own checksum only. NOT_FOUND if it is not committed.
  absl::StatusOr<Manifest> ReadManifest(Generation generation) const;

  // Deleting old generations does not fail a commit; what came of it at the
  // last one.
  const absl::Status& cleanup_status() const { return cleanup_status_; }

 private:
  GenerationStore(std::string directory, const Options& options)
      : directory_(std::move(directory)), options_(options) {}

  std::string FolderOf(const Attempt& attempt) const;
  absl::StatusOr<Attempt> PrepareAttempt(Generation generation);
  absl::Status WriteAttempt(const Attempt& attempt,
                            const std::vector<NamedTensor>& tensors,
                            const CommitOptions& options);
  absl::Status WriteShards(const std::string& folder,
                           const std::vector<NamedTensor>& tensors,
                           Manifest* manifest);
  absl::Status WriteManifest(const std::string& folder,
                             const Manifest& manifest,
                             const std::function<absl::Status()>& veto);
  absl::Status DeleteSuperseded(const Attempt& committed);
  absl::Status RemoveAll(const std::vector<Attempt>& attempts);
  absl::StatusOr<Manifest> ReadAttemptManifest(const Attempt& attempt) const;
  absl::StatusOr<Restored> RestoreAttempt(const Attempt& attempt) const;

  FileSystem& file_system() const { return *options_.file_system; }

  std::string directory_;
  Options options_;
  absl::Status cleanup_status_;
  // Found damaged by Restore: they do not count as kept.
  std::set<Attempt> damaged_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_GENERATION_STORE_H_
