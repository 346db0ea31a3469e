// The state that the machines of a VirtualCluster share: time, chance, the
// network, the disks, and the truth about it all. Not thread-safe.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_WORLD_H_
#define GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <variant>

#include "core/messages.h"
#include "tests/simulation/world/auction_truth.h"
#include "tests/simulation/world/event_queue.h"
#include "tests/simulation/world/virtual_checkpoints.h"
#include "tests/simulation/world/virtual_gang.h"
#include "tests/simulation/world/virtual_network.h"
#include "tests/simulation/world/world_truth.h"

namespace gavel {

// How a job behaves when it runs.
struct VirtualTraining {
  uint64_t steps_total = 100;
  // steps/s by accelerator type; 1 for a type that is not named.
  std::map<std::string, double> steps_per_s;
  // The factor on steps_per_s by number of workers; 1 for a number that is not
  // named.
  std::map<int, double> speed_up = {};
  double packed_pace = 1;  // the factor while it shares its accelerators
  double start_s = 0.3;    // exec to hello, restore included
  double park_s = 0.05;    // boundary to released
  double keep_s = 0.05;    // the same when it is kept on the accelerator
  // Seconds from the grant to running, with the state kept on the accelerator
  // or parked in host memory. A process whose state is on disk starts anew,
  // which takes start_s.
  double resume_kept_s = 0;
  double resume_parked_s = 0;
  uint64_t state_bytes = 0;       // on the accelerator or in host memory
  double checkpoint_s = 0.1;      // after the release; then it is durable
  double checkpoint_every_s = 0;  // while it runs; 0: not
  // The process exits with this code at this step, in its first incarnations.
  int fail_code = 0;
  uint64_t fail_at_step = 0;
  int fail_incarnations = 0;
  bool ignores_pauses = false;  // never reaches a boundary
  bool in_shell = false;        // its shell exits with 0, whatever it does
  // Without the runtime: it uses its accelerator from its start, for so long.
  double opaque_s = 0;  // 0: it links the runtime
  // Gangs only. Rank 0's store opens after gang_open_s. A rank that waits for
  // the others longer than gang_timeout_s gives its lease back. A rank whose
  // gang has lost one exits with 75 after gang_abort_s. All ranks give up a
  // step that is gang_silence_s late because one of them is silent.
  double gang_open_s = 0.05;
  double gang_timeout_s = 3;
  double gang_abort_s = 0.2;
  double gang_silence_s = 5;
  int gang_failures = 0;  // so many of its meetings fail
};

// Faults of the disks that checkpoints go to. Probabilities are per attempt.
struct CheckpointFaults {
  double fail = 0;  // ENOSPC, a failed fsync: the old ones stay
  double late = 0;  // takes up to late_s_max longer
  double late_s_max = 0;
  uint64_t failed = 0, delayed = 0;  // counts
};

// The term of the coordinator that sent the message; 0 when the message does
// not say.
inline uint64_t TermOf(const Message& message) {
  return std::visit(
      []<class M>(const M& m) -> uint64_t {
        if constexpr (requires { m.position.term; }) return m.position.term;
        return 0;
      },
      message);
}

struct VirtualWorld {
  explicit VirtualWorld(uint64_t seed)
      : random(seed), network(queue, random), gangs(queue, network, random) {}

  Time now() const { return queue.now(); }
  // [0, 1)
  double Draw() { return static_cast<double>(random() >> 11) * 0x1.0p-53; }
  bool Happens(double probability) {
    return probability > 0 && Draw() < probability;
  }
  // Adds a line to the story; `make` is called only when somebody listens.
  template <class F>
  void Tell(F make) const {
    if (story) story(now(), make());
  }

  EventQueue queue;
  std::mt19937_64 random;
  VirtualNetwork network;
  WorldTruth truth;
  AuctionTruth auctions{truth};
  std::map<JobId, VirtualCheckpoints> checkpoints;
  CheckpointFaults checkpoint_faults;
  VirtualGangs gangs;
  std::map<std::string, VirtualTraining> training;  // by job name
  std::set<std::string> broken;  // accelerators that nobody can use
  uint64_t refused = 0;          // how often one of them was tried
  // Sends a message to the coordinator over the network.
  std::function<void(size_t server, Message)> to_coordinator;
  std::function<void(Time, const std::string&)> story;
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_WORLD_H_
