// What the policies cost that choose accelerators themselves: AlloX's matching
// and Gandiva's packing, CPU milliseconds of one Solve, and the most memory
// that the process has held by then, the problem included. The peer is what the
// original Gavel took at that size, as its paper's authors' code was measured:
// 52 s and 2.4 GB at 512 jobs, 40 s and 3.3 GB at 1024.
//
//   bench_assignment [--out FILE.json]
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/table.h"
#include "coordinator/policy/policy.h"
#include "core/text.h"

namespace {

using gavel::bench::Median;
using gavel::bench::Row;

constexpr int kRepeats = 3;

double CpuMs() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 +
         static_cast<double>(time.tv_nsec) / 1e6;
}

// Jobs that wait, `jobs` of them, for a third of as many accelerators.
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
      problem.throughputs.push_back(steps_per_s);
      steps_per_s *= 1 + 3 * uniform(random);
    }
  }
  for (size_t a = 0; with_pairs && a < jobs; ++a) {
    for (size_t b = a + 1; b < jobs; ++b) {
      problem.pairs.push_back({a, b});
      for (size_t j = 0; j < 3; ++j) {
        for (const size_t m : {a, b}) {
          problem.pair_throughputs.push_back(problem.Row(m)[j] *
                                             (0.2 + 0.6 * uniform(random)));
        }
      }
    }
  }
  return problem;
}

double PeakMb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void Measure(const std::string& name, size_t jobs, double original_ms,
             std::vector<Row>& rows) {
  const auto policy = gavel::MakePolicy(name);
  if (!policy.ok()) std::abort();
  const gavel::PolicyProblem problem = MakeProblem(jobs, (*policy)->packs());
  std::vector<double> ms;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double begin_ms = CpuMs();
    const auto result = (*policy)->Solve(problem);
    ms.push_back(CpuMs() - begin_ms);
    if (!result.ok() || result->assignment.empty()) std::abort();
  }
  const std::string of = gavel::StrCat(name, ", ", jobs, " jobs");
  rows.push_back(
      {of, Median(ms), "ms", original_ms > 0 ? "the original, as recorded" : "",
       original_ms,
       original_ms > 0 ? gavel::bench::AtMost(0.01) : gavel::bench::Goal()});
  rows.push_back({of + ", process", PeakMb(), "MB"});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string out = gavel::bench::OutFile(argc, argv);
  std::vector<Row> rows;
  // From small to large: the peak of memory only rises.
  Measure("allox", 512, 52'000, rows);
  Measure("allox", 1024, 40'000, rows);
  Measure("allox", 4096, 0, rows);
  Measure("gandiva", 512, 0, rows);
  Measure("gandiva", 1024, 0, rows);
  Measure("gandiva", 2048, 0, rows);
  return gavel::bench::Report(rows, out);
}
