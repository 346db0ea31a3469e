// The two problems inside AlloX: what a second on each accelerator type is
// worth, and the matching of jobs to positions. Called by allox.cc. Pure
// functions, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_ALLOX_H_
#define GAVEL_COORDINATOR_POLICY_ALLOX_H_

#include <cstddef>
#include <span>
#include <vector>

namespace gavel::policy {

// The value of a second of each accelerator type to a mix of jobs: the dual of
// the least makespan, max over p of sum_m min_j p_j t[m][j] with sum_j p_j N_j
// = 1. A division of jobs among types that keeps all types busy to the end has
// every job where p_j t[m][j] is least.
//
// `time_s` [n x J] row-major, accelerator-seconds that each job takes on each
// type, > 0; infinity: it can't run there. `capacity` [J], N_j >= 0.
//
// [J] prices, the dearest 1; 0 where there are no accelerators. To some percent
// (multiplicative weights, a fixed number of steps), O(n J) a step. All 1
// without jobs.
std::vector<double> TypePrices(std::span<const double> time_s,
                               std::span<const int> capacity);

// The assignment problem of AlloX (Le et al., EuroSys'20, section 4): jobs to
// positions in the queues of machines. Machines of a type that become free at
// the same time are alike, so their positions k = 1, 2, ... are one column of
// as many places instead of a column each: a transport problem, whose optimum
// is integral. See MatchPositions.

// Machines that are alike.
struct MachineGroup {
  size_t type = 0;
  double ready_s = 0;  // when they become free, >= 0
  int machines = 0;    // >= 1
};

struct MatchingProblem {
  size_t types = 0;                  // J
  std::vector<MachineGroup> groups;  // by type, then ready_s, all different
  // [n x J] row-major, > 0; kInfinity: cannot run there.
  std::vector<double> time_s;
  // [J] added to each job's from_end: that many more wait for a machine of the
  // type while one is busy. >= 0; empty: 0 each.
  std::vector<double> price;

  size_t jobs() const { return types == 0 ? 0 : time_s.size() / types; }
};

struct Position {
  size_t group = 0;
  // From the end of the queue: 1 runs last and delays itself only, k delays
  // itself and the k - 1 jobs behind it.
  int from_end = 0;  // 0: no machine can run the job
};

struct Matching {
  std::vector<Position> positions;  // by job
  // Sum over jobs of (from_end + price) * time_s + ready_s.
  double cost = 0;
  double bound = 0;  // no matching is cheaper, to rounding: by its duals
};

// The cheapest one, by shortest augmenting paths (Jonker and Volgenant 1987),
// O(n^3) at worst, as only the first empty positions are looked at.
Matching MatchPositions(const MatchingProblem& problem);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_ALLOX_H_
