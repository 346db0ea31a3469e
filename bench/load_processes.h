// Runs fleets (load_fleet.h) in several processes, so that thousands of
// connections have enough descriptors and I/O threads. A bare ROUTER in another
// process answers the same workers without a coordinator. All count in shared
// memory. Used only by the programs of this folder. Not thread-safe.
#ifndef GAVEL_BENCH_LOAD_PROCESSES_H_
#define GAVEL_BENCH_LOAD_PROCESSES_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/load_fleet.h"
#include "runtime/transport/curve.h"

namespace gavel::bench {

class FleetProcesses {
 public:
  // Forks `processes` processes, each with its part of the servers. Must be
  // called before this process has threads. The processes wait for Start.
  FleetProcesses(int processes, const FleetOptions& options);
  ~FleetProcesses();  // kills them
  FleetProcesses(const FleetProcesses&) = delete;
  FleetProcesses& operator=(const FleetProcesses&) = delete;

  void Start(const std::string& endpoint);
  // Waits until `done` returns true, for at most `timeout_s`. Returns whether
  // it did. Ends the program when a process of the fleet has ended.
  bool Wait(double timeout_s, const std::function<bool()>& done);

  // Sums over all processes of the values of load_fleet.h; they are up to some
  // 20 ms old.
  int workers() const;
  int running() const;
  int heard_of_term(uint64_t term) const;
  uint64_t term() const;
  uint64_t pauses() const;
  uint64_t leases_ended() const;
  uint64_t shared_accelerators() const;
  // The seconds of renewals that were answered since ClearRenewals.
  void ClearRenewals();
  std::vector<double> renewals_s() const;

 private:
  struct Shared;
  struct Part {
    pid_t pid = 0;
    Shared* shared = nullptr;
    uint32_t cleared = 0;  // renewals that no longer count
  };
  template <class T>
  T Sum(std::atomic<T> Shared::*count) const;
  std::vector<Part> parts_;
};

// Grants every lease that it is asked for, and does nothing else.
class BarePeer {
 public:
  // Forks, as FleetProcesses does. `keys` is its own key pair; without it,
  // connections are not encrypted.
  BarePeer(const std::optional<CurveKeyPair>& keys, double lease_s);
  ~BarePeer();
  BarePeer(const BarePeer&) = delete;
  BarePeer& operator=(const BarePeer&) = delete;
  std::string endpoint() const;
  pid_t pid() const { return pid_; }

 private:
  struct Shared;
  Shared* shared_;
  pid_t pid_ = 0;
};

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_LOAD_PROCESSES_H_
