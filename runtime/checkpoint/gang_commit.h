// How the ranks of a gang commit one generation together. Rank 0 makes the
// folder; every rank writes its shards there and then, with the care of a
// manifest, its part: a file that lists them. Rank 0 waits for all parts, and
// only then commits the manifest of all shards. When that is durable it
// publishes its own part, which the others wait for: what goes wrong before,
// goes wrong for all.
//
// Called by GenerationStore. Functions over a FileSystem that all ranks see;
// each wait is bounded.
#ifndef GAVEL_RUNTIME_CHECKPOINT_GANG_COMMIT_H_
#define GAVEL_RUNTIME_CHECKPOINT_GANG_COMMIT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/generation.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/generation_directory.h"
#include "runtime/generation/manifest.h"

namespace gavel {

// How the functions below wait; see CommitOptions. What they ask is asked some
// hundred times a second.
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

#endif  // GAVEL_RUNTIME_CHECKPOINT_GANG_COMMIT_H_
