// A trace at a glance. Pure: values in, text out. Stateless, thread-safe.
#ifndef GAVEL_STUDY_SIMULATION_TRACE_SUMMARY_H_
#define GAVEL_STUDY_SIMULATION_TRACE_SUMMARY_H_

#include <cstddef>
#include <string>

#include "coordinator/cli/table.h"
#include "coordinator/workload/trace.h"

namespace gavel::study {

// How many jobs over what time, their scale factors, weights, deadlines and
// entities; a table of job types, and one of the first `rows` jobs.
std::string RenderTrace(const Trace& trace, size_t rows,
                        size_t width = kTableWidth);

// "400 jobs, the last arrives at 5.5 days (3.0 jobs/h)".
std::string RenderTraceLine(const Trace& trace);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_TRACE_SUMMARY_H_
