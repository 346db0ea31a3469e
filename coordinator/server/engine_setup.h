// How a live coordinator's engine is set up for its policy; a replay does the
// same. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_ENGINE_SETUP_H_
#define GAVEL_COORDINATOR_SERVER_ENGINE_SETUP_H_

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/engine/engine.h"
#include "coordinator/policy/policy.h"
#include "core/text.h"

namespace gavel {

// Tiers of pauses: a job that is expected back within so many rounds may stay
// on its accelerator; one that is away for longer than this frees everything.
inline constexpr double kKeepRounds_max = 2;
inline constexpr double kParkAbsence_s_max = 3600;

// Even a short round ends with a measurement made in it.
inline constexpr double kReportRounds = 0.125;

// A connection's handshake takes about a millisecond of a core here; at this
// rate a quarter of one, and nobody's renewal waits for a round's new workers.
inline constexpr double kLaunchesPerSecond = 250;

// Servers that were not there for so long are not listed any more.
inline constexpr double kForgetAfter_s = 30 * 24 * 3600.0;

// A solve of 10,000 jobs at most five times a second, and of 100 at once.
inline constexpr double kSolveGap_s_per_job = 20e-6;

inline void SetUpFor(const Policy& policy, EngineOptions* options) {
  options->packing = policy.packs();
  options->progress = policy.reads_progress();
  options->pair_trials = policy.packs();
  // By the time that a lease would reach beyond its round, who goes on is
  // planned, and it does: a coordinator that is away then interrupts no more
  // than in the middle of a round.
  options->plan_lead_s = options->lease_duration_s;
  options->launches_per_s = kLaunchesPerSecond;
  options->forget_after_s = kForgetAfter_s;
  options->report_interval_s = std::min(
      options->report_interval_s, kReportRounds * options->round_duration_s);
  options->solve_gap_s_per_job = kSolveGap_s_per_job;
  options->keep_absence_s_max = kKeepRounds_max * options->round_duration_s;
  options->park_absence_s_max = kParkAbsence_s_max;
}

// INVALID_ARGUMENT names the option that is not above 0.
inline absl::Status CheckTimes(const EngineOptions& options) {
  const std::pair<const char*, double> times[] = {
      {"round_duration_s", options.round_duration_s},
      {"lease_duration_s", options.lease_duration_s},
      {"agent_timeout_s", options.agent_timeout_s},
      {"heartbeat_interval_s", options.heartbeat_interval_s},
      {"launch_timeout_s", options.launch_timeout_s}};
  for (const auto& [name, value] : times) {
    if (std::isfinite(value) && value > 0) continue;
    return absl::InvalidArgumentError(
        StrCat(name, " is ", value, ", it must be above 0"));
  }
  return absl::OkStatus();
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ENGINE_SETUP_H_
