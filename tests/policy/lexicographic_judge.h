// Whether values are the lexicographically largest ones: what water filling is
// for. For tests.
#ifndef GAVEL_TESTS_POLICY_LEXICOGRAPHIC_JUDGE_H_
#define GAVEL_TESTS_POLICY_LEXICOGRAPHIC_JUDGE_H_

#include <string>
#include <vector>

#include "coordinator/policy/policy.h"

namespace gavel::testing {

// The jobs whose value some feasible allocation could raise by more than
// `tolerance`, relative, without lowering one that is not higher by as much:
// those are there if and only if the sorted values are not the
// lexicographically largest ones. By one linear program for each job. `values`:
// [n], NaN for jobs that run nowhere; linear in throughputs, as JobValues.
// Where throughputs differ by many powers of ten, the last digit of one value
// is much of another: a rise is no error that all others together make possible
// by giving `slack` of theirs, as the duals tell. Where the solver gives up or
// finds one, exact_solver.h has the last word, if it is there, on others who
// keep all but `give` of theirs. With `traces`, a rise that is there for such a
// trace only, and not where the others keep all that they have, is told there
// and not as an error.
std::string LexicographicErrors(const PolicyProblem& problem,
                                const Allocation& allocation,
                                const std::vector<double>& values, bool packs,
                                bool agnostic, double tolerance = 1e-6,
                                double slack = 0, double give = 1e-14,
                                std::string* traces = nullptr);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_LEXICOGRAPHIC_JUDGE_H_
