// The coordinator's figures as text for Prometheus, and the age of checkpoints,
// which only successive listings tell.
#ifndef GAVEL_COORDINATOR_HTTP_METRICS_H_
#define GAVEL_COORDINATOR_HTTP_METRICS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/server/rows.h"

namespace gavel {

// The exposition format 0.0.4. Labels are states, reasons, types and names of
// servers, never jobs or users: `kSeriesOfOneMax` bounds each metric, and the
// rest is summed as "other". Counters start anew with the coordinator, except
// those that the journal keeps. Pure. `checkpoint_age_s`: see CheckpointAges.
inline constexpr size_t kSeriesOfOneMax = 64;
std::string MetricsText(const StatusRow& status,
                        const std::vector<NodeRow>& nodes,
                        const JobTotalsRow& jobs,
                        std::optional<double> checkpoint_age_s = {});

// How long jobs have run since their last checkpoints: since a listing first
// showed that checkpoint of a running job. So the age is short by up to the
// time between two listings, and begins anew when a job resumes. A value.
class CheckpointAges {
 public:
  // The largest age in this listing; nothing: no such job runs.
  std::optional<double> Oldest(double now_s,
                               const std::vector<RunningRow>& running);

 private:
  struct Seen {
    GenerationRow generation;
    double since_s = 0;
  };
  std::map<uint64_t, Seen> running_;  // by job
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_HTTP_METRICS_H_
