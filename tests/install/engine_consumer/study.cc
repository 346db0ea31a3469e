// Two jobs on two accelerators of different types: asks a policy how to share
// them, and an engine for its first deadline.
#include <cstdio>

#include "coordinator/engine/engine.h"
#include "coordinator/policy/policy.h"

int main() {
  gavel::PolicyProblem problem;
  problem.types = {"v100", "k80"};
  problem.capacity = {1, 1};
  problem.jobs.resize(2);
  problem.jobs[0].id = gavel::JobId(1);
  problem.jobs[1].id = gavel::JobId(2);
  problem.throughputs = {4, 1, 3, 3};  // job 2 is as fast on either
  auto policy = gavel::MakePolicy("max_min_fairness_perf");
  if (!policy.ok()) return 2;
  const auto result = (*policy)->Solve(problem);
  if (!result.ok() || result->outcome != gavel::SolveOutcome::kOptimal) {
    return 3;
  }
  for (const gavel::PolicyJob& job : problem.jobs) {
    const auto row = result->allocation.Row(job.id);
    std::printf("job %d: v100 %.3f, k80 %.3f\n",
                static_cast<int>(job.id.value()), row[0], row[1]);
  }
  gavel::Engine engine(gavel::EngineOptions{});
  engine.Step(0, gavel::event::Tick{});
  return engine.NextDeadline() > 0 ? 0 : 4;
}
