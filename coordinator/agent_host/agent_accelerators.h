// The accelerators of a server: the GPUs as NVIDIA's library tells them (Nvml),
// what an agent declares, and how they are (HealthWatch).
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_ACCELERATORS_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_ACCELERATORS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/messages.h"

namespace gavel {

// A GPU, or one of the parts that MIG makes of it: programs use the parts only.
struct Gpu {
  std::string name;           // of the product, e.g. "NVIDIA H200"
  std::string uuid;           // e.g. "GPU-8a1b2c3d-...", "MIG-..."
  uint64_t memory_bytes = 0;  // 0: the driver does not tell
  // The GPU admits one process at a time, and that process is not the one of
  // MPS.
  bool exclusive = false;
  std::string part_of = "";  // the GPU's uuid; empty: it is no part
  std::string group = "";    // AcceleratorInfo::group
};

// NVIDIA's management library (NVML): the GPUs of this machine, and how they
// are. The library is loaded when it is opened; each call may wait for the
// driver, so none is made in an event loop. Belongs to one thread.
class Nvml {
 public:
  // UNAVAILABLE when there is no driver, or it fails.
  static absl::StatusOr<Nvml> Open();
  Nvml(Nvml&&) noexcept;
  Nvml& operator=(Nvml&&) noexcept;
  ~Nvml();

  // In the order of the bus; parts in place of a GPU that has some.
  absl::StatusOr<std::vector<Gpu>> ListGpus() const;
  // The health of each GPU, in the order of `uuids`. Fields that the driver
  // does not report stay unset. Faults (XIDs) are seen from the first call on.
  std::vector<AcceleratorHealth> ReadHealth(
      const std::vector<std::string>& uuids);

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

// The accelerators of this machine: NVIDIA GPUs as NVML tells them, and the
// check of declared ones against them. An agent calls it at its start.
// Stateless, thread-safe.

// The memory that each process takes on a GPU before it allocates anything: its
// CUDA context and the kernels of LibTorch's libraries. This is an assumption,
// not a measurement; declare context_bytes where it matters.
inline constexpr uint64_t kContextBytesDefault = uint64_t{512} << 20;

// In the order of the bus. UNAVAILABLE when there is no driver, or it fails.
absl::StatusOr<std::vector<Gpu>> ListGpus();

// The type that Gavel gives a product: its model, then what makes another
// machine of the same model, form factor (but SXM, the usual one) and memory,
// as far as the name tells. "NVIDIA A100-SXM4-80GB" is "a100-80gb", "NVIDIA
// H100 PCIe" is "h100-pcie", "NVIDIA RTX 6000 Ada Generation" is
// "rtx_6000_ada". Tables may leave out parts behind '-'
// (coordinator/engine/type_names.h).
std::string GpuTypeName(std::string_view product);

// Whether two GPUs are joined, by their indices.
using Joined = std::function<bool(size_t, size_t)>;

// Names the groups of GPUs that are joined more closely than the others, each
// with all others of its group: "nvlink-N" by `linked`, and where no two are
// linked "numa-N" by `near`. A GPU that is joined with no other has no group,
// and NUMA nodes make none if there is only one.
void NameGroups(const Joined& linked, const Joined& near,
                std::vector<Gpu>* gpus);

// The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; all of them when it
// is not set. As in CUDA, the first entry that names no GPU ends the list.
std::vector<Gpu> VisibleGpus(const std::vector<Gpu>& gpus,
                             const std::optional<std::string>& visible_devices);

// One accelerator "cuda:N" for each. Where one is a part of a GPU all of them
// are alone_visible: CUDA shows a process one part, or GPUs.
std::vector<AcceleratorInfo> AcceleratorsOf(const std::vector<Gpu>& gpus);

// Completes declared accelerators: those declared as "cuda:N" get the uuid,
// those declared by uuid get N, and all get the details that were not declared.
// Returns NOT_FOUND, with the remedy, when there is no such GPU.
absl::Status FillFromGpus(const std::vector<Gpu>& gpus,
                          std::vector<AcceleratorInfo>* accelerators);

// Divides the `cores` that CPU slots leave equally between the other
// accelerators, at least one each. Accelerators with more than one declared
// thread keep theirs.
void ShareCores(int cores, std::vector<AcceleratorInfo>* accelerators);

// Both for this machine, and with its cores shared. Detection fails with
// NOT_FOUND when there is no GPU: CPU slots are never guessed, they must be
// declared. Filling looks for GPUs only when some are declared.
absl::StatusOr<std::vector<AcceleratorInfo>> DetectAccelerators();
absl::Status FillFromGpus(std::vector<AcceleratorInfo>* accelerators);

// Reads every ten seconds, on a thread of its own, what NVIDIA's driver says of
// the agent's GPUs: a driver that hangs keeps only this thread, for which the
// end waits kEnd_s at most. Thread-safe.
class HealthWatch {
 public:
  static constexpr double kInterval_s = 10;
  static constexpr double kEnd_s = 2;

  // Watches the GPUs among `accelerators`; without any, it reads nothing.
  // `notify` is called on the thread when Take has something, and never after
  // the destructor has returned. It must not block or call this object.
  HealthWatch(const std::vector<AcceleratorInfo>& accelerators,
              std::function<void()> notify, double interval_s = kInterval_s);
  ~HealthWatch();

  // The last reading, once; empty: none since.
  std::vector<AcceleratorHealth> Take();

 private:
  struct Shared;
  static void Watch(Shared& shared);

  // The thread's too: it may outlive this.
  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_ACCELERATORS_H_
