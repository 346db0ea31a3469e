// When a job checkpoints, and which of its generations are kept.
#ifndef GAVEL_RUNTIME_CHECKPOINT_CHECKPOINT_RULES_H_
#define GAVEL_RUNTIME_CHECKPOINT_CHECKPOINT_RULES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/generation.h"
#include "runtime/generation/manifest.h"

namespace gavel {

// How often to checkpoint: a pure function of what a checkpoint costs and how
// often workers fail. Called by the iterator after each save.

inline constexpr double kCheckpointIntervalMin_s = 10;
inline constexpr double kCheckpointIntervalMax_s = 1800;

// Seconds between two checkpoints at which the time lost is least: sqrt(2 *
// stall_s * failure_interval_s), within the bounds above. `stall_s`: how long
// one holds training up. `failure_interval_s`: mean time between failures of
// one worker; a job fails when any of `world_size` workers does. A value that
// is not finite or negative counts as the least (a cost) or greatest (a time
// without failures). Source: J. W. Young, "A first order approximation to the
// optimum checkpoint interval", CACM 17(9), 1974, equation 8; J. T. Daly, "A
// higher order estimate of the optimum checkpoint interval", FGCS 22, 2006,
// whose further terms matter only when a stall is not small against the time
// between failures.
double CheckpointInterval_s(double stall_s, double failure_interval_s,
                            int world_size);

// Which generations stay beside the newest ones: milestones, and the best by a
// scalar that the job reports and manifests keep. Called by GenerationStore.
// Not thread-safe.
class Retention {
 public:
  using ReadManifest =
      std::function<absl::StatusOr<Manifest>(const Attempt& attempt)>;

  // See GenerationsToPreserve.
  Retention(uint64_t every_steps, BestBy best)
      : every_steps_(every_steps), best_(std::move(best)) {}

  // Returns the generations of `committed` that stay; all of them must be
  // undamaged. A manifest is read once; one that can't be read has no score.
  std::vector<Generation> Preserved(const std::vector<Attempt>& committed,
                                    const ReadManifest& read);
  // The best of them; nullopt: none has the scalar.
  std::optional<Generation> Best(const std::vector<Attempt>& committed,
                                 const ReadManifest& read);
  // It is deleted.
  void Forget(const Attempt& attempt) { scores_.erase(attempt); }

 private:
  std::vector<ScoredGeneration> Scored(const std::vector<Attempt>& committed,
                                       const ReadManifest& read);
  std::optional<double> ScoreOf(const Attempt& attempt,
                                const ReadManifest& read);

  uint64_t every_steps_;
  BestBy best_;
  std::map<Attempt, std::optional<double>> scores_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_CHECKPOINT_RULES_H_
