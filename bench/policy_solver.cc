// How fast allocations are found by prices, against HiGHS on the same linear
// program: from the same arrays in memory to a feasible X, one core, both in
// one run. What the price method needs of its own (jobs in blocks, classes) is
// part of its time, and shown apart. Then whole policies, with each solver.
//
// HiGHS is stopped after kHighsSeconds; its row says so, and the ratio is then
// the least that it can be.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/policy_instances.h"
#include "bench/table.h"
#include "coordinator/policy/lp/highs_solver.h"
#include "coordinator/policy/lp/price_classes.h"
#include "coordinator/policy/lp/price_levels.h"
#include "coordinator/policy/lp/price_water.h"
#include "coordinator/policy/policy.h"

namespace gavel::bench {
namespace {

constexpr double kGapMax = 1e-8;
constexpr double kHighsSeconds = 60;
// A policy by HiGHS is not asked for ten times the jobs after this long.
constexpr double kPolicySeconds = 0.6;
// As many as the published table of throughputs has for one type, and how many
// types it has.
constexpr size_t kKinds = 83;
constexpr size_t kKindTypes = 3;

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since)
      .count();
}

std::chrono::steady_clock::time_point Now() {
  return std::chrono::steady_clock::now();
}

// Tells rows as they come, and keeps them.
class Rows {
 public:
  void Add(Row row) {
    PrintNow(row);
    rows_.push_back(std::move(row));
  }
  const std::vector<Row>& all() const { return rows_; }

 private:
  std::vector<Row> rows_;
};

struct Solved {
  double seconds = 0;
  double building_s = 0;
  double level = 0;  // verified
  double gap = 0;
  std::string peer = "HiGHS";
};

// The middle of three, by time.
template <class Solve>
Solved MedianOf(Solve solve) {
  std::vector<Solved> runs = {solve(), solve(), solve()};
  std::sort(runs.begin(), runs.end(), [](const Solved& a, const Solved& b) {
    return a.seconds < b.seconds;
  });
  return runs[1];
}

PriceOptions Options() {
  PriceOptions options;
  options.gap_max = kGapMax;
  return options;
}

Solved ByPrices(const Arrays& arrays) {
  const auto start = Now();
  const PriceJobs jobs = JobsOf(arrays);
  PriceDemand demand;
  demand.a = arrays.target;
  PadDemand(jobs, &demand);
  Solved solved;
  solved.building_s = Seconds(start);
  const PriceLevel level =
      HighestLevel(jobs, demand, LevelMax(arrays), Options());
  const std::vector<double> shares =
      SharesOf(jobs, PassOf(jobs, demand), level.mixture, Options().version);
  solved.seconds = Seconds(start);
  solved.level = Verified(arrays, shares);
  solved.gap = (level.bound - solved.level) / level.bound;
  return solved;
}

Solved ByHighs(const Arrays& arrays, LpMethod method, double seconds_max) {
  const auto start = Now();
  const LinearProgram program = ProgramOf(arrays);
  Solved solved;
  solved.building_s = Seconds(start);
  HighsSolver solver(program, {.method = method, .seconds_max = seconds_max});
  const LpSolution solution = solver.Solve();
  solved.seconds = Seconds(start);
  if (solution.outcome == SolveOutcome::kOptimal) {
    solved.level = Verified(arrays, solution.column_values);
  } else {
    solved.peer = "HiGHS, stopped";
  }
  return solved;
}

// The faster of its methods; the second is stopped where it is the slower one.
Solved ByHighs(const Arrays& arrays) {
  const Solved first = ByHighs(arrays, LpMethod::kInteriorPoint, kHighsSeconds);
  const Solved second =
      ByHighs(arrays, LpMethod::kSimplex, std::max(0.01, first.seconds));
  return second.level > 0 && second.seconds < first.seconds ? second : first;
}

void Check(const std::string& what, const Solved& prices,
           const Solved& highs = {}) {
  std::printf("  %s: level %.10g, certified gap %.1e", what.c_str(),
              prices.level, prices.gap);
  if (highs.level > 0) {
    std::printf(", HiGHS %.10g (%+.1e)", highs.level,
                prices.level / highs.level - 1);
  }
  std::printf("\n");
}

std::string Jobs(const char* what, size_t jobs) {
  return std::string(what) + ", " + std::to_string(jobs) + " jobs";
}

void MaxMin(Rows* rows) {
  double highs_1e4_s = 0;
  for (const size_t jobs : {100, 1000, 10'000, 100'000}) {
    const Arrays arrays = RandomArrays(jobs, 5);
    const Solved prices = MedianOf([&] { return ByPrices(arrays); });
    const Solved highs = ByHighs(arrays);
    if (jobs == 10'000) highs_1e4_s = highs.seconds;
    const std::string name = Jobs("max-min", jobs);
    Check(name, prices, highs);
    rows->Add({name, prices.seconds * 1e3, "ms", highs.peer,
               highs.seconds * 1e3,
               jobs == 100'000 ? AtMost(1.0 / 300) : Goal()});
  }
  const Arrays arrays = RandomArrays(1'000'000, 5);
  const Solved prices = MedianOf([&] { return ByPrices(arrays); });
  const std::string name = Jobs("max-min", arrays.jobs);
  Check(name, prices);
  rows->Add({name, prices.seconds * 1e3, "ms", "HiGHS, 10000 jobs",
             highs_1e4_s * 1e3, AtMost(1)});
  rows->Add({"  building of its blocks", prices.building_s * 1e3, "ms"});
}

void Memory(Rows* rows) {
  const Arrays arrays = RandomArrays(1'000'000, 10);
  const Solved prices = ByPrices(arrays);
  const std::string name = Jobs("max-min, 10 types", arrays.jobs);
  Check(name, prices);
  rows->Add({name, prices.seconds * 1e3, "ms"});
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  rows->Add({"  peak memory with its input",
             static_cast<double>(usage.ru_maxrss) / 1024, "MiB", "", 0,
             ValueAtMost(400)});
}

// Makespan over few kinds of jobs; again after they were sorted into classes.
void Makespan(Rows* rows) {
  const Arrays arrays = ClassArrays(10'000, kKindTypes, kKinds);
  const Solved prices = MedianOf([&] { return ByPrices(arrays); });
  const Solved highs = ByHighs(arrays);
  const std::string name = Jobs("makespan, 83 kinds", arrays.jobs);
  Check(name, prices, highs);
  rows->Add({name, prices.seconds * 1e3, "ms", highs.peer, highs.seconds * 1e3,
             AtMost(1e-3)});
  const PriceJobs jobs = JobsOf(arrays);
  const auto classes = PriceClasses::Of(jobs, arrays.target, kKinds);
  const Solved again = MedianOf([&] {
    const auto start = Now();
    const PriceLevel level = HighestLevel(classes->Evaluator(), jobs.capacity,
                                          LevelMax(arrays), Options());
    Solved solved;
    solved.level = level.level;
    solved.seconds = Seconds(start);
    return solved;
  });
  rows->Add({"  solved again, X on demand", again.seconds * 1e3, "ms",
             highs.peer, highs.seconds * 1e3, AtMost(1e-4)});
}

// Of a million jobs one in a hundred ends, and as many come.
void Churn(Rows* rows) {
  const Arrays arrays = ClassArrays(1'000'000, kKindTypes, kKinds);
  const PriceJobs jobs = JobsOf(arrays);
  const double level_max = LevelMax(arrays) / 2;
  std::vector<Solved> cold;
  std::vector<Solved> warm;
  for (int run = 0; run < 3; ++run) {
    auto start = Now();
    auto classes = PriceClasses::Of(jobs, arrays.target, kKinds);
    PriceLevel level =
        HighestLevel(classes->Evaluator(), jobs.capacity, level_max, Options());
    cold.push_back({Seconds(start), 0, level.level, 0, ""});
    std::vector<PriceClasses::Member> gone;
    std::vector<PriceClasses::Member> come;
    std::mt19937_64 random(static_cast<uint64_t>(run));
    for (size_t m = 0; m < arrays.jobs; m += 100) {
      const size_t index = classes->class_of()[m];
      gone.push_back({index, arrays.target[m]});
      come.push_back(
          {index, arrays.target[m] * std::uniform_real_distribution<double>(
                                         0.5, 1.5)(random)});
    }
    start = Now();
    classes->Change(std::move(gone), std::move(come));
    const double change_s = Seconds(start);
    level =
        HighestLevel(classes->Evaluator(), jobs.capacity, level_max, Options(),
                     {level.prices, level.level, level.mixture, 0.01});
    warm.push_back({Seconds(start), change_s, level.level, 0, ""});
  }
  const auto by_time = [](const Solved& a, const Solved& b) {
    return a.seconds < b.seconds;
  };
  std::sort(cold.begin(), cold.end(), by_time);
  std::sort(warm.begin(), warm.end(), by_time);
  rows->Add({Jobs("1 % churn", arrays.jobs), warm[1].seconds * 1e3, "ms",
             "cold, with classes", cold[1].seconds * 1e3, AtMost(0.2)});
  rows->Add({"  of that, the prices",
             (warm[1].seconds - warm[1].building_s) * 1e3, "ms", "", 0,
             ValueAtMost(1)});
}

// Jobs with as much done as they have left, more or less.
void FinishTime(Rows* rows) {
  const Arrays arrays = RandomArrays(1'000'000, 5);
  std::mt19937_64 random(1);
  PriceDemand demand{DemandCurve::kFinish, {}, {}, {}};
  double rho = 0;
  for (size_t m = 0; m < arrays.jobs; ++m) {
    const double left_s =
        std::uniform_real_distribution<double>(100, 1e5)(random);
    const double started_s = left_s * static_cast<double>(random() % 3);
    // As with an equal part of the cluster.
    const double fair_s = started_s / 10 + 40 * left_s;
    demand.a.push_back(left_s * arrays.fastest[m]);
    demand.b.push_back(fair_s);
    demand.c.push_back(started_s);
    rho = std::max(rho, (started_s + left_s) / fair_s);
  }
  const auto start = Now();
  const PriceJobs jobs = JobsOf(arrays);
  PadDemand(jobs, &demand);
  const PriceLevel level = HighestLevel(jobs, demand, -rho, Options());
  const std::vector<double> shares =
      SharesOf(jobs, PassOf(jobs, demand), level.mixture, Options().version);
  const double seconds = Seconds(start);
  std::printf("  finish-time fairness: rho %.10g, gap %.1e\n", -level.level,
              (level.level - level.bound) / level.bound);
  rows->Add({Jobs("finish-time fairness", arrays.jobs), seconds * 1e3, "ms", "",
             0, ValueAtMost(1000)});
}

void WaterFilling(Rows* rows) {
  for (const size_t count : {100'000, 1'000'000}) {
    const Arrays arrays = RandomArrays(count, 5);
    const auto start = Now();
    const PriceJobs jobs = JobsOf(arrays);
    const PriceWater water =
        FillByPrices(jobs, arrays.target, arrays.fastest, {});
    const double seconds = Seconds(start);
    std::printf("  water filling: all stages proved: %s\n",
                water.converged ? "yes" : "no");
    const bool goal = count == 100'000;
    rows->Add({Jobs("water filling", count), seconds * 1e3, "ms", "", 0,
               goal ? ValueAtMost(500) : Goal()});
    rows->Add({"  its stages", static_cast<double>(water.stages), "", "", 0,
               goal ? ValueAtMost(5) : Goal()});
  }
}

// From a problem to a result, whatever a policy does on the way.
void WholePolicy(const std::string& name, Rows* rows) {
  const std::unique_ptr<Policy> policy = *MakePolicy(name);
  double highs_s = 0;
  for (const size_t jobs : {100, 1000, 10'000, 100'000}) {
    PolicyProblem problem = ProblemOf(RandomArrays(jobs, 5));
    problem.solver = SolverChoice::kPrices;
    const auto start = Now();
    const auto prices = policy->Solve(problem);
    Row row{Jobs(name.c_str(), jobs), Seconds(start) * 1e3, "ms"};
    if (!prices.ok()) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(),
                   prices.status().ToString().c_str());
      std::exit(2);
    }
    if (prices->outcome != SolveOutcome::kOptimal) {
      row.name += " (not proved)";
    }
    if (highs_s < kPolicySeconds) {
      problem.solver = SolverChoice::kHighs;
      const auto highs_start = Now();
      const auto highs = policy->Solve(problem);
      highs_s = Seconds(highs_start);
      if (highs.ok() && highs->outcome == SolveOutcome::kOptimal) {
        row.peer = "HiGHS";
        row.peer_value = highs_s * 1e3;
        std::printf("  objective %.10g, HiGHS %.10g\n", prices->objective,
                    highs->objective);
      }
    }
    rows->Add(std::move(row));
  }
}

}  // namespace
}  // namespace gavel::bench

int main(int argc, char** argv) {
  using namespace gavel::bench;  // NOLINT
  const std::string out = OutFile(argc, argv);
  Rows rows;
  // First: the peak is of the whole process.
  Memory(&rows);
  MaxMin(&rows);
  Makespan(&rows);
  Churn(&rows);
  FinishTime(&rows);
  WaterFilling(&rows);
  for (const char* policy :
       {"max_min_fairness_perf", "min_total_duration_perf",
        "finish_time_fairness_perf", "max_min_fairness_water_filling_perf",
        "max_sum_throughput_perf", "max_throughput_per_cost"}) {
    WholePolicy(policy, &rows);
  }
  std::printf("\n");
  return Report(rows.all(), out);
}
