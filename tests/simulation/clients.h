// The users of the simulated cluster: jobs of several kinds, and how each has
// to end.
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

// How a job behaves, and how it has to end.
enum class Kind : uint8_t {
  kRobust,   // its workers are killed and stalled; it finishes
  kFragile,  // would be held after a few failures of its own; finishes
  kFailing,  // always fails at the same step, and is held
  // A shell: its program ends, or it is idle for too long.
  kInteractive,
};

struct Client {
  JobSpec spec;
  VirtualTraining training;
  Kind kind = Kind::kRobust;
  uint64_t asked = 0;  // JobSubmitted::reply_to; 0: not submitted yet
  bool accepted = false;
};

// The jobs of a seed may have further parts to play.
struct ClientTraits {
  bool bids = false;   // they belong to apps, which bid themselves
  bool alone = false;  // and some jobs are apps of their own
  bool tries = false;  // pairs of them are slow, or not in the table
};
inline constexpr int kApps = 3;
std::string AppOf(int number);  // 0 to kApps - 1

// The i-th job of a seed. `traits` draw no random number.
Client MakeClient(int i, const ClientTraits& traits, std::mt19937_64& random);

// Lets some of the jobs wait for the one before, unless that is held in the
// end. `arrays`: some of them are arrays.
void AddParents(std::vector<Client>& clients, bool arrays);
// The i-th interactive job of a seed.
Client MakeShell(int i);

// The client of the job, or of the element of its array, of that name.
const Client& ClientOf(const std::vector<Client>& clients,
                       const std::string& name);

// Describes the jobs that are missing or have not ended as they should; empty
// if there are none. `cancelled` are the jobs that their users cancelled.
std::string WrongEnds(const std::vector<Client>& clients,
                      const VirtualCluster& cluster,
                      const std::set<JobId>& cancelled);

// Its time_limit has ended it.
bool IsAtLimit(const Job& job);

// Jobs that are held because of hung launches, or because their processes never
// reported.
std::vector<JobId> HungLaunches(const Engine& engine);

// Writes into `faults` how often each fault of the world occurred, by name.
void CountFaultsOf(const VirtualWorld& world,
                   std::map<std::string, uint64_t>& faults);

std::string PolicyOf(uint64_t seed);
// The same for the jobs of the seed under that policy.
ClientTraits TraitsOf(uint64_t seed, const std::string& policy);

// Counts the auctions and trials that were there to be checked, by name.
std::map<std::string, uint64_t> ChecksOf(const VirtualCluster& cluster);

// The options of the coordinator. With `is_long`, rounds take more than a
// minute.
EngineOptions EngineOf(uint64_t seed, bool is_long);

// Jobs share accelerators well, at either scale factor.
std::shared_ptr<const ThroughputTable> Throughputs();

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_CLIENTS_H_
