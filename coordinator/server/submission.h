// A client's job file as the spec that the engine gets: parsed, paths made
// absolute, defaults filled in. Pure: paths are a client's, and looking at one
// would keep the coordinator's event loop waiting for a file system that may
// never answer. Whether the job fits the cluster, and its name is free, the
// engine says. Stateless, thread-safe.
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

// `cluster_id`: Journal::cluster_id. `id`: what the job is going to be.
// INVALID_ARGUMENT, ready for the user, when the file is wrong (with line and
// column) or its directory not absolute.
absl::StatusOr<JobSpec> ReadSubmission(const SubmitRequest& request,
                                       std::string_view state_directory,
                                       std::string_view cluster_id, JobId id);

// STATE/checkpoints/CLUSTER-ID-NAME: a job never starts from where another one
// stopped, neither one of the same name nor one that had the same id in another
// journal.
std::string DefaultCheckpointDirectory(std::string_view state_directory,
                                       std::string_view cluster_id,
                                       std::string_view name, JobId id);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_SUBMISSION_H_
