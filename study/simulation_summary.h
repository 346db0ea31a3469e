// Summaries for people and for programs: the result of a simulation, and the
// jobs of a trace. Pure. Stateless, thread-safe.
#ifndef GAVEL_STUDY_SIMULATION_SUMMARY_H_
#define GAVEL_STUDY_SIMULATION_SUMMARY_H_

#include <cstddef>
#include <string>

#include "coordinator/workload/json_fields.h"
#include "coordinator/workload/trace.h"
#include "core/text_table.h"
#include "study/simulation_run.h"
#include "study/simulation_spec.h"

namespace gavel::study {

// Some 15 lines, and one for each of the first jobs that fit nowhere.
std::string RenderSummary(const SimulationSpec& spec, const SimulationRun& run);

// {"policy", "avg_jct_s", "jobs": [{"id", ...}], ...}: docs/simulator.md has
// them all. An unknown figure (a JCT when nothing ended) is null.
Json SummaryJson(const SimulationSpec& spec, const SimulationRun& run);

// ---- traces

// How many jobs over what time, their scale factors, weights, deadlines and
// entities; a table of job types, and one of the first `rows` jobs.
std::string RenderTrace(const Trace& trace, size_t rows,
                        size_t width = kTableWidth);

// "400 jobs, the last arrives at 5.5 days (3.0 jobs/h)".
std::string RenderTraceLine(const Trace& trace);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_SUMMARY_H_
