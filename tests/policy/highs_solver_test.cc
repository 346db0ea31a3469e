#include "coordinator/policy/highs_solver.h"

#include "gtest/gtest.h"

namespace gavel::testing {

using namespace policy;
namespace {

// max 3x + 2y subject to x + y <= 4, x + 3y <= 9, 0 <= x <= 3.
LinearProgram Small() {
  LinearProgram program;
  const int x = program.AddColumn(3, 0, 3);
  const int y = program.AddColumn(2, 0, kInfinity);
  program.AddRow(-kInfinity, 4, std::vector<LpEntry>{{x, 1}, {y, 1}});
  program.AddRow(-kInfinity, 9, std::vector<LpEntry>{{x, 1}, {y, 3}});
  return program;
}

TEST(HighsSolver, FindsTheOptimumByEitherMethod) {
  for (const LpMethod method :
       {LpMethod::kAutomatic, LpMethod::kSimplex, LpMethod::kInteriorPoint,
        LpMethod::kPresolvedDual}) {
    HighsSolver solver(Small(), {method});
    const LpSolution solution = solver.Solve();
    ASSERT_EQ(solution.outcome, SolveOutcome::kOptimal) << solution.detail;
    EXPECT_NEAR(solution.objective, 11, 1e-8);
    EXPECT_NEAR(solution.column_values[0], 3, 1e-8);
    EXPECT_NEAR(solution.column_values[1], 1, 1e-8);
    EXPECT_EQ(solution.solver, method == LpMethod::kInteriorPoint
                                   ? "highs-ipx"
                                   : "highs-simplex");
  }
}

TEST(HighsSolver, DualsAreTheGainByOneMoreOfARow) {
  const LpSolution solution = HighsSolver(Small()).Solve();
  EXPECT_NEAR(solution.row_duals[0], 2, 1e-8);  // holds
  EXPECT_NEAR(solution.row_duals[1], 0, 1e-8);  // does not
}

TEST(HighsSolver, ADualOfALowerBoundIsNegative) {
  LinearProgram program;
  const int x = program.AddColumn(-1, 0, kInfinity);
  program.AddRow(2, kInfinity, std::vector<LpEntry>{{x, 1}});
  const LpSolution solution = HighsSolver(program).Solve();
  EXPECT_NEAR(solution.objective, -2, 1e-9);
  EXPECT_NEAR(solution.row_duals[0], -1, 1e-9);
}

TEST(HighsSolver, ChangesAreSolvedFromTheLastBasis) {
  for (const LpMethod method : {LpMethod::kSimplex, LpMethod::kInteriorPoint,
                                LpMethod::kPresolvedDual}) {
    HighsSolver solver(Small(), {method});
    EXPECT_GT(solver.Solve().iterations, 0);
    // From the basis of the optimum there is nothing to do.
    EXPECT_EQ(solver.Solve().iterations, 0);
    solver.ChangeCosts({0, 1});
    LpSolution solution = solver.Solve();
    EXPECT_NEAR(solution.objective, 3, 1e-8);
    EXPECT_EQ(solution.solver, "highs-simplex");
    solver.ChangeColumnBounds(0, 3, 3);
    solution = solver.Solve();
    EXPECT_NEAR(solution.objective, 1, 1e-8);
  }
}

TEST(HighsSolver, AMagnifiedProgramHasTheSameSolution) {
  HighsSolver plain(Small());
  HighsSolver magnified(Small(), {.magnification = 1024});
  const auto expect_same = [&] {
    const LpSolution a = plain.Solve();
    const LpSolution b = magnified.Solve();
    ASSERT_EQ(b.outcome, SolveOutcome::kOptimal) << b.detail;
    EXPECT_NEAR(a.objective, b.objective, 1e-8);
    for (size_t j = 0; j < a.column_values.size(); ++j) {
      EXPECT_NEAR(a.column_values[j], b.column_values[j], 1e-8) << j;
    }
    ASSERT_EQ(a.row_duals.size(), b.row_duals.size());
    for (size_t r = 0; r < a.row_duals.size(); ++r) {
      EXPECT_NEAR(a.row_duals[r], b.row_duals[r], 1e-8) << r;
    }
  };
  expect_same();
  for (HighsSolver* solver : {&plain, &magnified}) {
    solver->ChangeColumnBounds(0, 1, 2);
  }
  expect_same();
  for (HighsSolver* solver : {&plain, &magnified}) {
    solver->ChangeRowBounds(0, std::vector<double>{-kInfinity},
                            std::vector<double>{3.5});
    solver->AddRow(-kInfinity, 1, std::vector<LpEntry>{{1, 1}});
  }
  expect_same();
}

TEST(HighsSolver, AMagnifiedProgramsBoundsAreMetToLess) {
  LinearProgram program;
  const LpEntry x = {program.AddColumn(1, 0, 1), 1};
  program.AddRow(1 + 5e-10, kInfinity, std::vector<LpEntry>{x});
  EXPECT_EQ(HighsSolver(program).Solve().outcome, SolveOutcome::kOptimal);
  EXPECT_EQ(HighsSolver(program, {.magnification = 1024}).Solve().outcome,
            SolveOutcome::kInfeasible);
}

TEST(HighsSolver, AnInfeasibleProgramIsAnOutcomeNotAnError) {
  LinearProgram program;
  const int x = program.AddColumn(1, 0, 1);
  program.AddRow(2, kInfinity, std::vector<LpEntry>{{x, 1}});
  const LpSolution solution = HighsSolver(program).Solve();
  EXPECT_EQ(solution.outcome, SolveOutcome::kInfeasible);
  EXPECT_NE(solution.detail, "");
}

TEST(HighsSolver, AnUnboundedProgramFailsAndSaysSo) {
  LinearProgram program;
  program.AddColumn(1, 0, kInfinity);
  const LpSolution solution = HighsSolver(program).Solve();
  EXPECT_EQ(solution.outcome, SolveOutcome::kFailed);
  EXPECT_NE(solution.detail.find("unbounded"), std::string::npos);
}

TEST(HighsSolver, AProgramThatHighsRefusesFailsAndSaysSo) {
  LinearProgram program;
  const int x = program.AddColumn(1, 0, 1);
  program.AddRow(0, 1, std::vector<LpEntry>{{x, 1e30}});
  const LpSolution solution = HighsSolver(program).Solve();
  EXPECT_EQ(solution.outcome, SolveOutcome::kFailed);
  EXPECT_NE(solution.detail, "");
  EXPECT_TRUE(solution.column_values.empty());
}

TEST(HighsSolver, TheIterationLimitIsAnOutcome) {
  // Enough rows that presolve does not solve it alone.
  LinearProgram program;
  constexpr int kColumns = 40;
  for (int c = 0; c < kColumns; ++c) program.AddColumn(1 + c % 7, 0, 1);
  for (int r = 0; r < 40; ++r) {
    std::vector<LpEntry> row;
    for (int c = 0; c < kColumns; ++c) {
      row.push_back({c, 1.0 + (r * 13 + c * 7) % 11});
    }
    program.AddRow(-kInfinity, 20 + r, row);
  }
  HighsSolver limited(program, {LpMethod::kSimplex, /*iterations_max=*/1});
  EXPECT_EQ(limited.Solve().outcome, SolveOutcome::kIterationLimit);
  HighsSolver free(program, {LpMethod::kSimplex});
  EXPECT_EQ(free.Solve().outcome, SolveOutcome::kOptimal);
}

}  // namespace
}  // namespace gavel::testing
