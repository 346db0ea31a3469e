#include "coordinator/policy/app_fairness.h"

#include <algorithm>

#include "coordinator/policy/highs_solver.h"

namespace gavel::policy {
namespace {

// The time that a job is taken to need which has not begun and whose steps are
// not known.
constexpr double kSecondsUnknown = 3600;

// The mean cost of a step over the jobs of an app.
class StepCost {
 public:
  void Add(double steps_per_s, int scale_factor) {
    sum_s_ += 1 / steps_per_s;
    sum_area_s_ += scale_factor / steps_per_s;
    ++jobs_;
  }
  double Seconds(double steps) const { return Mean(sum_s_) * steps; }
  double AcceleratorSeconds(double steps) const {
    return Mean(sum_area_s_) * steps;
  }

 private:
  double Mean(double sum) const { return jobs_ > 0 ? sum / jobs_ : 0; }

  double sum_s_ = 0;
  double sum_area_s_ = 0;
  int jobs_ = 0;
};

// T_id without the number of apps.
double SecondsAlone(const Assigner& assigner, const std::vector<size_t>& jobs,
                    const PolicyApp& app) {
  const AppGoal goal = app.goal.value_or(AppGoal());
  // All work includes that of ended jobs. The sum over these would count a
  // trial that trained in several jobs, one after the other, several times.
  const bool total_known = goal.steps_total > 0;
  double longest_s = total_known ? 0 : app.ended_longest_s;
  double area_s = total_known ? 0 : app.ended_area_s;
  StepCost step;
  for (const size_t job : jobs) {
    const double steps =
        assigner.Job(job).steps_done + StepsLeft(assigner, job);
    const double best = assigner.BestThroughput(job);
    const double alone_s = steps / best;
    longest_s = std::max(longest_s, alone_s);
    area_s += alone_s * assigner.Job(job).scale_factor;
    step.Add(best, assigner.Job(job).scale_factor);
  }
  longest_s = std::max(longest_s, step.Seconds(std::max(goal.longest_to_come,
                                                        goal.longest_total)));
  area_s = std::max(area_s + step.AcceleratorSeconds(goal.steps_to_come),
                    step.AcceleratorSeconds(goal.steps_total));
  return std::max(longest_s, area_s / assigner.room());
}

}  // namespace

std::vector<FairApp> FairAppsOf(const PolicyProblem& problem,
                                const Assigner& assigner) {
  std::vector<FairApp> apps;
  std::vector<size_t> index_of(problem.apps.size(), SIZE_MAX);
  std::vector<PolicyApp> alone;  // of jobs without an app
  alone.reserve(assigner.queue().size());
  std::vector<const PolicyApp*> facts;
  for (const size_t job : assigner.queue()) {
    const PolicyJob& of = assigner.Job(job);
    if (of.app < 0) {
      facts.push_back(
          &alone.emplace_back(PolicyApp{.age_s = of.time_since_start_s,
                                        .apps_average = of.apps_average,
                                        .rho_factor = of.rho_factor}));
      apps.push_back({.jobs = {job}});
      continue;
    }
    size_t& index = index_of[static_cast<size_t>(of.app)];
    if (index == SIZE_MAX) {
      index = apps.size();
      const PolicyApp& app = problem.apps[static_cast<size_t>(of.app)];
      FairApp& fair = apps.emplace_back();
      fair.bid = app.bid.has_value() ? &*app.bid : nullptr;
      fair.goal = app.goal.has_value() ? &*app.goal : nullptr;
      facts.push_back(&app);
    }
    apps[index].jobs.push_back(job);
  }
  for (size_t a = 0; a < apps.size(); ++a) {
    apps[a].age_s = facts[a]->age_s;
    apps[a].ideal_s = SecondsAlone(assigner, apps[a].jobs, *facts[a]) *
                      facts[a]->apps_average / facts[a]->rho_factor;
  }
  return apps;
}

double StepsLeft(const Assigner& assigner, size_t job) {
  const PolicyJob& of = assigner.Job(job);
  if (of.steps_remaining > 0) return of.steps_remaining;
  if (of.steps_done > 0) return of.steps_done;
  return kSecondsUnknown * assigner.BestThroughput(job);
}

double SecondsLeft(const Assigner& assigner, size_t job, size_t type) {
  const double steps_per_s = assigner.Throughput(job, type);
  return steps_per_s > 0 ? StepsLeft(assigner, job) / steps_per_s : kInfinity;
}

double SecondsLeft(const Assigner& assigner, const FairApp& app, size_t type,
                   double accelerators, std::span<const double> paces) {
  if (!(accelerators > 0)) return kInfinity;
  double longest_s = 0;
  double area_s = 0;
  StepCost step;
  for (size_t i = 0; i < app.jobs.size(); ++i) {
    const size_t job = app.jobs[i];
    const double left_s = SecondsLeft(assigner, job, type);
    // A job that can't run there has to run somewhere else, later.
    if (left_s == kInfinity) continue;
    longest_s = std::max(longest_s, paces.empty() ? left_s : left_s / paces[i]);
    area_s += left_s * assigner.Job(job).scale_factor;
    step.Add(assigner.Throughput(job, type), assigner.Job(job).scale_factor);
  }
  if (app.goal != nullptr) {
    longest_s = std::max(longest_s, step.Seconds(app.goal->longest_to_come));
    area_s += step.AcceleratorSeconds(app.goal->steps_to_come);
  }
  return longest_s > 0 ? std::max(longest_s, area_s / accelerators) : kInfinity;
}

double LeastSecondsLeft(const Assigner& assigner, const FairApp& app) {
  double least_s = kInfinity;
  for (const size_t job : app.jobs) {
    for (size_t type = 0; type < assigner.types(); ++type) {
      if (!assigner.Fits(job, type)) continue;
      least_s = std::min(least_s, SecondsLeft(assigner, app, type,
                                              assigner.Job(job).scale_factor));
    }
  }
  return least_s;
}

double PresentRho(const Assigner& assigner, const FairApp& app, double round_s,
                  std::span<const double> paces) {
  std::vector<double> held(assigner.types(), 0);
  for (size_t i = 0; i < app.jobs.size(); ++i) {
    const auto type = assigner.FitWhereItRuns(app.jobs[i]);
    const double pace = paces.empty() ? 1 : paces[i];
    if (type) held[*type] += assigner.Job(app.jobs[i]).scale_factor * pace;
  }
  // The rates on several types add up.
  double rate = 0;
  for (size_t type = 0; type < held.size(); ++type) {
    rate += 1 / SecondsLeft(assigner, app, type, held[type], paces);
  }
  const double left_s =
      rate > 0 ? 1 / rate : round_s + LeastSecondsLeft(assigner, app);
  return Rho(app, left_s);
}

}  // namespace gavel::policy
