// How fast allocations are found by prices, against HiGHS on the same linear
// program: from the same arrays in memory to a feasible X, one core, both in
// one run. What the price method needs of its own (jobs in blocks) is part of
// its time, and shown apart.
//
// Random jobs: throughputs of a job's speed times 0.2 to 5, an eighth of them
// 0, gangs of 1 to 8, weights 1 or 0.2 to 5, a tenth of the accelerators that
// all jobs together could use.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "bench/table.h"
#include "coordinator/policy/lp/highs_solver.h"
#include "coordinator/policy/lp/linear_program.h"
#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_levels.h"
#include "coordinator/policy/lp/price_water.h"

namespace gavel::bench {
namespace {

constexpr double kGapMax = 1e-8;

// What a policy is given.
struct Arrays {
  size_t jobs = 0;
  size_t types = 0;
  std::vector<double> throughputs;  // [jobs x types] row-major, steps/s
  std::vector<double> gang;         // [jobs]
  std::vector<double> capacity;     // [types]
  std::vector<double> target;       // [jobs] steps/s at level 1
  std::vector<double> fastest;      // [jobs]
};

Arrays RandomArrays(size_t jobs, size_t types) {
  std::mt19937_64 random(jobs + types);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  Arrays arrays{jobs, types, {}, {}, {}, {}, {}};
  for (size_t j = 0; j < types; ++j) {
    arrays.capacity.push_back(std::max(
        8.0, std::floor(0.1 * between(0.2, 1) * static_cast<double>(jobs) /
                        static_cast<double>(types))));
  }
  double all = 0;
  for (const double one : arrays.capacity) all += one;
  for (size_t m = 0; m < jobs; ++m) {
    const double speed = std::exp(between(0, 10));
    double mean = 0;
    double fastest = 0;
    for (size_t j = 0; j < types; ++j) {
      // The first type runs everything.
      const double one =
          j > 0 && random() % 8 == 0 ? 0 : speed * between(0.2, 5);
      arrays.throughputs.push_back(one);
      mean += one * arrays.capacity[j] / all;
      fastest = std::max(fastest, one);
    }
    arrays.gang.push_back(static_cast<double>(1 << random() % 4));
    const double weight = random() % 3 != 0 ? 1 : between(0.2, 5);
    arrays.target.push_back(weight * mean / arrays.gang.back());
    arrays.fastest.push_back(fastest);
  }
  return arrays;
}

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since)
      .count();
}

double LevelMax(const Arrays& arrays) {
  double most = std::numeric_limits<double>::infinity();
  for (size_t m = 0; m < arrays.jobs; ++m) {
    most = std::min(most, arrays.fastest[m] / arrays.target[m]);
  }
  return most;
}

// Rates and loads of X, whoever made it: the level of the worst job once X is
// scaled down to what there is.
double Verified(const Arrays& arrays, const std::vector<double>& shares) {
  double level = std::numeric_limits<double>::infinity();
  double scale = 1;
  std::vector<double> used(arrays.types, 0.0);
  for (size_t m = 0; m < arrays.jobs; ++m) {
    double rate = 0;
    double time = 0;
    for (size_t j = 0; j < arrays.types; ++j) {
      const size_t i = m * arrays.types + j;
      rate += arrays.throughputs[i] * shares[i];
      time += shares[i];
      used[j] += arrays.gang[m] * shares[i];
    }
    scale = std::max(scale, time);
    level = std::min(level, rate / arrays.target[m]);
  }
  for (size_t j = 0; j < arrays.types; ++j) {
    scale = std::max(scale, used[j] / arrays.capacity[j]);
  }
  return level / scale;
}

struct Solved {
  double seconds = 0;
  double building_s = 0;
  double level = 0;  // verified
  double gap = 0;
};

PriceJobs JobsOf(const Arrays& arrays) {
  PriceJobs jobs = MakePriceJobs(arrays.jobs, arrays.capacity);
  for (size_t m = 0; m < arrays.jobs; ++m) {
    jobs.accelerators[m] = arrays.gang[m];
    for (size_t j = 0; j < arrays.types; ++j) {
      jobs.Throughput(m, j) = arrays.throughputs[m * arrays.types + j];
    }
  }
  return jobs;
}

Solved ByPrices(const Arrays& arrays) {
  const auto start = std::chrono::steady_clock::now();
  const PriceJobs jobs = JobsOf(arrays);
  PriceDemand demand;
  demand.a = arrays.target;
  PadDemand(jobs, &demand);
  Solved solved;
  solved.building_s = Seconds(start);
  PriceOptions options;
  options.gap_max = kGapMax;
  const PriceLevel level =
      HighestLevel(jobs, demand, LevelMax(arrays), options);
  const std::vector<double> shares =
      SharesOf(jobs, PassOf(jobs, demand), level.mixture, options.version);
  solved.seconds = Seconds(start);
  solved.level = Verified(arrays, shares);
  solved.gap = (level.bound - solved.level) / level.bound;
  return solved;
}

LinearProgram ProgramOf(const Arrays& arrays) {
  LinearProgram program;
  std::vector<std::vector<LpEntry>> types(arrays.types);
  for (size_t m = 0; m < arrays.jobs; ++m) {
    for (size_t j = 0; j < arrays.types; ++j) {
      const int column = program.AddColumn(0, 0, 1);
      types[j].push_back({column, arrays.gang[m] / arrays.capacity[j]});
    }
  }
  const int level = program.AddColumn(1, 0, kInfinity);
  for (size_t m = 0; m < arrays.jobs; ++m) {
    std::vector<LpEntry> time;
    std::vector<LpEntry> rate;
    for (size_t j = 0; j < arrays.types; ++j) {
      const size_t i = m * arrays.types + j;
      time.push_back({static_cast<int>(i), 1});
      rate.push_back(
          {static_cast<int>(i), arrays.throughputs[i] / arrays.target[m]});
    }
    rate.push_back({level, -1});
    program.AddRow(-kInfinity, 1, time);
    program.AddRow(0, kInfinity, rate);
  }
  for (const std::vector<LpEntry>& row : types) {
    program.AddRow(-kInfinity, 1, row);
  }
  return program;
}

Solved ByHighs(const Arrays& arrays, LpMethod method) {
  const auto start = std::chrono::steady_clock::now();
  const LinearProgram program = ProgramOf(arrays);
  Solved solved;
  solved.building_s = Seconds(start);
  HighsSolver solver(program, {.method = method});
  const LpSolution solution = solver.Solve();
  solved.seconds = Seconds(start);
  solved.level = Verified(arrays, solution.column_values);
  return solved;
}

void Check(const char* what, const Solved& prices, double level) {
  std::printf("%s: level %.10g, certified gap %.1e", what, prices.level,
              prices.gap);
  if (level > 0) {
    std::printf(", HiGHS %.10g (%+.1e)", level, prices.level / level - 1);
  }
  std::printf("\n");
  std::fflush(stdout);  // minutes pass until the table
}

// The middle of three, by time.
template <class Solve>
Solved MedianOf(Solve solve) {
  std::vector<Solved> runs = {solve(), solve(), solve()};
  std::sort(runs.begin(), runs.end(), [](const Solved& a, const Solved& b) {
    return a.seconds < b.seconds;
  });
  return runs[1];
}

void AddBuilding(const std::string& name, const Solved& solved,
                 std::vector<Row>* rows) {
  rows->push_back({name + ", building of it", solved.building_s * 1e3, "ms"});
}

void MaxMin(std::vector<Row>* rows) {
  double highs_1e4_s = 0;
  for (const size_t jobs : {100, 1000, 10'000, 100'000}) {
    const Arrays arrays = RandomArrays(jobs, 5);
    const Solved prices = MedianOf([&] { return ByPrices(arrays); });
    Solved highs = ByHighs(arrays, LpMethod::kInteriorPoint);
    // Simplex takes minutes from here on.
    if (jobs <= 10'000) {
      const Solved simplex = ByHighs(arrays, LpMethod::kSimplex);
      if (simplex.seconds < highs.seconds) highs = simplex;
    }
    if (jobs == 10'000) highs_1e4_s = highs.seconds;
    const std::string name =
        "max-min, " + std::to_string(jobs) + " jobs, 5 types";
    Check(name.c_str(), prices, highs.level);
    rows->push_back({name, prices.seconds * 1e3, "ms", "HiGHS",
                     highs.seconds * 1e3,
                     jobs == 100'000 ? AtMost(1.0 / 300) : Goal()});
    if (jobs == 100'000) AddBuilding(name, prices, rows);
  }
  const Arrays arrays = RandomArrays(1'000'000, 5);
  const Solved prices = MedianOf([&] { return ByPrices(arrays); });
  Check("max-min, 1e6 jobs, 5 types", prices, 0);
  rows->push_back({"max-min, 1000000 jobs, 5 types", prices.seconds * 1e3, "ms",
                   "HiGHS, 10000 jobs", highs_1e4_s * 1e3, AtMost(1)});
  AddBuilding("max-min, 1000000 jobs, 5 types", prices, rows);
}

void Memory(std::vector<Row>* rows) {
  const Arrays arrays = RandomArrays(1'000'000, 10);
  const Solved prices = ByPrices(arrays);
  Check("max-min, 1e6 jobs, 10 types", prices, 0);
  rows->push_back(
      {"max-min, 1000000 jobs, 10 types", prices.seconds * 1e3, "ms"});
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  rows->push_back({"the same, peak memory with its input",
                   static_cast<double>(usage.ru_maxrss) / 1024, "MiB", "", 0,
                   ValueAtMost(400)});
}

// Jobs with as much done as they have left, more or less.
void FinishTime(std::vector<Row>* rows) {
  const Arrays arrays = RandomArrays(1'000'000, 5);
  std::mt19937_64 random(1);
  PriceDemand demand{DemandCurve::kFinish, {}, {}, {}};
  double rho = 0;
  for (size_t m = 0; m < arrays.jobs; ++m) {
    const double left_s =
        std::uniform_real_distribution<double>(100, 1e5)(random);
    const double steps = left_s * arrays.fastest[m];
    const double started_s = left_s * static_cast<double>(random() % 3);
    // As with an equal part of the cluster.
    const double fair_s = started_s / 10 + 40 * left_s;
    demand.a.push_back(steps);
    demand.b.push_back(fair_s);
    demand.c.push_back(started_s);
    rho = std::max(rho, (started_s + left_s) / fair_s);
  }
  const auto start = std::chrono::steady_clock::now();
  const PriceJobs jobs = JobsOf(arrays);
  PadDemand(jobs, &demand);
  PriceOptions options;
  options.gap_max = kGapMax;
  const PriceLevel level = HighestLevel(jobs, demand, -rho, options);
  const std::vector<double> shares =
      SharesOf(jobs, PassOf(jobs, demand), level.mixture, options.version);
  const double seconds = Seconds(start);
  std::printf("finish-time fairness, 1e6 jobs: rho %.10g, gap %.1e\n",
              -level.level, (level.level - level.bound) / level.bound);
  rows->push_back({"finish-time fairness, 1000000 jobs, 5 types", seconds, "s",
                   "", 0, ValueAtMost(1)});
}

void WaterFilling(std::vector<Row>* rows) {
  const Arrays arrays = RandomArrays(100'000, 5);
  const auto start = std::chrono::steady_clock::now();
  const PriceJobs jobs = JobsOf(arrays);
  const PriceWater water =
      FillByPrices(jobs, arrays.target, arrays.fastest, {});
  const double seconds = Seconds(start);
  std::printf("water filling, 1e5 jobs: %d stages, all proved: %s\n",
              water.stages, water.converged ? "yes" : "no");
  rows->push_back({"water filling, 100000 jobs, 5 types", seconds, "s", "", 0,
                   ValueAtMost(0.5)});
  rows->push_back({"the same, stages", static_cast<double>(water.stages), "",
                   "", 0, ValueAtMost(5)});
}

}  // namespace
}  // namespace gavel::bench

int main(int argc, char** argv) {
  using namespace gavel::bench;  // NOLINT
  const std::string out = OutFile(argc, argv);
  std::vector<Row> rows;
  // First: the peak is of the whole process.
  Memory(&rows);
  MaxMin(&rows);
  FinishTime(&rows);
  WaterFilling(&rows);
  return Report(rows, out);
}
