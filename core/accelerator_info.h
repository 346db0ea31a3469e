// An accelerator as messages tell of it (core/messages.h). Plain structs.
#ifndef GAVEL_CORE_ACCELERATOR_INFO_H_
#define GAVEL_CORE_ACCELERATOR_INFO_H_

#include <cstdint>
#include <string>

namespace gavel {

// One accelerator as an agent declares it.
struct AcceleratorInfo {
  std::string type;             // open name, e.g. "v100", "cpu_fast"
  std::string uuid;             // names its lock files; unique on the server
  std::string device = "cpu";   // "cpu" or "cuda:N"; in a grant, as it sees it
  int threads = 1;              // intra-op threads of a worker
  double slow_down_factor = 1;  // >= 1; demonstration only, labelled as such
  uint64_t memory_bytes = 0;    // its memory; 0: not known, no budget
  uint64_t context_bytes = 0;   // of it, what each process on it takes anyway
  // One process at a time may have a context there (NVIDIA's compute mode
  // EXCLUSIVE_PROCESS): whoever gives it back ends.
  bool exclusive = false;
  // A worker on it sees no other accelerator: it gets another one in another
  // process.
  bool alone_visible = false;
  friend bool operator==(const AcceleratorInfo&,
                         const AcceleratorInfo&) = default;
};

// What a device's driver says of it at present.
struct AcceleratorHealth {
  std::string uuid;
  int utilisation_percent = -1;  // -1: not told, as of the next
  int temperature_c = -1;
  uint64_t uncorrectable_errors = 0;  // of its memory, since the driver started
  uint64_t last_xid = 0;  // NVIDIA's number of its last fault; 0: none was seen
  // Why nobody can use it, with the remedy: "it is not there any more, ...".
  // Empty: it is there.
  std::string failure;
  friend bool operator==(const AcceleratorHealth&,
                         const AcceleratorHealth&) = default;
};

}  // namespace gavel

#endif  // GAVEL_CORE_ACCELERATOR_INFO_H_
