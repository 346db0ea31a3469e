#include "models/recommendation_autoencoder.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include "gmock/gmock.h"
#include "tests/models/parameter_count.h"

namespace gavel::models {
namespace {

// MovieLens-20M has 20,108 items as Liang et al. prepare it (table 1); their
// Mult-DAE is [items -> 200 -> items].
TEST(RecommendationAutoencoder, HasTheParametersOfThePapersLayers) {
  const RecommendationAutoencoder model(
      RecommendationAutoencoderOptions{.items = 20'108});
  EXPECT_EQ(gavel::testing::ParameterCount(*model),
            20'108 * 200 + 200 + 200 * 20'108 + 20'108);
}

TEST(MultinomialLoss, IsMinusTheLogLikelihoodAveragedOverUsers) {
  const at::Tensor logits = at::tensor({0.0F, 1.0F, 2.0F, 3.0F}).view({2, 2});
  const at::Tensor likes = at::tensor({1.0F, 1.0F, 0.0F, 1.0F}).view({2, 2});
  const at::Tensor p = logits.softmax(1).log();
  EXPECT_NEAR(MultinomialLoss(logits, likes).item<float>(),
              -(p[0][0] + p[0][1] + p[1][1]).item<float>() / 2, 1e-6);
}

TEST(RecommendationAutoencoder, LearnsWhatGoesTogether) {
  torch::manual_seed(1);
  RecommendationAutoencoder model(
      RecommendationAutoencoderOptions{.items = 8, .hidden = 4});
  torch::optim::Adam optimizer(model->parameters(),
                               torch::optim::AdamOptions(0.05));
  // The even items are liked by some, the odd ones by others.
  at::Tensor likes = at::zeros({20, 8});
  for (int64_t user = 0; user < 20; ++user) {
    for (int64_t item = user % 2; item < 8; item += 2) likes[user][item] = 1;
  }
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    MultinomialLoss(model(likes), likes).backward();
    optimizer.step();
  }
  model->eval();
  at::Tensor seen = at::zeros({1, 8});
  seen[0][2] = 1;
  const at::Tensor scores = model(seen)[0];
  for (const int64_t item : {0, 4, 6}) {
    for (const int64_t other : {1, 3, 5, 7}) {
      EXPECT_GT(scores[item].item<float>(), scores[other].item<float>());
    }
  }
}

}  // namespace
}  // namespace gavel::models
