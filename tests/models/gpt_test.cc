#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <cmath>

#include "models/text_models.h"
#include "models/training.h"
#include "tests/models/parameter_count.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

GptOptions SmallGpt() {
  return {.vocabulary = 30,
          .length = 16,
          .width = 16,
          .heads = 2,
          .layers = 2,
          .dropout = 0};
}

TEST(Gpt, HasThePublishedNumberOfParametersOfGpt2Small) {
  EXPECT_EQ(ParameterCount(*Gpt(GptOptions{})), 124'439'808);
}

TEST(Gpt, SeesThePastAndNotTheFuture) {
  torch::manual_seed(1);
  Gpt model(SmallGpt());
  const at::Tensor tokens = at::randint(30, {2, 9}, at::kLong);
  const at::Tensor logits = model(tokens);
  EXPECT_EQ(logits.sizes(), at::IntArrayRef({2, 9, 30}));
  at::Tensor changed = tokens.clone();
  changed[0][5] = (changed[0][5].item<int64_t>() + 1) % 30;
  const at::Tensor difference = (model(changed) - logits).abs().sum(2);
  EXPECT_LT(difference[0].narrow(0, 0, 5).max().item<float>(), 1e-6);
  EXPECT_GT(difference[0].narrow(0, 5, 4).min().item<float>(), 1e-5);
  EXPECT_LT(difference[1].max().item<float>(), 1e-6);
}

TEST(Gpt, BeginsWithALossNearThatOfGuessing) {
  torch::manual_seed(1);
  Gpt model(SmallGpt());
  const at::Tensor tokens = at::randint(30, {8, 16}, at::kLong);
  const at::Tensor targets = at::randint(30, {8, 16}, at::kLong);
  const at::Tensor loss =
      at::cross_entropy_loss(model(tokens).flatten(0, 1), targets.flatten());
  EXPECT_NEAR(loss.item<double>(), std::log(30), 0.05);
}

// The loss after training on sentences that count in steps of their first
// token.
double LossAfterTraining(bool mixed_precision, at::ScalarType* type) {
  torch::manual_seed(1);
  Gpt model(SmallGpt());
  torch::optim::AdamW optimizer(DecayGroups(*model, 0.01, 0.1));
  const at::Tensor starts = at::randint(30, {16, 1}, at::kLong);
  double loss = 0;
  for (int step = 0; step < 60; ++step) {
    const at::Tensor tokens = starts.expand({16, 12}).cumsum(1).remainder(30);
    optimizer.zero_grad();
    at::Tensor tensor;
    {
      const MixedPrecision precision(at::kCPU, mixed_precision);
      const at::Tensor logits = model(tokens.narrow(1, 0, 11));
      *type = logits.scalar_type();
      tensor = at::cross_entropy_loss(logits.flatten(0, 1),
                                      tokens.narrow(1, 1, 11).flatten());
    }
    tensor.backward();
    optimizer.step();
    loss = tensor.item<double>();
  }
  for (const at::Tensor& parameter : model->parameters()) {
    EXPECT_EQ(parameter.scalar_type(), at::kFloat);
    EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat);
  }
  return loss;
}

TEST(Gpt, LearnsToCountInBothPrecisions) {
  at::ScalarType type{};
  EXPECT_LT(LossAfterTraining(false, &type), 1);  // ln 30 = 3.4 at the start
  EXPECT_EQ(type, at::kFloat);
  EXPECT_LT(LossAfterTraining(true, &type), 1);
  EXPECT_EQ(type, at::kBFloat16);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

}  // namespace
}  // namespace gavel::models
