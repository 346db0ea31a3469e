// The accelerators of this machine: NVIDIA GPUs as NVML tells them, and the
// check of declared ones against them. An agent calls it at its start.
// Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_ACCELERATORS_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_ACCELERATORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/agent_host/nvml.h"
#include "core/messages.h"

namespace gavel {

// What each process takes of a GPU before it allocates anything: its CUDA
// context and the kernels of LibTorch's libraries. Assumed, not measured:
// declare context_bytes where it matters.
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

// Those of `gpus` that CUDA_VISIBLE_DEVICES leaves, in its order; all when it
// is not set. As CUDA does: the first entry that names none ends the list.
std::vector<Gpu> VisibleGpus(const std::vector<Gpu>& gpus,
                             const std::optional<std::string>& visible_devices);

// One accelerator "cuda:N" for each. Where one is a part of a GPU all of them
// are alone_visible: CUDA shows a process one part, or GPUs.
std::vector<AcceleratorInfo> AcceleratorsOf(const std::vector<Gpu>& gpus);

// Puts the uuids of the GPUs into those that are declared as "cuda:N", N into
// those that are declared by uuid, and what is not declared of them. NOT_FOUND,
// with the remedy, when there is no such GPU.
absl::Status FillFromGpus(const std::vector<Gpu>& gpus,
                          std::vector<AcceleratorInfo>* accelerators);

// Gives each accelerator that is no CPU slot, and has no more than one thread
// declared, an equal part of the `cores` that CPU slots leave, at least one.
void ShareCores(int cores, std::vector<AcceleratorInfo>* accelerators);

// Both for this machine, and with its cores shared. Detection fails with
// NOT_FOUND when there is no GPU: CPU slots are never guessed, they must be
// declared. Filling looks for GPUs only when some are declared.
absl::StatusOr<std::vector<AcceleratorInfo>> DetectAccelerators();
absl::Status FillFromGpus(std::vector<AcceleratorInfo>* accelerators);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_ACCELERATORS_H_
