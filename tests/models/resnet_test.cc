#include "models/resnet.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "gmock/gmock.h"

namespace gavel::models {
namespace {

int64_t ParameterCount(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    count += parameter.numel();
  }
  return count;
}

TEST(ResNet18, HasThePublishedNumberOfParametersForCifar10) {
  EXPECT_EQ(ParameterCount(*ResNet18(ResNetOptions{})), 11'173'962);
}

TEST(ResNet18, TakesImagesFrom8To32PixelsAndAnyChannels) {
  const torch::NoGradGuard no_grad;
  ResNet18 colour(ResNetOptions{.channels = 3, .classes = 7, .width = 4});
  EXPECT_EQ(colour(at::randn({2, 3, 32, 32})).sizes(), at::IntArrayRef({2, 7}));
  ResNet18 grey(ResNetOptions{.channels = 1, .width = 4});
  EXPECT_EQ(grey(at::randn({5, 1, 8, 8})).sizes(), at::IntArrayRef({5, 10}));
}

TEST(ResNet18, EveryParameterGetsAGradient) {
  ResNet18 model(ResNetOptions{.channels = 1, .width = 4});
  model(at::randn({4, 1, 8, 8})).square().sum().backward();
  for (const auto& parameter : model->named_parameters()) {
    ASSERT_TRUE(parameter->grad().defined()) << parameter.key();
    EXPECT_GT(parameter->grad().abs().sum().item<float>(), 0)
        << parameter.key();
  }
}

TEST(ResNet18, LearnsABatchByHeart) {
  torch::manual_seed(1);
  ResNet18 model(ResNetOptions{.channels = 1, .width = 4});
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(0.05).momentum(0.9));
  const at::Tensor images = at::randn({32, 1, 8, 8});
  const at::Tensor labels = at::randint(10, {32}, at::kLong);
  double loss = 0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    const at::Tensor tensor = at::cross_entropy_loss(model(images), labels);
    tensor.backward();
    optimizer.step();
    loss = tensor.item<double>();
  }
  EXPECT_LT(loss, 0.1);  // ln 10 = 2.3 at the start
}

}  // namespace
}  // namespace gavel::models
