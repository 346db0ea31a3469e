// A decoder-only language model, normalized before each part of a layer, with
// one matrix for the embedding and the output. A. Radford et al., Language
// Models are Unsupervised Multitask Learners, 2019 (GPT-2), and its sizes.
//
// As thread-safe as any LibTorch module.
#ifndef GAVEL_MODELS_GPT_H_
#define GAVEL_MODELS_GPT_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "models/attention.h"

namespace gavel::models {

// The defaults are GPT-2 small.
struct GptOptions {
  int64_t vocabulary = 50257;
  int64_t length = 1024;  // tokens that are seen at once
  int64_t width = 768;    // a multiple of heads
  int64_t heads = 12;
  int64_t layers = 12;
  double dropout = 0.1;
};

class GptLayerImpl : public torch::nn::Module {
 public:
  explicit GptLayerImpl(const GptOptions& options);
  torch::Tensor forward(torch::Tensor tokens);

 private:
  torch::nn::LayerNorm attention_norm_;
  Attention attention_;
  torch::nn::LayerNorm feed_forward_norm_;
  torch::nn::Linear widen_;
  torch::nn::Linear narrow_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(GptLayer);

class GptImpl : public torch::nn::Module {
 public:
  explicit GptImpl(const GptOptions& options);

  // tokens: [batch, length <= options.length] ids. Logits of each next token,
  // [batch, length, vocabulary].
  torch::Tensor forward(const torch::Tensor& tokens);

 private:
  torch::nn::Embedding embedding_;
  torch::nn::Embedding positions_;
  torch::nn::Dropout dropout_;
  torch::nn::ModuleList layers_;
  torch::nn::LayerNorm norm_;
};
TORCH_MODULE(Gpt);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_GPT_H_
