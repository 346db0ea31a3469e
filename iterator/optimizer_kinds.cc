#include "iterator/optimizer_kinds.h"

#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <optional>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "core/text.h"

namespace gavel::internal {
namespace {

namespace optim = torch::optim;

// The names are those of torch.optim in Python where it has the same member.

OptimizerKind KindOfSgd() {
  return DescribeOptimizer<optim::SGDOptions, optim::SGDParamState>(
      "SGD",
      [](optim::SGDOptions& options, OptimizerFields& fields) {
        fields("lr", options.lr());
        fields("momentum", options.momentum());
        fields("dampening", options.dampening());
        fields("weight_decay", options.weight_decay());
        fields("nesterov", options.nesterov());
      },
      [](optim::SGDParamState& state, OptimizerFields& fields) {
        fields("momentum_buffer", state.momentum_buffer());
      });
}

// Adam and AdamW have the same members.
template <class Options, class State>
OptimizerKind KindOfAdam(const char* name) {
  return DescribeOptimizer<Options, State>(
      name,
      [](Options& options, OptimizerFields& fields) {
        fields("lr", options.lr());
        fields("beta1", std::get<0>(options.betas()));
        fields("beta2", std::get<1>(options.betas()));
        fields("eps", options.eps());
        fields("weight_decay", options.weight_decay());
        fields("amsgrad", options.amsgrad());
      },
      [](State& state, OptimizerFields& fields) {
        fields("step", state.step());
        fields("exp_avg", state.exp_avg());
        fields("exp_avg_sq", state.exp_avg_sq());
        fields("max_exp_avg_sq", state.max_exp_avg_sq());
      });
}

OptimizerKind KindOfRmsprop() {
  return DescribeOptimizer<optim::RMSpropOptions, optim::RMSpropParamState>(
      "RMSprop",
      [](optim::RMSpropOptions& options, OptimizerFields& fields) {
        fields("lr", options.lr());
        fields("alpha", options.alpha());
        fields("eps", options.eps());
        fields("weight_decay", options.weight_decay());
        fields("momentum", options.momentum());
        fields("centered", options.centered());
      },
      [](optim::RMSpropParamState& state, OptimizerFields& fields) {
        fields("step", state.step());
        fields("square_avg", state.square_avg());
        fields("momentum_buffer", state.momentum_buffer());
        fields("grad_avg", state.grad_avg());
      });
}

OptimizerKind KindOfAdagrad() {
  return DescribeOptimizer<optim::AdagradOptions, optim::AdagradParamState>(
      "Adagrad",
      [](optim::AdagradOptions& options, OptimizerFields& fields) {
        fields("lr", options.lr());
        fields("lr_decay", options.lr_decay());
        fields("weight_decay", options.weight_decay());
        fields("initial_accumulator_value",
               options.initial_accumulator_value());
        fields("eps", options.eps());
      },
      [](optim::AdagradParamState& state, OptimizerFields& fields) {
        fields("step", state.step());
        fields("sum", state.sum());
      });
}

// Its state, of all parameters together, is with the first one.
OptimizerKind KindOfLbfgs() {
  return DescribeOptimizer<optim::LBFGSOptions, optim::LBFGSParamState>(
      "LBFGS",
      [](optim::LBFGSOptions& options, OptimizerFields& fields) {
        fields("lr", options.lr());
        fields("max_iter", options.max_iter());
        fields("max_eval", options.max_eval());
        fields("tolerance_grad", options.tolerance_grad());
        fields("tolerance_change", options.tolerance_change());
        fields("history_size", options.history_size());
        fields("line_search_fn", options.line_search_fn());
      },
      [](optim::LBFGSParamState& state, OptimizerFields& fields) {
        fields("func_evals", state.func_evals());
        fields("n_iter", state.n_iter());
        fields("t", state.t());
        fields("prev_loss", state.prev_loss());
        fields("d", state.d());
        fields("H_diag", state.H_diag());
        fields("prev_flat_grad", state.prev_flat_grad());
        fields("old_dirs", state.old_dirs());
        fields("old_stps", state.old_stps());
        fields("ro", state.ro());
        fields("al", state.al());
      });
}

template <class Class>
bool Is(const optim::Optimizer& optimizer) {
  return dynamic_cast<const Class*>(&optimizer) != nullptr;
}

std::optional<OptimizerKind> KindWithParameterShape(
    const optim::Optimizer& optimizer) {
  if (Is<optim::SGD>(optimizer)) return KindOfSgd();
  if (Is<optim::Adam>(optimizer)) {
    return KindOfAdam<optim::AdamOptions, optim::AdamParamState>("Adam");
  }
  if (Is<optim::AdamW>(optimizer)) {
    return KindOfAdam<optim::AdamWOptions, optim::AdamWParamState>("AdamW");
  }
  if (Is<optim::RMSprop>(optimizer)) return KindOfRmsprop();
  if (Is<optim::Adagrad>(optimizer)) return KindOfAdagrad();
  return std::nullopt;
}

template <class State>
std::optional<int64_t> StepsOf(const optim::OptimizerParamState& state) {
  const auto* const own = dynamic_cast<const State*>(&state);
  return own == nullptr ? std::nullopt : std::optional(own->step());
}

// SGD writes its momentum in place, which raises the version.
std::optional<int64_t> VersionOfMomentum(
    const optim::OptimizerParamState& state) {
  const auto* const own = dynamic_cast<const optim::SGDParamState*>(&state);
  if (own == nullptr || !own->momentum_buffer().defined()) return std::nullopt;
  return own->momentum_buffer()._version();
}

}  // namespace

absl::StatusOr<OptimizerKind> KindOf(const optim::Optimizer& optimizer,
                                     std::string_view name) {
  if (Is<optim::LBFGS>(optimizer)) return KindOfLbfgs();
  if (std::optional<OptimizerKind> kind = KindWithParameterShape(optimizer)) {
    kind->state_has_parameter_shape = true;
    return *std::move(kind);
  }
  return absl::UnimplementedError(
      StrCat("optimizer '", name, "' is of class ",
             c10::demangle(typeid(optimizer).name()),
             ", whose state is not known; describe it with "
             "gavel::DescribeOptimizer (gavel/optimizer_kind.h) and pass that "
             "to Track"));
}

StepCounter StepCounterOf(const optim::Optimizer& optimizer) {
  if (Is<optim::SGD>(optimizer)) return VersionOfMomentum;
  if (Is<optim::Adam>(optimizer)) return StepsOf<optim::AdamParamState>;
  if (Is<optim::AdamW>(optimizer)) return StepsOf<optim::AdamWParamState>;
  if (Is<optim::RMSprop>(optimizer)) return StepsOf<optim::RMSpropParamState>;
  if (Is<optim::Adagrad>(optimizer)) return StepsOf<optim::AdagradParamState>;
  return nullptr;
}

}  // namespace gavel::internal
