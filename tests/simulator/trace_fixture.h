// Small traces and throughput tables for the tests of the trace simulation.
#ifndef GAVEL_TESTS_SIMULATOR_TRACE_FIXTURE_H_
#define GAVEL_TESTS_SIMULATOR_TRACE_FIXTURE_H_

#include <string>
#include <vector>

#include "simulator/trace_simulation.h"

namespace gavel::testing {

// Two job types on "fast" and "slow" accelerators: "a" 4 and 1 steps/s, "b" 2
// and 1, gangs of two twice that; spread over servers a gang has half. Together
// each keeps 3/4 of its speed.
const ThroughputTable& SmallTable();

// Jobs of one template "a" or "b".
struct SmallJob {
  std::string type = "a";
  double steps = 1000;
  double arrival_s = 0;
  int scale_factor = 1;
  double weight = 1;
  double slo = 0;
  double duration_s = 0;
};
Trace SmallTrace(const std::vector<SmallJob>& jobs);

// Options with a cluster such as "fast:1,slow:1", rounds of 100 s.
SimulationOptions SmallOptions(std::string_view cluster,
                               std::string policy = "max_min_fairness_perf");

// Runs to its end.
SimulationResult Simulate(const SimulationOptions& options, const Trace& trace,
                          const ThroughputTable& table = SmallTable());

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SIMULATOR_TRACE_FIXTURE_H_
