// Which tensors of the job are this rank's part of a larger one, as the program
// says (gavel::Sharded). Kept by TrackedState; training thread only.
#ifndef GAVEL_ITERATOR_PARTITIONS_H_
#define GAVEL_ITERATOR_PARTITIONS_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gavel/tracking.h"
#include "runtime/checkpoint/partition.h"

namespace gavel::internal {

class Partitions {
 public:
  // Before the first tensor. Parts are cut for so many workers.
  void SetGang(int rank, int world_size) {
    rank_ = rank;
    world_size_ = world_size;
  }
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  bool empty() const { return marked_.empty(); }

  // One without the dimension is the same on all ranks. INVALID_ARGUMENT: not
  // dense, or not of the size that this rank's part has; `name` is for the
  // message. Does nothing for one that is marked already in the same way.
  absl::Status Mark(const std::string& name, const at::Tensor& tensor,
                    const Sharded& sharded);
  // nullopt: it is the same on all ranks.
  std::optional<OwnPart> Find(const at::Tensor& tensor) const;
  // What Mark() says of it.
  std::optional<OwnPart> Of(const at::Tensor& tensor,
                            const Sharded& sharded) const;

 private:
  int rank_ = 0;
  int world_size_ = 1;
  // Keeps the tensors, so that no other gets their place.
  std::map<const c10::TensorImpl*, std::pair<at::Tensor, OwnPart>> marked_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_PARTITIONS_H_
