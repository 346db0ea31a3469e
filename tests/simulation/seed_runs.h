// Many seeds, in processes of their own: a seed that crashes is a failure of
// that seed, and cores are used without threads.
#ifndef GAVEL_TESTS_SIMULATION_SEED_RUNS_H_
#define GAVEL_TESTS_SIMULATION_SEED_RUNS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/simulation/scenario.h"

namespace gavel {

// Both ends are run.
struct SeedRange {
  uint64_t first = 1;
  uint64_t last = 1;
};

// "1:20000"; nothing when it is not such a range.
std::optional<SeedRange> ParseSeeds(std::string_view text);

struct SeedFailure {
  uint64_t seed = 0;    // 0: of none; the processes themselves failed
  bool safety = false;  // else it did not finish
  std::string what;
};

struct SeedRuns {
  uint64_t seeds = 0;
  std::map<std::string, uint64_t> faults;
  std::map<std::string, uint64_t> pauses;
  std::vector<SeedFailure> failures;  // by seed
  double seconds = 0;                 // on the wall
  double cpu_seconds = 0;             // of all processes
  int processes = 1;
};

// `stop_at_failure`: what follows the first failing seed of a process is not
// run. Seeds that are not run for another reason are a failure.
SeedRuns RunSeeds(const SeedRange& seeds, const ScenarioOptions& options,
                  int processes, bool stop_at_failure);

// For a person, with the commit that it holds for.
std::string Describe(const SeedRuns& runs);

// Of the source tree when this was built, "-dirty" where it was changed since
// that commit; "unknown" without git.
std::string CommitName();

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_SEED_RUNS_H_
