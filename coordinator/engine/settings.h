// What shapes decisions beside the lengths of rounds and leases. It comes from
// flags and files, and is journaled with each term (event::Settings), so that a
// replay decides as was decided. A value.
#ifndef GAVEL_COORDINATOR_ENGINE_SETTINGS_H_
#define GAVEL_COORDINATOR_ENGINE_SETTINGS_H_

#include <memory>
#include <vector>

#include "coordinator/policy/policy.h"
#include "coordinator/workload/throughput_table.h"
#include "core/units.h"

namespace gavel {

struct DecisionSettings {
  // A new allocation is made at most this often. 0: whenever jobs or
  // accelerators come or go.
  double reset_interval_s = 0;
  // Pairs of jobs are offered to the policy (Policy::packs()), those whose
  // throughputs together were measured, or are in `throughputs`.
  bool packing = false;
  // While jobs wait, pairs whose throughputs together nobody knows run for a
  // round on trial: on at most half as many accelerators as single jobs
  // (profiling_percentage), each job in at most four pairs.
  bool pair_trials = false;
  // The policy is asked for consolidated and unconsolidated shares, where a
  // job's throughputs name "TYPE_unconsolidated" too.
  bool placement_sensitive = false;
  // How far a pause goes, by how long the job is expected to be away (see
  // rounds/memory_plan.h): it stays on the accelerator up to the first, where
  // the memory budgets allow; it is evicted beyond the second.
  double keep_absence_s_max = 0;
  double park_absence_s_max = kNever;
  // A round is planned this long before it begins, so that leases are extended
  // and processes launched in time. At most a quarter of a round.
  double plan_lead_s = 5;
  // An elastic job's number of workers changes at most once in so many rounds,
  // unless somebody waits; and a change pays off within as many.
  int resize_rounds = 3;               // >= 1
  std::vector<PolicyEntity> entities;  // JobSpec::entity names one
  // By job type (JobSpec::app): fills in what a job's own throughputs leave
  // open. May be null.
  std::shared_ptr<const ThroughputTable> throughputs;
  // A job whose type the table lacks gets the row of the one that it is most
  // like, out of so many of each scale factor (ThroughputEstimator). 0: none.
  int reference_models = 0;
  // Jobs run for a round on trial on types for which nobody knows their
  // throughputs: on at most this part of a type's accelerators at once, but on
  // one at least; 0: never. [0, 100]
  double profiling_percentage = 50;
  // Nor is a new allocation made sooner after the last one than this for each
  // job that is live: a solve and its row of the journal grow with the jobs,
  // and a burst of submissions shares them. 0: in a simulation.
  double solve_gap_s_per_job = 0;
  // Problems tell what jobs have done and received (Policy::reads_progress()).
  bool progress = true;
  // Fairness is between users first, and jobs second (user_shares.h); of jobs
  // that have owners.
  bool user_shares = false;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_SETTINGS_H_
