#include "models/training.h"

#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <tuple>

namespace gavel::models {

double InverseSquareRootRate(int64_t step, const WarmUp& warm_up) {
  const auto now = static_cast<double>(step + 1);
  const auto steps = static_cast<double>(std::max<int64_t>(1, warm_up.steps));
  return warm_up.peak * std::min(now / steps, std::sqrt(steps / now));
}

double CosineRate(int64_t step, const WarmUp& warm_up, int64_t steps_total) {
  constexpr double kFloor = 0.1;
  if (step < warm_up.steps) {
    return warm_up.peak * static_cast<double>(step + 1) /
           static_cast<double>(warm_up.steps);
  }
  const double part =
      static_cast<double>(step - warm_up.steps) /
      static_cast<double>(std::max<int64_t>(1, steps_total - warm_up.steps));
  const double cosine = std::cos(std::numbers::pi * std::min(1.0, part));
  return warm_up.peak * (kFloor + (1 - kFloor) * (1 + cosine) / 2);
}

void SetLearningRate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

std::vector<torch::optim::OptimizerParamGroup> DecayGroups(
    const torch::nn::Module& module, double learning_rate,
    double weight_decay) {
  std::vector<torch::Tensor> matrices;
  std::vector<torch::Tensor> vectors;
  for (const torch::Tensor& parameter : module.parameters()) {
    (parameter.dim() > 1 ? matrices : vectors).push_back(parameter);
  }
  const auto group = [learning_rate](std::vector<torch::Tensor> parameters,
                                     double decay) {
    return torch::optim::OptimizerParamGroup(
        std::move(parameters), std::make_unique<torch::optim::AdamWOptions>(
                                   torch::optim::AdamWOptions(learning_rate)
                                       .betas(std::make_tuple(0.9, 0.95))
                                       .weight_decay(decay)));
  };
  return {group(matrices, weight_decay), group(vectors, 0)};
}

}  // namespace gavel::models
