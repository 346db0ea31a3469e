#include "gavel/internal/placement.h"

#include <ATen/ops/stack.h>

#include "gavel/data_loader.h"
#include "gavel/internal/range_position.h"

namespace gavel::internal {

RangePosition::~RangePosition() = default;
BatchOwner::~BatchOwner() = default;

namespace {

// Pinned memory, which the allocator keeps until it was copied: the caller goes
// on at once, while from other memory the copy would wait until the device has
// done all steps before. Undefined where there can't be any, and for a tensor
// that is pinned already, as its owner may write to it soon.
at::Tensor PinnedCopy(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) return {};
  try {
    return tensor.is_pinned() ? at::Tensor() : tensor.pin_memory();
  } catch (const c10::Error&) {
    return {};
  }
}

}  // namespace

void PlaceTensor(at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || tensor.device() == device) return;
  if (tensor.is_cpu()) {
    if (const at::Tensor pinned = PinnedCopy(tensor); pinned.defined()) {
      tensor = pinned.to(device, /*non_blocking=*/true);
      return;
    }
  }
  tensor = tensor.to(device);
}

at::Tensor StackTensors(const std::vector<at::Tensor>& parts) {
  return at::stack(parts);
}

}  // namespace gavel::internal
