#include "tests/policy/lexicographic_judge.h"

#include <cmath>
#include <cstddef>
#include <optional>
#include <span>

#include "coordinator/policy/lp/highs_solver.h"
#include "coordinator/policy/lp/share_program.h"
#include "coordinator/policy/share/share_problem.h"
#include "core/text.h"
#include "tests/policy/exact_solver.h"
#include "tests/policy/share_kit.h"

namespace gavel::testing {
namespace {

// Room of less than this many accelerators is that of roundings.
constexpr double kRoomMin = 1e-12;

// What a job can have at most, in parts of what it has, and what of that is no
// error.
struct Rise {
  double most = 0;
  double allowed = 0;
};

// Of the duals of the rows from `first` on: d objective / d what others have.
double Allowed(const std::vector<double>& row_duals, size_t first,
               double tolerance, double slack) {
  double allowed = 1 + tolerance;
  for (size_t r = first; r < row_duals.size(); ++r) {
    allowed += slack * std::abs(row_duals[r]);
  }
  return allowed;
}

// [cells] of the allocation.
std::vector<double> SharesOf(const ShareProblem& problem,
                             const Allocation& allocation) {
  std::vector<double> shares;
  for (const ShareCell& cell : problem.cells) {
    const ShareUnit& unit = problem.units[static_cast<size_t>(cell.unit)].id;
    shares.push_back(allocation.Row(unit)[static_cast<size_t>(cell.column)]);
  }
  return shares;
}

// In rational numbers: where little is much, a solver's own tolerance is. And
// in changes of what there is, so that what the others have, the rows from
// `floors` on, is no rounded number. If they give nothing, neither do roundings
// of the limits. Nothing without such a solver.
std::optional<Rise> ExactRise(LinearProgram program, size_t floors,
                              std::span<const double> shares, double tolerance,
                              double slack, double give) {
  const double room_min = give > 0 ? 0 : kRoomMin;
  for (size_t j = 0; j < shares.size(); ++j) {
    program.column_lower[j] -= shares[j];
    program.column_upper[j] -= shares[j];
  }
  for (size_t r = 0; r < program.row_upper.size(); ++r) {
    if (r >= floors) {
      program.row_lower[r] = -give;
      continue;
    }
    const auto begin = static_cast<size_t>(program.row_start[r]);
    const size_t end = r + 1 < program.row_start.size()
                           ? static_cast<size_t>(program.row_start[r + 1])
                           : program.entry_column.size();
    double room = program.row_upper[r];
    for (size_t e = begin; e < end; ++e) {
      room -= program.entry_value[e] *
              shares[static_cast<size_t>(program.entry_column[e])];
    }
    program.row_upper[r] = room > room_min ? room : 0;
  }
  const std::optional<ExactSolution> exact = SolveExactly(program);
  if (!exact.has_value() || !exact->feasible) return std::nullopt;
  return Rise{1 + exact->objective,
              Allowed(exact->row_duals, floors, tolerance, slack)};
}

}  // namespace

std::string LexicographicErrors(const PolicyProblem& problem,
                                const Allocation& allocation,
                                const std::vector<double>& values, bool packs,
                                bool agnostic, double tolerance, double slack,
                                double give, std::string* traces) {
  const ShareProblem shares =
      MakeShareProblem(problem, {.pairs = packs, .agnostic = agnostic});
  const std::vector<double> x = SharesOf(shares, allocation);
  const std::vector<double> now = JobThroughputs(problem, allocation, agnostic);
  std::string errors;
  for (size_t m = 0; m < shares.size(); ++m) {
    const double value = values[shares.jobs[m]];
    ShareProgram program(shares);
    program.AddThroughputCost(m, 1 / now[shares.jobs[m]],
                              program.lp.column_cost);
    const auto floors = static_cast<size_t>(program.lp.rows());
    for (size_t k = 0; k < shares.size(); ++k) {
      if (k == m || values[shares.jobs[k]] > value * (1 + tolerance)) continue;
      program.AddThroughputRow(k, 1 / now[shares.jobs[k]], {}, 1 - 1e-12,
                               kInfinity);
    }
    HighsSolver solver(program.lp, {.tolerance = 1e-10});
    LpSolution solution = solver.Solve(Restart::kDual);
    if (solution.outcome != SolveOutcome::kOptimal) {
      // Rare, of very different sizes: with more room, from nothing.
      solution = HighsSolver(program.lp).Solve();
    }
    const bool known = solution.outcome == SolveOutcome::kOptimal;
    Rise rise = {solution.objective,
                 Allowed(solution.row_duals, floors, tolerance, slack)};
    if (known && rise.most <= rise.allowed) continue;
    const std::optional<Rise> exact =
        ExactRise(program.lp, floors, x, tolerance, slack, give);
    if (exact.has_value()) rise = *exact;
    if (!known && !exact.has_value()) {
      StrAppend(&errors, "job index ", m, ": ", solution.detail, "; ");
    } else if (rise.most > rise.allowed) {
      const std::optional<Rise> free =
          traces == nullptr ? std::nullopt
                            : ExactRise(program.lp, floors, x, tolerance,
                                        /*slack=*/0, /*give=*/0);
      const bool trace = free.has_value() && free->most <= free->allowed;
      StrAppend(trace ? traces : &errors, "job index ", m, " at ", value,
                " can rise by ", rise.most - 1,
                exact.has_value() ? " exactly" : "", "; ");
    }
  }
  return errors;
}

}  // namespace gavel::testing
