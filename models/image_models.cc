#include "models/image_models.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/add.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/padding.h>
#include <torch/utils.h>

#include <array>
#include <string>

namespace gavel::models {
namespace {

constexpr size_t kStages = 4;
// How much wider a block of ResNet-50 is at its end.
constexpr int64_t kExpansion = 4;

using Blocks = std::array<int, kStages>;

Blocks BlocksOf(ResNetDepth depth) {
  return depth == ResNetDepth::k18 ? Blocks{2, 2, 2, 2} : Blocks{3, 4, 6, 3};
}

torch::nn::Conv2d MakeConvolution(int64_t channels_in, int64_t channels_out,
                                  int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(channels_in, channels_out, kernel)
          .stride(stride)
          .padding(kernel / 2)
          .bias(false));
}

torch::nn::Conv2d MakeStem(const ResNetOptions& options) {
  const bool large = options.stem == ResNetStem::kLargeImages;
  return MakeConvolution(options.channels, options.width, large ? 7 : 3,
                         large ? 2 : 1);
}

std::vector<ResidualBlockImpl::Convolution> ConvolutionsOf(ResNetDepth depth,
                                                           int64_t width,
                                                           int64_t stride) {
  if (depth == ResNetDepth::k18) return {{width, 3, stride}, {width, 3}};
  return {{width, 1}, {width, 3, stride}, {width * kExpansion, 1}};
}

// The number of feature maps that the classifier gets.
int64_t FeaturesOf(const ResNetOptions& options) {
  const int64_t width = options.width << (kStages - 1);
  return options.depth == ResNetDepth::k18 ? width : width * kExpansion;
}

}  // namespace

ResidualBlockImpl::ResidualBlockImpl(
    int64_t channels_in, const std::vector<Convolution>& convolutions) {
  int64_t channels = channels_in;
  int64_t stride = 1;
  for (const Convolution& one : convolutions) {
    const std::string number = std::to_string(convolutions_.size());
    convolutions_.push_back(register_module(
        "convolution" + number,
        MakeConvolution(channels, one.channels, one.kernel, one.stride)));
    norms_.push_back(
        register_module("norm" + number, torch::nn::BatchNorm2d(one.channels)));
    channels = one.channels;
    stride *= one.stride;
  }
  if (stride == 1 && channels_in == channels) return;
  shortcut_convolution_ =
      register_module("shortcut_convolution",
                      MakeConvolution(channels_in, channels, 1, stride));
  shortcut_norm_ =
      register_module("shortcut_norm", torch::nn::BatchNorm2d(channels));
}

torch::Tensor ResidualBlockImpl::forward(const torch::Tensor& features) {
  torch::Tensor shortcut = features;
  if (shortcut_convolution_) {
    shortcut = shortcut_norm_(shortcut_convolution_(features));
  }
  torch::Tensor residual = features;
  for (size_t i = 0; i < convolutions_.size(); ++i) {
    if (i > 0) residual = at::relu(residual);
    residual = norms_[i](convolutions_[i](residual));
  }
  return at::relu(residual + shortcut);
}

ResNetImpl::ResNetImpl(const ResNetOptions& options)
    : pools_(options.stem == ResNetStem::kLargeImages),
      stem_convolution_(MakeStem(options)),
      stem_norm_(options.width),
      classifier_(FeaturesOf(options), options.classes) {
  register_module("stem_convolution", stem_convolution_);
  register_module("stem_norm", stem_norm_);
  const Blocks blocks = BlocksOf(options.depth);
  int64_t channels = options.width;
  for (size_t stage = 0; stage < kStages; ++stage) {
    for (int block = 0; block < blocks[stage]; ++block) {
      const auto convolutions =
          ConvolutionsOf(options.depth, options.width << stage,
                         stage > 0 && block == 0 ? 2 : 1);
      const std::string name =
          "stage" + std::to_string(stage) + "_block" + std::to_string(block);
      blocks_.push_back(
          register_module(name, ResidualBlock(channels, convolutions)));
      channels = convolutions.back().channels;
    }
  }
  register_module("classifier", classifier_);
}

torch::Tensor ResNetImpl::forward(const torch::Tensor& images) {
  torch::Tensor features = at::relu(stem_norm_(stem_convolution_(images)));
  if (pools_) features = at::max_pool2d(features, 3, 2, 1);
  for (ResidualBlock& block : blocks_) features = block(features);
  return classifier_(at::mean(features, at::IntArrayRef({2, 3})));
}

namespace {

// Convolutions of each stage, and its width in terms of the first one's.
struct VggStage {
  int convolutions;
  int64_t widening;
};
constexpr VggStage kVggStages[] = {{2, 1}, {2, 2}, {3, 4}, {3, 8}, {3, 8}};
constexpr int64_t kVggSide = 7;         // of the last stage's features
constexpr int64_t kVggHidden = 64;      // hidden layers over the first stage
constexpr double kVggDeviation = 0.01;  // of the weights of layers

}  // namespace

VggImpl::VggImpl(const VggOptions& options) : dropout_(options.dropout) {
  int64_t channels = options.channels;
  for (const VggStage& stage : kVggStages) {
    for (int i = 0; i < stage.convolutions; ++i) {
      const int64_t width = options.width * stage.widening;
      convolutions_.push_back(register_module(
          "convolution" + std::to_string(convolutions_.size()),
          torch::nn::Conv2d(
              torch::nn::Conv2dOptions(channels, width, 3).padding(1))));
      channels = width;
    }
  }
  const int64_t hidden = options.width * kVggHidden;
  const std::array<int64_t, 4> widths = {channels * kVggSide * kVggSide, hidden,
                                         hidden, options.classes};
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    layers_.push_back(
        register_module("layer" + std::to_string(i),
                        torch::nn::Linear(widths[i], widths[i + 1])));
  }
  // Without normalization, LibTorch's own initial weights would let the
  // features vanish on their way through thirteen convolutions.
  const torch::NoGradGuard no_grad;
  for (torch::nn::Conv2d& convolution : convolutions_) {
    torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut,
                                     torch::kReLU);
    torch::nn::init::zeros_(convolution->bias);
  }
  for (torch::nn::Linear& layer : layers_) {
    torch::nn::init::normal_(layer->weight, 0, kVggDeviation);
    torch::nn::init::zeros_(layer->bias);
  }
}

torch::Tensor VggImpl::forward(const torch::Tensor& images) {
  torch::Tensor features = images;
  size_t next = 0;
  for (const VggStage& stage : kVggStages) {
    for (int i = 0; i < stage.convolutions; ++i) {
      features = at::relu(convolutions_[next++](features));
    }
    features = at::max_pool2d(features, 2, 2);
  }
  features = at::adaptive_avg_pool2d(features, {kVggSide, kVggSide}).flatten(1);
  for (size_t i = 0; i + 1 < layers_.size(); ++i) {
    features = at::relu(layers_[i](features));
    features = at::dropout(features, dropout_, is_training());
  }
  return layers_.back()(features);
}

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
