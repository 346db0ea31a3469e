// The ranks of a gang: they meet at rank 0's store, step together or not at
// all, and stop at the same step. One that can't be heard any more stops the
// others at once, and breaks the gang after a silence. Used by VirtualProcess;
// the agreement itself is tested in tests/lease. Not thread-safe.
#ifndef GAVEL_SIMULATOR_VIRTUAL_GANG_H_
#define GAVEL_SIMULATOR_VIRTUAL_GANG_H_

#include <cstdint>
#include <map>
#include <utility>

#include "core/ids.h"
#include "simulator/event_queue.h"

namespace gavel {

class VirtualProcess;

class VirtualGangs {
 public:
  // Those that have met, or wait for each other, under one epoch.
  struct Gang {
    std::map<int, VirtualProcess*> ranks;
    bool running = false;
    Time frozen_at = kNever;  // some rank is not heard; nobody steps since
  };

  explicit VirtualGangs(EventQueue& queue) : queue_(queue) {}

  // True when a gang of `world_size` is complete now.
  bool Join(JobId job, uint64_t epoch, VirtualProcess& process, int world_size);
  Gang* Find(JobId job, uint64_t epoch);
  void Leave(JobId job, uint64_t epoch, int rank);
  // The job's meetings that came to nothing, one more.
  int CountFailure(JobId job) { return failed_[job]++; }
  // Somebody stalled, came back, hangs, or was cut off.
  void Update();

 private:
  static bool IsWhole(const Gang& gang);
  void Freeze(std::pair<JobId, uint64_t> key, Gang& gang);
  void Thaw(Gang& gang);

  EventQueue& queue_;
  std::map<std::pair<JobId, uint64_t>, Gang> gangs_;
  std::map<JobId, int> failed_;
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_VIRTUAL_GANG_H_
