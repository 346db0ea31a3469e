// Measures the way from a change of the jobs to their new allocation, through
// the engine: a hundredth of the jobs is exchanged, the problem is updated, the
// policy solves it, and the engine journals and applies the answer. The figures
// are CPU milliseconds, with 83 kinds of jobs on three types and a tenth as
// many accelerators as jobs. Also measures jobs that come between two
// allocations, with and without free accelerators that none of them can use.
//
//   bench_allocation [--out FILE.json]
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bench/table.h"
#include "coordinator/engine/engine.h"
#include "coordinator/policy/policy.h"
#include "core/text.h"

namespace gavel::bench {
namespace {

constexpr const char* kPolicy = "max_min_fairness_perf";
constexpr const char* kTypes[] = {"v100", "p100", "k80"};
constexpr size_t kKinds = 83;
constexpr int kChanges = 3;

double CpuMs() { return CpuSeconds() * 1e3; }

constexpr const char* kIdleType = "tpu";  // of which no job has a throughput

class Cluster {
 public:
  // `idle`: the number of accelerators of kIdleType.
  explicit Cluster(size_t jobs, double reset_interval_s = 0, size_t idle = 0)
      : policy_(*MakePolicy(kPolicy)) {
    EngineOptions options;
    options.progress = policy_->reads_progress();
    options.reset_interval_s = reset_interval_s;
    engine_ = std::make_unique<Engine>(options);
    Step(event::CoordinatorStarted{1});
    for (const char* type : kTypes) Join(type, jobs / 30);
    if (idle > 0) Join(kIdleType, idle);
    for (size_t i = 0; i < kKinds; ++i) {
      for (double& speed : speeds_.emplace_back(3)) {
        speed = std::uniform_real_distribution<double>(0.2, 5)(random_);
      }
    }
    for (size_t i = 0; i < jobs; ++i) Submit();
  }

  // The times until the new allocation is in force.
  struct Times {
    double problem_ms = 0;
    double solve_ms = 0;
    double take_ms = 0;
    double solve_anew_ms = 0;  // with which jobs are equal found out anew
  };
  Times Solve() {
    Times times;
    problem_ = nullptr;
    double start = CpuMs();
    Step(event::Persisted{seq_});
    times.problem_ms = CpuMs() - start;
    start = CpuMs();
    PolicyResult result = Solved();
    times.solve_ms = CpuMs() - start;
    const std::shared_ptr<const PolicyProblem> kept = problem_;
    auto anew = std::make_shared<PolicyProblem>(*problem_);
    anew->rows = {};
    problem_ = anew;
    start = CpuMs();
    if (Solved().objective != result.objective) std::abort();
    times.solve_anew_ms = CpuMs() - start;
    problem_ = nullptr;
    start = CpuMs();
    Step(event::AllocationReady{epoch_, std::move(result)});
    Step(event::Persisted{seq_});
    times.take_ms = CpuMs() - start;
    return times;
  }

  // Milliseconds to submit so many jobs.
  double Add(size_t jobs) {
    const double start = CpuMs();
    for (size_t i = 0; i < jobs; ++i) Submit();
    return CpuMs() - start;
  }

  // Ends a hundredth of the jobs, among those that wait, and submits as many.
  void Exchange(size_t jobs) {
    for (size_t i = 0; i < jobs / 2; i += 50) {
      const JobId job(jobs / 2 + exchanges_ + i);
      Step(event::JobCommanded{job, CommandKind::kCancel, 1});
      Submit();
    }
    ++exchanges_;
  }

 private:
  PolicyResult Solved() const { return *policy_->Solve(*problem_); }

  void Join(const char* type, size_t accelerators) {
    AgentHello hello;
    hello.server = type;
    hello.incarnation = 1;
    for (size_t i = 0; i < accelerators; ++i) {
      AcceleratorInfo info;
      info.type = type;
      info.uuid = StrCat(type, "-", i);
      hello.accelerators.push_back(info);
    }
    Step(event::ServerJoined{hello});
  }

  void Submit() {
    JobSpec spec;
    spec.name = StrCat("job-", ++submitted_);
    spec.argv = {"./train"};
    const std::vector<double>& speed = speeds_[random_() % kKinds];
    for (size_t j = 0; j < 3; ++j) spec.throughputs[kTypes[j]] = speed[j];
    spec.throughputs[kIdleType] = 0;
    Step(event::JobSubmitted{std::move(spec), 1});
  }

  void Step(Event event) {
    Actions actions = engine_->Step(1, std::move(event));
    for (const Action& action : actions) {
      if (const auto* row = std::get_if<action::Persist>(&action)) {
        seq_ = row->seq;
      } else if (const auto* solve =
                     std::get_if<action::SolvePolicy>(&action)) {
        epoch_ = solve->epoch;
        problem_ = solve->problem;
      }
    }
    engine_->Reuse(std::move(actions));
  }

  std::mt19937_64 random_{1};
  std::unique_ptr<Policy> policy_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::vector<double>> speeds_;  // by kind
  std::shared_ptr<const PolicyProblem> problem_;
  uint64_t seq_ = 0;
  uint64_t epoch_ = 0;
  uint64_t exchanges_ = 1;
  uint64_t submitted_ = 0;
};

void Measure(size_t jobs, std::vector<Row>* rows) {
  Cluster cluster(jobs);
  const Cluster::Times first = cluster.Solve();
  Cluster::Times last;
  for (int i = 0; i < kChanges; ++i) {
    cluster.Exchange(jobs);
    last = cluster.Solve();
  }
  const std::string name = StrCat(jobs, " jobs, 1 % exchanged");
  Add(rows, {StrCat(name, ": problem"), last.problem_ms, "ms", "made anew",
             first.problem_ms});
  Add(rows, {"  allocation", last.solve_ms, "ms", "equal jobs found anew",
             last.solve_anew_ms});
  Add(rows, {"  journaled and taken", last.take_ms, "ms"});
}

// Submits as many jobs again before the next allocation.
void MeasureSubmissions(size_t jobs, std::vector<Row>* rows) {
  constexpr double kReset_s = 1e9;
  Cluster busy(jobs, kReset_s);
  busy.Solve();
  Cluster idle(jobs, kReset_s, /*idle=*/100);
  idle.Solve();
  const double busy_ms = busy.Add(jobs);
  Add(rows, {StrCat(jobs, " submitted, with a type that none can use"),
             idle.Add(jobs), "ms", "without it", busy_ms});
}

}  // namespace
}  // namespace gavel::bench

int main(int argc, char** argv) {
  using namespace gavel::bench;  // NOLINT
  const std::string out = OutFile(argc, argv);
  std::vector<Row> rows;
  for (const size_t jobs : {10'000, 30'000, 100'000}) Measure(jobs, &rows);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  Add(&rows, {"peak memory of it all",
              static_cast<double>(usage.ru_maxrss) / 1024, "MiB"});
  for (const size_t jobs : {10'000, 100'000}) MeasureSubmissions(jobs, &rows);
  std::printf("\n");
  return Report(rows, out);
}
