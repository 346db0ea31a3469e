// Workers whose loop stands still: no step, no boundary, while their lease
// thread continues to renew. Without this, one that nobody asks to pause would
// keep its accelerator for ever.
//
// Judged by what the worker itself reports, about once a second: that its
// counts have not changed. Silence is no proof; where nothing is heard the
// lease ends. Not thread-safe; the state is Worker's.
#ifndef GAVEL_COORDINATOR_ENGINE_WORKERS_HANG_WATCH_H_
#define GAVEL_COORDINATOR_ENGINE_WORKERS_HANG_WATCH_H_

#include <optional>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/engine_values.h"
#include "coordinator/engine/job.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

class HangWatch {
 public:
  // Borrowed, and outlive this.
  HangWatch(const Cluster& cluster, const ThroughputMatrix& throughputs,
            const EngineOptions& options)
      : cluster_(cluster), throughputs_(throughputs), options_(options) {}

  // Forgotten by a restart, like all that the worker tells again.
  void NoteSteps(Time now, Worker& worker, const Progress& told);
  // For how long its loop had stood still when it last told.
  static double StandsStill(const Worker& worker);
  // For how long it may; kNever: it has no lease, or no limit.
  double HangTimeout(const Job& job, const Worker& worker) const;
  // The rank that has stood still for longest, if for much of what is allowed.
  std::optional<Standstill> StandstillOf(const Job& job) const;

 private:
  const Cluster& cluster_;
  const ThroughputMatrix& throughputs_;
  const EngineOptions& options_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_WORKERS_HANG_WATCH_H_
