#include "models/resnet.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/relu.h>

#include <string>

namespace gavel::models {
namespace {

constexpr int kStages = 4;
constexpr int kBlocksPerStage = 2;

torch::nn::Conv2d Convolution(int64_t channels_in, int64_t channels_out,
                              int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(channels_in, channels_out, kernel)
          .stride(stride)
          .padding(kernel / 2)
          .bias(false));
}

}  // namespace

ResidualBlockImpl::ResidualBlockImpl(int64_t channels_in, int64_t channels_out,
                                     int64_t stride)
    : first_convolution_(Convolution(channels_in, channels_out, 3, stride)),
      first_norm_(channels_out),
      second_convolution_(Convolution(channels_out, channels_out, 3, 1)),
      second_norm_(channels_out) {
  register_module("first_convolution", first_convolution_);
  register_module("first_norm", first_norm_);
  register_module("second_convolution", second_convolution_);
  register_module("second_norm", second_norm_);
  if (stride == 1 && channels_in == channels_out) return;
  shortcut_convolution_ =
      register_module("shortcut_convolution",
                      Convolution(channels_in, channels_out, 1, stride));
  shortcut_norm_ =
      register_module("shortcut_norm", torch::nn::BatchNorm2d(channels_out));
}

torch::Tensor ResidualBlockImpl::forward(const torch::Tensor& features) {
  torch::Tensor shortcut = features;
  if (shortcut_convolution_) {
    shortcut = shortcut_norm_(shortcut_convolution_(features));
  }
  torch::Tensor residual = at::relu(first_norm_(first_convolution_(features)));
  residual = second_norm_(second_convolution_(residual));
  return at::relu(residual + shortcut);
}

ResNet18Impl::ResNet18Impl(const ResNetOptions& options)
    : stem_convolution_(Convolution(options.channels, options.width, 3, 1)),
      stem_norm_(options.width),
      classifier_(options.width << (kStages - 1), options.classes) {
  register_module("stem_convolution", stem_convolution_);
  register_module("stem_norm", stem_norm_);
  int64_t channels_in = options.width;
  for (int stage = 0; stage < kStages; ++stage) {
    const int64_t channels_out = options.width << stage;
    for (int block = 0; block < kBlocksPerStage; ++block) {
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      const std::string name =
          "stage" + std::to_string(stage) + "_block" + std::to_string(block);
      blocks_.push_back(register_module(
          name, ResidualBlock(channels_in, channels_out, stride)));
      channels_in = channels_out;
    }
  }
  register_module("classifier", classifier_);
}

torch::Tensor ResNet18Impl::forward(const torch::Tensor& images) {
  torch::Tensor features = at::relu(stem_norm_(stem_convolution_(images)));
  for (ResidualBlock& block : blocks_) features = block(features);
  return classifier_(at::mean(features, at::IntArrayRef({2, 3})));
}

}  // namespace gavel::models
