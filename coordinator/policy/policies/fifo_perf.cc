// First in, first out, aware of throughputs (the FIFO of Gavel section 7), and
// the same with packing (space sharing, Gavel section 3.1).
//
// In order of arrival each job takes the type with its highest throughput among
// those with enough free accelerators, ties to the first type. The queue stops
// at the first job that no type has room for. A job that is slow to the point
// of 0 steps/s on all types with room waits for another one without stopping
// the queue. Everything is decided anew each time: when a fast type becomes
// free, the earliest job moves there.
//
// fifo_packed: a job that no type has room for joins the job, alone on its
// accelerators and of the same scale factor, with which the sum of normalised
// throughputs on that type is highest, if above 1.5; the queue stops at the
// first job that can do neither. The original drops the first job that does not
// fit from its queue before it packs the ones behind it; here it is packed
// first, and a job behind it that has room of its own takes it.
#include <algorithm>
#include <optional>
#include <vector>

#include "coordinator/policy/assigner.h"
#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {
namespace {

// Packing must gain this much: the original's threshold.
constexpr double kPackingGainMin = 1.5;

bool SomeTypeHasRoom(const Assigner& assigner, size_t job) {
  for (size_t type = 0; type < assigner.types(); ++type) {
    if (assigner.HasRoom(job, type)) return true;
  }
  return false;
}

// A unit on its accelerators; alone while it has no partner.
struct Placed {
  size_t job = 0;
  size_t type = 0;
  std::optional<size_t> partner;
};

// Of those that are alone, the one to share with; null where none gains enough.
Placed* BestToJoin(const Assigner& assigner, size_t job,
                   std::vector<Placed>& placed) {
  Placed* best = nullptr;
  double most = kPackingGainMin;
  for (Placed& other : placed) {
    if (other.partner) continue;
    const double sum = assigner.PackedThroughput(other.job, job, other.type);
    if (sum <= most) continue;
    most = sum;
    best = &other;
  }
  return best;
}

// The units that run when the queue stops. Room is taken from `assigner`.
std::vector<Placed> PlaceAndPack(Assigner& assigner) {
  std::vector<Placed> placed;
  for (const size_t job : assigner.queue()) {
    if (SomeTypeHasRoom(assigner, job)) {
      const std::optional<size_t> type = assigner.BestFit(job);
      if (!type) continue;
      assigner.HoldBack(*type, assigner.Job(job).scale_factor);
      placed.push_back({job, *type, std::nullopt});
    } else if (Placed* other = BestToJoin(assigner, job, placed)) {
      other->partner = job;
    } else {
      break;
    }
  }
  return placed;
}

}  // namespace

PolicyResult SolveFifoPerf(const PolicyProblem& problem) {
  Assigner assigner(problem);
  for (const size_t job : assigner.queue()) {
    if (const auto type = assigner.BestFit(job)) {
      assigner.Assign(job, *type);
    } else if (!SomeTypeHasRoom(assigner, job)) {
      break;
    }
  }
  return assigner.Result("greedy");
}

PolicyResult SolveFifoPacked(const PolicyProblem& problem) {
  Assigner planner(problem);
  Assigner assigner(problem);
  for (const Placed& unit : PlaceAndPack(planner)) {
    if (unit.partner) {
      assigner.AssignPair(unit.job, *unit.partner, unit.type);
    } else {
      assigner.Assign(unit.job, unit.type);
    }
  }
  return assigner.Result("greedy");
}

}  // namespace gavel::policy
