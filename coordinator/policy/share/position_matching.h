// The assignment problem of AlloX (Le et al., EuroSys'20, section 4): jobs to
// positions in the queues of machines. Machines of a type that become free at
// the same time are alike, so their positions k = 1, 2, ... are one column of
// as many places instead of a column each: a transport problem, whose optimum
// is integral. Called by allox.cc. Pure function, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_SHARE_POSITION_MATCHING_H_
#define GAVEL_COORDINATOR_POLICY_SHARE_POSITION_MATCHING_H_

#include <cstddef>
#include <vector>

namespace gavel::policy {

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

#endif  // GAVEL_COORDINATOR_POLICY_SHARE_POSITION_MATCHING_H_
