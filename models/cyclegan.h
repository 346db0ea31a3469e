// The networks of CycleGAN, and its memory of generated images.
// J.-Y. Zhu et al., Unpaired Image-to-Image Translation using Cycle-Consistent
// Adversarial Networks, ICCV 2017, appendix 7.2.
//
// Images are [batch, 3, side, side] floats in [-1, 1]. As thread-safe as any
// LibTorch module.
#ifndef GAVEL_MODELS_CYCLEGAN_H_
#define GAVEL_MODELS_CYCLEGAN_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <random>
#include <vector>

namespace gavel::models {

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

// Both generators and both discriminators, of images of the kinds A and B, and
// what they are trained to.
class CycleGanImpl : public torch::nn::Module {
 public:
  struct Generated {
    at::Tensor loss;            // of the generators
    at::Tensor fake_a, fake_b;  // without a graph
  };

  explicit CycleGanImpl(const CycleGanOptions& options);

  // The discriminators' verdict on generated images (least squares), 10 times
  // the way of an image to the other kind and back, and 5 times that of an
  // image that is already of the wanted kind.
  Generated Generate(const at::Tensor& real_a, const at::Tensor& real_b);
  // The loss of the discriminators; least squares, halved.
  at::Tensor Judge(const at::Tensor& real_a, const at::Tensor& real_b,
                   const at::Tensor& fake_a, const at::Tensor& fake_b);

  std::vector<at::Tensor> GeneratorParameters() const;
  std::vector<at::Tensor> DiscriminatorParameters() const;

  CycleGanGenerator to_b, to_a;
  CycleGanDiscriminator is_a, is_b;
};
TORCH_MODULE(CycleGan);

// The last 50 generated images: the discriminators see each image either at
// once or, half of the time, when it takes the place of one that is seen
// instead. A. Shrivastava et al., CVPR 2017, section 2.3. Its state is `images`
// and the random engine that is passed in; both belong to a job's state.
class ImageBuffer {
 public:
  // [batch, 3, side, side], without a graph; the same shape each time.
  at::Tensor Exchange(const at::Tensor& generated, std::mt19937_64& random);

  std::vector<at::Tensor>& images() { return images_; }

 private:
  std::vector<at::Tensor> images_;
};

}  // namespace gavel::models

#endif  // GAVEL_MODELS_CYCLEGAN_H_
