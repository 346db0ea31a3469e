// The Transformer, encoder and decoder, for translation. A. Vaswani et al.,
// Attention Is All You Need, NeurIPS 2017: layers normalized after their
// residual sum, sinusoidal positions, one matrix for both embeddings and the
// output. The "Transformer" workload of Gavel (OSDI 2020).
//
// Token ids are those of parallel_text.h; as thread-safe as any LibTorch
// module.
#ifndef GAVEL_MODELS_TRANSFORMER_H_
#define GAVEL_MODELS_TRANSFORMER_H_

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

// The defaults are the paper's base model.
struct TransformerOptions {
  int64_t vocabulary = 0;  // tokens that exist, marks included; > 0
  int64_t width = 512;     // a multiple of heads, and even
  int64_t feed_forward = 2048;
  int64_t heads = 8;
  int64_t layers = 6;  // of the encoder, and of the decoder
  double dropout = 0.1;
  int64_t length_max = 128;  // of a sentence, marks included
};

// One layer of the encoder (`cross` false) or of the decoder.
class TransformerLayerImpl : public torch::nn::Module {
 public:
  TransformerLayerImpl(const TransformerOptions& options, bool cross);
  // Encoder: tokens that see what the mask allows.
  torch::Tensor Encode(torch::Tensor tokens, const torch::Tensor& mask);
  // Decoder: tokens that see earlier ones, and the memory as the mask allows.
  torch::Tensor Decode(torch::Tensor tokens, const torch::Tensor& memory,
                       const torch::Tensor& mask);

 private:
  torch::Tensor FeedForward(const torch::Tensor& tokens);

  Attention self_;
  torch::nn::LayerNorm self_norm_;
  Attention cross_{nullptr};
  torch::nn::LayerNorm cross_norm_{nullptr};
  torch::nn::Linear widen_;
  torch::nn::Linear narrow_;
  torch::nn::LayerNorm feed_forward_norm_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(TransformerLayer);

class TransformerImpl : public torch::nn::Module {
 public:
  explicit TransformerImpl(const TransformerOptions& options);

  // source: [batch, length] ids; the memory is [batch, length, width].
  torch::Tensor Encode(const torch::Tensor& source);
  // Logits of each next token, [batch, target length, vocabulary].
  torch::Tensor Decode(const torch::Tensor& target, const torch::Tensor& source,
                       const torch::Tensor& memory);
  torch::Tensor forward(const torch::Tensor& source,
                        const torch::Tensor& target) {
    return Decode(target, source, Encode(source));
  }

 private:
  torch::Tensor Embed(const torch::Tensor& ids);

  TransformerOptions options_;
  torch::nn::Embedding embedding_;
  torch::nn::Dropout dropout_;
  torch::nn::ModuleList encoder_;
  torch::nn::ModuleList decoder_;
  torch::Tensor positions_;  // a buffer, [length_max, width]
};
TORCH_MODULE(Transformer);

// Cross entropy in nats, a scalar: the mean over each sentence's tokens, then
// over the sentences, so that a batch may be cut among workers. logits: [batch,
// length, vocabulary]; target_out: [batch, length]. smoothing: section 5.4.
torch::Tensor TranslationLoss(const torch::Tensor& logits,
                              const torch::Tensor& target_out,
                              double smoothing);

// What perplexity is made of: cross entropy in nats, summed over all tokens but
// padding, and how many these are. Shapes as above.
struct TokenLoss {
  double sum = 0;
  int64_t tokens = 0;
};
TokenLoss SumTokenLoss(const torch::Tensor& logits,
                       const torch::Tensor& target_out);

struct BeamOptions {
  int64_t beam = 1;  // 1: greedy
  // Of a translation, which is also at most twice as long as the longest source
  // of its batch and five more. Not more than the model's.
  int64_t length_max = 64;
  double length_penalty = 0.6;  // section 6.1; of the exponent
};

// The best translations that beam search finds, [batch, length <=
// options.length_max] ids on the model's device, kPad behind kEnd. Sets the
// model to evaluation.
torch::Tensor Translate(Transformer& model, const torch::Tensor& source,
                        const BeamOptions& options);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_TRANSFORMER_H_
