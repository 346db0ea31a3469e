// Multi-head attention, as the Transformer and GPT use it. A. Vaswani et al.,
// Attention Is All You Need, NeurIPS 2017, section 3.2. As thread-safe as any
// LibTorch module.
#ifndef GAVEL_MODELS_ATTENTION_H_
#define GAVEL_MODELS_ATTENTION_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace gavel::models {

struct AttentionOptions {
  int64_t width = 0;  // of the tokens, a multiple of heads
  int64_t heads = 1;
  double dropout = 0;  // of the weights, in training
};

class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const AttentionOptions& options);

  // Of tokens to themselves. tokens: [batch, length, width]; mask: undefined,
  // or what may be seen as booleans that broadcast to [batch, heads, length,
  // length]. causal: only what is not later; without a mask.
  torch::Tensor Self(const torch::Tensor& tokens, const torch::Tensor& mask,
                     bool causal);
  // Of tokens to a memory [batch, memory length, width].
  torch::Tensor Cross(const torch::Tensor& tokens, const torch::Tensor& memory,
                      const torch::Tensor& mask);
  // Back from the heads; its scale at the start is the model's choice.
  torch::nn::Linear& output() { return output_; }

 private:
  torch::Tensor Attend(const torch::Tensor& query, const torch::Tensor& key,
                       const torch::Tensor& value, const torch::Tensor& mask,
                       bool causal);

  AttentionOptions options_;
  torch::nn::Linear input_;  // queries, keys and values
  torch::nn::Linear output_;
};
TORCH_MODULE(Attention);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_ATTENTION_H_
