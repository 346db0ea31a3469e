// The coordinator's figures as text for Prometheus.
#ifndef GAVEL_COORDINATOR_HTTP_METRICS_H_
#define GAVEL_COORDINATOR_HTTP_METRICS_H_

#include <string>
#include <vector>

#include "coordinator/server/rows.h"

namespace gavel {

// The exposition format 0.0.4. Labels are states, reasons, types and names of
// servers, never jobs or users: `kSeriesOfOneMax` bounds each metric, and the
// rest is summed as "other". Counters start anew with the coordinator, except
// those that the journal keeps. Pure.
inline constexpr size_t kSeriesOfOneMax = 64;
std::string MetricsText(const StatusRow& status,
                        const std::vector<NodeRow>& nodes,
                        const std::vector<QueueRow>& jobs);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_HTTP_METRICS_H_
