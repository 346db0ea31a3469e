// Jobs as a simulation takes them, from what a coordinator or its journal knows
// of them: for `gavel what-if` and `gavel simulate --replay`. Pure,
// thread-safe.
#ifndef GAVEL_STUDY_WHAT_IF_PREDICTED_WORK_H_
#define GAVEL_STUDY_WHAT_IF_PREDICTED_WORK_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/json.h"
#include "study/simulation/simulation_inputs.h"

namespace gavel::study {

struct PredictedJob {
  uint64_t id = 0;
  std::string name;
  std::string entity;
  double arrival_s = 0;
  double weight = 1;
  int scale_factor = 1;
  double steps = 0;  // to do, > 0
  // steps/s of the whole job by type; a type that is missing: cannot run there.
  std::map<std::string, double> steps_per_s;
  double pause_s = 0;  // lost by each pause
  event::Received received = {};
};

// The trace and throughputs of these jobs, in the order of arrival; `options`
// gets their overheads. Sorts `jobs` the same way: job I of the results is
// jobs[I]. INVALID_ARGUMENT: no jobs, or a figure that is none.
absl::StatusOr<SimulationInputs> MakeInputs(SimulationOptions options,
                                            std::vector<PredictedJob>* jobs);

// The numbers of the object row[key]: steps/s by type. None where there is
// none.
std::map<std::string, double> RatesIn(const Json& row, const char* key);

// Accelerators by (server, type), as parts of a simulated cluster.
std::vector<ClusterPart> PartsOf(
    const std::map<std::pair<std::string, std::string>, int>& counts);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_WHAT_IF_PREDICTED_WORK_H_
