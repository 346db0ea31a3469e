#include "coordinator/policy/lp/highs_solver.h"

#include <cassert>

#include "core/text.h"
#include "interfaces/highs_c_api.h"

namespace gavel {
namespace {

static_assert(sizeof(HighsInt) == sizeof(int), "HiGHS with 64-bit indices");

// From here on interior point is faster than simplex from nothing: measured on
// max-min programs of 5 types, one thread.
constexpr int kSimplexRowsMax = 1000;

// HiGHS' values of the option "simplex_strategy".
constexpr HighsInt kDualSimplex = 1;
constexpr HighsInt kPrimalSimplex = 4;

SolveOutcome OutcomeOf(HighsInt status) {
  if (status == kHighsModelStatusOptimal) return SolveOutcome::kOptimal;
  if (status == kHighsModelStatusModelEmpty) return SolveOutcome::kOptimal;
  if (status == kHighsModelStatusInfeasible) return SolveOutcome::kInfeasible;
  if (status == kHighsModelStatusIterationLimit) {
    return SolveOutcome::kIterationLimit;
  }
  return SolveOutcome::kFailed;
}

// HiGHS' own name of a status, for people to search for.
std::string Describe(HighsInt status) {
  switch (status) {
    case 1:
      return "HiGHS: the program could not be loaded";
    case 8:
      return "HiGHS: infeasible";
    case 9:
      return "HiGHS: unbounded or infeasible";
    case 10:
      return "HiGHS: unbounded";
    case 14:
      return "HiGHS: iteration limit reached";
    case 15:
      return "HiGHS: gave up without a conclusion";
    default:
      return StrCat("HiGHS: model status ", status);
  }
}

}  // namespace

void HighsSolver::Destroy::operator()(void* highs) const {
  Highs_destroy(highs);
}

HighsSolver::HighsSolver(const LinearProgram& program, LpOptions options)
    : highs_(Highs_create()),
      options_(options),
      columns_(program.columns()),
      rows_(program.rows()) {
  void* highs = highs_.get();
  Highs_setBoolOptionValue(highs, "output_flag", 0);
  Highs_setIntOptionValue(highs, "threads", 1);
  Highs_setStringOptionValue(highs, "parallel", "off");
  for (const char* name :
       {"primal_feasibility_tolerance", "dual_feasibility_tolerance"}) {
    Highs_setDoubleOptionValue(highs, name, options.tolerance);
  }
  for (const char* name : {"simplex_iteration_limit", "ipm_iteration_limit"}) {
    Highs_setIntOptionValue(highs, name, options.iterations_max);
  }
  loaded_ =
      Highs_passLp(highs, columns_, rows_,
                   static_cast<HighsInt>(program.entry_value.size()),
                   kHighsMatrixFormatRowwise, kHighsObjSenseMaximize,
                   /*offset=*/0.0, program.column_cost.data(),
                   program.column_lower.data(), program.column_upper.data(),
                   program.row_lower.data(), program.row_upper.data(),
                   program.row_start.data(), program.entry_column.data(),
                   program.entry_value.data()) != kHighsStatusError;
}

HighsSolver::~HighsSolver() = default;

LpMethod HighsSolver::Method() const {
  // A basis is worth more than anything: simplex keeps it, interior point
  // starts from nothing.
  if (solved_) return LpMethod::kSimplex;
  if (options_.method != LpMethod::kAutomatic) return options_.method;
  return rows_ <= kSimplexRowsMax ? LpMethod::kSimplex
                                  : LpMethod::kInteriorPoint;
}

LpSolution HighsSolver::Solve() {
  LpSolution solution;
  void* highs = highs_.get();
  const bool simplex = Method() == LpMethod::kSimplex;
  solution.solver = simplex ? "highs-simplex" : "highs-ipx";
  if (!loaded_) {
    solution.detail = Describe(kHighsModelStatusLoadError);
    return solution;
  }
  Highs_setStringOptionValue(highs, "solver", simplex ? "simplex" : "ipx");
  Highs_setIntOptionValue(highs, "simplex_strategy",
                          solved_ ? kPrimalSimplex : kDualSimplex);
  Highs_run(highs);
  const HighsInt status = Highs_getModelStatus(highs);
  solution.outcome = OutcomeOf(status);
  if (solution.outcome != SolveOutcome::kOptimal) {
    solution.detail = Describe(status);
  }
  solution.objective = Highs_getObjectiveValue(highs);
  solution.column_values.resize(static_cast<size_t>(columns_));
  solution.row_duals.resize(static_cast<size_t>(rows_));
  if (Highs_getSolution(highs, solution.column_values.data(), nullptr, nullptr,
                        solution.row_duals.data()) == kHighsStatusError) {
    solution.column_values.clear();
    solution.row_duals.clear();
  }
  solved_ = solution.outcome == SolveOutcome::kOptimal;
  return solution;
}

void HighsSolver::ChangeCosts(const std::vector<double>& costs) {
  assert(costs.size() == static_cast<size_t>(columns_));
  if (columns_ == 0) return;
  Highs_changeColsCostByRange(highs_.get(), 0, columns_ - 1, costs.data());
}

void HighsSolver::ChangeColumnBounds(int column, double lower, double upper) {
  Highs_changeColBounds(highs_.get(), column, lower, upper);
}

}  // namespace gavel
