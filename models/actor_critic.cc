#include "models/actor_critic.h"

#include <ATen/ops/log_softmax.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <numbers>
#include <type_traits>

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

namespace {

// Lengths are fractions of the court, speeds fractions per frame.
constexpr double kPaddleHalf = 0.1;  // of its height
constexpr double kOpponentX = 0.05;
constexpr double kOwnX = 0.95;
constexpr double kOwnSpeed = 0.015;
constexpr double kServeSpeed = 0.012;
constexpr double kSpeedMax = 0.024;
constexpr double kFaster = 1.08;  // after each hit
constexpr double kAngleMax = std::numbers::pi / 3;
constexpr double kServeAngleMax = std::numbers::pi / 4;

double Moved(double paddle_y, double by) {
  return std::clamp(paddle_y + by, kPaddleHalf, 1 - kPaddleHalf);
}

}  // namespace

Pong::Pong(const PongOptions& options, uint64_t seed) : options_(options) {
  assert(options.points > 0 && options.frames_per_step > 0);
  state_.random = seed;
  Serve(Uniform(-1, 1) < 0 ? -1 : 1);
}

Pong::Outcome Pong::Step(int64_t action) {
  assert(action >= 0 && action < kActions);
  if (std::max(state_.own_points, state_.opponent_points) >= options_.points) {
    state_.own_points = state_.opponent_points = 0;
  }
  auto& pictures = state_.pictures;
  std::copy(pictures.begin() + 1, pictures.end(), pictures.begin());
  Outcome outcome;
  for (int64_t frame = 0; frame < options_.frames_per_step; ++frame) {
    outcome.reward += Frame(action);
    outcome.ended =
        std::max(state_.own_points, state_.opponent_points) >= options_.points;
    if (outcome.ended) break;
  }
  return outcome;
}

// Returns the points of one frame: 1, -1, or mostly 0.
double Pong::Frame(int64_t action) {
  Positions& now = state_.pictures.back();
  const double own = action == 0 ? 0 : action == 1 ? -kOwnSpeed : kOwnSpeed;
  now.own_y = Moved(now.own_y, own);
  now.opponent_y = Moved(now.opponent_y, std::clamp(now.ball_y - now.opponent_y,
                                                    -options_.opponent_speed,
                                                    options_.opponent_speed));
  const double old_x = now.ball_x;
  now.ball_x += state_.speed_x;
  now.ball_y += state_.speed_y;
  if (now.ball_y < 0 || now.ball_y > 1) {
    now.ball_y = now.ball_y < 0 ? -now.ball_y : 2 - now.ball_y;
    state_.speed_y = -state_.speed_y;
  }
  const bool to_own = state_.speed_x > 0;
  if (Bounce(old_x, to_own ? kOwnX : kOpponentX,
             to_own ? now.own_y : now.opponent_y)) {
    return 0;
  }
  if (now.ball_x > 0 && now.ball_x < 1) return 0;
  ++(to_own ? state_.opponent_points : state_.own_points);
  Serve(to_own ? 1 : -1);  // to the player who lost the point
  return to_own ? -1 : 1;
}

// Returns whether the ball has met the paddle in this frame.
bool Pong::Bounce(double old_x, double paddle_x, double paddle_y) {
  Positions& now = state_.pictures.back();
  const bool crossed = (old_x < paddle_x) != (now.ball_x < paddle_x);
  const double offset = (now.ball_y - paddle_y) / kPaddleHalf;
  if (!crossed || std::abs(offset) > 1) return false;
  const double speed =
      std::min(kSpeedMax, kFaster * std::hypot(state_.speed_x, state_.speed_y));
  const double angle = offset * kAngleMax;
  const double direction = state_.speed_x > 0 ? -1 : 1;
  state_.speed_x = direction * speed * std::cos(angle);
  state_.speed_y = speed * std::sin(angle);
  now.ball_x = 2 * paddle_x - now.ball_x;
  return true;
}

void Pong::Serve(double direction) {
  Positions& now = state_.pictures.back();
  now.ball_x = 0.5;
  now.ball_y = Uniform(0.2, 0.8);
  const double angle = Uniform(-kServeAngleMax, kServeAngleMax);
  state_.speed_x = direction * kServeSpeed * std::cos(angle);
  state_.speed_y = kServeSpeed * std::sin(angle);
}

// SplitMix64 (G. Steele et al., OOPSLA 2014): its state is one number.
double Pong::Uniform(double low, double high) {
  uint64_t bits = state_.random += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  bits ^= bits >> 31;
  return low + (high - low) * static_cast<double>(bits >> 11) * 0x1p-53;
}

std::array<float, Pong::kFeatures> Pong::Features() const {
  const Positions& now = state_.pictures.back();
  const auto place = [](double value) {
    return static_cast<float>(2 * value - 1);
  };
  const auto speed = [](double value) {
    return static_cast<float>(value / kServeSpeed);
  };
  return {place(now.ball_x),     place(now.ball_y), speed(state_.speed_x),
          speed(state_.speed_y), place(now.own_y),  place(now.opponent_y)};
}

void Pong::Draw(std::span<float> picture) const {
  assert(picture.size() == kPictures * kPixels * kPixels);
  std::fill(picture.begin(), picture.end(), 0.0F);
  const auto box = [](std::span<float> part, double x, double y,
                      double half_width, double half_height) {
    const auto pixel = [](double value) {
      return static_cast<size_t>(
          std::clamp(value * kPixels, 0.0, double{kPixels - 1}));
    };
    for (size_t row = pixel(y - half_height); row <= pixel(y + half_height);
         ++row) {
      std::fill(&part[row * kPixels + pixel(x - half_width)],
                &part[row * kPixels + pixel(x + half_width)] + 1, 1.0F);
    }
  };
  for (const Positions& positions : state_.pictures) {
    const auto part = picture.first(kPixels * kPixels);
    box(part, positions.ball_x, positions.ball_y, 0.012, 0.012);
    box(part, kOpponentX, positions.opponent_y, 0.012, kPaddleHalf);
    box(part, kOwnX, positions.own_y, 0.012, kPaddleHalf);
    picture = picture.subspan(part.size());
  }
}

std::string Pong::Save() const {
  static_assert(std::is_trivially_copyable_v<State>);
  static_assert(sizeof(State) ==
                sizeof(double) * (kPictures * 4 + 2) + 3 * sizeof(uint64_t));
  return {reinterpret_cast<const char*>(&state_), sizeof(state_)};
}

bool Pong::Load(const std::string& bytes) {
  if (bytes.size() != sizeof(state_)) return false;
  std::memcpy(&state_, bytes.data(), sizeof(state_));
  return true;
}

}  // namespace gavel::models
