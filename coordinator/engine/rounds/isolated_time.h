// The time that jobs would have taken alone on an equal part of the cluster,
// for finish-time fairness (Gavel's cumulative isolated time).
//
// Not thread-safe. Snapshot fields: the clocks, up to when they count, and the
// throughputs that they count by.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_ISOLATED_TIME_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_ISOLATED_TIME_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

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

  // Counts Gavel's cumulative isolated time: the time in which an equal part of
  // the cluster would have done the steps of each job. The size of an equal
  // part depends on the number of jobs, so the engine calls this before each
  // change of that number, and for each new allocation.
  //
  // An equal part of n jobs does W / max(n s, C) steps/s of a job of scale
  // factor s, where C accelerators are there and W is the sum of the job's
  // throughputs on all of them. So the isolated time of a job that runs evenly
  // is its speed over W times a clock of its scale factor, which runs by max(n
  // s, C): such jobs are only looked at when something changes.
  void CountChanged(Time now);
  // The same; looks at all jobs where throughputs or the cluster have changed.
  void CountAll(Time now);
  // An ended job: counted up to now, and not going on.
  void End(Time now, Job& job);

  // Job::isolated_s and isolated_steps as they would be counted now.
  struct Sum {
    double seconds = 0;
    double steps = 0;
  };
  Sum SumOf(const Job& job, Time now) const;

  static auto State(auto& part) {
    return std::tie(part.isolated_clock_, part.counted_at_,
                    part.isolated_version_);
  }

 private:
  void Count(Time now, const std::vector<Job*>& jobs);
  void SetPace(Time now, Job& job);
  double Parts(int scale_factor) const;     // max(n s, C)
  double WholeSpeed(const Job& job) const;  // W

  const JobTable& jobs_;
  Changes& changes_;
  const Cluster& cluster_;
  const ThroughputMatrix& throughputs_;
  const EngineOptions& options_;
  const Figures& figures_;
  std::map<int, double> isolated_clock_;  // by scale factor: CountChanged
  Time counted_at_ = 0;
  uint64_t isolated_version_ = 0;  // of throughputs_
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_ISOLATED_TIME_H_
