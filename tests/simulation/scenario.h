// One seed of the whole-system simulation: a cluster of six accelerators of two
// types, eight jobs, everything that can go wrong for a while, and then the
// time for all of it to be made good. A function of the seed alone.
#ifndef GAVEL_TESTS_SIMULATION_SCENARIO_H_
#define GAVEL_TESTS_SIMULATION_SCENARIO_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/units.h"

namespace gavel {

struct ScenarioOptions {
  std::string policy;  // empty: by seed
  int jobs = 8;
  // A line for everything that happens; empty: nobody listens.
  std::function<void(Time, const std::string&)> story;
};

struct ScenarioResult {
  std::vector<std::string> violations;  // of safety; to be empty
  // Why the run is not finished: a job that could end and did not, or ended as
  // it should not, or left something behind. To be empty.
  std::string unfinished;
  std::map<std::string, uint64_t> faults;  // injected, by kind
  std::map<std::string, uint64_t> pauses;  // by tier: what was exercised
  std::map<std::string, uint64_t> checks;  // of auctions and trials
  Time ended_at = 0;                       // of the world, seconds
  uint64_t rows = 0;                       // of the journal
  uint64_t digest = 0;  // of every action of the coordinator, in order

  bool passed() const { return violations.empty() && unfinished.empty(); }
};

ScenarioResult RunScenario(uint64_t seed, const ScenarioOptions& options);

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_SCENARIO_H_
