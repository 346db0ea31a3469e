#include "bench/policy_instances.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>

namespace gavel::bench {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine_);
  }
  uint64_t Below(uint64_t end) { return engine_() % end; }

 private:
  std::mt19937_64 engine_;
};

Arrays Empty(size_t jobs, size_t types, Random* random) {
  Arrays arrays;
  arrays.jobs = jobs;
  arrays.types = types;
  for (size_t j = 0; j < types; ++j) {
    arrays.capacity.push_back(std::max(
        8.0,
        std::floor(0.1 * random->Between(0.2, 1) * static_cast<double>(jobs) /
                   static_cast<double>(types))));
  }
  return arrays;
}

// The first type runs everything.
std::vector<double> RandomRow(size_t types, Random* random) {
  const double speed = std::exp(random->Between(0, 10));
  std::vector<double> row;
  for (size_t j = 0; j < types; ++j) {
    const bool none = j > 0 && random->Below(8) == 0;
    row.push_back(none ? 0 : speed * random->Between(0.2, 5));
  }
  return row;
}

}  // namespace

Arrays RandomArrays(size_t jobs, size_t types) {
  Random random(jobs + types);
  Arrays arrays = Empty(jobs, types, &random);
  double all = 0;
  for (const double one : arrays.capacity) all += one;
  for (size_t m = 0; m < jobs; ++m) {
    const std::vector<double> row = RandomRow(types, &random);
    double mean = 0;
    for (size_t j = 0; j < types; ++j) {
      arrays.throughputs.push_back(row[j]);
      mean += row[j] * arrays.capacity[j] / all;
    }
    arrays.gang.push_back(static_cast<double>(1 << random.Below(4)));
    arrays.weight.push_back(random.Below(3) != 0 ? 1 : random.Between(0.2, 5));
    arrays.target.push_back(arrays.weight[m] * mean / arrays.gang[m]);
    arrays.fastest.push_back(*std::max_element(row.begin(), row.end()));
  }
  return arrays;
}

Arrays TieredArrays(size_t jobs) {
  constexpr size_t kTypes = 5;
  Arrays arrays = RandomArrays(jobs, kTypes);
  double all = 0;
  for (const double one : arrays.capacity) all += one;
  for (size_t m = 0; m < jobs; ++m) {
    size_t last = 0;
    for (size_t left = m % 121, part = 81; left >= part; part /= 3) {
      left -= part;
      ++last;
    }
    double mean = 0;
    arrays.fastest[m] = 0;
    for (size_t j = 0; j < kTypes; ++j) {
      double& throughput = arrays.throughputs[m * kTypes + j];
      if (j > last) throughput = 0;
      mean += throughput * arrays.capacity[j] / all;
      arrays.fastest[m] = std::max(arrays.fastest[m], throughput);
    }
    arrays.target[m] = arrays.weight[m] * mean / arrays.gang[m];
  }
  return arrays;
}

Kinds RandomKinds() {
  Random random(83);
  Kinds kinds{3, {}, {}};
  for (size_t i = 0; i < 83; ++i) {
    kinds.rows.push_back(RandomRow(kinds.types, &random));
    kinds.gang.push_back(static_cast<double>(1 << i % 4));
  }
  return kinds;
}

absl::StatusOr<Kinds> KindsOf(const ThroughputTable& table) {
  Kinds kinds{table.types().size(), {}, {}};
  for (size_t i = 0; i < table.rows(); ++i) {
    std::vector<double> row;
    for (size_t j = 0; j < kinds.types; ++j) {
      row.push_back(table.Alone(i, j).value_or(0));
    }
    if (*std::max_element(row.begin(), row.end()) <= 0) continue;
    kinds.rows.push_back(std::move(row));
    kinds.gang.push_back(table.NameOf(i).second);
  }
  if (kinds.rows.empty()) {
    return absl::InvalidArgumentError("a table of throughputs without a row");
  }
  return kinds;
}

Arrays ClassArrays(size_t jobs, const Kinds& kinds) {
  Random random(jobs + kinds.types + kinds.rows.size());
  Arrays arrays = Empty(jobs, kinds.types, &random);
  for (size_t m = 0; m < jobs; ++m) {
    const size_t kind = random.Below(kinds.rows.size());
    const std::vector<double>& row = kinds.rows[kind];
    arrays.throughputs.insert(arrays.throughputs.end(), row.begin(), row.end());
    arrays.gang.push_back(kinds.gang[kind]);
    arrays.weight.push_back(1);
    arrays.fastest.push_back(*std::max_element(row.begin(), row.end()));
    const double left_s = std::exp(random.Between(std::log(60), std::log(1e6)));
    arrays.target.push_back(left_s * arrays.fastest[m]);
  }
  return arrays;
}

double LevelMax(const Arrays& arrays) {
  double most = std::numeric_limits<double>::infinity();
  for (size_t m = 0; m < arrays.jobs; ++m) {
    most = std::min(most, arrays.fastest[m] / arrays.target[m]);
  }
  return most;
}

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

LinearProgram ProgramOf(const Arrays& arrays) {
  LinearProgram program;
  std::vector<std::vector<LpEntry>> types(arrays.types);
  for (size_t m = 0; m < arrays.jobs; ++m) {
    for (size_t j = 0; j < arrays.types; ++j) {
      const int column = program.AddColumn(0, 0, 1);
      types[j].push_back({column, arrays.gang[m] / arrays.capacity[j]});
    }
  }
  // Levels of about 1 for the solver.
  const double unit = LevelMax(arrays);
  const int level = program.AddColumn(1, 0, kInfinity);
  for (size_t m = 0; m < arrays.jobs; ++m) {
    std::vector<LpEntry> time;
    std::vector<LpEntry> rate;
    for (size_t j = 0; j < arrays.types; ++j) {
      const size_t i = m * arrays.types + j;
      time.push_back({static_cast<int>(i), 1});
      rate.push_back({static_cast<int>(i),
                      arrays.throughputs[i] / arrays.target[m] / unit});
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

PolicyProblem ProblemOf(const Arrays& arrays) {
  Random random(1);
  PolicyProblem problem;
  for (size_t j = 0; j < arrays.types; ++j) {
    problem.types.push_back("type-" + std::to_string(j));
    problem.capacity.push_back(static_cast<int>(arrays.capacity[j]));
    problem.cost.push_back(random.Between(0.3, 4));
  }
  problem.throughputs = arrays.throughputs;
  for (size_t m = 0; m < arrays.jobs; ++m) {
    PolicyJob job;
    job.id = JobId(static_cast<int64_t>(m) + 1);
    job.scale_factor = static_cast<int>(arrays.gang[m]);
    job.weight = arrays.weight[m];
    const double left_s = random.Between(100, 1e5);
    job.steps_remaining = left_s * arrays.fastest[m];
    job.time_since_start_s = left_s * static_cast<double>(random.Below(3));
    job.isolated_s = job.time_since_start_s * random.Between(0, 1);
    problem.jobs.push_back(job);
  }
  return problem;
}

PolicyProblem PlacedProblemOf(const Arrays& arrays) {
  constexpr int kServer = 5;
  constexpr double kAcross = 0.6;
  PolicyProblem problem = ProblemOf(arrays);
  for (const int capacity : problem.capacity) {
    std::vector<int>& servers = problem.servers.emplace_back();
    for (int left = capacity; left > 0; left -= kServer) {
      servers.push_back(std::min(left, kServer));
    }
  }
  problem.throughputs.clear();
  for (size_t m = 0; m < arrays.jobs; ++m) {
    const double* row = &arrays.throughputs[m * arrays.types];
    for (const double part : {1.0, arrays.gang[m] > 1 ? kAcross : 1.0}) {
      for (size_t j = 0; j < arrays.types; ++j) {
        problem.throughputs.push_back(row[j] * part);
      }
    }
  }
  return problem;
}

PolicyProblem PackedProblem(size_t jobs, size_t kinds) {
  constexpr size_t kTypes = 3;
  Random random(jobs + kinds);
  PolicyProblem problem;
  for (size_t j = 0; j < kTypes; ++j) {
    problem.types.push_back("type-" + std::to_string(j));
    problem.capacity.push_back(static_cast<int>(jobs / (2 * kTypes) + 1));
    problem.cost.push_back(random.Between(0.3, 4));
  }
  std::vector<std::vector<double>> rows;
  for (size_t kind = 0; kind < kinds; ++kind) {
    rows.push_back(RandomRow(kTypes, &random));
  }
  for (size_t m = 0; m < jobs; ++m) {
    const size_t kind = m % kinds;
    PolicyJob job;
    job.id = JobId(static_cast<int64_t>(m) + 1);
    const double left_s = random.Between(100, 1e5);
    job.steps_remaining =
        left_s * *std::max_element(rows[kind].begin(), rows[kind].end());
    job.time_since_start_s = left_s * static_cast<double>(random.Below(3));
    job.isolated_s = job.time_since_start_s * random.Between(0, 1);
    problem.jobs.push_back(job);
    problem.kinds.push_back(kind);
    problem.throughputs.insert(problem.throughputs.end(), rows[kind].begin(),
                               rows[kind].end());
  }
  for (size_t a = 0; a < kinds; ++a) {
    for (size_t b = a; b < kinds; ++b) {
      if (a == b && kinds == jobs) continue;
      problem.pairs.push_back({a, b});
      for (size_t j = 0; j < kTypes; ++j) {
        const double part = random.Between(0.2, 0.9);
        const double other = a == b ? part : random.Between(0.2, 0.9);
        problem.pair_throughputs.push_back(part * rows[a][j]);
        problem.pair_throughputs.push_back(other * rows[b][j]);
      }
    }
  }
  return problem;
}

}  // namespace gavel::bench
