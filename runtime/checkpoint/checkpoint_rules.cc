#include "runtime/checkpoint/checkpoint_rules.h"

#include <algorithm>
#include <cmath>

namespace gavel {

double CheckpointInterval_s(double stall_s, double failure_interval_s,
                            int world_size) {
  if (!std::isfinite(stall_s) || stall_s < 0) stall_s = 0;
  if (!std::isfinite(failure_interval_s) || failure_interval_s < 0) {
    return kCheckpointIntervalMax_s;
  }
  const double of_the_job_s = failure_interval_s / std::max(1, world_size);
  return std::clamp(std::sqrt(2 * stall_s * of_the_job_s),
                    kCheckpointIntervalMin_s, kCheckpointIntervalMax_s);
}

std::optional<double> Retention::ScoreOf(const Attempt& attempt,
                                         const ReadManifest& read) {
  if (best_.scalar.empty()) return std::nullopt;
  const auto known = scores_.find(attempt);
  if (known != scores_.end()) return known->second;
  const absl::StatusOr<Manifest> manifest = read(attempt);
  if (!manifest.ok()) return std::nullopt;
  std::optional<double>& score = scores_[attempt];
  const auto found = manifest->scalars.find(best_.scalar);
  if (found != manifest->scalars.end()) score = found->second;
  return score;
}

std::vector<ScoredGeneration> Retention::Scored(
    const std::vector<Attempt>& committed, const ReadManifest& read) {
  std::vector<ScoredGeneration> all;
  for (const Attempt& attempt : committed) {
    all.push_back({attempt.generation, ScoreOf(attempt, read)});
  }
  return all;
}

std::vector<Generation> Retention::Preserved(
    const std::vector<Attempt>& committed, const ReadManifest& read) {
  return GenerationsToPreserve(Scored(committed, read), every_steps_,
                               best_.highest);
}

std::optional<Generation> Retention::Best(const std::vector<Attempt>& committed,
                                          const ReadManifest& read) {
  const std::vector<Generation> best = GenerationsToPreserve(
      Scored(committed, read), /*every_steps=*/0, best_.highest);
  if (best.empty()) return std::nullopt;
  return best.front();
}

}  // namespace gavel
