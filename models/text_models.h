// Networks over sequences of tokens: multi-head attention, the Transformer for
// translation, GPT, and an LSTM language model. As thread-safe as any LibTorch
// module.
#ifndef GAVEL_MODELS_TEXT_MODELS_H_
#define GAVEL_MODELS_TEXT_MODELS_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace gavel::models {

struct AttentionOptions {
  int64_t width = 0;  // of the tokens, a multiple of heads
  int64_t heads = 1;
  double dropout = 0;  // of the weights, in training
};

// Multi-head attention. A. Vaswani et al., Attention Is All You Need, NeurIPS
// 2017, section 3.2.
class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const AttentionOptions& options);

  // Self-attention. tokens: [batch, length, width]; mask: undefined, or
  // booleans that broadcast to [batch, heads, length, length], true where a
  // token may be seen. causal: a token sees no later one; mask must then be
  // undefined.
  torch::Tensor Self(const torch::Tensor& tokens, const torch::Tensor& mask,
                     bool causal);
  // Attention of tokens to a memory [batch, memory length, width].
  torch::Tensor Cross(const torch::Tensor& tokens, const torch::Tensor& memory,
                      const torch::Tensor& mask);
  // The projection of the heads' result. The model may initialize its weights.
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

// The Transformer, encoder and decoder, for translation. A. Vaswani et al.,
// Attention Is All You Need, NeurIPS 2017: layers normalized after their
// residual sum, sinusoidal positions, one matrix for both embeddings and the
// output. The "Transformer" workload of Gavel (OSDI 2020). Token ids are those
// of text.h.

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

// The cross entropy in nats, summed over all tokens but padding, and the number
// of these tokens: perplexity is exp(sum / tokens). Shapes as above.
struct TokenLoss {
  double sum = 0;
  int64_t tokens = 0;
};
TokenLoss SumTokenLoss(const torch::Tensor& logits,
                       const torch::Tensor& target_out);

struct BeamOptions {
  int64_t beam = 1;  // 1: greedy
  // The limit of a translation's length, at most the model's. A translation is
  // also at most twice as long as the longest source of its batch, plus five.
  int64_t length_max = 64;
  double length_penalty = 0.6;  // section 6.1; of the exponent
};

// The best translations that beam search finds, [batch, length <=
// options.length_max] ids on the model's device, kPad behind kEnd. Sets the
// model to evaluation.
torch::Tensor Translate(Transformer& model, const torch::Tensor& source,
                        const BeamOptions& options);

// A decoder-only language model, normalized before each part of a layer, with
// one matrix for the embedding and the output. A. Radford et al., Language
// Models are Unsupervised Multitask Learners, 2019 (GPT-2), and its sizes.

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

// A recurrent language model: embedding, LSTM, and a decoder back to the
// vocabulary, with dropout between them. W. Zaremba et al., Recurrent Neural
// Network Regularization, 2014; the "LM" workload of Gavel (OSDI 2020).
//
// Tokens are [batch, length] integers in [0, vocabulary); the result is
// [batch, length, vocabulary] logits of each next token. Every sequence starts
// from an empty state.

struct LstmLanguageModelOptions {
  int64_t vocabulary = 0;  // tokens that exist, > 0
  int64_t embedding = 128;
  int64_t hidden = 128;
  int64_t layers = 1;
  double dropout = 0.2;  // in [0, 1)
};

class LstmLanguageModelImpl : public torch::nn::Module {
 public:
  explicit LstmLanguageModelImpl(const LstmLanguageModelOptions& options);
  torch::Tensor forward(const torch::Tensor& tokens);

 private:
  torch::nn::Embedding embedding_;
  torch::nn::LSTM lstm_;
  torch::nn::Dropout dropout_;
  torch::nn::Linear decoder_;
};
TORCH_MODULE(LstmLanguageModel);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_TEXT_MODELS_H_
