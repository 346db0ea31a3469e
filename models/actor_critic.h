// The network of an actor and its critic, and what an actor learns from a part
// of a game. V. Mnih et al., Asynchronous Methods for Deep Reinforcement
// Learning, ICML 2016 (A3C), the workload of Gavel (OSDI 2020). As thread-safe
// as any LibTorch module.
#ifndef GAVEL_MODELS_ACTOR_CRITIC_H_
#define GAVEL_MODELS_ACTOR_CRITIC_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <span>
#include <vector>

namespace gavel::models {

struct ActorCriticOptions {
  int64_t actions = 3;
  // 0: from pictures [4, 84, 84] with the convolutions of Mnih et al., section
  // 8, and a hidden layer of 256. Else from so many features, with two hidden
  // layers of `hidden`.
  int64_t features = 0;
  int64_t hidden = 64;
};

class ActorCriticImpl : public torch::nn::Module {
 public:
  struct Output {
    torch::Tensor logits;  // of the actions, [batch, actions]
    torch::Tensor value;   // of what will be won, [batch]
  };

  explicit ActorCriticImpl(const ActorCriticOptions& options);
  // [batch, 4, 84, 84] or [batch, features].
  Output forward(const torch::Tensor& observations);

 private:
  torch::nn::Sequential body_;
  torch::nn::Linear policy_{nullptr};
  torch::nn::Linear value_{nullptr};
};
TORCH_MODULE(ActorCritic);

// What followed on each of n actions.
struct Rewards {
  std::vector<float> rewards;  // n
  std::vector<bool> ended;     // n: whether the game ended with it
  std::vector<float> values;   // n + 1: the critic's, before each and at last
};

struct AdvantageOptions {
  double discount = 0.99;
  // Of generalized advantage estimation, J. Schulman et al., ICLR 2016,
  // equation 16. 1: returns of up to n steps, as A3C has them.
  double lambda = 1;
};

// How much better each action was than the critic thought, n.
std::vector<float> Advantages(const Rewards& rewards,
                              const AdvantageOptions& options);

struct ActorCriticLossOptions {
  double value_weight = 0.5;
  double entropy_weight = 0.01;  // against settling too early
};

// Section 4, averaged over the n actions, a scalar. actions: [n] int64;
// advantages and returns: [n].
torch::Tensor ActorCriticLoss(const ActorCriticImpl::Output& output,
                              const torch::Tensor& actions,
                              const torch::Tensor& advantages,
                              const torch::Tensor& returns,
                              const ActorCriticLossOptions& options);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_ACTOR_CRITIC_H_
