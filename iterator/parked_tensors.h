// Tensors of a job that has no accelerator, as far as their bytes are in the
// copy that a checkpoint is written from: they look into that copy, so that a
// pause copies them once. The memory of the copy is kept by who looks into it.
//
// On a GPU the memory that they leave goes back to LibTorch. On a CPU, whose
// memory nobody waits for, they find it again: what else looks into it goes on
// to see them. Training thread only.
#ifndef GAVEL_ITERATOR_PARKED_TENSORS_H_
#define GAVEL_ITERATOR_PARKED_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/device/arena.h"

namespace gavel::internal {

struct TensorWithCopy {
  at::Tensor tensor;
  HostCopy copy;
};

// Those of `tensors` that have one among `copies`, are dense, contiguous and
// share their memory with no other.
absl::StatusOr<std::vector<TensorWithCopy>> MatchCopies(
    const std::vector<at::Tensor>& tensors,
    const std::vector<HostCopy>& copies);

class ParkedTensors {
 public:
  // Lets those that have a copy look into it.
  absl::Status Park(const std::vector<TensorWithCopy>& tensors);

  // Copies all that are parked to `device`; all or nothing. RESOURCE_EXHAUSTED:
  // they do not fit. `arena`: as for MoveTensors.
  absl::Status Return(at::Device device, Arena* arena = nullptr);

  uint64_t size_bytes() const;

 private:
  struct Entry {
    at::Tensor tensor;
    at::Tensor place;  // the memory it left, on a CPU only
  };

  absl::Status CopyTo(at::Device device, Arena* arena);

  std::vector<Entry> entries_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_PARKED_TENSORS_H_
