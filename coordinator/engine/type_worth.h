// What accelerators of each type are worth to a policy, for rounds to give out
// what its shares leave over. Called by the engine for each row of a round.
// Pure.
#ifndef GAVEL_COORDINATOR_ENGINE_TYPE_WORTH_H_
#define GAVEL_COORDINATOR_ENGINE_TYPE_WORTH_H_

#include <map>
#include <string>
#include <vector>

#include "coordinator/engine/job.h"
#include "coordinator/mechanism/round_table.h"
#include "coordinator/policy/policy.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/share_unit.h"

namespace gavel {

// All borrowed.
struct WorthTerms {
  const ThroughputMatrix& throughputs;
  const std::vector<std::string>& types;                     // of the cluster
  const std::map<std::string, double, std::less<>>& prices;  // missing: 1
};

// Appends to row.worth, by type; nothing where all types are alike. Of a job
// alone `job.steps_per_s` is up to date; of a pair it is both jobs' together.
void AddWorth(TypeWorth worth, const WorthTerms& terms, const ShareUnit& unit,
              const Job& job, RoundUnit& row);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_TYPE_WORTH_H_
