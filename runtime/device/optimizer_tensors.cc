#include "runtime/device/optimizer_tensors.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <optional>

namespace gavel {
namespace {

namespace optim = torch::optim;

// Nothing for a kind that is not known.
std::optional<std::vector<at::Tensor>> StateTensors(
    const optim::OptimizerParamState& state) {
  using Tensors = std::vector<at::Tensor>;
  if (auto* sgd = dynamic_cast<const optim::SGDParamState*>(&state)) {
    return Tensors{sgd->momentum_buffer()};
  }
  if (auto* adam = dynamic_cast<const optim::AdamParamState*>(&state)) {
    return Tensors{adam->exp_avg(), adam->exp_avg_sq(), adam->max_exp_avg_sq()};
  }
  if (auto* adamw = dynamic_cast<const optim::AdamWParamState*>(&state)) {
    return Tensors{adamw->exp_avg(), adamw->exp_avg_sq(),
                   adamw->max_exp_avg_sq()};
  }
  if (auto* rmsprop = dynamic_cast<const optim::RMSpropParamState*>(&state)) {
    return Tensors{rmsprop->square_avg(), rmsprop->momentum_buffer(),
                   rmsprop->grad_avg()};
  }
  if (auto* adagrad = dynamic_cast<const optim::AdagradParamState*>(&state)) {
    return Tensors{adagrad->sum()};
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::vector<at::Tensor>> OptimizerTensors(
    optim::Optimizer& optimizer) {
  std::vector<at::Tensor> tensors;
  for (const optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      auto entry = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (entry == optimizer.state().end()) continue;
      std::optional<std::vector<at::Tensor>> found =
          StateTensors(*entry->second);
      if (!found) {
        return absl::UnimplementedError(
            "an optimizer has state of a kind that cannot be moved between "
            "devices; use SGD, Adam, AdamW, RMSprop or Adagrad");
      }
      for (at::Tensor& tensor : *found) {
        if (tensor.defined()) tensors.push_back(std::move(tensor));
      }
    }
  }
  return tensors;
}

}  // namespace gavel
