#include "models/cyclegan.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/stack.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/padding.h>
#include <torch/utils.h>

namespace gavel::models {
namespace {

constexpr size_t kBufferSize = 50;
constexpr double kWeightDeviation = 0.02;
constexpr double kLeak = 0.2;
// How much the losses count beside the discriminators' verdict.
constexpr double kCycleWeight = 10;
constexpr double kIdentityWeight = 0.5 * kCycleWeight;

torch::nn::Conv2d MakeConv(int64_t in, int64_t out, int64_t kernel,
                           int64_t stride, int64_t padding) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel)
                               .stride(stride)
                               .padding(padding));
}

// By image and channel, without parameters.
torch::nn::InstanceNorm2d MakeNorm(int64_t channels) {
  return torch::nn::InstanceNorm2d(torch::nn::InstanceNorm2dOptions(channels));
}

torch::nn::LeakyReLU MakeLeaky() {
  return torch::nn::LeakyReLU(
      torch::nn::LeakyReLUOptions().negative_slope(kLeak));
}

void DrawWeights(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : module.named_parameters()) {
    if (parameter.value().dim() > 1) {
      torch::nn::init::normal_(parameter.value(), 0, kWeightDeviation);
    } else {
      torch::nn::init::zeros_(parameter.value());
    }
  }
}

// Two 3x3 convolutions beside the identity.
class GeneratorBlockImpl : public torch::nn::Module {
 public:
  explicit GeneratorBlockImpl(int64_t channels)
      : layers_(register_module(
            "layers",
            torch::nn::Sequential(
                torch::nn::ReflectionPad2d(1),
                MakeConv(channels, channels, 3, 1, 0), MakeNorm(channels),
                torch::nn::ReLU(), torch::nn::ReflectionPad2d(1),
                MakeConv(channels, channels, 3, 1, 0), MakeNorm(channels)))) {}
  torch::Tensor forward(const torch::Tensor& features) {
    return features + layers_->forward(features);
  }

 private:
  torch::nn::Sequential layers_;
};
TORCH_MODULE(GeneratorBlock);

torch::nn::ConvTranspose2d MakeUpward(int64_t in, int64_t out) {
  return torch::nn::ConvTranspose2d(
      torch::nn::ConvTranspose2dOptions(in, out, 3)
          .stride(2)
          .padding(1)
          .output_padding(1));
}

// 1 is real, 0 generated.
at::Tensor VerdictLoss(const at::Tensor& verdict, double wanted) {
  return (verdict - wanted).square().mean();
}

std::vector<at::Tensor> ParametersOf(const torch::nn::Module& first,
                                     const torch::nn::Module& second) {
  std::vector<at::Tensor> all = first.parameters();
  for (const at::Tensor& one : second.parameters()) all.push_back(one);
  return all;
}

}  // namespace

CycleGanGeneratorImpl::CycleGanGeneratorImpl(const CycleGanOptions& options) {
  const int64_t width = options.width;
  torch::nn::Sequential layers(
      torch::nn::ReflectionPad2d(3), MakeConv(3, width, 7, 1, 0),
      MakeNorm(width), torch::nn::ReLU(),                          //
      MakeConv(width, 2 * width, 3, 2, 1), MakeNorm(2 * width),    //
      torch::nn::ReLU(), MakeConv(2 * width, 4 * width, 3, 2, 1),  //
      MakeNorm(4 * width), torch::nn::ReLU());
  for (int64_t block = 0; block < options.blocks; ++block) {
    layers->push_back(GeneratorBlock(4 * width));
  }
  layers->push_back(MakeUpward(4 * width, 2 * width));
  layers->push_back(MakeNorm(2 * width));
  layers->push_back(torch::nn::ReLU());
  layers->push_back(MakeUpward(2 * width, width));
  layers->push_back(MakeNorm(width));
  layers->push_back(torch::nn::ReLU());
  layers->push_back(torch::nn::ReflectionPad2d(3));
  layers->push_back(MakeConv(width, 3, 7, 1, 0));
  layers->push_back(torch::nn::Tanh());
  layers_ = register_module("layers", layers);
  DrawWeights(*this);
}

torch::Tensor CycleGanGeneratorImpl::forward(const torch::Tensor& images) {
  return layers_->forward(images);
}

CycleGanDiscriminatorImpl::CycleGanDiscriminatorImpl(
    const CycleGanOptions& options) {
  const int64_t width = options.width;
  torch::nn::Sequential layers(MakeConv(3, width, 4, 2, 1), MakeLeaky());
  for (const int64_t factor : {1, 2, 4}) {
    const int64_t stride = factor < 4 ? 2 : 1;
    layers->push_back(
        MakeConv(factor * width, 2 * factor * width, 4, stride, 1));
    layers->push_back(MakeNorm(2 * factor * width));
    layers->push_back(MakeLeaky());
  }
  layers->push_back(MakeConv(8 * width, 1, 4, 1, 1));
  layers_ = register_module("layers", layers);
  DrawWeights(*this);
}

torch::Tensor CycleGanDiscriminatorImpl::forward(const torch::Tensor& images) {
  return layers_->forward(images);
}

CycleGanImpl::CycleGanImpl(const CycleGanOptions& options)
    : to_b(register_module("to_b", CycleGanGenerator(options))),
      to_a(register_module("to_a", CycleGanGenerator(options))),
      is_a(register_module("is_a", CycleGanDiscriminator(options))),
      is_b(register_module("is_b", CycleGanDiscriminator(options))) {}

CycleGanImpl::Generated CycleGanImpl::Generate(const at::Tensor& real_a,
                                               const at::Tensor& real_b) {
  const at::Tensor fake_b = to_b(real_a);
  const at::Tensor fake_a = to_a(real_b);
  const at::Tensor verdict =
      VerdictLoss(is_b(fake_b), 1) + VerdictLoss(is_a(fake_a), 1);
  const at::Tensor cycle =
      at::l1_loss(to_a(fake_b), real_a) + at::l1_loss(to_b(fake_a), real_b);
  const at::Tensor identity =
      at::l1_loss(to_b(real_b), real_b) + at::l1_loss(to_a(real_a), real_a);
  return {verdict + kCycleWeight * cycle + kIdentityWeight * identity,
          fake_a.detach(), fake_b.detach()};
}

at::Tensor CycleGanImpl::Judge(const at::Tensor& real_a,
                               const at::Tensor& real_b,
                               const at::Tensor& fake_a,
                               const at::Tensor& fake_b) {
  return 0.5 * (VerdictLoss(is_a(real_a), 1) + VerdictLoss(is_a(fake_a), 0) +
                VerdictLoss(is_b(real_b), 1) + VerdictLoss(is_b(fake_b), 0));
}

std::vector<at::Tensor> CycleGanImpl::GeneratorParameters() const {
  return ParametersOf(*to_a, *to_b);
}

std::vector<at::Tensor> CycleGanImpl::DiscriminatorParameters() const {
  return ParametersOf(*is_a, *is_b);
}

at::Tensor ImageBuffer::Exchange(const at::Tensor& generated,
                                 std::mt19937_64& random) {
  std::vector<at::Tensor> seen;
  for (int64_t i = 0; i < generated.size(0); ++i) {
    const at::Tensor image = generated[i].clone();
    if (images_.size() < kBufferSize) {
      images_.push_back(image);
      seen.push_back(image);
    } else if (random() >> 63 == 0) {
      seen.push_back(image);
    } else {
      at::Tensor& place = images_[random() % kBufferSize];
      seen.push_back(place);
      place = image;
    }
  }
  return at::stack(seen);
}

}  // namespace gavel::models
