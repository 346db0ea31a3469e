// ResNet-18 in its form for small images: a 3x3 stem without pooling, so that
// 32 x 32 (CIFAR-10) and 8 x 8 (digits) images keep their resolution.
// K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016.
//
// Images are [batch, channels, height, width] floats of any size from 8 x 8 on;
// the result is [batch, classes] logits. As thread-safe as any LibTorch module.
#ifndef GAVEL_MODELS_RESNET_H_
#define GAVEL_MODELS_RESNET_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

namespace gavel::models {

struct ResNetOptions {
  int64_t channels = 3;
  int64_t classes = 10;
  // Feature maps of the first stage, doubled by each of the next three. 64 is
  // the published network (11.2 million parameters), 16 is enough for digits.
  int64_t width = 64;
};

// Two 3x3 convolutions beside a shortcut.
class ResidualBlockImpl : public torch::nn::Module {
 public:
  ResidualBlockImpl(int64_t channels_in, int64_t channels_out, int64_t stride);
  torch::Tensor forward(const torch::Tensor& features);

 private:
  torch::nn::Conv2d first_convolution_;
  torch::nn::BatchNorm2d first_norm_;
  torch::nn::Conv2d second_convolution_;
  torch::nn::BatchNorm2d second_norm_;
  // Empty when the shortcut is the identity.
  torch::nn::Conv2d shortcut_convolution_{nullptr};
  torch::nn::BatchNorm2d shortcut_norm_{nullptr};
};
TORCH_MODULE(ResidualBlock);

class ResNet18Impl : public torch::nn::Module {
 public:
  explicit ResNet18Impl(const ResNetOptions& options);
  torch::Tensor forward(const torch::Tensor& images);

 private:
  torch::nn::Conv2d stem_convolution_;
  torch::nn::BatchNorm2d stem_norm_;
  std::vector<ResidualBlock> blocks_;
  torch::nn::Linear classifier_;
};
TORCH_MODULE(ResNet18);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_RESNET_H_
