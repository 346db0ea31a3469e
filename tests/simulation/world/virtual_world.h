// What the machines of a VirtualCluster share: time, chance, the network, the
// disks, and the truth about it all. Not thread-safe.
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
#include "tests/simulation/world/event_queue.h"
#include "tests/simulation/world/virtual_checkpoints.h"
#include "tests/simulation/world/virtual_gang.h"
#include "tests/simulation/world/virtual_network.h"
#include "tests/simulation/world/world_truth.h"

namespace gavel {

// How a job behaves when it runs.
struct VirtualTraining {
  uint64_t steps_total = 100;
  // steps/s by accelerator type; a type that is not named: 1.
  std::map<std::string, double> steps_per_s;
  // With so many workers, times that; a number that is not named: 1.
  std::map<int, double> speed_up = {};
  double start_s = 0.3;  // exec to hello, restore included
  double park_s = 0.05;  // boundary to released
  double keep_s = 0.05;  // the same when it is kept on the accelerator
  // Granted to running: where it was kept, else from host memory. What comes
  // back from the disk starts anew, start_s.
  double resume_kept_s = 0;
  double resume_parked_s = 0;
  uint64_t state_bytes = 0;       // on the accelerator or in host memory
  double checkpoint_s = 0.1;      // after the release; then it is durable
  double checkpoint_every_s = 0;  // while it runs; 0: not
  // Exits with this code at this step of its first incarnations.
  int fail_code = 0;
  uint64_t fail_at_step = 0;
  int fail_incarnations = 0;
  bool ignores_pauses = false;  // never reaches a boundary
  bool in_shell = false;        // that ends with 0 whatever it ends with
  // Of a gang: rank 0's store opens after this; whoever waits for the others
  // longer than the time-out gives its lease back; and a rank whose gang has
  // lost one ends with 75 after this. A step that does not end for the silence
  // is given up by all.
  double gang_open_s = 0.05;
  double gang_timeout_s = 3;
  double gang_abort_s = 0.2;
  double gang_silence_s = 5;
  int gang_failures = 0;  // so many of its meetings come to nothing
};

// Of the disks that checkpoints go to. Probabilities are by attempt.
struct CheckpointFaults {
  double fail = 0;  // ENOSPC, a failed fsync: the old ones stay
  double late = 0;  // takes up to late_s_max longer
  double late_s_max = 0;
  uint64_t failed = 0, delayed = 0;  // counts
};

// Of the coordinator that says it; 0: the message does not tell.
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
  // A line of the story; `make` is called where somebody listens.
  template <class F>
  void Tell(F make) const {
    if (story) story(now(), make());
  }

  EventQueue queue;
  std::mt19937_64 random;
  VirtualNetwork network;
  WorldTruth truth;
  std::map<JobId, VirtualCheckpoints> checkpoints;
  CheckpointFaults checkpoint_faults;
  VirtualGangs gangs;
  std::map<std::string, VirtualTraining> training;  // by job name
  std::set<std::string> broken;  // accelerators that fail whoever takes them
  uint64_t refused = 0;          // how often that was
  // To the coordinator, over the network.
  std::function<void(size_t server, Message)> to_coordinator;
  std::function<void(Time, const std::string&)> story;
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_WORLD_H_
