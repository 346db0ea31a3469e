// Where the process of a worker may be, and have leases, without being started
// anew. Pure functions.
#ifndef GAVEL_COORDINATOR_ENGINE_PROCESS_PLACES_H_
#define GAVEL_COORDINATOR_ENGINE_PROCESS_PLACES_H_

#include <string>
#include <string_view>

#include "coordinator/engine/job.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/workload/job_spec.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/text.h"

namespace gavel {

// Processes that are there without a lease are in the way of others.
inline bool CountsContexts(const AcceleratorInfo& info) {
  return info.memory_bytes > 0 || info.exclusive;
}

// A process of such a job on `info` sees no other accelerator.
inline bool SeesOneOnly(const JobSpec& spec, const AcceleratorInfo& info) {
  return info.device != "cpu" && (info.alone_visible || spec.leased_visibility);
}

// "cuda:0" for "cuda:5": as a process calls the only device that it sees.
inline std::string OnlyDevice(std::string_view device) {
  return StrCat(device.substr(0, device.find(':')), ":0");
}

// The holder of a lease may wait for its next one, parked. The context of a
// parked process would keep all others from an exclusive accelerator.
inline bool MayStayParked(const Worker& holder, const Cluster& cluster) {
  return !cluster.accelerator(holder.held).info.exclusive;
}

// It may go from the lease that it holds to one of `next`.
inline bool MayMove(const Worker& holder, AcceleratorId next,
                    const Cluster& cluster) {
  if (next == holder.held) return true;
  return cluster.accelerator(next).server == holder.server &&
         holder.Sees(next) && MayStayParked(holder, cluster);
}

// Where a process of the job had its last lease, or is to have its first.
// Invalid: it has nothing.
inline AcceleratorId PlaceOf(const Job& job, int rank, const Cluster& cluster) {
  const auto at = static_cast<size_t>(rank);
  const Worker& worker = job.workers[at];
  if (worker.held_epoch != 0) return worker.held;
  if (worker.left_on.valid() || at >= job.assigned.size())
    return worker.left_on;
  const AcceleratorId place = job.assigned[at];
  return cluster.accelerator(place).server == worker.server ? place
                                                            : AcceleratorId();
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_PROCESS_PLACES_H_
