// What the ranks of a gang tell each other of their state when they meet, and
// whether they fit together. Called by Gang::Join. Pure.
#ifndef GAVEL_ITERATOR_GANG_MEETING_H_
#define GAVEL_ITERATOR_GANG_MEETING_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "iterator/gang.h"

namespace gavel::internal {

// Of this rank: the steps that it has done, and what is divided among the gang.
std::string TextOfState(const GangPlan& plan);

// `texts`: of all ranks; each finds the same. True: a rank is missing values,
// and the others have them. Errors as of Gang::Join.
absl::StatusOr<bool> CompareStates(const GangPlan& plan,
                                   const std::vector<std::string>& texts);

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_GANG_MEETING_H_
