// The network between the coordinator and the servers. Messages get lost, come
// twice, late and in another order, and servers are cut off, in one direction
// or in both. Used by VirtualCluster. Not thread-safe.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_NETWORK_H_
#define GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_NETWORK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "tests/simulation/world/event_queue.h"

namespace gavel {

// Probabilities are per message, in [0, 1].
struct NetworkFaults {
  double drop = 0;
  double duplicate = 0;
  double delay_s_min = 0.0005;
  double delay_s_max = 0.0005;  // above the least: messages overtake
  // The probability that a message takes up to late_s_max, as if a connection
  // held it back for a while.
  double late = 0;
  double late_s_max = 0;
};

enum class Direction : uint8_t { kToServer = 0, kFromServer = 1 };

class VirtualNetwork {
 public:
  struct Counts {
    uint64_t sent = 0, lost = 0, doubled = 0, late = 0, cut_off = 0;
  };

  VirtualNetwork(EventQueue& queue, std::mt19937_64& random)
      : queue_(queue), random_(random) {}

  void set_faults(const NetworkFaults& faults) { faults_ = faults; }
  size_t AddServer() {
    cut_.push_back({false, false});
    return cut_.size() - 1;
  }
  void SetCut(size_t server, Direction direction, bool cut) {
    cut_[server][static_cast<size_t>(direction)] = cut;
  }
  // Whether the server reaches other machines and they reach it.
  bool IsConnected(size_t server) const {
    return !cut_[server][0] && !cut_[server][1];
  }
  const Counts& counts() const { return counts_; }

  // The delay of data on a connection between two servers. None of it is lost:
  // data that the network drops comes later.
  double ConnectionDelay() {
    constexpr double kAgain_s_max = 1;
    const bool again = Happens(faults_.drop + faults_.late);
    return faults_.delay_s_min +
           Draw() * (faults_.delay_s_max - faults_.delay_s_min) +
           (again ? Draw() * kAgain_s_max : 0);
  }

  // `arrive` is called when the message arrives: never, once or twice.
  template <class F>
  void Send(size_t server, Direction direction, F arrive) {
    ++counts_.sent;
    if (Happens(faults_.duplicate)) {
      ++counts_.doubled;
      SendOne(server, direction, arrive);
    }
    SendOne(server, direction, std::move(arrive));
  }

 private:
  // [0, 1)
  double Draw() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  bool Happens(double probability) {
    return probability > 0 && Draw() < probability;
  }
  double Delay() {
    double delay = faults_.delay_s_min;
    if (faults_.delay_s_max > faults_.delay_s_min) {
      delay += Draw() * (faults_.delay_s_max - faults_.delay_s_min);
    }
    if (Happens(faults_.late)) {
      ++counts_.late;
      delay += Draw() * faults_.late_s_max;
    }
    return delay;
  }
  template <class F>
  void SendOne(size_t server, Direction direction, F arrive) {
    if (Happens(faults_.drop)) {
      ++counts_.lost;
      return;
    }
    queue_.After(Delay(), [this, server, direction,
                           arrive = std::move(arrive)]() mutable {
      if (cut_[server][static_cast<size_t>(direction)]) {
        ++counts_.cut_off;
      } else {
        arrive();
      }
    });
  }

  EventQueue& queue_;
  std::mt19937_64& random_;
  NetworkFaults faults_;
  std::vector<std::array<bool, 2>> cut_;  // by server and Direction
  Counts counts_;
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_NETWORK_H_
