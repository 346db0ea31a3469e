// A linear program solved in rational numbers, by QSopt_ex (the program
// `esolver` of Debian's package qsopt-ex): who is right where what decides is
// smaller than a solver in double precision can tell. For tests.
#ifndef GAVEL_TESTS_POLICY_EXACT_SOLVER_H_
#define GAVEL_TESTS_POLICY_EXACT_SOLVER_H_

#include <optional>
#include <vector>

#include "coordinator/policy/lp/linear_program.h"

namespace gavel::testing {

struct ExactSolution {
  bool feasible = false;
  double objective = 0;
  std::vector<double> row_duals;  // d objective / d row bound
};

// Its numbers are taken as they are, to the last bit. Nothing: there is no
// esolver here, or it came to no end within a minute. Every row has one bound.
std::optional<ExactSolution> SolveExactly(const LinearProgram& program);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_EXACT_SOLVER_H_
