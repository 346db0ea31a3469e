// `gavel solve --example POLICY`: a small valid input of a policy, with what
// that policy needs and uses, and no more. Pure, thread-safe.
#ifndef GAVEL_STUDY_SOLVE_POLICY_EXAMPLE_H_
#define GAVEL_STUDY_SOLVE_POLICY_EXAMPLE_H_

#include <string_view>

#include "coordinator/cli/json.h"

namespace gavel {

// Three jobs on accelerators of two types, as ParsePolicyCases reads it. All
// fields are in docs/solve.schema.json.
Json PolicyExample(std::string_view policy);

// The same with every field that there is.
Json FullPolicyExample();

}  // namespace gavel

#endif  // GAVEL_STUDY_SOLVE_POLICY_EXAMPLE_H_
