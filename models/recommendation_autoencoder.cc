#include "models/recommendation_autoencoder.h"

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/functional/normalization.h>
#include <torch/nn/init.h>

namespace gavel::models {

RecommendationAutoencoderImpl::RecommendationAutoencoderImpl(
    const RecommendationAutoencoderOptions& options)
    : dropout_(options.dropout),
      encoder_(options.items, options.hidden),
      decoder_(options.hidden, options.items) {
  register_module("dropout", dropout_);
  register_module("encoder", encoder_);
  register_module("decoder", decoder_);
  for (const torch::nn::Linear& linear : {encoder_, decoder_}) {
    torch::nn::init::xavier_uniform_(linear->weight);
    torch::nn::init::zeros_(linear->bias);
  }
}

torch::Tensor RecommendationAutoencoderImpl::forward(
    const torch::Tensor& likes) {
  const torch::Tensor scaled = torch::nn::functional::normalize(
      likes, torch::nn::functional::NormalizeFuncOptions().dim(1));
  return decoder_(at::tanh(encoder_(dropout_(scaled))));
}

torch::Tensor MultinomialLoss(const torch::Tensor& logits,
                              const torch::Tensor& likes) {
  return -(at::log_softmax(logits, 1) * likes).sum(1).mean();
}

}  // namespace gavel::models
