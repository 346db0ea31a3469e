#include "tests/policy/problems.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "core/text.h"

namespace gavel::testing {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  size_t Below(size_t end) { return engine_() % end; }
  bool OneIn(size_t count) { return Below(count) == 0; }
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine_);
  }
  double LogBetween(double low, double high) {
    return std::exp(Between(std::log(low), std::log(high)));
  }

 private:
  std::mt19937_64 engine_;
};

// A random factor; two of them differ by a factor of up to 1,000.
double WideRatio(Random& random) {
  return std::pow(10, random.Between(-1.5, 1.5));
}

// The part of its speed alone that a job keeps beside another.
double PartBeside(Random& random) {
  if (random.OneIn(16)) return 0;
  return random.Between(0.3, random.OneIn(16) ? 1.5 : 1);
}

size_t JobsOf(const ProblemShape& shape, size_t accelerators, Random& random) {
  size_t least = shape.jobs_min;
  if (shape.crowded) least = std::max(least, accelerators);
  const size_t most = std::max(least, shape.jobs_max);
  if (!shape.log_jobs) return least + random.Below(most - least + 1);
  return static_cast<size_t>(random.LogBetween(static_cast<double>(least),
                                               static_cast<double>(most) + 1));
}

void AddTypes(const ProblemShape& shape, size_t jobs, Random& random,
              PolicyProblem* problem) {
  static constexpr const char* kNames[] = {"k80", "p100", "v100"};
  const size_t types =
      shape.types_min + random.Below(shape.types_max - shape.types_min + 1);
  const double more =
      shape.capacity_more + shape.capacity_per_job * static_cast<double>(jobs);
  for (size_t j = 0; j < types; ++j) {
    problem->types.push_back(j < std::size(kNames) ? kNames[j]
                                                   : StrCat("type", j));
    problem->capacity.push_back(shape.capacity_min +
                                static_cast<int>(random.Between(0, more + 1)));
    problem->cost.push_back(random.Between(0.3, 4));
  }
}

std::vector<double> RandomRow(const ProblemShape& shape, size_t types,
                              Random& random) {
  const double speed = random.LogBetween(0.1, 100);
  std::vector<double> row;
  for (size_t j = 0; j < types; ++j) {
    double ratio = random.Between(0.2, 5);
    if (shape.whole_ratios) ratio = static_cast<double>(1 + random.Below(3));
    if (shape.wide) ratio = WideRatio(random);
    const bool unusable = shape.unusable && random.OneIn(8);
    row.push_back(unusable ? 0 : speed * ratio);
  }
  return row;
}

PolicyJob RandomJob(const ProblemShape& shape, size_t place, double fastest,
                    Random& random) {
  PolicyJob job;
  job.id = JobId(place + 1);
  job.arrival_s = static_cast<double>(place);
  const double left_s = random.LogBetween(60, 1e6);
  job.steps_remaining = left_s * std::max(fastest, 1e-3);
  if (shape.unknown_lengths && random.OneIn(6)) job.steps_remaining = 0;
  if (shape.weights && random.OneIn(3)) {
    job.weight = shape.wide ? WideRatio(random) : random.Between(0.2, 5);
  }
  if (random.OneIn(2)) job.time_since_start_s = left_s * random.Between(0, 2);
  job.isolated_s = job.time_since_start_s * random.Between(0.1, 1);
  job.time_received_s = job.time_since_start_s * random.Between(0, 1);
  if (random.OneIn(4)) {
    const bool passed = shape.passed_deadlines && random.OneIn(8);
    job.deadline_s = passed ? 0 : random.LogBetween(1e3, 1e8);
  }
  return job;
}

// Adds pairs by kinds: all jobs of a kind have the same throughputs in pairs.
void AddPairs(Random& random, PolicyProblem* problem) {
  for (size_t a = 0; a < problem->jobs.size(); ++a) {
    if (problem->KindOf(a) != a) continue;
    for (size_t b = a; b < problem->jobs.size(); ++b) {
      if (problem->KindOf(b) != b || random.OneIn(4) ||
          problem->jobs[a].scale_factor != problem->jobs[b].scale_factor ||
          (a == b && problem->kinds.empty())) {
        continue;
      }
      problem->pairs.push_back({a, b});
      for (size_t c = 0; c < problem->columns(); ++c) {
        const double part = PartBeside(random);
        const double other = a == b ? part : PartBeside(random);
        problem->pair_throughputs.push_back(part * problem->Row(a)[c]);
        problem->pair_throughputs.push_back(other * problem->Row(b)[c]);
      }
    }
  }
}

void AddServers(Random& random, PolicyProblem* problem) {
  const bool even = !random.OneIn(4);
  for (int& count : problem->capacity) {
    if (even) count = (count + 3) / 4 * 4;
    std::vector<int>& servers = problem->servers.emplace_back();
    for (int left = count; left > 0; left -= servers.back()) {
      const int size = even ? 4 : 1 + static_cast<int>(random.Below(5));
      servers.push_back(std::min(left, size));
    }
  }
  const size_t types = problem->types.size();
  std::vector<double> throughputs;
  for (size_t m = 0; m < problem->jobs.size(); ++m) {
    const double* row = &problem->throughputs[m * types];
    throughputs.insert(throughputs.end(), row, row + types);
    const bool alone = problem->jobs[m].scale_factor == 1;
    for (size_t j = 0; j < types; ++j) {
      const double part = alone || random.OneIn(4) ? 1 : random.Between(0.2, 1);
      throughputs.push_back(row[j] * part);
    }
  }
  problem->throughputs = std::move(throughputs);
}

}  // namespace

PolicyProblem MakeProblem(std::vector<int> capacity,
                          const std::vector<std::vector<double>>& throughputs) {
  PolicyProblem problem;
  for (size_t j = 0; j < capacity.size(); ++j) {
    problem.types.push_back(StrCat("type", j));
  }
  problem.capacity = std::move(capacity);
  for (const std::vector<double>& row : throughputs) {
    PolicyJob job;
    job.id = JobId(problem.jobs.size() + 1);
    job.arrival_s = static_cast<double>(problem.jobs.size());
    problem.jobs.push_back(job);
    problem.throughputs.insert(problem.throughputs.end(), row.begin(),
                               row.end());
  }
  return problem;
}

void AddPair(size_t first, size_t second, double part_of_first,
             double part_of_second, PolicyProblem* problem) {
  problem->pairs.push_back({first, second});
  for (size_t c = 0; c < problem->columns(); ++c) {
    problem->pair_throughputs.push_back(problem->Row(first)[c] * part_of_first);
    problem->pair_throughputs.push_back(problem->Row(second)[c] *
                                        part_of_second);
  }
}

PolicyProblem RandomProblem(uint64_t seed, const ProblemShape& shape) {
  Random random(seed);
  PolicyProblem problem;
  size_t jobs = JobsOf(shape, 0, random);
  AddTypes(shape, jobs, random, &problem);
  const int accelerators =
      std::accumulate(problem.capacity.begin(), problem.capacity.end(), 0);
  if (shape.crowded) {
    jobs = JobsOf(shape, static_cast<size_t>(accelerators), random);
  }
  problem.jobs.reserve(jobs);
  problem.throughputs.reserve(jobs * problem.types.size());
  for (size_t m = 0; m < jobs; ++m) {
    size_t kind = m;
    std::vector<double> row;
    if (shape.kinds > 0 && m >= shape.kinds) {
      kind = random.Below(shape.kinds);
      row.assign(problem.Row(kind).begin(), problem.Row(kind).end());
    } else {
      row = RandomRow(shape, problem.types.size(), random);
    }
    problem.jobs.push_back(
        RandomJob(shape, m, *std::ranges::max_element(row), random));
    const auto log_max = static_cast<size_t>(shape.gang_log_max);
    problem.jobs[m].scale_factor = kind < m ? problem.jobs[kind].scale_factor
                                            : 1 << random.Below(log_max + 1);
    problem.throughputs.insert(problem.throughputs.end(), row.begin(),
                               row.end());
    if (shape.kinds > 0 && shape.pairs) problem.kinds.push_back(kind);
  }
  if (shape.servers) AddServers(random, &problem);
  if (shape.servers && !problem.kinds.empty()) {
    for (size_t m = 0; m < jobs;
         ++m) {  // equal jobs are so across servers, too
      std::ranges::copy(problem.Row(problem.kinds[m]),
                        &problem.throughputs[m * problem.columns()]);
    }
  }
  if (shape.pairs) AddPairs(random, &problem);
  return problem;
}

ProblemShape FamilyShape(uint64_t seed, size_t jobs_max) {
  enum { kPlain, kEqualJobs, kTies, kWide, kLargeGangs, kFew, kMany };
  const auto family = seed % kFamilies;
  ProblemShape shape{.types_max = 10, .jobs_max = jobs_max, .log_jobs = true};
  shape.capacity_more = 2;
  shape.capacity_per_job = family == kFew ? 0 : family == kMany ? 2 : 0.5;
  shape.gang_log_max = family == kLargeGangs ? 6 : 2;
  shape.kinds = family == kEqualJobs ? 1 + seed / kFamilies % 3 : 0;
  shape.weights = family != kEqualJobs && family != kTies;
  shape.whole_ratios = family == kTies;
  shape.wide = family == kWide;
  shape.passed_deadlines = seed % 5 == 0;
  return shape;
}

void RestrictToTiers(PolicyProblem* problem) {
  const size_t types = problem->types.size();
  for (size_t m = 0; m < problem->jobs.size(); ++m) {
    size_t last = 0;
    for (size_t left = m % 121, part = 81; left >= part; part /= 3) {
      left -= part;
      ++last;
    }
    double* row = &problem->throughputs[m * types];
    if (row[0] == 0) row[0] = 1;
    for (size_t j = last + 1; j < types; ++j) row[j] = 0;
  }
}

}  // namespace gavel::testing
