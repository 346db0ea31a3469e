// The truth about the simulated world, whatever the engine, the agents and the
// lease machines believe: which process uses an accelerator, which leases run,
// which steps are safe on disk. Shares no code with them and reports where they
// are wrong. Used by VirtualCluster. Not thread-safe.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_WORLD_TRUTH_H_
#define GAVEL_TESTS_SIMULATION_WORLD_WORLD_TRUTH_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/generation.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

using GangKey = std::pair<JobId, uint64_t>;  // job and epoch

class WorldTruth {
 public:
  // The violations so far, in the order in which they were seen. A correct run
  // has none.
  const std::vector<std::string>& violations() const { return violations_; }
  void Violation(Time now, const std::string& what);

  // ---- accelerators, by uuid
  void AddAccelerator(const std::string& uuid, uint64_t memory_bytes);
  // Takes one of the accelerator's two slots or both, as its locks would give
  // them. False, and a violation, when they are not free.
  bool Take(Time now, const WorkerKey& worker, const std::string& uuid,
            int slots);
  void Free(const WorkerKey& worker, const std::string& uuid);
  // `worker` uses `bytes` of the accelerator's memory from now on.
  void Hold(Time now, const WorkerKey& worker, const std::string& uuid,
            uint64_t bytes);
  bool any_in_use() const;

  // ---- leases
  // A grant left the coordinator. It is over at `until` by every clock.
  void Granted(const WorkerKey& worker, uint64_t epoch, Time until);
  // `worker` goes from one step to the next under the lease of `epoch`.
  void Boundary(Time now, const WorkerKey& worker, uint64_t epoch);

  // ---- gangs
  // The rank is at a boundary that all ranks agreed on, for a checkpoint or to
  // stop there. All ranks must pass the same boundaries in the same order.
  void Agreed(Time now, GangKey gang, int rank, uint64_t step, bool stops);
  // The rank begins `step` (1 is the first). No rank may stop before it.
  void BeganStep(Time now, GangKey gang, int rank, uint64_t step);

  // ---- checkpoints
  void Committed(JobId job, Generation generation);
  // The latest generation can't be read any more; `rest` is the latest of the
  // others.
  void Damaged(JobId job, Generation rest);
  // A process starts from `generation`, which must not be older than the
  // latest.
  void Restored(Time now, const WorkerKey& worker, Generation generation);
  // The latest generation on disk, by (epoch, step).
  Generation LatestOf(JobId job) const;
  // The most steps that any checkpoint of the job ever had.
  uint64_t StepsSaved(JobId job) const;

  // ---- the journal
  // A row is on disk, after all rows before it.
  void Journaled(Time now, uint64_t seq, uint64_t term);

  // ---- processes
  // The agent's incarnation `life` starts the worker's process.
  void Spawned(Time now, const std::string& server, uint64_t life,
               const WorkerKey& worker);

 private:
  struct Agreement {
    std::vector<uint64_t> steps;  // boundaries, in order
    std::map<int, size_t> seen;   // by rank
    std::map<int, uint64_t> stopped_at, begun;
  };
  struct Accelerator {
    uint64_t memory_bytes = 0;  // 0: not known
    std::map<WorkerKey, int> slots;
    std::map<WorkerKey, uint64_t> memory;
  };

  std::vector<std::string> violations_;
  std::map<std::string, Accelerator> accelerators_;
  std::map<std::pair<WorkerKey, uint64_t>, Time> granted_until_;
  uint64_t seq_ = 0, term_ = 0;  // of the journal's last row
  std::map<JobId, std::pair<uint64_t, uint64_t>> latest_;  // (epoch, step)
  std::map<JobId, uint64_t> steps_saved_;
  std::map<GangKey, Agreement> agreements_;
  std::set<std::pair<std::pair<std::string, uint64_t>, WorkerKey>> spawned_;
};

// For example "job 3 rank 0 #2".
std::string NameOf(const WorkerKey& worker);

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_WORLD_TRUTH_H_
