// gavel-simulation-test: the whole system under faults, seed by seed, and the
// mutants that it has to catch. docs/reliability.md tells how to use it.
#include <cstdint>
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "core/text.h"
#include "tests/simulation/mutants.h"
#include "tests/simulation/rule_remover.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/seed_runs.h"

namespace gavel {
namespace {

struct Flags {
  std::string seeds = "1:1000";  // first:last, both run
  std::string policy;
  std::string mutant;
  bool mutants = false;
  uint64_t trace = 0;
  int jobs = 8;
  int processes = 1;
  uint64_t budget = 0;
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

// Of one mutant: whether one of its seeds was caught.
bool IsCaught(const Mutant& mutant, const SeedRange& seeds,
              const ScenarioOptions& options) {
  const RuleRemover removed(mutant.rule);
  const SeedRuns runs = RunSeeds(seeds, options, 1, /*stop_at_failure=*/true);
  const std::string name(mutant.name);
  // By seed; what no seed has found does not count.
  const bool caught = !runs.failures.empty() && runs.failures.back().seed != 0;
  if (!caught) {
    std::printf("%-24s SURVIVES %llu seeds: %s\n", name.c_str(),
                static_cast<unsigned long long>(runs.seeds),
                std::string(mutant.allows).c_str());
  } else {
    const SeedFailure& failure = runs.failures.back();
    std::printf("%-24s seed %5llu %s\n", name.c_str(),
                static_cast<unsigned long long>(failure.seed),
                failure.what.substr(0, failure.what.find('\n')).c_str());
  }
  std::fflush(stdout);
  return caught;
}

// Those that take more seeds than this are run one by one.
constexpr uint64_t kSeedsOfAll = 2000;

int RunMutants(const Flags& flags, const ScenarioOptions& options) {
  int survivors = 0;
  int run = 0;
  for (const Mutant& mutant : Mutants()) {
    if (!flags.mutant.empty() && flags.mutant != mutant.name) continue;
    const std::string name(mutant.name);
    if (flags.mutant.empty() && mutant.seeds_max > kSeedsOfAll &&
        flags.budget < mutant.seeds_max) {
      std::printf("%-24s is rare, and left out: --mutant %s\n", name.c_str(),
                  name.c_str());
      continue;
    }
    ++run;
    const uint64_t budget = flags.budget > 0 ? flags.budget : mutant.seeds_max;
    survivors += IsCaught(mutant, {1, budget}, options) ? 0 : 1;
  }
  if (run == 0) {
    std::printf("there is no mutant \"%s\"; --mutants lists them\n",
                flags.mutant.c_str());
    return 2;
  }
  std::printf("%d mutants, %d caught, %d survive, commit %s\n", run,
              run - survivors, survivors, CommitName().c_str());
  return survivors == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("The whole system in virtual time, under faults.");
  app.add_option("--seeds", flags.seeds, "FIRST:LAST")->capture_default_str();
  app.add_flag("--mutants", flags.mutants, "take out each rule in turn");
  app.add_option("--mutant", flags.mutant, "only this one");
  app.add_option("--budget", flags.budget, "seeds for each mutant");
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
  if (flags.mutants || !flags.mutant.empty()) return RunMutants(flags, options);
  const SeedRuns runs =
      RunSeeds(*seeds, options, flags.processes, /*stop_at_failure=*/false);
  std::printf("%s", Describe(runs).c_str());
  return runs.failures.empty() ? 0 : 1;
}

}  // namespace
}  // namespace gavel

int main(int argc, char** argv) { return gavel::Main(argc, argv); }
