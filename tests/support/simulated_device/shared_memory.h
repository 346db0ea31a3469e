// The use and the faults of the simulated devices, in a file that all processes
// of this machine map. So several processes fill a device together, and a test
// can break a device under a running process. Memory that a process has taken
// is free when the process is gone.
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

// Thread-safe, also between processes.
class SharedMemory {
 public:
  // An empty `file` means memory of this process alone. `first` is the number
  // of the device that the functions below call 0. Throws c10::Error.
  SharedMemory(const std::string& file, uint64_t memory_bytes, int first = 0);

  // False: the device is full.
  bool Take(int device, uint64_t bytes);
  void GiveBack(int device, uint64_t bytes);
  // Bytes that all live processes use.
  uint64_t Used(int device) const;
  std::vector<Holder> Holders(int device) const;
  bool IsUsedByAnother(int device) const;

  void SetFault(int device, Fault fault);
  Fault fault(int device) const;
  // Makes the device slow: each kernel waits so much longer.
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

// The instance that this process's settings describe.
SharedMemory& TheSharedMemory();

}  // namespace gavel::simulated

#endif  // GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_SHARED_MEMORY_H_
