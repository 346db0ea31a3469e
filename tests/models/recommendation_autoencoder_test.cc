#include <ATen/ops/tensor.h>

#include "models/recommendation.h"
#include "tests/models/parameter_count.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

// MovieLens-20M has 20,108 items as Liang et al. prepare it (table 1); their
// Mult-DAE is [items -> 200 -> items].
TEST(RecommendationAutoencoder, HasTheParametersOfThePapersLayers) {
  const RecommendationAutoencoder model(
      RecommendationAutoencoderOptions{.items = 20'108});
  EXPECT_EQ(ParameterCount(*model), 20'108 * 200 + 200 + 200 * 20'108 + 20'108);
}

TEST(MultinomialLoss, IsMinusTheLogLikelihoodAveragedOverUsers) {
  const at::Tensor logits = at::tensor({0.0F, 1.0F, 2.0F, 3.0F}).view({2, 2});
  const at::Tensor likes = at::tensor({1.0F, 1.0F, 0.0F, 1.0F}).view({2, 2});
  const at::Tensor p = logits.softmax(1).log();
  EXPECT_NEAR(MultinomialLoss(logits, likes).item<float>(),
              -(p[0][0] + p[0][1] + p[1][1]).item<float>() / 2, 1e-6);
}

}  // namespace
}  // namespace gavel::models
