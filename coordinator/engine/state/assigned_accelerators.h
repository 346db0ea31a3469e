// Which accelerators are assigned to jobs, and how many of each type are not.
//
// Not thread-safe. Snapshot fields: the jobs of each accelerator; the counts
// are made anew.
#ifndef GAVEL_COORDINATOR_ENGINE_STATE_ASSIGNED_ACCELERATORS_H_
#define GAVEL_COORDINATOR_ENGINE_STATE_ASSIGNED_ACCELERATORS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "coordinator/engine/state/changes.h"
#include "coordinator/jobs/by_accelerator.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "core/ids.h"

namespace gavel::engine {

class AssignedAccelerators {
 public:
  // Borrowed, and outlive this.
  AssignedAccelerators(const Cluster& cluster, Changes& changes)
      : cluster_(cluster), changes_(changes) {}

  // A job gets the accelerator, or gives it up.
  void Add(AcceleratorId accelerator, JobId job);
  void Remove(AcceleratorId accelerator, JobId job);
  // Counts anew, after accelerators have come or gone: anything may be
  // different for any job.
  void Recount();

  std::span<const JobId> JobsOn(AcceleratorId accelerator) const {
    return jobs_.At(accelerator);
  }
  bool IsFree(AcceleratorId accelerator) const;
  // By type: usable and not assigned to anyone.
  const std::vector<int>& free() const { return free_; }
  // The free ones by place. Kept up to date from the first call on; whoever
  // claims or releases there puts it back.
  FreePlaces& Places();

  static auto State(auto& a) { return std::tie(a.jobs_); }

 private:
  void Count(AcceleratorId accelerator, int by);

  const Cluster& cluster_;
  Changes& changes_;
  ByAccelerator<JobId> jobs_;      // Job::assigned
  std::vector<uint8_t> assigned_;  // jobs, by accelerator id - 1
  std::vector<int> free_;
  std::optional<FreePlaces> places_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_STATE_ASSIGNED_ACCELERATORS_H_
