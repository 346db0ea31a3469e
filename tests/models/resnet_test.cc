#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <torch/utils.h>

#include "models/image_models.h"
#include "tests/models/parameter_count.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

TEST(ResNet18, HasThePublishedNumberOfParametersForCifar10) {
  EXPECT_EQ(ParameterCount(*ResNet(ResNetOptions{})), 11'173'962);
}

// The numbers of parameters of torchvision's resnet18 and resnet50.
TEST(ResNet18, HasThePublishedNumberOfParametersForImageNet) {
  const ResNet model(
      ResNetOptions{.stem = ResNetStem::kLargeImages, .classes = 1000});
  EXPECT_EQ(ParameterCount(*model), 11'689'512);
}

TEST(ResNet50, HasThePublishedNumberOfParameters) {
  const ResNet model(ResNetOptions{.depth = ResNetDepth::k50,
                                   .stem = ResNetStem::kLargeImages,
                                   .classes = 1000});
  EXPECT_EQ(ParameterCount(*model), 25'557'032);
}

TEST(ResNet50, EveryParameterGetsAGradientFromLargeImages) {
  torch::manual_seed(1);
  ResNet model(ResNetOptions{.depth = ResNetDepth::k50,
                             .stem = ResNetStem::kLargeImages,
                             .classes = 5,
                             .width = 4});
  const at::Tensor logits = model(at::randn({2, 3, 64, 48}));
  EXPECT_EQ(logits.sizes(), at::IntArrayRef({2, 5}));
  logits.square().sum().backward();
  for (const auto& parameter : model->named_parameters()) {
    ASSERT_TRUE(parameter->grad().defined()) << parameter.key();
    EXPECT_GT(parameter->grad().abs().sum().item<float>(), 0)
        << parameter.key();
  }
}

TEST(ResNet18, TakesImagesFrom8To32PixelsAndAnyChannels) {
  const torch::NoGradGuard no_grad;
  ResNet colour(ResNetOptions{.channels = 3, .classes = 7, .width = 4});
  EXPECT_EQ(colour(at::randn({2, 3, 32, 32})).sizes(), at::IntArrayRef({2, 7}));
  ResNet grey(ResNetOptions{.channels = 1, .width = 4});
  EXPECT_EQ(grey(at::randn({5, 1, 8, 8})).sizes(), at::IntArrayRef({5, 10}));
}

}  // namespace
}  // namespace gavel::models
