// The training programs that commands run live to measure them: those of a
// file, or the examples of this project. Stateless, thread-safe.
#ifndef GAVEL_STUDY_PROFILE_LIVE_WORKLOADS_H_
#define GAVEL_STUDY_PROFILE_LIVE_WORKLOADS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "study/profile/profile_spec.h"

namespace gavel {

// Of a file of [[workload]]; relative paths are those of the file.
absl::StatusOr<std::vector<ProfileWorkload>> ReadWorkloads(
    const std::string& path);

// The eight trainers of examples/, in sizes for one core: they train on their
// first batch, or on what they make up, until they are ended.
std::vector<ProfileWorkload> ExampleWorkloads();

// Those of these types, in this order; no `types`: all. NOT_FOUND names one
// that there is not, with the remedy.
absl::StatusOr<std::vector<ProfileWorkload>> ChooseWorkloads(
    std::vector<ProfileWorkload> workloads,
    const std::vector<std::string>& types);

// Makes the programs absolute paths: those without a slash are looked for
// beside this one, then in the PATH. NOT_FOUND names one that is in neither.
absl::Status FindPrograms(std::vector<ProfileWorkload>* workloads);

}  // namespace gavel

#endif  // GAVEL_STUDY_PROFILE_LIVE_WORKLOADS_H_
