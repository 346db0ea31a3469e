// Where the tensors of a job are while it has no accelerator. ParkedTensors
// look into the copy that a checkpoint is written from. DividedTensors are kept
// by one rank of a gang for all of them. Training thread only.
#ifndef GAVEL_ITERATOR_PARKED_TENSORS_H_
#define GAVEL_ITERATOR_PARKED_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/device/host_memory.h"

namespace gavel::internal {

struct TensorWithCopy {
  at::Tensor tensor;
  HostCopy copy;
};

// Returns those of `tensors` that have a copy among `copies`, are dense and
// contiguous, and share their memory with no other.
absl::StatusOr<std::vector<TensorWithCopy>> MatchCopies(
    const std::vector<at::Tensor>& tensors,
    const std::vector<HostCopy>& copies);

// Tensors of a job that has no accelerator. If their bytes are in the copy that
// a checkpoint is written from, they become views of that copy, so that a pause
// copies them only once. The views keep the memory of the copy alive.
//
// On a GPU the memory that they leave goes back to LibTorch. On a CPU they keep
// it, since no other job waits for it, and get it back later: other views of it
// stay valid. Training thread only.
class ParkedTensors {
 public:
  // Turns the tensors that have a copy into views of it.
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

struct OwnedTensor {
  at::Tensor tensor;
  int owner = 0;  // rank
};

// Adds the gradients `tensors` to `owned`: each rank has about equally many
// bytes of them. Gradients that share memory have one owner.
void ShareOut(const std::vector<at::Tensor>& tensors, int world_size,
              std::vector<OwnedTensor>* owned);

// The state of a gang without an accelerator: what all ranks have alike is kept
// by one of them, the owner, in host memory. On the others the tensors lose
// their memory. When the gang has come together again, the owners send them
// (Gang::Join).
//
// So a pause copies each tensor once, whatever the size of the gang, and a
// parked gang takes the memory of one process. Training thread only.
class DividedTensors {
 public:
  // Sets the owner of each tensor until Forget(); all ranks make the same call.
  // Nothing moves. Keeps handles of those that are dense and contiguous.
  void Divide(std::vector<OwnedTensor> owned, int rank);
  void Forget() { *this = {}; }

  // Frees the memory of tensors that other ranks own, except for those that are
  // in host memory already. A checkpoint refuses them then. Nobody may read
  // them until Forget().
  absl::Status Leave();
  // Gives them memory on `device` with anything in it; all or nothing.
  // RESOURCE_EXHAUSTED: they do not fit.
  absl::Status Return(at::Device device);

  // Equal where the same tensors have the same owners; empty: nothing divided.
  std::string Fingerprint() const;
  // Values are missing on this rank.
  bool is_missing() const { return is_missing_; }
  uint64_t missing_bytes() const;
  const std::vector<OwnedTensor>& owned() const { return owned_; }

 private:
  std::vector<OwnedTensor> owned_;
  int rank_ = 0;
  bool is_missing_ = false;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_PARKED_TENSORS_H_
