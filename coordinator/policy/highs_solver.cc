#include "coordinator/policy/highs_solver.h"

#include <algorithm>
#include <cassert>
#include <string_view>
#include <utility>

#include "core/text.h"
#include "interfaces/highs_c_api.h"

namespace gavel::policy {
namespace {

static_assert(sizeof(HighsInt) == sizeof(int), "HiGHS with 64-bit indices");

// With more rows than this, interior point is faster than simplex without a
// basis: measured on max-min programs of 5 types with one thread. For programs
// of 40 to 1,000 jobs, presolve only adds to the time of simplex, and primal
// simplex takes half the time of dual simplex.
constexpr int kSimplexRowsMax = 1000;

// The tolerance for programs on which HiGHS gives up otherwise; it is the
// default of HiGHS.
constexpr double kLastTolerance = 1e-7;

// The values of HiGHS's option "simplex_strategy".
constexpr HighsInt kDualSimplex = 1;
constexpr HighsInt kPrimalSimplex = 4;

// The iteration limit. Simplex cycles on a few badly scaled programs. Programs
// that it can solve take a few iterations per row and column, far fewer than
// this limit.
int UsualIterations(int size) { return 5'000 + 5 * size; }

SolveOutcome OutcomeOf(HighsInt status) {
  if (status == kHighsModelStatusOptimal) return SolveOutcome::kOptimal;
  if (status == kHighsModelStatusModelEmpty) return SolveOutcome::kOptimal;
  if (status == kHighsModelStatusInfeasible) return SolveOutcome::kInfeasible;
  if (status == kHighsModelStatusIterationLimit) {
    return SolveOutcome::kIterationLimit;
  }
  return SolveOutcome::kFailed;
}

void SetTolerance(void* highs, double tolerance) {
  for (const char* name :
       {"primal_feasibility_tolerance", "dual_feasibility_tolerance"}) {
    Highs_setDoubleOptionValue(highs, name, tolerance);
  }
}

// Solves the loaded program. Returns the number of iterations.
int Run(void* highs, bool simplex, const char* presolve, Restart restart) {
  Highs_setStringOptionValue(highs, "solver", simplex ? "simplex" : "ipx");
  Highs_setStringOptionValue(highs, "presolve", presolve);
  Highs_setIntOptionValue(
      highs, "simplex_strategy",
      restart == Restart::kDual ? kDualSimplex : kPrimalSimplex);
  Highs_run(highs);
  int iterations = 0;
  for (const char* name : {"simplex_iteration_count", "ipm_iteration_count"}) {
    HighsInt count = 0;
    Highs_getIntInfoValue(highs, name, &count);
    iterations += std::max(count, 0);
  }
  return iterations;
}

// Returns whether HiGHS stopped without a conclusion about the program.
// `cycled`: reaching the iteration limit counts, too, because the limit was
// UsualIterations() and not the caller's.
bool GaveUp(void* highs, bool cycled) {
  const HighsInt status = Highs_getModelStatus(highs);
  return (cycled && status == kHighsModelStatusIterationLimit) ||
         status == kHighsModelStatusNotset ||
         status == kHighsModelStatusSolveError ||
         status == kHighsModelStatusUnknown;
}

// Describes a status in the words of HiGHS, so that people can search for them.
std::string Describe(HighsInt status) {
  constexpr std::pair<HighsInt, std::string_view> kNames[] = {
      {kHighsModelStatusLoadError, "the program could not be loaded"},
      {kHighsModelStatusInfeasible, "infeasible"},
      {kHighsModelStatusUnboundedOrInfeasible, "unbounded or infeasible"},
      {kHighsModelStatusUnbounded, "unbounded"},
      {kHighsModelStatusTimeLimit, "time limit reached"},
      {kHighsModelStatusIterationLimit, "iteration limit reached"},
      {kHighsModelStatusUnknown, "gave up without a conclusion"}};
  for (const auto& [value, name] : kNames) {
    if (value == status) return StrCat("HiGHS: ", name);
  }
  return StrCat("HiGHS: model status ", status);
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
  SetTolerance(highs, options.tolerance);
  Highs_setDoubleOptionValue(highs, "time_limit", options.seconds_max);
  limited_ = options.iterations_max <= UsualIterations(columns_ + rows_);
  for (const char* name : {"simplex_iteration_limit", "ipm_iteration_limit"}) {
    Highs_setIntOptionValue(
        highs, name,
        std::min(options.iterations_max, UsualIterations(columns_ + rows_)));
  }
  loaded_ = Highs_passLp(highs, columns_, rows_,
                         static_cast<HighsInt>(program.entry_value.size()),
                         kHighsMatrixFormatRowwise, kHighsObjSenseMaximize,
                         /*offset=*/0.0, program.column_cost.data(),
                         Magnified(program.column_lower).data(),
                         Magnified(program.column_upper).data(),
                         Magnified(program.row_lower).data(),
                         Magnified(program.row_upper).data(),
                         program.row_start.data(), program.entry_column.data(),
                         program.entry_value.data()) != kHighsStatusError;
}

HighsSolver::~HighsSolver() = default;

LpMethod HighsSolver::Method() const {
  // Only simplex can start from the basis of the last solution, which saves
  // more than any other choice; interior point starts from nothing.
  if (solved_) return LpMethod::kSimplex;
  if (options_.method != LpMethod::kAutomatic) return options_.method;
  return rows_ <= kSimplexRowsMax ? LpMethod::kSimplex
                                  : LpMethod::kInteriorPoint;
}

bool HighsSolver::TakeBasis() {
  const LpBasis* basis = options_.basis;
  return basis != nullptr && options_.method != LpMethod::kInteriorPoint &&
         basis->columns.size() == static_cast<size_t>(columns_) &&
         basis->rows.size() == static_cast<size_t>(rows_) &&
         Highs_setBasis(highs_.get(), basis->columns.data(),
                        basis->rows.data()) == kHighsStatusOk;
}

void HighsSolver::LeaveBasis() {
  if (options_.basis == nullptr) return;
  options_.basis->columns.resize(static_cast<size_t>(columns_));
  options_.basis->rows.resize(static_cast<size_t>(rows_));
  Highs_getBasis(highs_.get(), options_.basis->columns.data(),
                 options_.basis->rows.data());
}

std::vector<double> HighsSolver::Magnified(
    std::span<const double> values) const {
  std::vector<double> magnified(values.begin(), values.end());
  for (double& value : magnified) value *= options_.magnification;
  return magnified;
}

LpSolution HighsSolver::Solve(Restart restart) {
  LpSolution solution;
  void* highs = highs_.get();
  if (!solved_ && loaded_) solved_ = TakeBasis();
  const LpMethod method = Method();
  const bool simplex = method != LpMethod::kInteriorPoint;
  if (method == LpMethod::kPresolvedDual) restart = Restart::kDual;
  solution.solver = simplex ? "highs-simplex" : "highs-ipx";
  if (!loaded_) {
    solution.detail = Describe(kHighsModelStatusLoadError);
    return solution;
  }
  solution.iterations = Run(
      highs, simplex, method == LpMethod::kSimplex ? "off" : "choose", restart);
  if (GaveUp(highs, !limited_)) {
    // This is rare and happens on badly scaled programs. Try again without a
    // basis, with presolve and the other kind of simplex.
    Highs_clearSolver(highs);
    solution.iterations +=
        Run(highs, /*simplex=*/true, "choose",
            restart == Restart::kDual ? Restart::kPrimal : Restart::kDual);
  }
  if (GaveUp(highs, !limited_)) {
    SetTolerance(highs, kLastTolerance);
    solution.iterations += Run(highs, /*simplex=*/true, "off", Restart::kDual);
    SetTolerance(highs, options_.tolerance);
  }
  const HighsInt status = Highs_getModelStatus(highs);
  solution.outcome = OutcomeOf(status);
  if (solution.outcome != SolveOutcome::kOptimal) {
    solution.detail = Describe(status);
  }
  solution.objective = Highs_getObjectiveValue(highs) / options_.magnification;
  solution.column_values.resize(static_cast<size_t>(columns_));
  solution.row_duals.resize(static_cast<size_t>(rows_));
  if (Highs_getSolution(highs, solution.column_values.data(), nullptr, nullptr,
                        solution.row_duals.data()) == kHighsStatusError) {
    solution.column_values.clear();
    solution.row_duals.clear();
  }
  for (double& value : solution.column_values) value /= options_.magnification;
  solved_ = solution.outcome == SolveOutcome::kOptimal;
  if (solved_) LeaveBasis();
  return solution;
}

void HighsSolver::ChangeCosts(const std::vector<double>& costs) {
  assert(costs.size() == static_cast<size_t>(columns_));
  if (columns_ == 0) return;
  Highs_changeColsCostByRange(highs_.get(), 0, columns_ - 1, costs.data());
}

void HighsSolver::ChangeColumnBounds(int column, double lower, double upper) {
  Highs_changeColBounds(highs_.get(), column, lower * options_.magnification,
                        upper * options_.magnification);
}

void HighsSolver::ChangeRowBounds(int first, std::span<const double> lower,
                                  std::span<const double> upper) {
  assert(lower.size() == upper.size());
  if (lower.empty()) return;
  Highs_changeRowsBoundsByRange(
      highs_.get(), first, first + static_cast<int>(lower.size()) - 1,
      Magnified(lower).data(), Magnified(upper).data());
}

void HighsSolver::ChangeValue(int row, int column, double value) {
  Highs_changeCoeff(highs_.get(), row, column, value);
}

void HighsSolver::AddRow(double lower, double upper,
                         std::span<const LpEntry> entries) {
  std::vector<HighsInt> columns;
  std::vector<double> values;
  for (const LpEntry& entry : entries) {
    columns.push_back(entry.column);
    values.push_back(entry.value);
  }
  Highs_addRow(highs_.get(), lower * options_.magnification,
               upper * options_.magnification,
               static_cast<HighsInt>(columns.size()), columns.data(),
               values.data());
  ++rows_;
}

IntegerSolution SolveIntegers(const LinearProgram& program,
                              const IntegerOptions& options) {
  // HiGHS looks only for solutions better by this feasibility tolerance, the
  // smallest that it takes.
  constexpr double kTolerance = 1e-10;
  IntegerSolution solution;
  solution.solver = "highs-mip";
  void* highs = Highs_create();
  const std::unique_ptr<void, void (*)(void*)> owner(highs, Highs_destroy);
  Highs_setBoolOptionValue(highs, "output_flag", 0);
  Highs_setIntOptionValue(highs, "threads", 1);
  Highs_setStringOptionValue(highs, "parallel", "off");
  Highs_setDoubleOptionValue(highs, "time_limit", options.seconds_max);
  Highs_setIntOptionValue(highs, "mip_max_nodes", options.nodes_max);
  for (const char* gap : {"mip_rel_gap", "mip_abs_gap"}) {
    Highs_setDoubleOptionValue(highs, gap, 0);
  }
  Highs_setDoubleOptionValue(highs, "mip_feasibility_tolerance", kTolerance);
  SetTolerance(highs, kTolerance);
  const std::vector<HighsInt> integers(program.column_cost.size(),
                                       kHighsVarTypeInteger);
  if (Highs_passMip(highs, program.columns(), program.rows(),
                    static_cast<HighsInt>(program.entry_value.size()),
                    kHighsMatrixFormatRowwise, kHighsObjSenseMaximize,
                    /*offset=*/0.0, program.column_cost.data(),
                    program.column_lower.data(), program.column_upper.data(),
                    program.row_lower.data(), program.row_upper.data(),
                    program.row_start.data(), program.entry_column.data(),
                    program.entry_value.data(),
                    integers.data()) == kHighsStatusError) {
    solution.detail = Describe(kHighsModelStatusLoadError);
    return solution;
  }
  Highs_run(highs);
  const HighsInt status = Highs_getModelStatus(highs);
  solution.outcome = status == kHighsModelStatusSolutionLimit
                         ? SolveOutcome::kIterationLimit
                         : OutcomeOf(status);
  if (solution.outcome != SolveOutcome::kOptimal) {
    solution.detail = Describe(status);
  }
  HighsInt iterations = 0;
  Highs_getIntInfoValue(highs, "simplex_iteration_count", &iterations);
  solution.iterations = std::max(iterations, 0);
  double bound = kInfinity;
  Highs_getDoubleInfoValue(highs, "mip_dual_bound", &bound);
  if (bound == bound) solution.bound = bound;
  HighsInt found = kHighsSolutionStatusNone;
  Highs_getIntInfoValue(highs, "primal_solution_status", &found);
  if (found != kHighsSolutionStatusFeasible) return solution;
  solution.column_values.resize(program.column_cost.size());
  if (Highs_getSolution(highs, solution.column_values.data(), nullptr, nullptr,
                        nullptr) == kHighsStatusError) {
    solution.column_values.clear();
  }
  return solution;
}

}  // namespace gavel::policy
