// The round mechanism in its simplest form: it sorts all candidates in one list
// by all criteria, and looks at every server for each placement. PlanRound is
// faster and must give the same result.
#ifndef GAVEL_TESTS_MECHANISM_REFERENCE_ROUND_H_
#define GAVEL_TESTS_MECHANISM_REFERENCE_ROUND_H_

#include <vector>

#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/mechanism.h"

namespace gavel::testing {

RoundAssignment ReferenceRound(const Cluster& cluster,
                               const std::vector<RoundUnit>& units,
                               const RoundOptions& options);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_MECHANISM_REFERENCE_ROUND_H_
