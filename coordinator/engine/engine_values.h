// What the engine keeps of agents and plans, and tells of jobs: plain values.
#ifndef GAVEL_COORDINATOR_ENGINE_ENGINE_VALUES_H_
#define GAVEL_COORDINATOR_ENGINE_ENGINE_VALUES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/mechanism/mechanism.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

// An agent as the engine knows it.
struct Agent {
  uint64_t incarnation = 0;
  bool reachable = false;
  Time heard_at = 0;
  uint64_t host_memory_bytes = 0;  // for parked jobs; 0: no budget
  std::string state_id = "";       // of its state directory
  // Before, it does not know what ran here under another state directory, and
  // leases of then may run.
  Time swept_at = 0;
  // See AgentHello.
  bool own_checkpoints = false;
  std::string stream_endpoint = "";
  std::string stream_public_key = "";
  bool left = false;  // not reachable, for it ended in order
  // Of its accelerators, by uuid, as told last. Forgotten by a restart.
  std::map<std::string, AcceleratorHealth> health = {};
};

// Fractions of the time since a job's first allocation: what the policy meant
// it to run, and what it ran. In [0, 1].
struct JobShares {
  double target = 0;
  double received = 0;
};

// A rank whose loop makes no steps.
struct Standstill {
  int rank = 0;
  double seconds = 0;
  double allowed_s = 0;
};

// How a process ended that failed: its loop had stood still for `hung_s`
// (hang_watch.h); or it was stopped while it started, for it never said hello
// (`silent`) or was not ready `unready_s` after it had.
struct FailedEnd {
  const WorkerExited& exit;
  double hung_s = 0;
  bool silent = false;
  double unready_s = 0;
};

// Accelerators that run jobs now because they are on trial, and the
// accelerator-seconds that trials have taken in all.
struct TrialCost {
  int accelerators = 0;
  double accelerator_s = 0;
};

// `places` of `jobs`, ascending; whoever of them has none waits, and all others
// go on as they are. nullopt: of all jobs.
struct RoundPlan {
  std::optional<std::vector<JobId>> jobs;
  RoundAssignment places;
  std::vector<ShareUnit> trials = {};  // of `places`, ascending
};

// Who could run in the next round, and how far each is ahead by type.
struct WaitingUnits {
  RoundTable units;
  std::vector<std::vector<double>> priorities;
};

// A turn on trial goes before whatever anybody is owed.
inline constexpr double kTrialDebt_s = 1e9;

// Types that have been planned for the waiting jobs, and on which nothing has
// changed since: a plan would be the same.
class FilledTypes {
 public:
  bool any() const { return !is_filled_.empty(); }
  bool Has(size_t type) const {
    return type < is_filled_.size() && is_filled_[type];
  }
  // `types`: by type, those that have been planned now.
  void Note(const std::vector<bool>& types) {
    is_filled_.resize(types.size(), false);
    for (size_t type = 0; type < types.size(); ++type) {
      if (types[type]) is_filled_[type] = true;
    }
  }
  void Forget(size_t type) {
    if (type < is_filled_.size()) is_filled_[type] = false;
  }
  void Forget() { is_filled_.clear(); }

 private:
  std::vector<bool> is_filled_;
};

// Types whose free accelerators no waiting job can use, except jobs that have
// changed since.
struct IdleTypes {
  FilledTypes types;
  uint64_t version = 0;  // of the throughputs
};

// Spreads what is to be launched at once over time.
class LaunchPace {
 public:
  // When the next process is to be launched, not before `now`, where so many a
  // second may be (<= 0: any number): a few at once, then in steps, so that a
  // sweep over all jobs sends many.
  Time Next(Time now, double per_s) {
    if (per_s <= 0) return now;
    const Time at = std::max(at_, now - kAtOnce_s);
    at_ = at + 1 / per_s;
    return at <= now ? now : std::ceil(at / kStep_s) * kStep_s;
  }

  static auto State(auto& p) { return std::tie(p.at_); }

 private:
  static constexpr double kAtOnce_s = 0.2;  // what this would allow
  static constexpr double kStep_s = 0.1;

  Time at_ = -kNever;  // of the next one
};

struct JobChanges {
  std::vector<JobId> jobs;
  bool all = true;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_ENGINE_VALUES_H_
