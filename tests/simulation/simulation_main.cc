// gavel-simulation-test: the whole system under faults, seed by seed.
// docs/reliability.md tells how to use it.
#include <cstdint>
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "tests/simulation/scenario.h"
#include "tests/simulation/seed_runs.h"

namespace gavel {
namespace {

struct Flags {
  std::string seeds = "1:1000";  // first:last, both run
  std::string policy;
  bool stop_at_failure = false;
  uint64_t trace = 0;
  int jobs = 8;
  int processes = 1;
};

int Trace(uint64_t seed, ScenarioOptions options) {
  options.story = [](Time now, const std::string& line) {
    std::printf("%10.4f %s\n", now, line.c_str());
  };
  const ScenarioResult result = RunScenario(seed, options);
  for (const std::string& line : result.violations) {
    std::printf("VIOLATION %s\n", line.c_str());
  }
  if (!result.unfinished.empty()) {
    std::printf("NOT FINISHED %s\n", result.unfinished.c_str());
  }
  std::printf(
      "seed %llu, commit %s, %.0f s of the world, %llu rows, digest "
      "%016llx\n",
      static_cast<unsigned long long>(seed), CommitName().c_str(),
      result.ended_at, static_cast<unsigned long long>(result.rows),
      static_cast<unsigned long long>(result.digest));
  return result.passed() ? 0 : 1;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("The whole system in virtual time, under faults.");
  app.add_option("--seeds", flags.seeds, "FIRST:LAST")->capture_default_str();
  app.add_flag("--stop-at-failure", flags.stop_at_failure,
               "run no seed after one that fails");
  app.add_option("--policy", flags.policy, "for all seeds");
  app.add_option("--jobs", flags.jobs, "of each seed")->capture_default_str();
  app.add_option("--trace", flags.trace, "tell all that happens in this seed");
  app.add_option("-j", flags.processes, "processes")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const std::optional<SeedRange> seeds = ParseSeeds(flags.seeds);
  if (!seeds.has_value()) {
    std::fprintf(stderr, "--seeds %s: write FIRST:LAST, e.g. 1:20000\n",
                 flags.seeds.c_str());
    return 2;
  }
  ScenarioOptions options;
  options.policy = flags.policy;
  options.jobs = flags.jobs;
  if (flags.trace > 0) return Trace(flags.trace, options);
  const SeedRuns runs =
      RunSeeds(*seeds, options, flags.processes, flags.stop_at_failure);
  std::printf("%s", Describe(runs).c_str());
  return runs.failures.empty() ? 0 : 1;
}

}  // namespace
}  // namespace gavel

int main(int argc, char** argv) { return gavel::Main(argc, argv); }
