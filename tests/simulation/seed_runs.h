// Runs many seeds in several processes, so that a crash is a failure of its
// seed and many cores are used without threads.
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

// The range includes both ends.
struct SeedRange {
  uint64_t first = 1;
  uint64_t last = 1;
};

// Parses a range such as "1:20000"; nullopt if `text` is none.
std::optional<SeedRange> ParseSeeds(std::string_view text);

struct SeedFailure {
  uint64_t seed = 0;    // 0: the processes themselves failed
  bool safety = false;  // false: the run did not finish
  std::string what;
};

struct SeedRuns {
  uint64_t seeds = 0;
  std::map<std::string, uint64_t> faults;
  std::map<std::string, uint64_t> pauses;
  std::map<std::string, uint64_t> checks;  // ScenarioResult::checks
  std::vector<SeedFailure> failures;       // by seed
  double seconds = 0;                      // wall-clock time
  double cpu_seconds = 0;                  // of all processes
  int processes = 1;
};

// With `stop_at_failure`, a process stops after its first failing seed. Seeds
// that are not run for another reason count as a failure.
SeedRuns RunSeeds(const SeedRange& seeds, const ScenarioOptions& options,
                  int processes, bool stop_at_failure);

// A summary for people, with the commit that was run.
std::string Describe(const SeedRuns& runs);

// The commit of the source tree at build time, with "-dirty" if the tree had
// changes since that commit; "unknown" without git.
std::string CommitName();

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_SEED_RUNS_H_
