// Which generations stay beside the newest ones: milestones, and the best by a
// scalar that the job reports and manifests keep. Called by GenerationStore.
// Not thread-safe.
#ifndef GAVEL_RUNTIME_CHECKPOINT_RETENTION_H_
#define GAVEL_RUNTIME_CHECKPOINT_RETENTION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/retention.h"
#include "runtime/generation/generation_directory.h"
#include "runtime/generation/manifest.h"

namespace gavel {

class Retention {
 public:
  using ReadManifest =
      std::function<absl::StatusOr<Manifest>(const Attempt& attempt)>;

  // See GenerationsToPreserve.
  Retention(uint64_t every_steps, BestBy best)
      : every_steps_(every_steps), best_(std::move(best)) {}

  // Of `committed`, undamaged ones. A manifest is read once; one that can't be
  // read has no score.
  std::vector<Generation> Preserved(const std::vector<Attempt>& committed,
                                    const ReadManifest& read);
  // It is deleted.
  void Forget(const Attempt& attempt) { scores_.erase(attempt); }

 private:
  std::optional<double> ScoreOf(const Attempt& attempt,
                                const ReadManifest& read);

  uint64_t every_steps_;
  BestBy best_;
  std::map<Attempt, std::optional<double>> scores_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_RETENTION_H_
