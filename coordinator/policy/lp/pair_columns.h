// Pairs that a linear program gets only when it asks for them (column
// generation): its duals say what a step of each job, its time and accelerators
// are worth, and so which pairs that are not listed would make it better. Where
// no pair would, the duals are a proof for all of them. Called by the policies
// that pack. Not thread-safe.
//
// A column of jobs a, b in column c is worth v_a T_a' + v_b T_b' and costs u_a
// + u_b + s p_c. By kinds of jobs the best partner is the same for all of a
// kind, so that looking takes as many steps as there are jobs times kinds.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PAIR_COLUMNS_H_
#define GAVEL_COORDINATOR_POLICY_LP_PAIR_COLUMNS_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "coordinator/policy/lp/highs_solver.h"
#include "coordinator/policy/lp/price_program.h"
#include "coordinator/policy/lp/share_program.h"
#include "coordinator/policy/share/pair_table.h"
#include "coordinator/policy/share/share_problem.h"

namespace gavel::policy {

class PairColumns {
 public:
  // problem->pairs is not null. It outlives this; only List changes it.
  explicit PairColumns(ShareProblem* problem);

  // Looks for pairs at the duals of a program that was solved. `objective` is
  // what its shares are worth, over `scale`; null: nothing. Raises the duals of
  // the jobs' time by the reduced costs of listed columns, so that
  // DualBound with them counts no column at its upper bound. Returns how much
  // that bound rises to hold for pairs that are not listed, too, but for those
  // that List will add.
  double Price(const ShareProgram& program, const SumObjective* objective,
               double scale, std::vector<double>* row_duals);
  // Lists the pairs found since; false: none. Programs must be built anew.
  bool List();
  // The next time is the last one: no more are looked for.
  void Stop() { stopped_ = true; }

  bool found() const { return !found_.empty(); }
  LpBasis* basis() { return &basis_; }

 private:
  // What duals say, for one job of each class.
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

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_PAIR_COLUMNS_H_
