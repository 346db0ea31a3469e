#include <ATen/ops/randn.h>
#include <torch/utils.h>

#include "models/image_models.h"
#include "tests/models/parameter_count.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

// The number of parameters of torchvision's vgg16.
TEST(Vgg16, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(ParameterCount(*Vgg(VggOptions{.classes = 1000})), 138'357'544);
}

TEST(Vgg16, EveryParameterGetsAGradientFromImagesOfAnySide) {
  torch::manual_seed(1);
  Vgg model(VggOptions{.classes = 5, .width = 2});
  const at::Tensor logits = model(at::randn({2, 3, 32, 48}));
  EXPECT_EQ(logits.sizes(), at::IntArrayRef({2, 5}));
  logits.square().sum().backward();
  for (const auto& parameter : model->named_parameters()) {
    ASSERT_TRUE(parameter->grad().defined()) << parameter.key();
    EXPECT_GT(parameter->grad().abs().sum().item<float>(), 0)
        << parameter.key();
  }
}

TEST(Vgg16, FeaturesKeepTheirSizeThroughAllConvolutions) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  Vgg model(VggOptions{.classes = 8, .width = 8, .dropout = 0});
  const double small = model(at::randn({4, 3, 32, 32})).std().item<double>();
  EXPECT_GT(small, 1e-4);
  EXPECT_LT(small, 1);
}

TEST(Vgg16, DropsOutInTrainingOnly) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  Vgg model(VggOptions{.width = 2});
  const at::Tensor images = at::randn({2, 3, 32, 32});
  EXPECT_FALSE(model(images).equal(model(images)));
  model->eval();
  EXPECT_TRUE(model(images).equal(model(images)));
}

}  // namespace
}  // namespace gavel::models
