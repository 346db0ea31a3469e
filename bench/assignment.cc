// Measures the policies that choose accelerators themselves: AlloX's matching
// and Gandiva's packing. Each size runs in its own process. The figures are the
// CPU milliseconds of one Solve, and its peak memory in megabytes beyond that
// of the process with the problem alone.
//
// The original Gavel is reported to take 52 s and 2.4 GB at 512 jobs, and 40 s
// and 3.3 GB at 1024. These figures are in the names of the rows and not in the
// column of peers, because that run was not measured here and we know of no
// published source.
//
//   bench_assignment [--out FILE.json]
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "bench/table.h"
#include "coordinator/policy/policy.h"
#include "core/text.h"

namespace {

using gavel::bench::CpuSeconds;
using gavel::bench::Median;
using gavel::bench::Row;

constexpr int kRepeats = 3;

// The number of job types in the original's table of throughputs.
constexpr size_t kKinds = 26;

// A problem of `jobs` waiting jobs and a third as many accelerators. With
// pairs, the jobs are of kKinds kinds, as the coordinator gives them to a
// policy, and each kind may share an accelerator with each.
gavel::PolicyProblem MakeProblem(size_t jobs, bool with_pairs) {
  std::mt19937_64 random(jobs);
  std::uniform_real_distribution<double> uniform(0, 1);
  gavel::PolicyProblem problem;
  problem.types = {"k80", "p100", "v100"};
  problem.capacity.assign(3, static_cast<int>(jobs / 9));
  for (size_t m = 0; m < jobs; ++m) {
    gavel::PolicyJob& job = problem.jobs.emplace_back();
    job.id = gavel::JobId(m + 1);
    job.arrival_s = static_cast<double>(m);
    job.steps_remaining = 1e3 * (1 + 100 * uniform(random));
    job.time_received_s = 1e4 * uniform(random);
    double steps_per_s = 1 + uniform(random);
    for (size_t j = 0; j < 3; ++j) {
      const bool known = with_pairs && m >= kKinds;
      problem.throughputs.push_back(known ? problem.Row(m % kKinds)[j]
                                          : steps_per_s);
      steps_per_s *= 1 + 3 * uniform(random);
    }
    if (with_pairs) problem.kinds.push_back(m % kKinds);
  }
  for (size_t a = 0; with_pairs && a < kKinds; ++a) {
    for (size_t b = a; b < kKinds; ++b) {
      problem.pairs.push_back({a, b});
      for (size_t j = 0; j < 3; ++j) {
        const double part = 0.2 + 0.6 * uniform(random);
        const double other = a == b ? part : 0.2 + 0.6 * uniform(random);
        problem.pair_throughputs.push_back(problem.Row(a)[j] * part);
        problem.pair_throughputs.push_back(problem.Row(b)[j] * other);
      }
    }
  }
  return problem;
}

// A field of /proc/self/status in kB, as MB.
double StatusMb(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field)) {
      return std::strtod(line.c_str() + field.size(), nullptr) / 1024;
    }
  }
  std::abort();
}

// Gives freed memory back to the system, and restarts the measurement of the
// peak.
void ResetPeak() {
  malloc_trim(0);
  if (!(std::ofstream("/proc/self/clear_refs") << "5").flush()) std::abort();
}

struct Figures {
  double ms = 0;
  double problem_mb = 0;  // the process before it has solved anything
  double solve_mb = 0;    // what solving added at its peak
};

Figures Solve(const std::string& name, size_t jobs) {
  const auto policy = gavel::MakePolicy(name);
  if (!policy.ok()) std::abort();
  const gavel::PolicyProblem problem = MakeProblem(jobs, (*policy)->packs());
  Figures figures;
  ResetPeak();
  figures.problem_mb = StatusMb("VmRSS:");
  std::vector<double> ms;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double begin_s = CpuSeconds();
    const auto result = (*policy)->Solve(problem);
    ms.push_back((CpuSeconds() - begin_s) * 1e3);
    if (!result.ok() || result->assignment.empty()) std::abort();
  }
  figures.ms = Median(ms);
  figures.solve_mb = StatusMb("VmHWM:") - figures.problem_mb;
  return figures;
}

// Solves in a separate process, because the peak of memory only rises.
Figures SolveApart(const std::string& name, size_t jobs) {
  void* memory = mmap(nullptr, sizeof(Figures), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  auto* shared = new (memory) Figures;
  const pid_t child = fork();
  if (child < 0) std::abort();
  if (child == 0) {
    *shared = Solve(name, jobs);
    _exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) std::abort();
  const Figures figures = *shared;
  munmap(memory, sizeof(Figures));
  return figures;
}

// Appends `told`, the original's figures, to the row's name.
void Measure(const std::string& name, size_t jobs, const std::string& told,
             double goal_ms, std::vector<Row>* rows) {
  const Figures figures = SolveApart(name, jobs);
  const std::string of = gavel::StrCat(name, ", ", jobs, " jobs", told);
  Add(rows, {of, figures.ms, "ms", "", 0,
             goal_ms > 0 ? gavel::bench::ValueAtMost(goal_ms)
                         : gavel::bench::Goal()});
  Add(rows, {of + ", solving", figures.solve_mb, "MB"});
  Add(rows, {of + ", process and problem", figures.problem_mb, "MB"});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string out = gavel::bench::OutFile(argc, argv);
  std::vector<Row> rows;
  Measure("allox", 512, " (told: 52 s, 2.4 GB)", 520, &rows);
  Measure("allox", 1024, " (told: 40 s, 3.3 GB)", 400, &rows);
  Measure("allox", 4096, "", 0, &rows);
  Measure("gandiva", 512, "", 0, &rows);
  Measure("gandiva", 1024, "", 0, &rows);
  Measure("gandiva", 4096, "", 0, &rows);
  return gavel::bench::Report(rows, out);
}
