// The checkpoints of a training program as they lie on disk: which are
// committed, whether they verify, how large they are and how long they took.
// `gavel doctor` calls it; the format is read by runtime/generation. Stateless,
// thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_CHECKPOINT_H_
#define GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/generation.h"

namespace gavel {

struct DoctorCheckpoint {
  Generation generation;
  std::string path;
};

// Committed ones, ascending; the program may be writing and deleting others.
std::vector<DoctorCheckpoint> ListCheckpoints(const std::string& directory);
std::optional<DoctorCheckpoint> LastCheckpoint(const std::string& directory);

// Whether all of it is there: DATA_LOSS names the file when the manifest is
// none or was altered, or a shard is missing or has another size. What is in
// the shards is verified by the runtime, when a program goes on from them.
absl::Status VerifyCheckpoint(const std::string& path);

// Names of the state that differs between two checkpoints, by the checksums of
// their manifests, sorted. Without the loop's count of batches and the random
// state at its begin, which a restart may begin anew. Errors: a manifest can't
// be read.
absl::StatusOr<std::vector<std::string>> DifferingState(
    const std::string& path, const std::string& other_path);

// Of all files in the folder.
uint64_t BytesIn(const std::string& folder);

// From the folder's creation to its manifest's; nothing where the file system
// does not keep the former.
std::optional<double> SaveTime_s(const std::string& path);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_CHECKPOINT_H_
