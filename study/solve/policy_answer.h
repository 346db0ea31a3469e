// What a policy answered, for machines and for people: the JSON that
// `gavel solve --output` writes, and its tables. Pure functions, thread-safe.
#ifndef GAVEL_STUDY_SOLVE_POLICY_ANSWER_H_
#define GAVEL_STUDY_SOLVE_POLICY_ANSWER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/cli/json.h"
#include "coordinator/policy/policy.h"
#include "study/solve/policy_case.h"

namespace gavel::study {

struct PolicyAnswer {
  PolicyCase of;
  PolicyResult result;
  double time_s = 0;  // that the policy took
};

// {"policy", "cases": [{"case", "status", "allocation": {"ID" or "A,B":
// {"TYPE": share}}, "objective", "bound", "gap", "solver", "iterations",
// "time_s", "left_out": [ID], "reason"}]}. Iterations are passes over prices, 0
// by other solvers. An assignment is shares of 1. Where placement
// matters, the time of gangs across servers is that of "TYPE_unconsolidated". A
// pair without time is not there.
Json AnswersJson(std::string_view policy,
                 const std::vector<PolicyAnswer>& answers);

// One line for each case; of a single case its shares, too.
std::string RenderAnswers(std::string_view policy,
                          const std::vector<PolicyAnswer>& answers,
                          size_t width);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SOLVE_POLICY_ANSWER_H_
