#include "models/actor_critic.h"

#include <ATen/ops/log_softmax.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>

#include <cassert>

namespace gavel::models {

ActorCriticImpl::ActorCriticImpl(const ActorCriticOptions& options) {
  int64_t hidden = options.hidden;
  if (options.features == 0) {
    hidden = 256;
    body_->push_back(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(4, 16, /*kernel_size=*/8).stride(4)));
    body_->push_back(torch::nn::ReLU());
    body_->push_back(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(16, 32, /*kernel_size=*/4).stride(2)));
    body_->push_back(torch::nn::ReLU());
    body_->push_back(torch::nn::Flatten());
    body_->push_back(torch::nn::Linear(32 * 9 * 9, hidden));
    body_->push_back(torch::nn::ReLU());
  } else {
    body_->push_back(torch::nn::Linear(options.features, hidden));
    body_->push_back(torch::nn::ReLU());
    body_->push_back(torch::nn::Linear(hidden, hidden));
    body_->push_back(torch::nn::ReLU());
  }
  register_module("body", body_);
  policy_ =
      register_module("policy", torch::nn::Linear(hidden, options.actions));
  value_ = register_module("value", torch::nn::Linear(hidden, 1));
}

ActorCriticImpl::Output ActorCriticImpl::forward(
    const torch::Tensor& observations) {
  const torch::Tensor hidden = body_->forward(observations);
  return {policy_(hidden), value_(hidden).squeeze(1)};
}

std::vector<float> Advantages(const Rewards& rewards,
                              const AdvantageOptions& options) {
  const size_t size = rewards.rewards.size();
  assert(rewards.ended.size() == size && rewards.values.size() == size + 1);
  std::vector<float> advantages(size);
  double advantage = 0;
  for (size_t at = size; at-- > 0;) {
    const double goes_on = rewards.ended[at] ? 0 : options.discount;
    const double error = rewards.rewards[at] +
                         goes_on * rewards.values[at + 1] - rewards.values[at];
    advantage = error + goes_on * options.lambda * advantage;
    advantages[at] = static_cast<float>(advantage);
  }
  return advantages;
}

torch::Tensor ActorCriticLoss(const ActorCriticImpl::Output& output,
                              const torch::Tensor& actions,
                              const torch::Tensor& advantages,
                              const torch::Tensor& returns,
                              const ActorCriticLossOptions& options) {
  const torch::Tensor log_policy = at::log_softmax(output.logits, 1);
  const torch::Tensor of_actions =
      log_policy.gather(1, actions.unsqueeze(1)).squeeze(1);
  const torch::Tensor entropy = -(log_policy.exp() * log_policy).sum(1);
  return -(of_actions * advantages).mean() +
         options.value_weight * (output.value - returns).square().mean() -
         options.entropy_weight * entropy.mean();
}

}  // namespace gavel::models
