// Checks the invariants of the engine, which hold after every step
// (docs/reliability.md). Tests call Check after each Step. Not thread-safe.
#ifndef GAVEL_TESTS_ENGINE_INVARIANTS_H_
#define GAVEL_TESTS_ENGINE_INVARIANTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"

namespace gavel {

class Invariants {
 public:
  // Checks the engine after a Step at `now` that returned `actions`, also
  // against its records of earlier steps. Returns one sentence for each broken
  // invariant, naming the job or accelerator; empty if all hold.
  std::vector<std::string> Check(Time now, const Engine& engine,
                                 const Actions& actions);
  // The rows up to `seq` are on disk. The engine may promise nothing that
  // depends on a later row.
  void Persisted(uint64_t seq);
  // A new engine was recovered from the journal. Rows that were not on disk
  // never took effect, so counters may have fallen. Leases that were granted
  // stay granted.
  void Restarted();

  // Jobs that these actions release may start before their parents and times.
  // Check does so itself; this is for releases that another coordinator took.
  void NoteReleases(const Actions& actions);

 private:
  void NoteTerm(const Actions& actions);
  void CheckLeases(const Engine& engine);
  void CheckLeaseEnds(Time now, const Engine& engine);
  void CheckAssignments(const Engine& engine);
  void CheckParents(const Engine& engine);
  void CheckArrays(const Engine& engine);
  void CheckTimes(Time now, const Engine& engine);
  void CheckInteractive(const Engine& engine);
  void CheckGrowth(Time now, const Engine& engine);
  void CheckMonotonic(Time now, const Engine& engine);
  void CheckActions(Time now, const Engine& engine, const Actions& actions);
  void CheckGrant(Time now, const Engine& engine, const LeaseGrant& grant);
  void CheckPause(const Engine& engine, const PauseRequest& pause);
  bool IsReleased(const Job& job) const;
  void Broken(std::string what);

  std::vector<std::string> broken_;
  std::map<JobId, double> received_s_;
  std::map<JobId, uint64_t> epochs_;
  std::map<JobId, std::vector<AcceleratorId>> had_;
  // (worker, epoch) -> incarnation that was granted it first.
  std::map<std::pair<WorkerId, uint64_t>, uint64_t> granted_;
  std::map<JobId, Time> kept_out_since_;
  struct Lease {
    uint64_t epoch = 0;       // held; 0: none
    uint64_t given_back = 0;  // the last epoch that was
    Time horizon = 0;         // the furthest that the engine saw while held
  };
  std::map<WorkerId, Lease> leases_;
  std::set<JobId> released_;      // by a command, perhaps before their time
  std::set<WorkerKey> launched_;  // and have not spoken
  uint64_t term_ = 0;
  uint64_t term_seq_ = 0;  // of the row that began it
  uint64_t persisted_ = 0;
  bool flushing_ = false;  // what leaves now was decided in earlier steps
  uint64_t seq_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_TESTS_ENGINE_INVARIANTS_H_
