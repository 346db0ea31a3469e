// A client's job file as the spec that the engine gets: parsed, paths made
// absolute, defaults filled in. Pure; the coordinator's event loop calls it.
// Whether the job fits the cluster, and its name is free, the engine says.
// Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_SUBMISSION_H_
#define GAVEL_COORDINATOR_SERVER_SUBMISSION_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/engine/job.h"
#include "coordinator/workload/job_spec.h"
#include "core/ids.h"
#include "core/messages.h"

namespace gavel {

// `id`: what the job is going to be. INVALID_ARGUMENT, ready for the user, when
// the file is wrong (with line and column) or its directory not absolute.
absl::StatusOr<JobSpec> ReadSubmission(const SubmitRequest& request,
                                       std::string_view state_directory,
                                       JobId id);

// STATE/checkpoints/ID-NAME, so that a job does not start from where an ended
// one of the same name stopped. Where one of an earlier journal left such a
// directory, ID-NAME.2, and so on.
std::string DefaultCheckpointDirectory(std::string_view state_directory,
                                       std::string_view name, JobId id);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_SUBMISSION_H_
