// How many jobs an hour a cluster can do at most, whatever the policy. Pure.
// Stateless, thread-safe.
#ifndef GAVEL_STUDY_SIMULATION_CAPACITY_H_
#define GAVEL_STUDY_SIMULATION_CAPACITY_H_

#include <cstddef>
#include <vector>

#include "coordinator/workload/throughput_table.h"
#include "coordinator/workload/trace.h"
#include "simulator/simulation_input.h"

namespace gavel::study {

// The capacity for the mix of the first `jobs` of the trace: the optimum of
// the linear program
//
//   max rate,  sum_j T_cj y_cj >= rate work_c   for each class c of jobs,
//              sum_c s_c y_cj <= accelerators_j for each type j,  y >= 0,
//
// where y_cj jobs of class c (type and scale factor) run on type j at a time,
// and work_c is in steps for each job that arrives. `pairs`: two jobs may share
// accelerators. Jobs that fit nowhere need nothing. Infinity: none needs
// anything, or the solver fails.
double CapacityPerHour(const Trace& trace, size_t jobs,
                       const ThroughputTable& throughputs,
                       const std::vector<ClusterPart>& cluster, bool pairs);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_CAPACITY_H_
