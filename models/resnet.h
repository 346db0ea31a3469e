// ResNet-18 and ResNet-50, with a stem for small or for large images.
// K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016. Where
// a block of ResNet-50 halves the resolution, its 3x3 convolution does (as in
// every published set of weights), not its first 1x1.
//
// Images are [batch, channels, height, width] floats; the result is [batch,
// classes] logits. As thread-safe as any LibTorch module.
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

enum class ResNetDepth : uint8_t { k18, k50 };

// kSmallImages: 3x3, so that 32 x 32 (CIFAR-10) and 8 x 8 (digits) images keep
// their resolution. kLargeImages: 7x7 and pooling, which quarter it, as for
// ImageNet's 224 x 224; from 32 x 32 on.
enum class ResNetStem : uint8_t { kSmallImages, kLargeImages };

struct ResNetOptions {
  ResNetDepth depth = ResNetDepth::k18;
  ResNetStem stem = ResNetStem::kSmallImages;
  int64_t channels = 3;
  int64_t classes = 10;
  // Feature maps of the first stage, doubled by each of the next three. 64 is
  // the published network, 16 is enough for digits.
  int64_t width = 64;
};

// Convolutions one after the other, normalized each, beside a shortcut.
class ResidualBlockImpl : public torch::nn::Module {
 public:
  struct Convolution {
    int64_t channels;  // of its result
    int64_t kernel;
    int64_t stride = 1;
  };
  ResidualBlockImpl(int64_t channels_in,
                    const std::vector<Convolution>& convolutions);
  torch::Tensor forward(const torch::Tensor& features);

 private:
  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  // Empty when the shortcut is the identity.
  torch::nn::Conv2d shortcut_convolution_{nullptr};
  torch::nn::BatchNorm2d shortcut_norm_{nullptr};
};
TORCH_MODULE(ResidualBlock);

class ResNetImpl : public torch::nn::Module {
 public:
  explicit ResNetImpl(const ResNetOptions& options);
  torch::Tensor forward(const torch::Tensor& images);

 private:
  bool pools_;
  torch::nn::Conv2d stem_convolution_;
  torch::nn::BatchNorm2d stem_norm_;
  std::vector<ResidualBlock> blocks_;
  torch::nn::Linear classifier_;
};
TORCH_MODULE(ResNet);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_RESNET_H_
