// Convolutional networks: ResNet and VGG, which classify images, and CycleGAN,
// which translates them. As thread-safe as any LibTorch module.
#ifndef GAVEL_MODELS_IMAGE_MODELS_H_
#define GAVEL_MODELS_IMAGE_MODELS_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <random>
#include <vector>

namespace gavel::models {

// ResNet-18 and ResNet-50, with a stem for small or for large images.
// K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016. Where
// a block of ResNet-50 halves the resolution, its 3x3 convolution does (as in
// every published set of weights), not its first 1x1.
//
// Images are [batch, channels, height, width] floats; the result is [batch,
// classes] logits.

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

// Convolutions in sequence, each normalized, in parallel with a shortcut.
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

// VGG-16, configuration D of K. Simonyan and A. Zisserman, Very Deep
// Convolutional Networks for Large-Scale Image Recognition, ICLR 2015. Most of
// its 138 million parameters are in two fully connected layers, so a gang
// exchanges many gradients for little arithmetic: how close its accelerators
// are to each other matters more to it than to the other workloads.
//
// Images and result are like those of ResNet, with any side from 32 on:
// features are averaged or repeated to 7 x 7, the size for images of 224 x 224.

struct VggOptions {
  int64_t channels = 3;
  int64_t classes = 10;
  // Feature maps of the first stage; the hidden layers have 64 times as many.
  // 64 is the published network.
  int64_t width = 64;
  double dropout = 0.5;  // in [0, 1), of the hidden layers
};

class VggImpl : public torch::nn::Module {
 public:
  explicit VggImpl(const VggOptions& options);
  torch::Tensor forward(const torch::Tensor& images);

 private:
  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::Linear> layers_;
  double dropout_;
};
TORCH_MODULE(Vgg);

// The networks of CycleGAN, and its memory of generated images.
// J.-Y. Zhu et al., Unpaired Image-to-Image Translation using Cycle-Consistent
// Adversarial Networks, ICCV 2017, appendix 7.2. Images are [batch, 3, side,
// side] floats in [-1, 1].

struct CycleGanOptions {
  // Residual blocks of the generator: 9 for images of 256 pixels, 6 for 128.
  int64_t blocks = 9;
  int64_t width = 64;  // feature maps of the first layers; 64 as published
};

// An image in the style of the other kind: two steps down, residual blocks, two
// steps up. `side` is a multiple of 4, from 16 on.
class CycleGanGeneratorImpl : public torch::nn::Module {
 public:
  explicit CycleGanGeneratorImpl(const CycleGanOptions& options);
  torch::Tensor forward(const torch::Tensor& images);

 private:
  torch::nn::Sequential layers_;
};
TORCH_MODULE(CycleGanGenerator);

// PatchGAN: for every patch of 70 x 70 pixels whether it is real (1) or
// generated (0), as [batch, 1, side / 8 - 2, side / 8 - 2]. `side` from 32 on.
class CycleGanDiscriminatorImpl : public torch::nn::Module {
 public:
  explicit CycleGanDiscriminatorImpl(const CycleGanOptions& options);
  torch::Tensor forward(const torch::Tensor& images);

 private:
  torch::nn::Sequential layers_;
};
TORCH_MODULE(CycleGanDiscriminator);

// Both generators and both discriminators, for images of the kinds A and B, and
// their losses.
class CycleGanImpl : public torch::nn::Module {
 public:
  struct Generated {
    at::Tensor loss;            // of the generators
    at::Tensor fake_a, fake_b;  // without a graph
  };

  explicit CycleGanImpl(const CycleGanOptions& options);

  // The generators' loss is the adversarial loss (least squares), plus 10 times
  // the cycle consistency loss, plus 5 times the identity loss.
  Generated Generate(const at::Tensor& real_a, const at::Tensor& real_b);
  // Returns the loss of the discriminators: least squares, halved.
  at::Tensor Judge(const at::Tensor& real_a, const at::Tensor& real_b,
                   const at::Tensor& fake_a, const at::Tensor& fake_b);

  std::vector<at::Tensor> GeneratorParameters() const;
  std::vector<at::Tensor> DiscriminatorParameters() const;

  CycleGanGenerator to_b, to_a;
  CycleGanDiscriminator is_a, is_b;
};
TORCH_MODULE(CycleGan);

// Keeps the last 50 generated images. Half of the time the discriminators see a
// new image at once. Otherwise the new image replaces a kept one, which they
// see instead. A. Shrivastava et al., CVPR 2017, section 2.3. Its state is
// `images` and the random engine that is passed in; both belong to a job's
// state.
class ImageBuffer {
 public:
  // [batch, 3, side, side], without a graph; the same shape each time.
  at::Tensor Exchange(const at::Tensor& generated, std::mt19937_64& random);

  std::vector<at::Tensor>& images() { return images_; }

 private:
  std::vector<at::Tensor> images_;
};

}  // namespace gavel::models

#endif  // GAVEL_MODELS_IMAGE_MODELS_H_
