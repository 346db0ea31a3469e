// The ranks of a gang meet at rank 0's store, do each step together or not at
// all, and agree on the step at which they stop by the real protocol
// (runtime/lease/stop_agreement.h), whose messages travel between their
// machines. A rank that can't do its part of a step stops the others at once;
// it breaks the gang if it stays silent or if the step does not end. Used by
// VirtualProcess. Not thread-safe.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_GANG_H_
#define GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_GANG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "core/ids.h"
#include "runtime/lease/stop_agreement.h"
#include "tests/simulation/world/event_queue.h"
#include "tests/simulation/world/virtual_network.h"
#include "tests/simulation/world/world_truth.h"

namespace gavel {

class VirtualProcess;

class VirtualGangs {
 public:
  VirtualGangs(EventQueue& queue, VirtualNetwork& network,
               std::mt19937_64& random)
      : queue_(queue), network_(network), random_(random) {}

  // ---- before it runs
  // True when a gang of `world_size` is complete now.
  bool Join(GangKey key, VirtualProcess& process, int world_size);
  // The processes that have joined and not left, by rank.
  std::map<int, VirtualProcess*> RanksOf(GangKey key) const;
  // Counts a failed meeting of the job; returns the number of earlier ones.
  int CountFailure(JobId job) { return failed_[job]++; }

  // ---- while it runs
  // All ranks have joined, and have done this many steps.
  void Begin(GangKey key, uint64_t steps_done);
  // Like StopMember::Pass, for the rank at the boundary after `steps_done`.
  // After kWait the rank is asked to attend again when it has heard more.
  StopMember::Passage Pass(GangKey key, int rank, uint64_t steps_done);
  void Want(GangKey key, int rank, StopKind kind);
  // The rank begins its next step, which ends when it has ended for all ranks.
  void BeginStep(GangKey key, int rank);

  void Leave(GangKey key, int rank, Leaving how);

 private:
  struct Rank {
    VirtualProcess* process = nullptr;  // null: it has left
    size_t server = 0;
    std::optional<StopMember> member;  // none: the gang does not run
    std::optional<MemberWord> word;    // the last that the store has
    bool waits = false;
    uint64_t talk = 0;  // only the latest talk that is due counts
  };
  struct Gang {
    std::map<int, Rank> ranks;
    std::optional<StopLeader> leader;
    LeaderWord leader_word;
    uint64_t steps_done = 0;
    std::set<int> in_step;
    Time brisk_until = 0;  // until then words are sent often
  };

  Gang* Find(GangKey key);
  // [0, 1)
  double Draw() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  bool Reach(const Rank& a, const Rank& b) const;
  void Quicken(GangKey key, Gang& gang);
  void ArmTalk(GangKey key, Gang& gang, int rank);
  void Talk(GangKey key, int rank);
  void Hear(GangKey key, int rank, const LeaderWord& word);
  void EndStep(GangKey key, uint64_t steps_done, Time give_up);
  void Break(GangKey key);

  EventQueue& queue_;
  VirtualNetwork& network_;
  std::mt19937_64& random_;
  std::map<GangKey, Gang> gangs_;
  std::map<JobId, int> failed_;
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_GANG_H_
