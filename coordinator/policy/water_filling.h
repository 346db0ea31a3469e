// Water filling: the lexicographically largest sorted vector of amounts (Gavel
// section 4.3), by linear programs alone. All jobs' amounts rise by their
// demand curves until some can rise no further in any allocation; those are
// frozen, the others rise on. Called by the water-filling policies and drf.
// Pure.
//
// The original finds the jobs to freeze with a mixed-integer program and a
// large constant; here the duals prove it. At a level with demands d, the
// program min sigma, a_m(X) / u_m + sigma >= d_m / u_m has sigma = 0 if d can
// be met, and else gives a cut: sum_m y_m a_m(X) <= B for every feasible X,
// with y >= 0. The level at which sum_m y_m d_m = B is the next one to try,
// from above, so every step is a proof; few are needed, and between them only
// right-hand sides change. When d is met on its own cut, no job with y_m > 0
// can have more unless another has less: these are frozen.
#ifndef GAVEL_COORDINATOR_POLICY_WATER_FILLING_H_
#define GAVEL_COORDINATOR_POLICY_WATER_FILLING_H_

#include <span>
#include <string>
#include <vector>

#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_water.h"
#include "coordinator/policy/share_problem.h"

namespace gavel::policy {

struct WaterLevels : SolveReport {
  std::vector<double> shares;  // feasible
  // The first level, at which the first jobs were frozen: no feasible X meets
  // the demands of a higher one.
  double first_level_bound = 0;
  int programs = 0;  // linear programs solved
};

// a_m(X) = factor[m] T_m(X). `demands` counts in these amounts, and is at its
// start. At least one job. By prices where the problem has their shape and they
// prove all stages, else by HiGHS, in at most as many stages as there are jobs.
WaterLevels FillWater(const ShareProblem& problem,
                      std::span<const double> factor, const Demands& demands,
                      SolverChoice choice = SolverChoice::kHighs,
                      LpOptions options = {});

// [k] factor[m] times the most that job m can have: the caps of its demand.
std::vector<double> LargestAmounts(const ShareProblem& problem,
                                   std::span<const double> factor);

// Flat water filling with the job's weights: demands of amounts w_m level. The
// objective is the least amount over weight, min_m a_m(X) / w_m. `factor` is
// the same for jobs of the same throughputs, scale factor and weight.
PolicyResult SolveFlatWaterFilling(ShareProblem problem,
                                   std::span<const double> factor,
                                   SolverChoice choice = SolverChoice::kAuto,
                                   LpOptions options = {});

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_WATER_FILLING_H_
