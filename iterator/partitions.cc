#include "iterator/partitions.h"

#include "core/text.h"

namespace gavel::internal {

std::optional<OwnPart> Partitions::Of(const at::Tensor& tensor,
                                      const Sharded& sharded) const {
  if (!tensor.defined() || sharded.dim < 0 || sharded.dim >= tensor.dim()) {
    return std::nullopt;
  }
  const int64_t size =
      sharded.size > 0 ? sharded.size : tensor.size(sharded.dim) * world_size_;
  return OwnPart{{sharded.dim, size}, rank_, world_size_};
}

absl::Status Partitions::Mark(const std::string& name, const at::Tensor& tensor,
                              const Sharded& sharded) {
  const std::optional<OwnPart> part = Of(tensor, sharded);
  if (!part) return absl::OkStatus();
  if (tensor.layout() != at::kStrided) {
    return absl::InvalidArgumentError(
        StrCat("tensor '", name,
               "' is sparse, and only dense tensors are cut over workers; "
               "track it without gavel::Sharded"));
  }
  const int64_t here = tensor.size(sharded.dim);
  const int64_t wanted = part->range().size();
  if (here != wanted) {
    return absl::InvalidArgumentError(
        StrCat("tensor '", name, "' has ", here, " elements in dimension ",
               sharded.dim, " on rank ", rank_, " of ", world_size_,
               ", whose part of ", part->partition.size, " has ", wanted,
               "; make it with as many, as torch.chunk cuts"));
  }
  marked_.emplace(tensor.unsafeGetTensorImpl(), std::pair(tensor, *part));
  return absl::OkStatus();
}

std::optional<OwnPart> Partitions::Find(const at::Tensor& tensor) const {
  const auto found = marked_.find(tensor.unsafeGetTensorImpl());
  if (found == marked_.end()) return std::nullopt;
  return found->second.second;
}

}  // namespace gavel::internal
