// Makes clusters and units, and checks the rules that every round must keep.
#ifndef GAVEL_TESTS_MECHANISM_ROUND_FIXTURE_H_
#define GAVEL_TESTS_MECHANISM_ROUND_FIXTURE_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/mechanism.h"

namespace gavel::testing {

inline std::vector<std::string> Gpus(size_t count) {
  return std::vector<std::string>(count, "gpu");
}

inline constexpr RoundOptions kMoveAware{.mechanism =
                                             MechanismKind::kMoveAware};

using Servers = std::vector<std::pair<std::string, std::vector<std::string>>>;

// Servers by name with the types of their accelerators, joined in this order:
// the first accelerator of the first server has id 1.
Cluster MakeCluster(const Servers& servers);

// The units of jobs with these ids.
ShareUnit Alone(uint64_t job);
ShareUnit Pair(uint64_t job, uint64_t partner);

// MakeUnit makes a single job that can run wherever its share is above zero and
// has received no time yet; MakePair makes two packed jobs.
RoundUnit MakeUnit(uint64_t id, int scale_factor, std::vector<double> share);
RoundUnit MakePair(uint64_t job, uint64_t partner, int scale_factor,
                   std::vector<double> share);

// Makes the units hold what the round assigned to them.
void Hold(const RoundAssignment& assignment, std::vector<RoundUnit>& units);

inline RoundAssignment PlanRound(const Cluster& cluster,
                                 const std::vector<RoundUnit>& units,
                                 const RoundOptions& options) {
  return gavel::PlanRound(cluster, RoundTable(units), options);
}
// Places the units of `type_of_unit` on their types; the other units wait.
RoundAssignment PlaceAssignment(
    const Cluster& cluster, const std::vector<RoundUnit>& units,
    const std::map<ShareUnit, size_t>& type_of_unit);

// The type of the accelerators that the unit holds and may keep, or kNoIndex.
uint32_t TypeHeld(const Cluster& cluster, const RoundUnit& unit);

std::vector<AcceleratorId> Ids(const std::vector<uint64_t>& ids);

// Lists everything wrong with a round: an accelerator or a job that occurs
// twice, a gang that is incomplete or on two types, an accelerator that is not
// usable, a type that the unit can't use. Empty if the round is right.
std::string RoundErrors(const Cluster& cluster,
                        const std::vector<RoundUnit>& units,
                        const RoundAssignment& assignment);

// Lists every unit that waits although some type has room for it and none of
// its jobs runs.
std::string IdleErrors(const Cluster& cluster,
                       const std::vector<RoundUnit>& units,
                       const RoundAssignment& assignment);

// A cluster of 1-3 types and 1-6 servers of 1-4 accelerators.
Cluster RandomCluster(std::mt19937_64& random);
// "server-0" and so on, 1 to 4 accelerators in each, of types a and b mixed.
Cluster MixedServers(size_t count, std::mt19937_64& random);

// Single workers whose shares use all of `cluster`, as a linear program shares
// it: type after type, so that few of the jobs have two types. With more jobs
// than accelerators, shares are below 1.
std::vector<RoundUnit> SaturatedUnits(const Cluster& cluster, size_t jobs,
                                      std::mt19937_64& random);

// Jobs with feasible shares (rows and types within their limits) on `cluster`;
// `pairs` of them, drawn at random, are packed too.
std::vector<RoundUnit> RandomUnits(const Cluster& cluster, size_t jobs,
                                   int scale_factor_max,
                                   std::mt19937_64& random, size_t pairs = 0);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_MECHANISM_ROUND_FIXTURE_H_
