// The highest level of demands that all jobs can have together, by prices: the
// problem of max-min fairness, makespan and finish-time fairness (Gavel section
// 4) for jobs that run alone and limits that are accelerators of types, or of
// parts of them.
//
// Let C(t, p) be what all jobs cost when each has its demand d_m(t) in the
// cheapest way at prices p >= 0, sum_j p_j N_j = 1. The level t can be had if
// and only if C(t, p) <= 1 for every p: the dual of the linear program, in J
// variables however many jobs there are. C is convex in t, so that any pass at
// (t, p) proves that no level is above t - (C - 1) / (dC/dt); its choice of
// types is a column of a restricted master problem of J + 1 rows (Dantzig and
// Wolfe): its convex combination is feasible, its duals are the next prices.
// The search ends where both bounds meet.
//
// Called by the policies' solvers. Pure functions, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_PRICE_LEVELS_H_
#define GAVEL_COORDINATOR_POLICY_PRICE_LEVELS_H_

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_pass.h"

namespace gavel::policy {

// Sums over all jobs at (level, prices); what SumPass gives, however it is
// worked out.
struct PriceEvaluator {
  std::function<PriceSums(double level, std::span<const double> prices)> sums;
  bool idle_at_zero = false;  // at level 0 no job demands anything
};

// Sums over the capacities of `jobs`, which outlive it, at their prices: of
// those over its columns at theirs.
PriceEvaluator OfCapacities(const PriceJobs& jobs, PriceEvaluator columns);

// Relative, of the bounds: a search ends there, or after so many passes.
inline constexpr double kPriceGap = 1e-9;
inline constexpr int kPassesMax = 500;

// Part of a convex combination: jobs choose by these prices and this level.
struct PriceColumn {
  double level = 0;
  double weight = 0;  // > 0; they sum to 1
  std::vector<double> prices;
};

// The weight of the best bound's prices in the next prices; the rest is that of
// the master's prices. Without the best ones prices jump from corner to corner.
inline constexpr double kBestPart = 0.6;

// The columns of the master's mixture, with weights that sum to 1.
std::vector<PriceColumn> NormalizedMixture(
    std::span<const PriceColumn> columns,
    std::span<const std::pair<size_t, double>> mixture);

// Where to start: what a problem that was nearly this one ended with.
struct PriceStart {
  std::vector<double> prices;  // [J]; empty: nothing known
  double level = 0;
  std::vector<PriceColumn> mixture;  // weights don't count
  // How far prices move in one round at first, as a part of the worth of all
  // accelerators. Infinite: as far as they like.
  double reach = std::numeric_limits<double>::infinity();
};

struct PriceLevel {
  double level = 0;            // that the mixture gives every job, at least
  double bound = 0;            // no allocation gives a higher one to all
  std::vector<double> prices;  // [J] that prove the bound; sum p N = 1
  // [J] the same to 1e-8, but exactly 0 where something can be left over.
  std::vector<double> scarcity;
  std::vector<PriceColumn> mixture;  // its usage fits
  int passes = 0;
  bool converged = false;  // to gap_max
};

// `level_max`: every job can have it when it is alone; demands are finite up to
// there and rise. kFinish: levels are below 0.
PriceLevel HighestLevel(const PriceEvaluator& evaluate,
                        std::span<const double> capacity, double level_max,
                        double gap_max = kPriceGap, PriceStart start = {});

// The same over jobs one by one; many jobs are first looked at by a sample. The
// bound is what the prices prove by ProvedLevel.
PriceLevel HighestLevel(const PriceJobs& jobs, const PriceDemand& demand,
                        double level_max, double gap_max = kPriceGap);

// Raises the bound to what its prices really prove. `converged` remains only
// where that is still near the level, and not below it.
void ProveBound(const PriceJobs& jobs, const PricePass& pass, double level_max,
                double gap_max, PriceLevel* level);

// [blocks x kPriceLanes x J] the shares of the mixture.
std::vector<double> SharesOf(const PriceJobs& jobs, const PricePass& pass,
                             std::span<const PriceColumn> mixture);

// Jobs whose throughputs and accelerators are the same, as classes: where
// demands are proportional to the level, what a class uses depends on the
// sorted demands only, so a pass over prices costs a few searches per class
// however many jobs there are.
//
// HighestLevel uses them. A value without locks: not thread-safe.
class PriceClasses {
 public:
  // Classes of jobs m that demand level a[m] (a: [n], >= 0). nullopt: there are
  // more than `classes_max` classes.
  static std::optional<PriceClasses> Of(const PriceJobs& jobs,
                                        std::span<const double> a,
                                        size_t classes_max);

  size_t size() const { return classes_.size(); }

  // As SumPass over all jobs. For one HighestLevel at a time; borrows this.
  PriceEvaluator Evaluator() const;

 private:
  struct Class {
    std::vector<double> throughputs;  // [J]
    double accelerators = 0;          // of one job
    std::vector<double> demands;      // ascending
    std::vector<double> sums;         // [jobs + 1] of the demands before each
  };
  // An edge of the lower hull; `type` is none (-1) at the origin.
  struct Corner {
    int type = -1;
    double rate = 0;
    double cost = 0;
  };

  explicit PriceClasses(size_t types) : types_(types) {}
  // The index of the class of jobs with these `throughputs` [J]; of a new class
  // where there was none.
  size_t ClassOf(std::span<const double> throughputs, double accelerators);
  Corner Next(const Class& one, const Corner& from,
              std::span<const double> prices) const;
  // `hints` [J]: where each edge of its hull ended the last time, by demand.
  void AddSums(const Class& one, double level, std::span<const double> prices,
               uint32_t* hints, PriceSums* sums) const;

  size_t types_;
  RowTable table_;  // of throughputs and accelerators, by class
  std::vector<Class> classes_;
};

// The functions below work out anew what prices prove: job by job, over all
// pairs of points that a job can mix, without the walk along the hull and the
// classes by which the prices were found (SumPass, PriceClasses). They are
// called once, with the prices that an answer rests on. Pure functions,
// thread-safe.

// The rate and the cost of a job that spends all of its time in one way.
struct Choice {
  double rate = 0;
  double cost = 0;
};

// As SumPass: what all jobs cost at least that have their demands.
struct LeastCost {
  double cost = 0;
  double slope = 0;  // d cost / d level, a subgradient; without gains only
};
LeastCost LeastCostOf(const PricePass& pass, double level,
                      std::span<const double> prices);
// The same of one job: the least that mixtures of choices cost which have the
// rate, of equal ones the steepest. Infinite: none has.
LeastCost LeastCostOf(std::span<const Choice> choices, double rate);

// Returns the least level that `prices` prove to be out of reach; at them all
// accelerators together are worth 1. `bound` is the level that the prices are
// believed to prove. The result is at least that and at most `level_max`, which
// needs no proof. Demands must have no caps: the cost is convex in the level.
double ProvedLevel(const PricePass& pass, std::span<const double> prices,
                   double bound, double level_max);

// The same of any demands that never fall as the level rises, whose least cost
// `cost_at` tells: where they are flat, all jobs that cost anything having all
// that they can, a cost of 1 proves nothing, and a higher level is the first
// that is out of reach.
double ProvedLevel(const std::function<double(double level)>& cost_at,
                   double bound, double level_max);

// The value that `prices` of the capacities prove to be out of reach: of the
// gains of `pass` less `rent` (both [J]).
double ProvedSum(const PriceJobs& jobs, const PricePass& pass,
                 std::span<const double> rent, std::span<const double> prices);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_PRICE_LEVELS_H_
