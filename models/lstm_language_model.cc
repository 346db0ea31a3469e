#include "models/lstm_language_model.h"

#include <torch/nn/init.h>

#include <tuple>

namespace gavel::models {
namespace {

torch::nn::LSTMOptions LstmOptions(const LstmLanguageModelOptions& options) {
  return torch::nn::LSTMOptions(options.embedding, options.hidden)
      .num_layers(options.layers)
      .dropout(options.layers > 1 ? options.dropout : 0)
      .batch_first(true);
}

}  // namespace

LstmLanguageModelImpl::LstmLanguageModelImpl(
    const LstmLanguageModelOptions& options)
    : embedding_(options.vocabulary, options.embedding),
      lstm_(LstmOptions(options)),
      dropout_(options.dropout),
      decoder_(options.hidden, options.vocabulary) {
  register_module("embedding", embedding_);
  register_module("lstm", lstm_);
  register_module("dropout", dropout_);
  register_module("decoder", decoder_);
  torch::nn::init::uniform_(embedding_->weight, -0.1, 0.1);
}

torch::Tensor LstmLanguageModelImpl::forward(const torch::Tensor& tokens) {
  const torch::Tensor embedded = dropout_(embedding_(tokens));
  const torch::Tensor states = std::get<0>(lstm_(embedded));
  return decoder_(dropout_(states));
}

}  // namespace gavel::models
