// The round mechanism said as plainly as it can be: every candidate in one
// list, sorted by everything that decides; every placement by a look at every
// server. What PlanRound must give, whatever it does to be fast.
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
