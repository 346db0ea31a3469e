// The states of LibTorch's default random generators as bytes, which the
// iterator stores in a Snapshot. The generator of the CPU, and that of the
// accelerator in use: its entry carries no index, so that a job which moves
// from cuda:0 to cuda:1 goes on with the same random numbers.
//
//   PREFIX/cpu, PREFIX/cuda
//
// Thread-safety: as LibTorch's generators; each is locked while it is read.
#ifndef GAVEL_RUNTIME_CHECKPOINT_RNG_STATE_H_
#define GAVEL_RUNTIME_CHECKPOINT_RNG_STATE_H_

#include <c10/core/Device.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/checkpoint/snapshot.h"

namespace at {
struct Generator;
}

namespace gavel {

// INVALID_ARGUMENT: `generator` is not one, or `state` not that of its kind.
absl::StatusOr<std::string> GetGeneratorState(at::Generator generator);
absl::Status SetGeneratorState(at::Generator generator, std::string_view state);

// UNIMPLEMENTED: neither CPU nor CUDA. FAILED_PRECONDITION: no such GPU here.
absl::StatusOr<std::string> GetRngState(c10::Device device);

// Also INVALID_ARGUMENT: `state` is not that of a generator of this kind.
absl::Status SetRngState(c10::Device device, std::string_view state);

// The CPU's state and, if `device` is a GPU, that of its generator.
absl::Status CollectRngState(c10::Device device, std::string_view prefix,
                             Snapshot* snapshot);

// Sets the generators of the CPU and of `device` that the snapshot has a state
// for; a job that comes from a device of another type keeps the seed there.
// NOT_FOUND: the snapshot has no random states under `prefix`.
absl::Status RestoreRngState(const Snapshot& snapshot, c10::Device device,
                             std::string_view prefix);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_RNG_STATE_H_
