// The steps of a worker's process, from the file that GAVEL_TRACE_FILE names
// (iterator/trace_file.h). Values, thread-safe.
#ifndef GAVEL_STUDY_REPRODUCE_WORKER_TRACE_H_
#define GAVEL_STUDY_REPRODUCE_WORKER_TRACE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/units.h"

namespace gavel::study {

// Times of the machine's monotonic clock, the same in all processes.
struct TracedStep {
  Time begin_s = 0;
  Time end_s = 0;
};

// Ascending. INVALID_ARGUMENT as "SOURCE: what; remedy": no such trace, or it
// has lost its first steps.
absl::StatusOr<std::vector<TracedStep>> ParseWorkerTrace(
    std::string_view json, std::string_view source);
// The same of a file. FAILED_PRECONDITION: there is none.
absl::StatusOr<std::vector<TracedStep>> ReadWorkerTrace(
    const std::string& path);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPRODUCE_WORKER_TRACE_H_
