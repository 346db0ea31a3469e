// When a job would start and finish if it were submitted now, and how that
// changes the ends of the others: the engine in virtual time, on the
// coordinator's report of its jobs. Pure but for the clock that bounds it.
//
// The simulation begins with the time that each job has received so far. It
// knows neither which job holds which accelerator at present nor the jobs still
// to come. A job without steps_total runs to the end of the simulation.
#ifndef GAVEL_STUDY_WHAT_IF_WHAT_IF_H_
#define GAVEL_STUDY_WHAT_IF_WHAT_IF_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/client/client.h"
#include "coordinator/cli/json.h"
#include "coordinator/cli/rows.h"
#include "coordinator/workload/job_spec.h"
#include "core/units.h"

namespace gavel::study {

// Answers of the coordinator: kStatus, kNodes, kForecast.
struct LiveState {
  StatusRow status;
  std::vector<NodeRow> nodes;
  std::vector<ForecastRow> jobs;
};

struct WhatIfJob {
  uint64_t id = 0;  // 0: the job that is asked about
  std::string name;
  Time start_s = kNever;  // from now; kNever: not within the simulation
  Time finish_s = kNever;
  Time finish_without_s = kNever;  // if the new job were not submitted
};

struct WhatIf {
  std::string policy;
  WhatIfJob job;
  std::vector<WhatIfJob> others;  // that have an end, by id
  size_t endless = 0;             // jobs without steps_total
  bool cut_short = false;         // by `wall_limit_s`
  double simulated_s = 0;
};

// Asks the coordinator for all three.
absl::StatusOr<LiveState> QueryLiveState(Client& client);

// INVALID_ARGUMENT: the job has no steps_total, or throughputs that nobody
// knows; what is missing is named.
absl::StatusOr<WhatIf> Predict(const LiveState& live, const JobSpec& spec,
                               double wall_limit_s);

std::string RenderWhatIf(const WhatIf& answer, double wall_now_s);
Json WhatIfJson(const WhatIf& answer);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_WHAT_IF_WHAT_IF_H_
