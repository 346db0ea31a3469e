// The time that jobs would have taken alone on an equal part of the cluster,
// for finish-time fairness (Gavel's cumulative isolated time).
//
// Not thread-safe. Snapshot fields: the clocks, and up to when they count.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_ISOLATED_TIME_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_ISOLATED_TIME_H_

#include <cstdint>
#include <map>
#include <tuple>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/rounds/figures.h"
#include "coordinator/engine/state/changes.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/units.h"

namespace gavel::engine {

class IsolatedTime {
 public:
  // Borrowed, and outlive this.
  IsolatedTime(const JobTable& jobs, Changes& changes, const Cluster& cluster,
               const ThroughputMatrix& throughputs,
               const EngineOptions& options, const Figures& figures)
      : jobs_(jobs),
        changes_(changes),
        cluster_(cluster),
        throughputs_(throughputs),
        options_(options),
        figures_(figures) {}

  // Gavel's cumulative isolated time: what was done since the last allocation,
  // in the time of an equal part of the cluster.
  //
  // An equal part of n jobs does W / max(n s, C) steps/s of a job of scale
  // factor s, where C accelerators are there and W is the sum of the job's
  // throughputs on all of them. So the isolated time of a job that runs evenly
  // is its speed over W times a clock of its scale factor, which runs by max(n
  // s, C): such jobs are only looked at when something changes.
  void CountIsolated(Time now);
  // Up to the last allocation.
  void SettleIsolated(Job& job);

  static auto State(auto& part) {
    return std::tie(part.isolated_clock_, part.counted_at_);
  }

 private:
  void CountIsolated(Time now, Job& job);
  const JobTable& jobs_;
  Changes& changes_;
  const Cluster& cluster_;
  const ThroughputMatrix& throughputs_;
  const EngineOptions& options_;
  const Figures& figures_;
  std::map<int, double> isolated_clock_;  // by scale factor: CountIsolated
  Time counted_at_ = 0;
  uint64_t isolated_version_ = 0;  // of throughputs_
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_ISOLATED_TIME_H_
