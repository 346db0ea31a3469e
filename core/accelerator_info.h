// An accelerator as messages (core/messages.h) describe it. Plain structs.
#ifndef GAVEL_CORE_ACCELERATOR_INFO_H_
#define GAVEL_CORE_ACCELERATOR_INFO_H_

#include <cstdint>
#include <string>

namespace gavel {

// One accelerator as an agent declares it.
struct AcceleratorInfo {
  std::string type;  // open name, e.g. "v100", "cpu_fast"
  std::string uuid;  // names its lock files; unique on the server
  // "cpu" or "cuda:N"; in a grant, the name that the worker has to use.
  std::string device = "cpu";
  int threads = 1;              // intra-op threads of a worker
  double slow_down_factor = 1;  // >= 1; demonstration only, labelled as such
  uint64_t memory_bytes = 0;    // 0: not known, no budget
  // The part of memory_bytes that the context of each process there takes.
  uint64_t context_bytes = 0;
  // Only one process at a time may have a context there (NVIDIA's compute mode
  // EXCLUSIVE_PROCESS), so a process that gives the accelerator back has to
  // end.
  bool exclusive = false;
  // A worker process on it sees no other accelerator. To use another one, the
  // worker needs a new process.
  bool alone_visible = false;
  friend bool operator==(const AcceleratorInfo&,
                         const AcceleratorInfo&) = default;
};

// The present state of a device, as its driver reports it.
struct AcceleratorHealth {
  std::string uuid;
  int utilisation_percent = -1;  // -1: not reported; also below
  int temperature_c = -1;
  uint64_t uncorrectable_errors = 0;  // in its memory, since the driver started
  uint64_t last_xid = 0;  // NVIDIA's number of its last fault; 0: none seen
  // Why no process can use the device, with the remedy: "it is not there any
  // more, ...". Empty: it can be used.
  std::string failure;
  friend bool operator==(const AcceleratorHealth&,
                         const AcceleratorHealth&) = default;
};

}  // namespace gavel

#endif  // GAVEL_CORE_ACCELERATOR_INFO_H_
