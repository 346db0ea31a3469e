// Reads and verifies the shards of a generation by several threads: past the
// page cache, straight into the arena, where the tensors stay; or through it,
// for the ranks of a gang, which then have the state once on each machine.
// Called by GenerationStore.
#ifndef GAVEL_RUNTIME_CHECKPOINT_SHARD_READER_H_
#define GAVEL_RUNTIME_CHECKPOINT_SHARD_READER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/device/arena.h"
#include "runtime/device/worker_pool.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"

namespace gavel {

// The tensors of all shards, which keep their memory alive. No more memory is
// taken than the files have bytes. DATA_LOSS: a shard is not what its manifest
// says; else the FileSystem's errors.
absl::StatusOr<std::vector<NamedTensor>> ReadShards(FileSystem& file_system,
                                                    const std::string& folder,
                                                    const Manifest& manifest,
                                                    WorkerPool& pool,
                                                    Arena& arena);

// The same; the tensors look into pages of the files that all processes of this
// machine share. Where the file system has none, as ReadShards().
absl::StatusOr<std::vector<NamedTensor>> MapShards(FileSystem& file_system,
                                                   const std::string& folder,
                                                   const Manifest& manifest,
                                                   WorkerPool& pool,
                                                   Arena& arena);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_SHARD_READER_H_
