// A job that is one table of a file with other tables, such as [job] of a
// search. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_WORKLOAD_JOB_SECTION_H_
#define GAVEL_COORDINATOR_WORKLOAD_JOB_SECTION_H_

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/workload/job_spec.h"

namespace gavel {

// As ParseJobSpec, for the table `table` of `toml`: errors name the line in the
// whole file. Without that table the settings alone count.
absl::StatusOr<JobSpec> ParseJobSection(std::string_view toml,
                                        std::string_view source,
                                        std::string_view table,
                                        std::span<const JobSetting> settings);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_JOB_SECTION_H_
