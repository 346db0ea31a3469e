#include <ATen/ops/ones.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <cmath>

#include "models/training.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

TEST(InverseSquareRootRate, IsThePapers) {
  // Section 5.3: width^-0.5 min(step^-0.5, step warm_up^-1.5), from step 1 on.
  constexpr double kWidth = 512;
  constexpr double kWarmUp = 4000;
  const WarmUp warm_up{.peak = 1 / std::sqrt(kWidth * kWarmUp), .steps = 4000};
  for (const int64_t step : {0, 1, 100, 3999, 4000, 50000}) {
    const auto now = static_cast<double>(step + 1);
    const double published =
        std::pow(kWidth, -0.5) *
        std::min(std::pow(now, -0.5), now * std::pow(kWarmUp, -1.5));
    EXPECT_NEAR(InverseSquareRootRate(step, warm_up), published, 1e-15);
  }
}

TEST(CosineRate, RisesFallsAndStays) {
  const WarmUp warm_up{.peak = 1, .steps = 10};
  EXPECT_DOUBLE_EQ(CosineRate(0, warm_up, 110), 0.1);
  EXPECT_DOUBLE_EQ(CosineRate(9, warm_up, 110), 1);
  EXPECT_DOUBLE_EQ(CosineRate(10, warm_up, 110), 1);
  EXPECT_DOUBLE_EQ(CosineRate(60, warm_up, 110), 0.55);
  EXPECT_DOUBLE_EQ(CosineRate(110, warm_up, 110), 0.1);
  EXPECT_DOUBLE_EQ(CosineRate(5000, warm_up, 110), 0.1);
}

TEST(DecayGroups, KeepsBiasesAndNormsFromDecaying) {
  torch::nn::Linear linear(3, 2);
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({2}));
  linear->register_module("norm", norm);
  torch::optim::AdamW optimizer(DecayGroups(*linear, 0.1, 0.5));
  SetLearningRate(optimizer, 0.2);
  for (const at::Tensor& parameter : linear->parameters()) {
    parameter.detach().fill_(1);
    parameter.mutable_grad() = at::zeros_like(parameter);
  }
  optimizer.step();
  EXPECT_TRUE(linear->weight.allclose(at::full({2, 3}, 1 - 0.2 * 0.5)));
  EXPECT_TRUE(linear->bias.equal(at::ones({2})));
  EXPECT_TRUE(norm->weight.equal(at::ones({2})));
}

}  // namespace
}  // namespace gavel::models
