// The round mechanism: from fractions of time to who has which accelerators in
// the next round. Gavel section 5. Pure and deterministic: ties go by job id,
// never by hash order. The engine calls it at each round and whenever an
// accelerator is idle.
#ifndef GAVEL_COORDINATOR_MECHANISM_MECHANISM_H_
#define GAVEL_COORDINATOR_MECHANISM_MECHANISM_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "coordinator/jobs/cluster.h"
#include "core/ids.h"

namespace gavel {

// One job that could run in the round.
struct RoundJob {
  JobId id;
  int scale_factor = 1;
  // By accelerator type, in the cluster's order of types; sizes J. Types that
  // came later and are missing at the end count as zero, and not usable.
  std::vector<double> share;            // X[m][j]; from the allocation
  std::vector<double> time_received_s;  // on type j since the last reset
  std::vector<bool> usable;             // has a throughput there
  // What it holds now (empty: nothing): all of one type. A job keeps only what
  // is complete and usable; with an accelerator lost it is placed anew.
  std::vector<AcceleratorId> holds;
  std::string home_server;  // where its process is; preferred; may be empty
};

// Priorities of Gavel section 5.1: share / fraction of the type's time that
// the job received. [jobs x J]; 0 where share is 0, infinity where it has
// received nothing. They compare jobs on one type; PlanRound compares across
// types by share / time received, which orders each type the same way.
std::vector<std::vector<double>> Priorities(const std::vector<RoundJob>& jobs);

// Who has which accelerators in a round; jobs that are not in it wait.
using RoundAssignment = std::map<JobId, std::vector<AcceleratorId>>;

struct RoundOptions {
  // Jobs that hold accelerators keep exactly them: the plan only fills idle
  // ones (in the middle of a round).
  bool keep_running = false;
  // Give leftovers to jobs of zero priority too: to those that received the
  // least time first.
  bool work_conserving = true;
};

// Chooses by priority, greedily, gangs all or nothing, then places: where a
// job already is, else consolidated, else wherever there is room. Of equal
// priorities the larger share goes first, then who holds that type already,
// then the smaller job id, then the cluster's order of types.
//
// Every job of `jobs` is in the answer at most once, with scale_factor usable
// accelerators of one type, and no accelerator is in it twice.
RoundAssignment PlanRound(const Cluster& cluster,
                          const std::vector<RoundJob>& jobs,
                          const RoundOptions& options);

// A policy's own choice of types (FIFO): the same placement, no priorities.
// `type_of_job` indexes the cluster's types. What no longer fits (the cluster
// may have shrunk since) is left out, the later jobs of `jobs` first.
RoundAssignment PlaceAssignment(const Cluster& cluster,
                                const std::vector<RoundJob>& jobs,
                                const std::map<JobId, size_t>& type_of_job);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_MECHANISM_H_
