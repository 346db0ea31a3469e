// Snapshots whose contents follow from a step, and a folder to put them in.
#ifndef GAVEL_TESTS_CHECKPOINT_SNAPSHOT_SAMPLES_H_
#define GAVEL_TESTS_CHECKPOINT_SNAPSHOT_SAMPLES_H_

#include <cstdint>
#include <string>

#include "runtime/checkpoint/snapshot.h"

namespace gavel::testing {

// Some tensors of several dtypes and bytes; `elements` in the largest.
Snapshot SnapshotOfStep(uint64_t step, int64_t elements = 8);

// Whether `snapshot` is that of `step` to the last bit.
bool IsSnapshotOfStep(const Snapshot& snapshot, uint64_t step,
                      int64_t elements = 8);

// The same and a tensor that never changes, so that the shard that it has to
// itself is shared by the generations.
Snapshot SavedByWriter(uint64_t step, int64_t elements);
bool IsSavedByWriter(const Snapshot& snapshot, uint64_t step, int64_t elements);

// Six tensors "layer0/frozen" ... full of `frozen`, and in turns with them six
// "layer0/trained" ... full of `value`; of 4,000 bytes each.
Snapshot SnapshotWithFrozenLayers(double value, double frozen);

bool SameTensor(const at::Tensor& a, const at::Tensor& b);

// A new empty folder, removed with its contents at the end.
class CheckpointFolder {
 public:
  CheckpointFolder();
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string ReadBytes(const std::string& path);
// Overwrites in place, without any care.
void WriteBytes(const std::string& path, const std::string& bytes);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_CHECKPOINT_SNAPSHOT_SAMPLES_H_
