#include "tests/policy/solver_instances.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/text.h"
#include "gtest/gtest.h"
#include "tests/policy/certificate.h"
#include "tests/policy/solved.h"

namespace gavel::testing {
namespace {

int FromEnvironment(const char* name, int otherwise) {
  const char* asked = std::getenv(name);
  return asked == nullptr ? otherwise : std::atoi(asked);
}

}  // namespace

int Instances() { return FromEnvironment("GAVEL_SOLVER_INSTANCES", 300); }
int FirstInstance() { return FromEnvironment("GAVEL_SOLVER_FIRST", 0); }
size_t InstanceJobsMax() {
  const bool asked = std::getenv("GAVEL_SOLVER_INSTANCES") != nullptr;
  const int without = asked ? 2000 : 300;
  return static_cast<size_t>(FromEnvironment("GAVEL_SOLVER_JOBS", without));
}

PolicyProblem Instance(uint64_t seed, size_t jobs_max) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t end) { return random() % end; };
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const auto log_between = [&](double low, double high) {
    return std::exp(between(std::log(low), std::log(high)));
  };
  const size_t types = 1 + below(10);
  const auto n =
      static_cast<size_t>(log_between(1, static_cast<double>(jobs_max) + 0.99));
  const uint64_t family = seed % 7;
  const double most = family == 5   ? 2
                      : family == 6 ? 4.0 * static_cast<double>(n)
                                    : static_cast<double>(n);
  std::vector<int> capacity(types);
  for (int& count : capacity) {
    count = below(10) == 0 ? 0 : static_cast<int>(between(0, most / 2 + 2));
  }
  const size_t kinds = family == 1 ? 1 + below(3) : n;
  std::vector<std::vector<double>> rows;
  for (size_t i = 0; i < n; ++i) {
    if (i >= kinds) {
      rows.push_back(rows[below(kinds)]);
      continue;
    }
    std::vector<double> row;
    const double speed = log_between(0.1, 100);
    for (size_t j = 0; j < types; ++j) {
      double ratio = between(0.2, 5);
      if (family == 2) ratio = static_cast<double>(1 + below(3));
      if (family == 3) ratio = log_between(1e-6, 1e6);
      row.push_back(below(8) == 0 ? 0 : speed * ratio);
    }
    rows.push_back(std::move(row));
  }
  PolicyProblem problem = MakeProblem(std::move(capacity), rows);
  for (PolicyJob& job : problem.jobs) {
    job.scale_factor = 1 << below(family == 4 ? 7 : 3);
    const bool equal = family == 1 || family == 2;
    job.weight = equal || below(3) != 0 ? 1 : between(0.2, 5);
    job.steps_remaining = equal ? 1e5 : log_between(1e2, 1e7);
    job.time_since_start_s = below(2) == 0 ? 0 : log_between(1, 1e5);
    job.isolated_s = job.time_since_start_s * between(0, 1);
    if (below(4) == 0) job.deadline_s = log_between(1e3, 1e8);
  }
  for (size_t j = 0; j < types; ++j) {
    problem.cost.push_back(between(0.3, 4));
  }
  if (seed % 5 == 0) {
    for (PolicyJob& job : problem.jobs) {
      if (std::isfinite(job.deadline_s) && below(8) == 0) job.deadline_s = 0;
    }
  }
  return problem;
}

namespace {

// Parts of what it has alone that a job keeps beside another.
double PartBeside(std::mt19937_64& random) {
  if (random() % 16 == 0) return 0;
  const double most = random() % 16 == 0 ? 1.5 : 1;
  return std::uniform_real_distribution<double>(0.3, most)(random);
}

// [n] of a few kinds, named by their first jobs.
std::vector<size_t> RandomKinds(std::mt19937_64& random, size_t n) {
  const size_t count = 1 + random() % 10;
  std::vector<size_t> kinds(n);
  for (size_t m = 0; m < n; ++m) {
    kinds[m] = m < count ? m : kinds[random() % count];
  }
  return kinds;
}

}  // namespace

PolicyProblem PlacedInstance(uint64_t seed, size_t jobs_max) {
  PolicyProblem problem = Instance(seed, jobs_max);
  std::mt19937_64 random(seed + 2);
  const bool even = random() % 4 != 0;
  for (int& count : problem.capacity) {
    if (even) count = (count + 3) / 4 * 4;
    std::vector<int> servers;
    for (int left = count; left > 0; left -= servers.back()) {
      const int size = even ? 4 : 1 + static_cast<int>(random() % 5);
      servers.push_back(std::min(left, size));
    }
    problem.servers.push_back(std::move(servers));
  }
  const size_t types = problem.types.size();
  std::vector<double> throughputs;
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const double* row = &problem.throughputs[m * types];
    throughputs.insert(throughputs.end(), row, row + types);
    for (size_t j = 0; j < types; ++j) {
      const double part = problem.jobs[m].scale_factor == 1 || random() % 4 == 0
                              ? 1
                              : 0.2 + 0.1 * static_cast<double>(random() % 8);
      throughputs.push_back(row[j] * part);
    }
  }
  problem.throughputs = std::move(throughputs);
  return problem;
}

PolicyProblem PackedInstance(uint64_t seed, size_t jobs_max) {
  PolicyProblem problem = Instance(seed, jobs_max);
  std::mt19937_64 random(seed + 1);
  const size_t n = problem.jobs.size();
  const size_t columns = problem.columns();
  const uint64_t form = seed / kInstanceFamilies % 3;
  if (form > 0) problem.kinds = RandomKinds(random, n);
  for (size_t m = 0; m < n; ++m) {
    const size_t kind = problem.KindOf(m);
    problem.jobs[m].scale_factor = problem.jobs[kind].scale_factor;
    if (form != 1) continue;
    problem.jobs[m].weight = problem.jobs[kind].weight;
    for (size_t c = 0; c < columns; ++c) {
      problem.throughputs[m * columns + c] =
          problem.throughputs[kind * columns + c];
    }
  }
  for (size_t a = 0; a < n; ++a) {
    if (problem.KindOf(a) != a) continue;
    for (size_t b = a; b < n; ++b) {
      const bool alike = a == b && form > 0;
      if (problem.KindOf(b) != b || (a == b && !alike) || random() % 4 == 0 ||
          problem.jobs[a].scale_factor != problem.jobs[b].scale_factor) {
        continue;
      }
      problem.pairs.push_back({a, b});
      for (size_t c = 0; c < columns; ++c) {
        const double part = PartBeside(random);
        const double other = alike ? part : PartBeside(random);
        problem.pair_throughputs.push_back(part * problem.Row(a)[c]);
        problem.pair_throughputs.push_back(other * problem.Row(b)[c]);
      }
    }
  }
  return problem;
}

PolicyResult By(SolverChoice choice, const char* policy,
                PolicyProblem problem) {
  problem.solver = choice;
  return Solved(policy, problem);
}

bool ByPrices(const PolicyResult& result) { return result.solver == "prices"; }

std::vector<double> Sorted(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  std::sort(values.begin(), values.end());
  return values;
}

bool AnyLower(const std::vector<double>& values,
              const std::vector<double>& highs) {
  for (size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank] < highs[rank] * (1 - 1e-7)) return true;
    if (values[rank] > highs[rank] * (1 + 1e-12)) return false;
  }
  return false;
}

void Tally::Compare(double difference) {
  ++compared_;
  if (difference <= worst_) return;
  worst_ = difference;
  worst_instance_ = instance_;
}

void Tally::Dispute() {
  ++disputes_;
  StrAppend(&disputed_, disputed_.empty() ? " (" : ", ", instance_);
}

void Tally::TakeTraces() {
  StrAppend(&traced_, traced_.empty() ? ", more for a trace in " : " ",
            instance_);
}

void Tally::TakeFallback(const char* policy) {
  ++fallbacks_;
  StrAppend(&whose_, policy, " ");
}

Tally::~Tally() {
  std::printf(
      "%s: %d answers, %d compared, %d given up, %d disputes%s%s%s, "
      "worst difference %.1e (%d)\n",
      what_, asked_, compared_, fallbacks_, disputes_, disputed_.c_str(),
      disputed_.empty() ? "" : ")", traced_.c_str(), worst_, worst_instance_);
  EXPECT_GE(compared_ * 10, asked_ * 9) << what_ << ": the referee gave up";
}

}  // namespace gavel::testing
