// Changes of a job that was submitted, within the bounds of a job file. The
// server checks them, the engine applies what is journaled. Stateless.
#ifndef GAVEL_COORDINATOR_WORKLOAD_JOB_UPDATE_H_
#define GAVEL_COORDINATOR_WORKLOAD_JOB_UPDATE_H_

#include "absl/status/status.h"
#include "coordinator/workload/job_spec.h"
#include "core/job_update.h"

namespace gavel {

void ApplyUpdate(const JobUpdate& update, JobSpec* spec);

// INVALID_ARGUMENT, as of a job file with these values; or nothing is changed.
absl::Status CheckUpdate(const JobUpdate& update, JobSpec spec);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_JOB_UPDATE_H_
