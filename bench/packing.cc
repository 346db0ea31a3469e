// Measures how fast packed policies find their allocations, from a problem in
// memory to a result, in processor time. Their programs generate pairs of jobs
// as needed, and join equal jobs of one kind
// (coordinator/policy/share_program.h). The peer is HiGHS with all pairs. It is
// stopped after kHighsSeconds; its row then says so, and the ratio is a lower
// bound. If the bound or the objective of HiGHS differs, the program exits with
// code 3.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bench/checks.h"
#include "bench/table.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"
#include "tests/policy/problems.h"

namespace gavel::bench {

using namespace policy;
namespace {

constexpr double kHighsSeconds = 20;
// The relative differences allowed for bounds and for objectives of HiGHS.
constexpr double kGapMax = 1e-6;
constexpr double kAgreeMax = 1e-6;
// The number of models in Gavel's own measurement of solving times.
constexpr size_t kModels = 26;
constexpr char kMaxMin[] = "max_min_fairness_packed";

// Jobs of one accelerator, of `kinds` kinds, on three types, with half as many
// accelerators as jobs.
PolicyProblem PackedProblem(size_t jobs, size_t kinds) {
  return testing::RandomProblem(jobs + kinds,
                                {.types_min = 3,
                                 .types_max = 3,
                                 .jobs_min = jobs,
                                 .jobs_max = jobs,
                                 .capacity_min = 1 + static_cast<int>(jobs / 6),
                                 .capacity_more = 0,
                                 .gang_log_max = 0,
                                 .weights = false,
                                 .kinds = kinds < jobs ? kinds : 0,
                                 .pairs = true});
}

struct Run {
  double seconds = 0;
  double objective = 0;
  double bound = 0;
  bool proved = false;
};

Run Timed(const Policy& policy, const PolicyProblem& problem) {
  const double start_s = CpuSeconds();
  const auto result = policy.Solve(problem);
  Run run{CpuSeconds() - start_s, 0, 0, false};
  if (!result.ok()) return run;
  run.objective = result->objective;
  run.bound = result->bound;
  run.proved = result->outcome == SolveOutcome::kOptimal;
  return run;
}

// The run with the median time of three.
Run Median(const Policy& policy, const PolicyProblem& problem) {
  std::vector<Run> runs;
  for (int i = 0; i < 3; ++i) runs.push_back(Timed(policy, problem));
  std::sort(runs.begin(), runs.end(),
            [](const Run& a, const Run& b) { return a.seconds < b.seconds; });
  return runs[1];
}

Row RowOf(std::string name, const Run& run, Checks* checks) {
  checks->Agree(name + ", its bound", run.objective, run.bound, kGapMax);
  if (!run.proved) name += " (not proved)";
  return {std::move(name), run.seconds * 1e3, "ms"};
}

std::string Jobs(const std::string& what, size_t jobs) {
  return what + ", " + std::to_string(jobs) + " jobs";
}

FunctionPolicy PackedMaxMin(const LpOptions& options) {
  return {kMaxMin,
          [options](const PolicyProblem& problem) {
            return SolveMaxMinFairness(problem, PolicyForm::kPacked, options);
          },
          {.packs = true, .reads_progress = false}};
}

// At 512 jobs the program with all pairs has 393,984 columns.
void MaxMin(std::vector<Row>* rows, Checks* checks) {
  for (const size_t jobs : {128, 512, 2048}) {
    PolicyProblem problem = PackedProblem(jobs, kModels);
    const Run found = Median(PackedMaxMin({}), problem);
    Row row = RowOf(Jobs(kMaxMin, jobs), found, checks);
    if (jobs == 512) row.goal = ValueAtMost(100);
    if (jobs == 2048) row.goal = ValueAtMost(300);
    if (jobs <= 512) {
      problem.solver = SolverChoice::kHighs;
      const Run all =
          Timed(PackedMaxMin({.seconds_max = kHighsSeconds}), problem);
      if (all.proved) {
        checks->Agree(row.name + ", HiGHS", all.objective, found.objective,
                      kAgreeMax);
      }
      row.peer = all.proved ? "HiGHS, all pairs" : "HiGHS, stopped";
      row.peer_value = all.seconds * 1e3;
    }
    Add(rows, std::move(row));
  }
}

void Measure(const char* name, size_t jobs, size_t kinds,
             std::vector<Row>* rows, Checks* checks) {
  const PolicyProblem problem = PackedProblem(jobs, kinds);
  const std::string what =
      Jobs(name, jobs) + (kinds < jobs ? "" : ", all different");
  Add(rows, RowOf(what, Timed(**MakePolicy(name), problem), checks));
}

void Others(std::vector<Row>* rows, Checks* checks) {
  Measure(kMaxMin, 128, 128, rows, checks);
  Measure(kMaxMin, 512, 512, rows, checks);
  for (const char* name :
       {"max_min_fairness_water_filling_packed",
        "max_sum_throughput_normalized_by_cost_packed_SLOs",
        "min_total_duration_packed", "finish_time_fairness_packed"}) {
    Measure(name, 512, kModels, rows, checks);
    Measure(name, 128, 128, rows, checks);
  }
}

}  // namespace
}  // namespace gavel::bench

int main(int argc, char** argv) {
  const std::string out = gavel::bench::OutFile(argc, argv);
  std::vector<gavel::bench::Row> rows;
  gavel::bench::Checks checks;
  gavel::bench::MaxMin(&rows, &checks);
  gavel::bench::Others(&rows, &checks);
  std::printf("\n");
  const int code = gavel::bench::Report(rows, out);
  return checks.wrong() > 0 ? 3 : code;
}
