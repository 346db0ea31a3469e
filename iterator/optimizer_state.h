// Collects the state of a LibTorch optimizer into a Snapshot and restores it,
// with parameters named by their number over all groups: neither pointers nor
// devices are stored, so it restores into another process, device and world
// size. Called for every tracked optimizer.
//
//   PREFIX/kind                 bytes   "Adam"
//   PREFIX/fields               bytes   "option lr double\nstate step int64\n"
//   PREFIX/parameters           bytes   "4"
//   PREFIX/group/0/parameters   bytes   "4"
//   PREFIX/group/0/options      bytes   "lr 0.001\nbeta1 0.9\n..."
//   PREFIX/group/0/given        bytes   the same as the program had given it
//   PREFIX/state/3/present      bytes   "true"
//   PREFIX/state/3/exp_avg      tensor  none: it is undefined
//   PREFIX/state/3/step         bytes   "1200"
//   PREFIX/state/0/ro/count     bytes   "2": of a list, PREFIX/state/0/ro/0,
//   ...
//
// The state of a parameter that is this rank's part of a larger one is such a
// part, too, and is cut alike.
//
// `fields`, sorted, the groups' sizes and `given` are not in the checkpoints of
// earlier versions. Training thread only, no step may run meanwhile. What
// functions of the user throw is INTERNAL.
#ifndef GAVEL_ITERATOR_OPTIMIZER_STATE_H_
#define GAVEL_ITERATOR_OPTIMIZER_STATE_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gavel/optimizer_kind.h"
#include "runtime/checkpoint/snapshot.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace gavel::internal {

// Whether `kind` can be of `optimizer`. INVALID_ARGUMENT: its options are of
// another class, or a name is not one or is there twice.
absl::Status CheckOptimizerKind(torch::optim::Optimizer& optimizer,
                                const OptimizerKind& kind,
                                std::string_view prefix);

// nullopt: all ranks have the same parameter. Empty: they have all.
using PartOfParameter =
    std::function<std::optional<OwnPart>(const at::Tensor& parameter)>;

// Adds the entries; the tensors are the optimizer's own, not copies. `given`:
// OptionLines of when it was tracked.
// FAILED_PRECONDITION: state of another class than `kind` describes, or of
// something that is not a parameter, or of another shape than a parameter that
// is a part.
absl::Status CollectOptimizerState(torch::optim::Optimizer& optimizer,
                                   const OptimizerKind& kind,
                                   std::string_view prefix, Snapshot* snapshot,
                                   const PartOfParameter& part_of = {},
                                   const std::vector<std::string>& given = {});

// Replaces options and state; all or nothing. State tensors are copies on the
// device of their parameter. NOT_FOUND: the snapshot has no optimizer of this
// name. FAILED_PRECONDITION: it is of another kind, or has other groups,
// parameters, fields or shapes. DATA_LOSS: not readable.
absl::Status RestoreOptimizerState(const Snapshot& snapshot,
                                   std::string_view prefix,
                                   const OptimizerKind& kind,
                                   torch::optim::Optimizer& optimizer,
                                   const PartOfParameter& part_of = {});

// The numbers of the options, as text, of each group.
absl::StatusOr<std::vector<std::string>> OptionLines(
    torch::optim::Optimizer& optimizer, const OptimizerKind& kind,
    std::string_view prefix);

// After RestoreOptimizerState: options that the program gives (`*given`)
// otherwise than it did when the checkpoint was written. With `keep_program`
// these are used, else the checkpoint's stay, and are `*given` from here on.
// Returns a line for each.
absl::StatusOr<std::vector<std::string>> SettleOptions(
    const Snapshot& snapshot, std::string_view prefix,
    const OptimizerKind& kind, bool keep_program,
    torch::optim::Optimizer& optimizer, std::vector<std::string>* given);

// Handles to the defined tensors of options and state, in the order of the
// parameters: what moves with the lease.
absl::StatusOr<std::vector<at::Tensor>> OptimizerTensors(
    torch::optim::Optimizer& optimizer, const OptimizerKind& kind);

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_OPTIMIZER_STATE_H_
