// Who uses the simulated cluster: jobs of several kinds, and what has to become
// of each.
#ifndef GAVEL_TESTS_SIMULATION_CLIENTS_H_
#define GAVEL_TESTS_SIMULATION_CLIENTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/throughput_table.h"
#include "tests/simulation/world/virtual_cluster.h"
#include "tests/simulation/world/virtual_world.h"

namespace gavel {

// What becomes of a job in the end.
enum class Kind : uint8_t {
  kRobust,   // its workers are killed and stalled; it finishes
  kFragile,  // is held after a few failures, has none of its own: finishes
  kFailing,  // always fails at the same step, and is held
};

struct Client {
  JobSpec spec;
  VirtualTraining training;
  Kind kind = Kind::kRobust;
  uint64_t asked = 0;  // JobSubmitted::reply_to; 0: to be asked
  bool accepted = false;
};

// The i-th job of a seed.
Client MakeClient(int i, std::mt19937_64& random);

const Client& ClientOf(const std::vector<Client>& clients,
                       const std::string& name);

// Which jobs are not there, or have not ended as they ought to, and why; empty:
// all have. `cancelled`: their users asked for that.
std::string WrongEnds(const std::vector<Client>& clients,
                      const VirtualCluster& cluster,
                      const std::set<JobId>& cancelled);

// Jobs that are held for launches over which agents were lost, or that were not
// heard.
std::vector<JobId> HungLaunches(const Engine& engine);

// What went wrong on the way, by name.
void CountFaultsOf(const VirtualWorld& world,
                   std::map<std::string, uint64_t>& faults);

const char* PolicyOf(uint64_t seed);

// The coordinator that they use; `is_long`: with rounds of minutes.
EngineOptions EngineOf(uint64_t seed, bool is_long);

// Jobs go well together, at either scale factor.
std::shared_ptr<const ThroughputTable> Throughputs();

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_CLIENTS_H_
