// Who is held at the end of a stage of water filling by prices (price_water.h)
// and could have the same on other columns, at no other cost: of three that are
// as good, a job can do with more of the first and the last or more of the
// middle one. Together such jobs exchange what they have of the scarce columns,
// and leave more or less of the free ones to who rises on. Called by
// price_water.cc. Pure function, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_TIES_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_TIES_H_

#include <cstdint>
#include <vector>

#include "coordinator/policy/lp/price_water_spare.h"

namespace gavel {

// [n] the columns (bit j) that a held job may use, at the stage's prices, of a
// job that has a choice; 0 of the others. Empty: no exchange of theirs matters,
// as what is full leaves each of them one choice, or as they all use the same
// free columns.
std::vector<uint64_t> FindTies(const WaterEnd& end);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_TIES_H_
