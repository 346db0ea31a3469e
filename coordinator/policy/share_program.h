// The linear program that all policies over shares have in common: one column
// per cell of a ShareProblem, and the rows that make X feasible. Policies add
// their own columns, rows and costs, solve it, and take back shares that are
// feasible whatever the solver did. A value without locks: not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_SHARE_PROGRAM_H_
#define GAVEL_COORDINATOR_POLICY_SHARE_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_pass.h"
#include "coordinator/policy/price_program.h"
#include "coordinator/policy/share_problem.h"

namespace gavel::policy {

// Policies scale rows down to this largest value, above which the solver's
// absolute tolerance is below rounding.
inline constexpr double kRowValueMax = 1e6;

class ShareProgram {
 public:
  // Columns [0, cells) are the shares, in [0, 1], at cost 0. The first rows are
  // the limits, each divided by its right-hand side (unscaled rows put the
  // bound below the objective); the jobs' time follows. `problem` outlives the
  // program.
  explicit ShareProgram(const ShareProblem& problem);

  LinearProgram lp;  // to be added to; what is there stays first

  // A row with factor T_m(X) in it.
  struct ThroughputRow {
    size_t job = 0;  // m
    double factor = 0;
    size_t row = 0;
  };

  // Adds the row lower <= factor T_m(X) + extra <= upper and returns its index.
  // Factors and bounds near 1 keep the solver's absolute tolerances meaningful.
  int AddThroughputRow(size_t m, double factor, std::span<const LpEntry> extra,
                       double lower, double upper);
  // Adds factor T_m(X) to `costs`, by column (lp.column_cost, or a copy of it
  // for HighsSolver::ChangeCosts).
  void AddThroughputCost(size_t m, double factor,
                         std::span<double> costs) const;

  const ShareProblem& problem() const { return problem_; }
  std::span<const ThroughputRow> throughput_rows() const {
    return throughput_rows_;
  }

  // The solution's shares, repaired; empty when it has none.
  std::vector<double> Shares(const LpSolution& solution) const;

 private:
  const ShareProblem& problem_;
  std::vector<ThroughputRow> throughput_rows_;
  std::vector<LpEntry> row_;  // reused
};

// Returns an upper bound on the objective of every feasible point, whatever the
// duals: weak duality, evaluated from the program itself. Duals of the wrong
// sign for the row's bounds count as 0; a column's reduced cost counts at the
// column's bounds, so give all columns finite ones (a reduced cost of rounding
// size on an infinite one makes the bound infinite). `row_duals` are as in
// LpSolution, one per row, or empty: all 0.
double DualBound(const LinearProgram& program,
                 std::span<const double> row_duals);

// Pairs that a linear program gets only when it asks for them (column
// generation): its duals say what a step of each job, its time and accelerators
// are worth, and so which pairs that are not listed would make it better. Where
// no pair would, the duals are a proof for all of them. Called by the policies
// that pack. Not thread-safe.
//
// A column of jobs a, b in column c is worth v_a T_a' + v_b T_b' and costs u_a
// + u_b + s p_c. By kinds of jobs the best partner is the same for all of a
// kind, so that looking takes as many steps as there are jobs times kinds.
class PairColumns {
 public:
  // problem->pairs is not null. It outlives this; only List changes it.
  explicit PairColumns(ShareProblem* problem);

  // Looks for pairs at the duals of a solved program. `objective` is the value
  // of its shares, over `scale`; null: nothing. Raises the duals of the jobs'
  // time by the reduced costs of listed columns, so that DualBound with them
  // counts no column at its upper bound. Returns how much that bound has to
  // rise to hold also for pairs that are not listed, other than those that List
  // will add.
  double Price(const ShareProgram& program, const SumObjective* objective,
               double scale, std::vector<double>* row_duals);
  // Lists the pairs found since; false: none. Programs must be built anew.
  bool List();
  // Makes the next solve the last one: it looks for no further pairs.
  void Stop() { stopped_ = true; }

  bool found() const { return !found_.empty(); }
  LpBasis* basis() { return &basis_; }

 private:
  // The values that the duals give, for one job of each class.
  struct Worth {
    std::vector<double> step;   // [k x J] of a step/s
    std::vector<double> time;   // [k] of all of its time
    std::vector<double> price;  // [limits] of an accelerator
  };
  // A job's part of a pair in a column.
  struct Side {
    uint32_t job = 0;
    double gain = 0;  // of one job of the class, its time paid

    bool operator<(const Side& other) const {
      return std::tuple(-gain, job) < std::tuple(-other.gain, other.job);
    }
  };

  Worth WorthOf(const ShareProgram& program, const SumObjective* objective,
                double scale, std::vector<double>* row_duals) const;
  void RaiseTime(Worth* worth) const;
  void PriceCell(size_t cell, const Worth& worth);
  void PriceKinds(size_t cell, double price);
  void Note(size_t cell, const Side& a, const Side& b, double price);
  Side SideOf(uint32_t m, size_t type, double throughput,
              const Worth& worth) const;
  std::vector<Side> SidesOf(const PairCell& cell, bool first,
                            const Worth& worth) const;

  struct Found {
    double gain = 0;  // of a share of 1
    ListedCell cell;
  };

  ShareProblem& problem_;
  const PairTable& table_;
  bool stopped_ = false;
  std::set<std::tuple<size_t, uint32_t, uint32_t>> listed_;  // cell, jobs
  std::vector<Found> found_;
  std::vector<double> most_;    // [k] of found_, by job
  std::vector<double> excess_;  // [k] what the job's pairs are short of
  std::vector<Side> first_;     // reused
  std::vector<Side> second_;
  LpBasis basis_;
};

// PairColumns::Price where the options have such pairs; else 0.
inline double PricePairs(const LpOptions& options, const ShareProgram& program,
                         const SumObjective* objective, double scale,
                         std::vector<double>* row_duals) {
  return options.pairs == nullptr
             ? 0
             : options.pairs->Price(program, objective, scale, row_duals);
}
// Some are to be listed: the next solve is with them.
inline bool PairsFound(const LpOptions& options) {
  return options.pairs != nullptr && options.pairs->found();
}

inline constexpr std::string_view kPairsOnDemand = ", pairs on demand";

// Answers of programs over `problem`, solve(options), again and again until no
// pair is missing that would make one better.
template <class Solve>
auto SolveWithPairs(ShareProblem* problem, LpOptions options, Solve solve) {
  constexpr int kListingsMax = 200;
  if (problem->pairs == nullptr) return solve(options);
  PairColumns columns(problem);
  options.pairs = &columns;
  options.basis = columns.basis();
  for (int round = 1;; ++round) {
    if (round == kListingsMax) columns.Stop();
    auto answer = solve(options);
    if (columns.List()) continue;
    answer.solver += kPairsOnDemand;
    answer.iterations = round;
    return answer;
  }
}

// Max-min over shares with a target for each job: max over X of min_m T_m(X) /
// target_m, the linear program of makespan and finish-time fairness (Gavel
// section 4.2). Called by those policies. Not thread-safe.

// The least T_m(X) / target_m.
double Level(const ShareProblem& problem, std::span<const double> targets,
             std::span<const double> shares);

struct TargetAnswer : SolveReport {
  std::vector<double> shares;  // feasible; EvenShares at least
  double level = 0;            // theirs
  double bound = 0;            // no X has a higher level; see CheckBound
  // Set by linear programs: a linear inequality that all feasible X satisfy,
  // sum_m slope[m] T_m(X) <= slope_bound, with slope >= 0. It proves `bound`:
  // at targets * level it is tight. Empty: the solver has no duals.
  std::vector<double> slope;
  double slope_bound = 0;
};

class TargetProgram {
 public:
  // `targets`: [k] steps/s, > 0. `problem` has at least one job, and outlives
  // the program.
  TargetProgram(const ShareProblem& problem, std::vector<double> targets,
                LpOptions options = {});

  TargetAnswer Solve();

  // After Solve: of all X with T_m(X) >= level target_m, to 1e-9, one with the
  // most sum_m gain[m] T_m(X). Empty when the solver fails.
  std::vector<double> SpendTheRest(double level, std::span<const double> gain);
  // Its shares are discarded if they lost more than this part of the optimum.
  static constexpr double kLossMax = 1e-8;

 private:
  void AddTargets();
  TargetAnswer AnswerOf(const LpSolution& solution) const;
  void AddCertificate(const LpSolution& solution, TargetAnswer* answer) const;

  const ShareProblem& problem_;
  std::vector<double> targets_;
  LpOptions options_;
  double unit_ = 1;  // the level that counts as 1 in the program
  ShareProgram program_;
  size_t share_rows_ = 0;  // rows before those of the targets
  int level_column_ = 0;
  std::vector<double> row_factor_;  // [k] of T_m(X) in its row
  std::unique_ptr<HighsSolver> solver_;
};

// The functions below solve max-min over shares with a target for each job, max
// over X of min_m T_m(X) / target_m, and give the leftovers to the jobs that
// gain most. They use prices where the problem has their shape, and HiGHS where
// it has not, where prices did not prove enough, or where the problem asks for
// it. The max-min and makespan policies call them. Pure functions, thread-safe.

// Relative: prices that prove less than this leave the problem to HiGHS.
inline constexpr double kPriceGapMax = 1e-8;
inline constexpr std::string_view kPricesSolver = "prices";
// Appended to the name of HiGHS where prices were tried first.
inline constexpr std::string_view kAfterPrices = " after prices";

// The answer of prices() where they serve and prove it, or are chosen, else
// that of highs(). Answers are SolveReports.
template <class Prices, class Highs>
auto ByPricesOrHighs(SolverChoice choice, bool serves, Prices prices,
                     Highs highs) {
  const bool tried = serves && choice != SolverChoice::kHighs;
  if (tried) {
    auto answer = prices();
    if (answer.outcome == SolveOutcome::kOptimal ||
        choice == SolverChoice::kPrices) {
      return answer;
    }
  }
  auto answer = highs();
  if (tried) answer.solver += kAfterPrices;
  return answer;
}

// Demands that rise with a level, the highest of which is asked for.
struct LevelQuestion {
  PriceDemand demand;
  double level_max = 0;  // see HighestLevel
  std::function<double(std::span<const double> shares)> level_of;
  // [k] steps/s that a level takes.
  std::function<std::vector<double>(double level)> rates;
};

// Solves by prices alone; the problem must have their shape. The leftovers of
// the level go to jobs by `gain`. Sets no `slope`.
TargetAnswer LevelByPrices(const ShareProblem& problem, LevelQuestion question,
                           std::span<const double> gain);

// `targets` [k] steps/s, > 0; `gain` [k] is the value of a step/s of the
// leftovers. `problem` has at least one job.
TargetAnswer SolveTargets(const ShareProblem& problem,
                          const std::vector<double>& targets,
                          std::span<const double> gain, SolverChoice choice,
                          const LpOptions& options = {});

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_SHARE_PROGRAM_H_
