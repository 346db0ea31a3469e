// Policies that share between apps by finish-time fairness (app_fairness.h).
//
// `strawman` is what Themis (NSDI'20, section 2.3) is compared with: the app of
// the largest rho takes all that it can use, then the next one. An app that
// overstates its rho starves the others.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "coordinator/policy/app_fairness.h"
#include "coordinator/policy/assigner.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {
namespace {

// The apps with the largest rho first; ties go to the app whose job came first.
std::vector<std::pair<double, size_t>> WorstFirst(
    const Assigner& assigner, const std::vector<FairApp>& apps,
    double round_s) {
  std::vector<std::pair<double, size_t>> order;
  for (size_t a = 0; a < apps.size(); ++a) {
    order.emplace_back(-PresentRho(assigner, apps[a], round_s), a);
  }
  std::sort(order.begin(), order.end());
  for (auto& [rho, app] : order) rho = -rho;
  return order;
}

// Its jobs that run first, so that they stay where they are, then by arrival.
void TakeAll(Assigner& assigner, const FairApp& app) {
  std::vector<size_t> waiting;
  for (const size_t job : app.jobs) {
    if (const auto type = assigner.FitWhereItRuns(job)) {
      assigner.Assign(job, *type);
    } else {
      waiting.push_back(job);
    }
  }
  for (const size_t job : waiting) {
    if (const auto type = assigner.BestFit(job)) assigner.Assign(job, *type);
  }
}

}  // namespace

PolicyResult SolveStrawman(const PolicyProblem& problem) {
  Assigner assigner(problem);
  const std::vector<FairApp> apps = FairAppsOf(problem, assigner);
  for (const auto& [rho, app] : WorstFirst(assigner, apps, problem.round_s)) {
    TakeAll(assigner, apps[app]);
  }
  PolicyResult result = assigner.Result("greedy");
  result.each_round = true;
  return result;
}

}  // namespace gavel::policy
