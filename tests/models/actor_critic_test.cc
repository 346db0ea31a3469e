#include "models/actor_critic.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <torch/utils.h>

#include <cmath>

#include "tests/models/parameter_count.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

// Mnih et al., section 8: 16 filters of 8 x 8, 32 of 4 x 4, 256 hidden units,
// on four pictures of 84 x 84; then the actions of Pong, and a value.
TEST(ActorCritic, HasTheParametersOfThePapersNetwork) {
  ActorCritic model(ActorCriticOptions{.actions = 3});
  EXPECT_EQ(ParameterCount(*model),
            (4 * 8 * 8 + 1) * 16 + (16 * 4 * 4 + 1) * 32 +
                (32 * 9 * 9 + 1) * 256 + (256 + 1) * (3 + 1));
  const auto output = model(at::randn({2, 4, 84, 84}));
  EXPECT_EQ(output.logits.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(output.value.sizes(), at::IntArrayRef({2}));
}

TEST(Advantages, AreReturnsOfUpToNStepsWithoutLambda) {
  const Rewards rewards{.rewards = {1, 0, 2},
                        .ended = {false, false, false},
                        .values = {0.5F, 0.25F, 1, 4}};
  // The return of each, less what the critic thought of it.
  const float last = 2 + 0.5F * 4;
  const float second = 0 + 0.5F * last;
  const float first = 1 + 0.5F * second;
  EXPECT_THAT(Advantages(rewards, {.discount = 0.5}),
              ElementsAre(first - 0.5F, second - 0.25F, last - 1));
}

TEST(Advantages, SeeNothingBehindTheEndOfAGame) {
  const Rewards rewards{.rewards = {1, 0, 2},
                        .ended = {false, true, false},
                        .values = {0, 0, 0, 4}};
  EXPECT_THAT(Advantages(rewards, {.discount = 0.5}), ElementsAre(1, 0, 4));
}

TEST(Advantages, AreOneStepErrorsWithLambdaZeroAndSumsOfThemBetween) {
  const Rewards rewards{
      .rewards = {1, 0}, .ended = {false, false}, .values = {0.5F, 0.25F, 1}};
  const float first = 1 + 0.5F * 0.25F - 0.5F;
  const float second = 0 + 0.5F * 1 - 0.25F;
  EXPECT_THAT(Advantages(rewards, {.discount = 0.5, .lambda = 0}),
              ElementsAre(first, second));
  EXPECT_THAT(Advantages(rewards, {.discount = 0.5, .lambda = 0.5}),
              ElementsAre(first + 0.5F * 0.5F * second, second));
}

TEST(ActorCriticLoss, IsThatOfThePaper) {
  const ActorCriticImpl::Output output{
      .logits = at::tensor({0.0F, std::log(3.0F)}).view({1, 2}),
      .value = at::tensor({0.5F})};
  const at::Tensor loss = ActorCriticLoss(
      output, at::tensor({1}, at::kLong), at::tensor({2.0F}),
      at::tensor({2.5F}), {.value_weight = 0.5, .entropy_weight = 0.1});
  const double entropy = -0.25 * std::log(0.25) - 0.75 * std::log(0.75);
  EXPECT_NEAR(loss.item<double>(),
              -2 * std::log(0.75) + 0.5 * 4 - 0.1 * entropy, 1e-6);
}

}  // namespace
}  // namespace gavel::models
