// Learns the speed of jobs from the job file, from the throughput table, and
// from the reports of workers, alone and in pairs. Finds the row of the table
// that a job is most like.
//
// Not thread-safe. No snapshot fields: ThroughputMatrix and Job hold the
// figures, and rows of the table are found again.
#ifndef GAVEL_COORDINATOR_ENGINE_MEASUREMENTS_H_
#define GAVEL_COORDINATOR_ENGINE_MEASUREMENTS_H_

#include <optional>
#include <string>
#include <vector>

#include "coordinator/engine/job.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

// Fills in from the table the throughputs that the job file leaves open, and
// replaces short names of types by full ones. The result is journaled with
// the job, so that a replay needs no table.
void FillThroughputs(const State& s, JobSpec& spec);
// Takes the speed that rank 0 reports for its lease, alone or in a pair.
void Measure(State& s, Time now, Job& job, const Progress& progress);
// Finds the rows of all jobs again, as the throughput file may have changed.
void FindTableRows(State& s);
// Bars the job from types that its job file does not allow. Covers the types
// that are there; call this again when another one joins.
void BarTypes(State& s, const Job& job);
// The cluster may have types that it did not have when the job was submitted,
// or held.
void LearnTypes(State& s, Job& job);
// The same for its servers, of which all accelerators are known.
void BarServers(State& s, const Job& job);
// Notes in the profile of `job`, which is not in the table, the part of its
// speed that it keeps beside `other`, which is, so that the figure outlives
// `other`. False: there is no such figure.
bool KeepPairCell(State& s, Job& job, const Job& other,
                  const std::string& type);
// Finds the job's own row of the table, else the reference that it is most
// like by all of its measurements. That reference then gives the estimates
// for types where the job's speed is not known. Without references, the other
// jobs of its app give them.
void FindTableRow(State& s, Job& job);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_MEASUREMENTS_H_
