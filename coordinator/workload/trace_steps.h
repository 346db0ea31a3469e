// Steps from durations and durations from steps, by the throughputs of the
// reference type. Thread-safe.
#ifndef GAVEL_COORDINATOR_WORKLOAD_TRACE_STEPS_H_
#define GAVEL_COORDINATOR_WORKLOAD_TRACE_STEPS_H_

#include <optional>

#include "absl/status/status.h"
#include "coordinator/workload/throughput_table.h"
#include "coordinator/workload/trace.h"

namespace gavel {

// Fills in the one of steps_total and duration_s that a job lacks. Where the
// table has no row for it, steps are seconds (1 step/s), and durations stay 0.
// INVALID_ARGUMENT names the job, its type and scale factor when it has a row,
// but cannot run on the reference type, or would have too many steps.
absl::Status CompleteTrace(const ThroughputTable& throughputs, Trace& trace);

// `throughputs` with rows for the scale factors of `trace` that it lacks, of
// types that it has: the speeds of the next smaller scale factor there (else
// the smallest), in proportion; no pairs. Nothing when none is lacking. A
// notice of the trace tells of it.
std::optional<ThroughputTable> ScaleRows(const ThroughputTable& throughputs,
                                         Trace& trace);

// Gives jobs without a row and without a duration one, by 1 step/s; a notice of
// the trace tells of it.
void EqualizeUnknownTypes(const ThroughputTable& throughputs, Trace& trace);

// INVALID_ARGUMENT names the first job whose type and scale factor the table
// has no row for, and the closest type that it has. Jobs of kNoJobType need
// none.
absl::Status RequireKnownTypes(const ThroughputTable& throughputs,
                               const Trace& trace);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_TRACE_STEPS_H_
