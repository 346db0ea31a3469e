// What all processes of this machine take of the simulated devices, and which
// faults these have: in a file that they map, so that several processes fill a
// device together, and a test can break a device under a running one. What a
// process has taken is free when it is gone.
#ifndef GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_SHARED_MEMORY_H_
#define GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_SHARED_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace gavel::simulated {

enum class Fault : int32_t {
  kNone = 0,
  kAtSet,     // choosing the device fails
  kAtLaunch,  // each kernel fails
  kSticky,    // a kernel has failed: all calls of the device fail
};

struct Holder {
  int pid = 0;
  uint64_t bytes = 0;  // with its context
};

// Thread-safe, and for several processes.
class SharedMemory {
 public:
  // `file` empty: of this process alone. `first`: of the devices, which the
  // functions below call 0. Throws c10::Error.
  SharedMemory(const std::string& file, uint64_t memory_bytes, int first = 0);

  // False: the device is full.
  bool Take(int device, uint64_t bytes);
  void GiveBack(int device, uint64_t bytes);
  // Of all processes that live, in bytes.
  uint64_t Used(int device) const;
  std::vector<Holder> Holders(int device) const;
  bool IsUsedByAnother(int device) const;

  void SetFault(int device, Fault fault);
  Fault fault(int device) const;
  // Each kernel waits so much longer: the device is a slow one.
  void SetSlowness_us(int device, int64_t slowness_us);
  int64_t slowness_us(int device) const;

  uint64_t memory_bytes() const { return memory_bytes_; }

 private:
  struct File;
  class Lock;
  void Sweep() const;  // under the lock

  const uint64_t memory_bytes_;
  const int first_;
  File* file_;
};

// The one of this process's settings.
SharedMemory& TheSharedMemory();

}  // namespace gavel::simulated

#endif  // GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_SHARED_MEMORY_H_
