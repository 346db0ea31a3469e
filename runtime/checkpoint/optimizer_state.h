// Collects the state of a LibTorch optimizer into a Snapshot and restores it,
// with parameters named by their number over all groups: neither pointers nor
// devices are stored, so it restores into another process, device and world
// size. Called by the iterator for every tracked optimizer.
//
//   PREFIX/kind              bytes   "Adam"
//   PREFIX/group/0/options   bytes   "lr 0.001\nbeta1 0.9\n..."
//   PREFIX/state/3/exp_avg   tensor
//   PREFIX/state/3/step      bytes   "1200"
//
// Knows SGD, Adam, AdamW, RMSprop and Adagrad (and classes derived from them).
// Not thread-safe: no step may run meanwhile.
#ifndef GAVEL_RUNTIME_CHECKPOINT_OPTIMIZER_STATE_H_
#define GAVEL_RUNTIME_CHECKPOINT_OPTIMIZER_STATE_H_

#include <string_view>

#include "absl/status/status.h"
#include "runtime/checkpoint/snapshot.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace gavel {

// Adds the entries; the tensors are the optimizer's own, not copies.
// UNIMPLEMENTED: an optimizer of another kind (LBFGS, a user's own).
absl::Status CollectOptimizerState(const torch::optim::Optimizer& optimizer,
                                   std::string_view prefix, Snapshot* snapshot);

// Replaces options and state; all or nothing. State tensors are copies on the
// device of their parameter. NOT_FOUND: the snapshot has no optimizer of this
// name. FAILED_PRECONDITION: it is of another kind, or has other groups,
// parameters or shapes. UNIMPLEMENTED as above. DATA_LOSS: not readable.
absl::Status RestoreOptimizerState(const Snapshot& snapshot,
                                   std::string_view prefix,
                                   torch::optim::Optimizer& optimizer);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_OPTIMIZER_STATE_H_
