// The tensors in the state of a LibTorch optimizer. Called by device_move.cc,
// and to count the bytes a job needs on its accelerator.
#ifndef GAVEL_RUNTIME_DEVICE_OPTIMIZER_TENSORS_H_
#define GAVEL_RUNTIME_DEVICE_OPTIMIZER_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/statusor.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace gavel {

// Handles to the defined ones, in the order of the parameters. UNIMPLEMENTED:
// an optimizer with state of another kind than SGD, Adam, AdamW, RMSprop and
// Adagrad have.
absl::StatusOr<std::vector<at::Tensor>> OptimizerTensors(
    torch::optim::Optimizer& optimizer);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_OPTIMIZER_TENSORS_H_
