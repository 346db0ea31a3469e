#include "gavel/internal/placement.h"

#include <ATen/ops/stack.h>

#include "gavel/data_loader.h"
#include "gavel/internal/range_position.h"

namespace gavel::internal {

RangePosition::~RangePosition() = default;
BatchOwner::~BatchOwner() = default;

void PlaceTensor(at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || tensor.device() == device) return;
  tensor = tensor.to(device);
}

at::Tensor StackTensors(const std::vector<at::Tensor>& parts) {
  return at::stack(parts);
}

}  // namespace gavel::internal
