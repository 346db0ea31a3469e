#include "models/gpt.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <torch/nn/init.h>

#include <cmath>

namespace gavel::models {
namespace {

torch::nn::LayerNorm NormOf(const GptOptions& options) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width}));
}

}  // namespace

GptLayerImpl::GptLayerImpl(const GptOptions& options)
    : attention_norm_(NormOf(options)),
      attention_(
          AttentionOptions{options.width, options.heads, options.dropout}),
      feed_forward_norm_(NormOf(options)),
      widen_(options.width, 4 * options.width),
      narrow_(4 * options.width, options.width),
      dropout_(options.dropout) {
  register_module("attention_norm", attention_norm_);
  register_module("attention", attention_);
  register_module("feed_forward_norm", feed_forward_norm_);
  register_module("widen", widen_);
  register_module("narrow", narrow_);
  register_module("dropout", dropout_);
  constexpr double kDeviation = 0.02;
  for (const auto& parameter : named_parameters()) {
    if (parameter.value().dim() > 1) {
      torch::nn::init::normal_(parameter.value(), 0, kDeviation);
    } else if (parameter.key().ends_with("bias")) {
      torch::nn::init::zeros_(parameter.value());
    }
  }
  // Section 2.3: what is added to the residual stream, by the number of layers.
  const double of_residuals =
      kDeviation / std::sqrt(2 * static_cast<double>(options.layers));
  torch::nn::init::normal_(attention_->output()->weight, 0, of_residuals);
  torch::nn::init::normal_(narrow_->weight, 0, of_residuals);
}

torch::Tensor GptLayerImpl::forward(torch::Tensor tokens) {
  tokens = tokens + dropout_(attention_->Self(attention_norm_(tokens), {},
                                              /*causal=*/true));
  const torch::Tensor wide =
      at::gelu(widen_(feed_forward_norm_(tokens)), "tanh");
  return tokens + dropout_(narrow_(wide));
}

GptImpl::GptImpl(const GptOptions& options)
    : embedding_(options.vocabulary, options.width),
      positions_(options.length, options.width),
      dropout_(options.dropout),
      norm_(NormOf(options)) {
  register_module("embedding", embedding_);
  register_module("positions", positions_);
  register_module("dropout", dropout_);
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    layers_->push_back(GptLayer(options));
  }
  register_module("layers", layers_);
  register_module("norm", norm_);
  torch::nn::init::normal_(embedding_->weight, 0, 0.02);
  torch::nn::init::normal_(positions_->weight, 0, 0.01);
}

torch::Tensor GptImpl::forward(const torch::Tensor& tokens) {
  torch::Tensor states = dropout_(
      embedding_(tokens) + positions_->weight.narrow(0, 0, tokens.size(1)));
  for (const auto& layer : *layers_) {
    states = layer->as<GptLayer>()->forward(states);
  }
  return at::linear(norm_(states), embedding_->weight);
}

}  // namespace gavel::models
