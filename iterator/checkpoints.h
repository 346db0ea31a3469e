// The job's generations as the session needs them: the one to go on from, and
// commits. Without a directory there are none, and nothing fails.
// Training thread only.
#ifndef GAVEL_ITERATOR_CHECKPOINTS_H_
#define GAVEL_ITERATOR_CHECKPOINTS_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "core/generation.h"
#include "runtime/checkpoint/generation_store.h"

namespace gavel::internal {

class Checkpoints {
 public:
  // Reads the latest generation that verifies. Errors as of GenerationStore,
  // but that there is none yet is no error.
  absl::Status Open(const std::string& directory, int kept);

  bool enabled() const { return store_.has_value(); }
  // Null: the job begins. Until Forget().
  const Snapshot* restored() const {
    return restored_ ? &restored_->snapshot : nullptr;
  }
  // Later generations that were rejected, one line each.
  const std::vector<std::string>& notes() const { return notes_; }
  // Of the last commit or restore; (0, 0): none.
  Generation latest() const { return latest_; }
  // Frees the memory of what was restored.
  void Forget() { restored_.reset(); }

  // Does nothing when not enabled or when it is committed already.
  absl::Status Commit(Generation generation, const Snapshot& snapshot,
                      int world_size,
                      const std::function<absl::Status()>& before_commit);
  // Another worker has committed a generation of a higher epoch meanwhile.
  bool IsSuperseded(Generation generation) const;
  bool IsCommitted(Generation generation) const {
    return latest_ == generation && has_latest_;
  }

 private:
  std::optional<GenerationStore> store_;
  std::optional<Restored> restored_;
  std::vector<std::string> notes_;
  Generation latest_;
  bool has_latest_ = false;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_CHECKPOINTS_H_
