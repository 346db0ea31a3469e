// The optimizer classes of LibTorch, described as a user describes one of his
// own (gavel/optimizer_kind.h). Called by tracking.cc.
#ifndef GAVEL_ITERATOR_OPTIMIZER_KINDS_H_
#define GAVEL_ITERATOR_OPTIMIZER_KINDS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "gavel/optimizer_kind.h"

namespace torch::optim {
class Optimizer;
class OptimizerParamState;
}  // namespace torch::optim

namespace gavel::internal {

// Of SGD, Adam, AdamW, RMSprop, Adagrad and LBFGS, and of classes derived from
// them. UNIMPLEMENTED: another class, which the message names; `name`: what it
// is tracked as.
absl::StatusOr<OptimizerKind> KindOf(const torch::optim::Optimizer& optimizer,
                                     std::string_view name);

// A number in the state of a parameter that is another one after each step of
// the optimizer; nullopt: there is none. Null for a class that keeps none.
using StepCounter =
    std::optional<int64_t> (*)(const torch::optim::OptimizerParamState&);
StepCounter StepCounterOf(const torch::optim::Optimizer& optimizer);

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_OPTIMIZER_KINDS_H_
