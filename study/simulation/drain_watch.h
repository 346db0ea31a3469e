// Tells a simulation that can't drain long before it would end. Pure: looks at
// results so far. Not thread-safe; borrows the trace.
//
// It can't when both hold: the average JCT of the window exceeds the limit,
// whatever comes (those that have not ended count with their age), and more
// jobs wait than while the first quarter of the window arrived, half as many
// again and one.
#ifndef GAVEL_STUDY_SIMULATION_DRAIN_WATCH_H_
#define GAVEL_STUDY_SIMULATION_DRAIN_WATCH_H_

#include <cstddef>
#include <string>

#include "simulator/trace_simulation.h"

namespace gavel {

class DrainWatch {
 public:
  DrainWatch(const Trace& trace, const SimulationOptions& options,
             double jct_limit_s);

  // Whether a look is worth its cost at `now`: the last one was 1 % of the
  // arrivals ago.
  bool IsDue(Time now) const;
  // Why it can't drain, or nothing. `so_far`: TraceSimulation::Result().
  std::string Look(Time now, const SimulationResult& so_far);

  // Arrivals of the first and last job of the window.
  Time window_begins() const { return begins_s_; }
  Time window_ends() const { return ends_s_; }

 private:
  double JctAtLeast(Time now, const SimulationResult& so_far) const;
  bool QueueGrows(Time now, const SimulationResult& so_far) const;

  const Trace& trace_;
  size_t begin_;
  size_t end_;
  Time begins_s_ = 0;
  Time ends_s_ = 0;
  double jct_limit_s_;
  Time looked_at_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_STUDY_SIMULATION_DRAIN_WATCH_H_
