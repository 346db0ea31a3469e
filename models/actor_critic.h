// Reinforcement learning: the network of an actor and its critic, their loss,
// and the game of Pong, which they learn. V. Mnih et al., Asynchronous Methods
// for Deep Reinforcement Learning, ICML 2016 (A3C), the workload of Gavel (OSDI
// 2020).
#ifndef GAVEL_MODELS_ACTOR_CRITIC_H_
#define GAVEL_MODELS_ACTOR_CRITIC_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gavel::models {

struct ActorCriticOptions {
  int64_t actions = 3;
  // The number of input features, which go through two hidden layers of
  // `hidden`. 0: the input is pictures [4, 84, 84], which go through the
  // convolutions of Mnih et al., section 8, and a hidden layer of 256.
  int64_t features = 0;
  int64_t hidden = 64;
};

// As thread-safe as any LibTorch module.
class ActorCriticImpl : public torch::nn::Module {
 public:
  struct Output {
    torch::Tensor logits;  // of the actions, [batch, actions]
    torch::Tensor value;   // the expected return, [batch]
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

// The results of n actions in sequence.
struct Rewards {
  std::vector<float> rewards;  // n
  std::vector<bool> ended;     // n: whether the game ended with it
  std::vector<float> values;   // n + 1: the critic's, before each and after all
};

struct AdvantageOptions {
  double discount = 0.99;
  // Lambda of generalized advantage estimation, J. Schulman et al., ICLR 2016,
  // equation 16. With 1, returns are of up to n steps, as in A3C.
  double lambda = 1;
};

// Returns how much better each of the n actions was than the critic expected.
std::vector<float> Advantages(const Rewards& rewards,
                              const AdvantageOptions& options);

struct ActorCriticLossOptions {
  double value_weight = 0.5;
  double entropy_weight = 0.01;  // against settling too early
};

// The loss of section 4, averaged over the n actions, a scalar. actions: [n]
// int64; advantages and returns: [n].
torch::Tensor ActorCriticLoss(const ActorCriticImpl::Output& output,
                              const torch::Tensor& actions,
                              const torch::Tensor& advantages,
                              const torch::Tensor& returns,
                              const ActorCriticLossOptions& options);

// The game of Pong, played against an opponent that follows the ball at a
// limited speed. Positions and speeds are real numbers in a court of 1 x 1,
// (0, 0) at the top left; the opponent's paddle is on the left. The ball
// bounces off a wall at the angle at which it came. Its angle off a paddle
// depends on where it hits, and it is a little faster after each hit.
//
// The game is a function of the seed and the actions. A value; thread-safe as
// one.

struct PongOptions {
  int64_t points = 21;            // that end a game, > 0
  int64_t frames_per_step = 4;    // that an action lasts, > 0
  double opponent_speed = 0.006;  // at most, per frame
};

class Pong {
 public:
  static constexpr int64_t kActions = 3;  // stay, up, down
  static constexpr size_t kFeatures = 6;
  static constexpr size_t kPixels = 84;  // the height and the width
  static constexpr size_t kPictures = 4;

  struct Outcome {
    double reward = 0;   // 1 for each point won, -1 for each lost
    bool ended = false;  // the game; the next step begins another
  };

  Pong(const PongOptions& options, uint64_t seed);

  // action: in [0, kActions).
  Outcome Step(int64_t action);

  // Ball (place, then speed), own paddle and opponent's, each about -1 to 1.
  std::array<float, kFeatures> Features() const;
  // Draws the last kPictures steps, the newest last, in pixels of 0 and 1.
  // picture: kPictures x kPixels x kPixels.
  void Draw(std::span<float> picture) const;

  int64_t own_points() const { return state_.own_points; }
  int64_t opponent_points() const { return state_.opponent_points; }

  // Saves the game as bytes, which a game with the same options can load.
  // Load() returns false, and changes nothing, if the size is wrong.
  std::string Save() const;
  bool Load(const std::string& bytes);

 private:
  struct Positions {
    double ball_x = 0.5;
    double ball_y = 0.5;
    double own_y = 0.5;  // middle of the paddle
    double opponent_y = 0.5;
  };
  // Has no padding, since it is saved as it lies in memory.
  struct State {
    std::array<Positions, kPictures> pictures{};  // the newest last
    double speed_x = 0;                           // per frame
    double speed_y = 0;
    int64_t own_points = 0;
    int64_t opponent_points = 0;
    uint64_t random = 0;
  };

  double Uniform(double low, double high);
  void Serve(double direction);
  double Frame(int64_t action);
  bool Bounce(double old_x, double paddle_x, double paddle_y);

  PongOptions options_;
  State state_;
};

}  // namespace gavel::models

#endif  // GAVEL_MODELS_ACTOR_CRITIC_H_
