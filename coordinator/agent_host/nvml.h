// NVIDIA's management library (NVML): the GPUs of this machine, and how they
// are. The library is loaded when it is opened; each call may wait for the
// driver, so none is made in an event loop. Belongs to one thread.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_NVML_H_
#define GAVEL_COORDINATOR_AGENT_HOST_NVML_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/accelerator_info.h"

namespace gavel {

// A GPU, or one of the parts that MIG makes of it: programs use the parts only.
struct Gpu {
  std::string name;           // of the product, e.g. "NVIDIA H200"
  std::string uuid;           // e.g. "GPU-8a1b2c3d-...", "MIG-..."
  uint64_t memory_bytes = 0;  // 0: the driver does not tell
  // Of one process at a time, and that is not the one of MPS.
  bool exclusive = false;
  std::string part_of = "";  // the GPU's uuid; empty: it is no part
};

class Nvml {
 public:
  // UNAVAILABLE when there is no driver, or it fails.
  static absl::StatusOr<Nvml> Open();
  Nvml(Nvml&&) noexcept;
  Nvml& operator=(Nvml&&) noexcept;
  ~Nvml();

  // In the order of the bus; parts in place of a GPU that has some.
  absl::StatusOr<std::vector<Gpu>> ListGpus() const;
  // Of each in their order; what the driver does not tell stays open. Faults
  // (XIDs) are seen from the first call on.
  std::vector<AcceleratorHealth> ReadHealth(
      const std::vector<std::string>& uuids);

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_NVML_H_
