#include "tests/study/sample_runs.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "core/text.h"

namespace gavel::testing {

using namespace study;
namespace {

constexpr double kRound_s = 360;
constexpr uint64_t kAccelerators = 12;

// Jobs per hour that a policy sustains.
double CapacityOf(const std::string& policy) {
  if (policy == "fifo") return 3.2;
  return policy == "max_min_fairness" ? 4.4 : 5.2;
}

double Uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

StoredRun NewRun(const std::string& policy, uint64_t seed) {
  StoredRun run;
  run.spec.policy = policy;
  run.spec.cluster = "v100:4,p100:4,k80:4";
  run.spec.throughputs = "throughputs.json";
  run.spec.seed = seed;
  run.run.status = RunStatus::kOk;
  run.run.wall_s = 0.25;
  run.run.cpu_s = 0.24;
  run.run.result.complete = true;
  run.run.result.policy = policy;
  run.run.result.types = {"v100", "p100", "k80"};
  return run;
}

void AddJobs(StoredRun* run, uint64_t count, double slow_down,
             double interarrival_s) {
  std::mt19937_64 random(run->spec.seed * 977 + count);
  Time arrival_s = 0;
  for (uint64_t i = 0; i < count; ++i) {
    SimulatedJob job;
    job.job = i;
    job.type = "ResNet-18 (batch size 64)";
    job.arrival_s = arrival_s;
    const double size_s = 60 * std::pow(10, 1.5 + 2 * Uniform(random));
    job.jct_s = size_s * slow_down * (0.8 + 0.4 * Uniform(random));
    job.completion_s = arrival_s + job.jct_s;
    job.rho = slow_down / 2;
    job.cost = size_s / 3600 * 0.74;
    job.run_s = size_s;
    job.preemptions = static_cast<uint64_t>(job.jct_s / 7200);
    job.moves = job.preemptions / 2;
    job.share_target = std::min(1.0, (0.6 + 0.8 * Uniform(random)) / slow_down);
    job.share_received =
        std::clamp(job.share_target * (0.9 + 0.2 * Uniform(random)), 0.0, 1.0);
    run->run.result.jobs.push_back(job);
    arrival_s += -std::log(1 - Uniform(random)) * interarrival_s;
  }
}

void AddFigures(StoredRun* run, double load) {
  SimulationResult& result = run->run.result;
  std::vector<double> jcts;
  for (const SimulatedJob& job : result.jobs) {
    jcts.push_back(job.jct_s);
    result.makespan_s = std::max(result.makespan_s, job.completion_s);
    result.total_cost += job.cost;
    result.preemptions += job.preemptions;
    result.moves += job.moves;
    result.avg_rho += job.rho / static_cast<double>(result.jobs.size());
    result.max_rho = std::max(result.max_rho, job.rho);
  }
  std::ranges::sort(jcts);
  for (const double jct : jcts) {
    result.avg_jct_s += jct / static_cast<double>(jcts.size());
  }
  result.p50_jct_s = jcts[jcts.size() / 2];
  result.p99_jct_s = jcts[jcts.size() * 99 / 100];
  result.cluster_utilization = load;
  result.utilization = {{"k80", load * 0.7},
                        {"p100", load * 0.9},
                        {"v100", std::min(1.0, load * 1.3)}};
  result.worst_share = 0.9;
  result.rounds = static_cast<uint64_t>(result.makespan_s / kRound_s);
  result.solves = 2 * result.jobs.size();
}

void AddUsage(StoredRun* run, double load) {
  SimulationResult& result = run->run.result;
  constexpr int kSamples = 300;
  for (int i = 0; i < kSamples; ++i) {
    const double part = static_cast<double>(i) / kSamples;
    const double level =
        load * std::min(1.0, 8 * part) * (0.85 + 0.15 * std::sin(40 * part));
    result.usage.push_back(
        {part * result.makespan_s,
         {std::min(1.0, 1.3 * level), level, 0.6 * level},
         std::max(0.0, 20 * load * part * std::sin(9 * part))});
  }
}

}  // namespace

StoredRun SampleRun(const std::string& policy, double rate_per_h,
                    uint64_t seed) {
  StoredRun run = NewRun(policy, seed);
  run.spec.rate_per_h = rate_per_h;
  run.spec.jobs = 300;
  run.key = StrCat(policy, "-", rate_per_h, "-", seed);
  const double load = rate_per_h / CapacityOf(policy);
  if (load >= 1) {
    run.run.status = RunStatus::kCannotDrain;
    run.run.detail = "after 300 h the queue grows";
    run.run.result.complete = false;
    run.run.result.avg_jct_s = std::nan("");
    return run;
  }
  AddJobs(&run, 300, (policy == "fifo" ? 1.4 : 1.0) / (1 - load),
          3600 / rate_per_h);
  AddFigures(&run, load * 0.9);
  AddUsage(&run, load * 0.75);
  return run;
}

StoredRun SampleStaticRun(const std::string& policy, uint64_t jobs,
                          uint64_t seed) {
  StoredRun run = NewRun(policy, seed);
  run.spec.jobs = jobs;
  run.key = StrCat(policy, "-static-", jobs, "-", seed);
  AddJobs(&run, jobs, static_cast<double>(jobs) / (8 * CapacityOf(policy)), 0);
  AddFigures(&run, 0.8);
  return run;
}

StoredRun SampleRunWithRounds(const std::string& policy) {
  StoredRun run = SampleRun(policy, 1.5, 7);
  run.key += "-rounds";
  std::mt19937_64 random(3);
  for (uint64_t accelerator = 1; accelerator <= kAccelerators; ++accelerator) {
    Time time_s = 0;
    while (time_s < 60 * kRound_s) {
      const Time ends_s =
          time_s + kRound_s * static_cast<double>(1 + random() % 6);
      run.run.result.leases.push_back(
          {random() % 25, accelerator, time_s, ends_s});
      time_s = ends_s + (random() % 4 == 0 ? kRound_s : 0);
    }
  }
  return run;
}

std::vector<StoredRun> SampleSweep() {
  std::vector<StoredRun> runs;
  const char* const policies[] = {"fifo", "max_min_fairness",
                                  "max_min_fairness_perf"};
  for (const char* policy : policies) {
    for (const uint64_t seed : {0, 1}) {
      for (const double rate : {0.5, 1.5, 2.5, 3.5}) {
        runs.push_back(SampleRun(policy, rate, seed));
      }
      for (const uint64_t jobs : {100, 200, 300}) {
        runs.push_back(SampleStaticRun(policy, jobs, seed));
      }
    }
  }
  runs.push_back(SampleRunWithRounds("max_min_fairness_perf"));
  return runs;
}

}  // namespace gavel::testing
