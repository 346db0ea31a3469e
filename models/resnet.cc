#include "models/resnet.h"

#include <ATen/ops/add.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/relu.h>

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

// What the last stage hands to the classifier.
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

}  // namespace gavel::models
