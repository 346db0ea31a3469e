// Finish-time fairness of apps as Themis defines it (NSDI'20, section 3):
//
//   rho = T_sh / T_id,   T_sh = age + the time that the work left takes with
//                               the accelerators of an allocation,
//                        T_id = the app's time alone on the whole cluster,
//                               times the average number of apps present.
//
// The time alone is the larger of two bounds that no schedule beats: that of
// its longest job where it is fastest, and that of all its work spread over all
// accelerators. A job whose steps are not known is taken to be half done.
//
// Work that an optimiser says is to come (AppGoal) counts in both times. A step
// of it takes the mean over the app's jobs, on the same accelerators.
//
// Pure, thread-safe. Called by the policies that share between apps
// (themis.cc), by those that need the work left (loss_policies.cc), and by the
// engine, which reports rho.
#ifndef GAVEL_COORDINATOR_POLICY_APP_FAIRNESS_H_
#define GAVEL_COORDINATOR_POLICY_APP_FAIRNESS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "coordinator/policy/assigner.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {

// An app of the problem; a job without an app is one of its own.
struct FairApp {
  std::vector<size_t> jobs;  // indices into PolicyProblem::jobs, not empty
  double age_s = 0;          // >= 0
  double ideal_s = 0;        // T_id, > 0
  // Its own bid; borrowed from the problem. Null: it makes none.
  const OwnBid* bid = nullptr;
  // The goal that its optimiser has set; borrowed likewise. Null: none.
  const AppGoal* goal = nullptr;
};

// The apps that have a job which can run, in the order of their first such job.
// Jobs that can run nowhere belong to none.
std::vector<FairApp> FairAppsOf(const PolicyProblem& problem,
                                const Assigner& assigner);

// The job's remaining steps, > 0. If they are not known, the job is half done,
// or an hour from its end if it has not begun.
double StepsLeft(const Assigner& assigner, size_t job);

// The seconds that the job's remaining steps take on the type, > 0; infinity if
// it can't run there.
double SecondsLeft(const Assigner& assigner, size_t job, size_t type);

// The seconds that the work left of the app takes on so many accelerators of a
// type, whatever its jobs hold now: that of its longest job there, or of all
// its work on `accelerators`, whichever takes longer. Infinity for none.
// `paces`: by job of the app, its part in (0, 1] of its throughput on the type
// where gangs are not as close to each other as they could be; empty: 1. Then
// `accelerators` is the sum over gangs of their number times their pace.
double SecondsLeft(const Assigner& assigner, const FairApp& app, size_t type,
                   double accelerators, std::span<const double> paces = {});

// The same on the one gang with room that serves the app best.
double LeastSecondsLeft(const Assigner& assigner, const FairApp& app);

// rho if the work left takes `left_s`.
inline double Rho(const FairApp& app, double left_s) {
  return (app.age_s + left_s) / app.ideal_s;
}

// rho with the accelerators that the app's jobs run on now, at these paces (as
// above). With none it is what the app has if it waits for `round_s` and then
// gets the one gang that serves it best.
double PresentRho(const Assigner& assigner, const FairApp& app, double round_s,
                  std::span<const double> paces = {});

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_APP_FAIRNESS_H_
