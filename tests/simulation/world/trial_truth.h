// The truth about the trials of the introspection (engine/introspection.h), as
// the journal has it: which have begun, which have ended and when a job may be
// tried again. Reports trials that don't end, or come too soon, and pairs that
// stay together without one. Used by VirtualCluster. A value; not thread-safe.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_TRIAL_TRUTH_H_
#define GAVEL_TESTS_SIMULATION_WORLD_TRIAL_TRUTH_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

class TrialTruth {
 public:
  // The rows that a coordinator recovered, and then each one that it writes.
  void Take(const action::Persist& row, const EngineOptions& options);
  // After a step, whose rows were taken. `started_at`: of the coordinator.
  // Returns a sentence for each broken rule.
  std::vector<std::string> Check(Time now, Time started_at,
                                 const Engine& engine);

  uint64_t begun() const { return begun_; }
  uint64_t kept() const { return kept_; }
  uint64_t undone() const { return undone_; }

 private:
  using Pair = std::pair<JobId, JobId>;  // ascending

  struct Tried {
    Time next_at = -kNever;  // no trial before
    int failures = 0;        // in a row
  };

  void Begin(Time now, const TrialNote& note);
  void End(const TrialNote& note);
  void NoteTried(Time now, JobId job, TrialStage stage, double backoff_s);

  std::map<Pair, Time> pairs_;  // on trial, since when
  std::set<Pair> kept_pairs_;
  std::set<Pair> parting_;       // are together until the round ends
  std::map<JobId, Time> moves_;  // whose gain is measured, since when
  std::map<JobId, Tried> tried_;
  // A pair and a later one that has a job of it, since the last Check.
  std::vector<std::pair<Pair, Pair>> twice_;
  std::vector<std::string> broken_;
  uint64_t begun_ = 0, kept_ = 0, undone_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_TRIAL_TRUTH_H_
