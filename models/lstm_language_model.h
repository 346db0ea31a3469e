// A recurrent language model: embedding, LSTM, and a decoder back to the
// vocabulary, with dropout between them. W. Zaremba et al., Recurrent Neural
// Network Regularization, 2014; the "LM" workload of Gavel (OSDI 2020).
//
// Tokens are [batch, length] integers in [0, vocabulary); the result is
// [batch, length, vocabulary] logits of each next token. Every sequence starts
// from an empty state. As thread-safe as any LibTorch module.
#ifndef GAVEL_MODELS_LSTM_LANGUAGE_MODEL_H_
#define GAVEL_MODELS_LSTM_LANGUAGE_MODEL_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace gavel::models {

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

#endif  // GAVEL_MODELS_LSTM_LANGUAGE_MODEL_H_
