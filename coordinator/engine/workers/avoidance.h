// The accelerators that a job avoids: where its process failed or found no room
// it goes again only where there is no other of the type, for some time; what
// it could not use it does not get again. Told by the parts that apply what
// workers said; the planner of rounds hands it to the mechanism.
//
// Not thread-safe. Snapshot fields: all.
#ifndef GAVEL_COORDINATOR_ENGINE_WORKERS_AVOIDANCE_H_
#define GAVEL_COORDINATOR_ENGINE_WORKERS_AVOIDANCE_H_

#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "coordinator/jobs/cluster.h"
#include "coordinator/mechanism/round_table.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

class Avoidance {
 public:
  // What made a job avoid an accelerator may be over by then.
  static constexpr double kAvoid_s = 600;

  // Borrowed, and outlives this.
  explicit Avoidance(const Cluster& cluster) : cluster_(cluster) {}

  void Avoid(Time now, JobId job, AcceleratorId where);
  // It is not to have it any more.
  void KeepOut(JobId job, AcceleratorId where) { until_[job][where] = kNever; }
  // It ran there: it may again, unless it is kept out.
  void NoteGoodEnd(JobId job, AcceleratorId where);
  void Forget(JobId job) { until_.erase(job); }
  void Forget(AcceleratorId accelerator);

  bool any() const { return !until_.empty(); }
  // Of some accelerator; and of which.
  bool IsKeptOut(JobId job) const { return !KeptOutOf(job).empty(); }
  std::vector<AcceleratorId> KeptOutOf(JobId job) const;
  bool Avoids(Time now, JobId job, AcceleratorId where) const;
  // How many usable ones of the type it is not kept out of.
  int CountLeft(JobId job, size_t type) const;
  // As the mechanism takes it.
  std::map<JobId, RoundTable::Avoided> At(Time now) const;

  static auto State(auto& part) { return std::tie(part.until_); }

 private:
  using Until = std::map<AcceleratorId, Time>;  // kNever: it is kept out

  const Cluster& cluster_;
  std::map<JobId, Until> until_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_WORKERS_AVOIDANCE_H_
