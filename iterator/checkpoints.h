// The job's generations as the session needs them: the one to go on from, and
// saves in the background. Without a directory there are none, and nothing
// fails. Training thread only, but for latest() and IsSuperseded().
#ifndef GAVEL_ITERATOR_CHECKPOINTS_H_
#define GAVEL_ITERATOR_CHECKPOINTS_H_

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/generation.h"
#include "runtime/checkpoint/checkpoint_writer.h"
#include "runtime/device/tensor_hash.h"

namespace gavel::internal {

class Checkpoints {
 public:
  // Reads the latest generation that verifies. Errors as of GenerationStore,
  // but that there is none yet is no error. `done` is told what came of each
  // save, by the writer's thread. Of `options`: what is kept, and
  // whether what is restored is shared.
  absl::Status Open(const std::string& directory,
                    GenerationStoreOptions options, int rank,
                    CheckpointWriter::Done done);

  bool enabled() const { return writer_ != nullptr; }
  // Null: the job begins. Until Forget(). Entries of this rank have the names
  // that it collected them under, those of other ranks are left out.
  const Snapshot* restored() const {
    return restored_ ? &restored_->snapshot : nullptr;
  }
  // Later generations that were rejected, one line each.
  const std::vector<std::string>& notes() const { return notes_; }
  // Of the last commit or restore; (0, 0): none.
  Generation latest() const;
  // Lets saves use the memory of what was restored.
  void Forget() { restored_.reset(); }

  // As GenerationStore's; does nothing when not enabled.
  absl::Status RemoveLeftovers(uint64_t epoch);

  // Copies `snapshot` and begins to make it durable; waits for the save under
  // way before. Does nothing when not enabled. Of a gang each rank calls, with
  // the same generation; options.rank is filled in. `copies`, if not null: of
  // the tensors, as GenerationStore::StagedCopies.
  absl::Status Begin(Generation generation, Snapshot snapshot,
                     CommitOptions options,
                     std::vector<HostCopy>* copies = nullptr);
  // Begins to get the memory for copies of `snapshot`.
  void Prepare(const Snapshot& snapshot, int world_size);
  bool IsWriting(Generation generation) const {
    return enabled() && writer_->InFlight() == generation;
  }
  bool IsBusy() const { return enabled() && writer_->IsBusy(); }
  // Until no save is under way; what came of the last one.
  absl::Status Wait();

  // Another worker has committed a generation of a higher epoch meanwhile.
  bool IsSuperseded(Generation generation) const;
  bool IsCommitted(Generation generation) const;

 private:
  void SetLatest(Generation generation);

  int rank_ = 0;
  std::optional<Restored> restored_;
  std::vector<std::string> notes_;
  mutable std::mutex mutex_;
  std::optional<Generation> latest_;
  TensorHasher hasher_;
  std::unique_ptr<CheckpointWriter> writer_;  // last: it calls what is above
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_CHECKPOINTS_H_
