// Clusters, jobs and the rules that every round must keep.
#ifndef GAVEL_TESTS_MECHANISM_ROUND_FIXTURE_H_
#define GAVEL_TESTS_MECHANISM_ROUND_FIXTURE_H_

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/jobs/cluster.h"
#include "coordinator/mechanism/mechanism.h"

namespace gavel::testing {

using Servers = std::vector<std::pair<std::string, std::vector<std::string>>>;

// Servers by name with the types of their accelerators, joined in this order:
// the first accelerator of the first server has id 1.
Cluster MakeCluster(const Servers& servers);

// A job that can run wherever its share is above zero, and has received
// nothing.
RoundJob MakeJob(uint64_t id, int scale_factor, std::vector<double> share);

// What is held after a round.
void Hold(const RoundAssignment& assignment, std::vector<RoundJob>& jobs);

std::vector<AcceleratorId> Ids(const std::vector<uint64_t>& ids);

// Everything wrong with a round: an accelerator twice, a gang incomplete or on
// two types, one that is not usable, a type that the job can't use. Empty:
// right.
std::string RoundErrors(const Cluster& cluster,
                        const std::vector<RoundJob>& jobs,
                        const RoundAssignment& assignment);

// A cluster of 1-3 types and 1-6 servers of 1-4 accelerators.
Cluster RandomCluster(std::mt19937_64& random);

// Jobs with feasible shares (rows and types within their limits) on `cluster`.
std::vector<RoundJob> RandomJobs(const Cluster& cluster, size_t count,
                                 int scale_factor_max, std::mt19937_64& random);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_MECHANISM_ROUND_FIXTURE_H_
