#include "models/text_models.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <torch/nn/init.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "models/text.h"

namespace gavel::models {

AttentionImpl::AttentionImpl(const AttentionOptions& options)
    : options_(options),
      input_(options.width, 3 * options.width),
      output_(options.width, options.width) {
  register_module("input", input_);
  register_module("output", output_);
}

torch::Tensor AttentionImpl::Self(const torch::Tensor& tokens,
                                  const torch::Tensor& mask, bool causal) {
  const auto parts = input_(tokens).chunk(3, -1);
  return Attend(parts[0], parts[1], parts[2], mask, causal);
}

torch::Tensor AttentionImpl::Cross(const torch::Tensor& tokens,
                                   const torch::Tensor& memory,
                                   const torch::Tensor& mask) {
  const int64_t width = options_.width;
  const torch::Tensor& weight = input_->weight;
  const torch::Tensor& bias = input_->bias;
  const torch::Tensor query =
      at::linear(tokens, weight.narrow(0, 0, width), bias.narrow(0, 0, width));
  const auto parts = at::linear(memory, weight.narrow(0, width, 2 * width),
                                bias.narrow(0, width, 2 * width))
                         .chunk(2, -1);
  return Attend(query, parts[0], parts[1], mask, /*causal=*/false);
}

torch::Tensor AttentionImpl::Attend(const torch::Tensor& query,
                                    const torch::Tensor& key,
                                    const torch::Tensor& value,
                                    const torch::Tensor& mask, bool causal) {
  const auto heads = [this](const torch::Tensor& tokens) {
    return tokens.view({tokens.size(0), tokens.size(1), options_.heads, -1})
        .transpose(1, 2);
  };
  const torch::Tensor seen = at::scaled_dot_product_attention(
      heads(query), heads(key), heads(value),
      mask.defined() ? std::optional(mask) : std::nullopt,
      is_training() ? options_.dropout : 0, causal);
  return output_(seen.transpose(1, 2).flatten(2));
}

namespace {

torch::nn::LayerNorm Norm(int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

// Section 3.5, [length, width]: sines at even places, cosines at odd ones.
torch::Tensor SinusoidalPositions(int64_t length, int64_t width) {
  const torch::Tensor place = at::arange(length, at::kFloat).unsqueeze(1);
  const torch::Tensor rate =
      at::arange(0, width, 2, at::kFloat)
          .mul_(-std::log(10000.0) / static_cast<double>(width))
          .exp_();
  const torch::Tensor angle = place * rate;
  return at::stack({at::sin(angle), at::cos(angle)}, 2).flatten(1);
}

// The mask of a source, which hides its padding, [batch, 1, 1, length].
torch::Tensor Visible(const torch::Tensor& source) {
  return source.ne(kPad).unsqueeze(1).unsqueeze(1);
}

}  // namespace

TransformerLayerImpl::TransformerLayerImpl(const TransformerOptions& options,
                                           bool cross)
    : self_(AttentionOptions{options.width, options.heads, options.dropout}),
      self_norm_(Norm(options.width)),
      widen_(options.width, options.feed_forward),
      narrow_(options.feed_forward, options.width),
      feed_forward_norm_(Norm(options.width)),
      dropout_(options.dropout) {
  register_module("self", self_);
  register_module("self_norm", self_norm_);
  if (cross) {
    cross_ = register_module(
        "cross", Attention(AttentionOptions{options.width, options.heads,
                                            options.dropout}));
    cross_norm_ = register_module("cross_norm", Norm(options.width));
  }
  register_module("widen", widen_);
  register_module("narrow", narrow_);
  register_module("feed_forward_norm", feed_forward_norm_);
  register_module("dropout", dropout_);
}

torch::Tensor TransformerLayerImpl::Encode(torch::Tensor tokens,
                                           const torch::Tensor& mask) {
  tokens = self_norm_(tokens +
                      dropout_(self_->Self(tokens, mask, /*causal=*/false)));
  return FeedForward(tokens);
}

torch::Tensor TransformerLayerImpl::Decode(torch::Tensor tokens,
                                           const torch::Tensor& memory,
                                           const torch::Tensor& mask) {
  // The padding of a target comes last, so that only padding attends to it.
  tokens =
      self_norm_(tokens + dropout_(self_->Self(tokens, {}, /*causal=*/true)));
  tokens = cross_norm_(tokens + dropout_(cross_->Cross(tokens, memory, mask)));
  return FeedForward(tokens);
}

torch::Tensor TransformerLayerImpl::FeedForward(const torch::Tensor& tokens) {
  return feed_forward_norm_(
      tokens + dropout_(narrow_(dropout_(at::relu(widen_(tokens))))));
}

TransformerImpl::TransformerImpl(const TransformerOptions& options)
    : options_(options),
      embedding_(options.vocabulary, options.width),
      dropout_(options.dropout) {
  register_module("embedding", embedding_);
  register_module("dropout", dropout_);
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    encoder_->push_back(TransformerLayer(options, /*cross=*/false));
    decoder_->push_back(TransformerLayer(options, /*cross=*/true));
  }
  register_module("encoder", encoder_);
  register_module("decoder", decoder_);
  positions_ = register_buffer(
      "positions", SinusoidalPositions(options.length_max, options.width));
  for (const torch::Tensor& parameter : parameters()) {
    if (parameter.dim() > 1) torch::nn::init::xavier_uniform_(parameter);
  }
  torch::nn::init::normal_(embedding_->weight, 0,
                           1 / std::sqrt(static_cast<double>(options.width)));
}

torch::Tensor TransformerImpl::Embed(const torch::Tensor& ids) {
  return dropout_(embedding_(ids) *
                      std::sqrt(static_cast<double>(options_.width)) +
                  positions_.narrow(0, 0, ids.size(1)));
}

torch::Tensor TransformerImpl::Encode(const torch::Tensor& source) {
  const torch::Tensor mask = Visible(source);
  torch::Tensor tokens = Embed(source);
  for (const auto& layer : *encoder_) {
    tokens = layer->as<TransformerLayer>()->Encode(tokens, mask);
  }
  return tokens;
}

torch::Tensor TransformerImpl::Decode(const torch::Tensor& target,
                                      const torch::Tensor& source,
                                      const torch::Tensor& memory) {
  const torch::Tensor mask = Visible(source);
  torch::Tensor tokens = Embed(target);
  for (const auto& layer : *decoder_) {
    tokens = layer->as<TransformerLayer>()->Decode(tokens, memory, mask);
  }
  return at::linear(tokens, embedding_->weight);
}

torch::Tensor TranslationLoss(const torch::Tensor& logits,
                              const torch::Tensor& target_out,
                              double smoothing) {
  const torch::Tensor losses =
      at::cross_entropy_loss(logits.flatten(0, 1), target_out.flatten(), {},
                             at::Reduction::None, kPad, smoothing)
          .view(target_out.sizes());
  return (losses.sum(1) / target_out.ne(kPad).sum(1)).mean();
}

TokenLoss SumTokenLoss(const torch::Tensor& logits,
                       const torch::Tensor& target_out) {
  const torch::Tensor sum = at::cross_entropy_loss(
      logits.flatten(0, 1), target_out.flatten(), {}, at::Reduction::Sum, kPad);
  return {sum.item<double>(), target_out.ne(kPad).sum().item<int64_t>()};
}

torch::Tensor Translate(Transformer& model, const torch::Tensor& source,
                        const BeamOptions& options) {
  const torch::NoGradGuard no_grad;
  model->eval();
  const int64_t batch = source.size(0);
  const int64_t beam = options.beam;
  const torch::Tensor sources = source.repeat_interleave(beam, 0);
  const torch::Tensor memory = model->Encode(source).repeat_interleave(beam, 0);
  const auto penalty = [&options](const torch::Tensor& length) {
    return ((length + 5) / 6).pow(options.length_penalty);
  };
  torch::Tensor ids =
      at::full({batch * beam, 1}, kBegin, source.options().dtype(at::kLong));
  // Log probabilities; at first all hypotheses of a sentence are the same one.
  torch::Tensor scores =
      at::full({batch, beam}, -std::numeric_limits<float>::infinity(),
               memory.options().dtype(at::kFloat));
  scores.select(1, 0).zero_();
  torch::Tensor ended =
      at::full({batch * beam}, false, ids.options().dtype(at::kBool));
  torch::Tensor length = at::full({batch * beam}, 0, scores.options());
  const torch::Tensor first_row =
      at::arange(0, batch * beam, beam, ids.options()).unsqueeze(1);
  const int64_t length_max =
      std::min(options.length_max, 2 * source.size(1) + 5);
  for (int64_t step = 0; step < length_max; ++step) {
    torch::Tensor next = at::log_softmax(
        model->Decode(ids, sources, memory).select(1, -1), -1, at::kFloat);
    const int64_t vocabulary = next.size(1);
    // Only a sentence that has ended is padded, at no cost.
    next.select(1, kPad).fill_(-std::numeric_limits<float>::infinity());
    next.masked_fill_(ended.unsqueeze(1),
                      -std::numeric_limits<float>::infinity());
    next.select(1, kPad).masked_fill_(ended, 0);
    // Hypotheses are compared by score over length, section 6.1.
    const torch::Tensor sums = scores.view({-1, 1}) + next;
    const torch::Tensor lengths = length + ended.logical_not();
    const torch::Tensor ranked =
        (sums / penalty(lengths).unsqueeze(1)).view({batch, beam * vocabulary});
    const torch::Tensor best = std::get<1>(ranked.topk(beam, 1));
    scores = sums.view({batch, -1}).gather(1, best);
    const torch::Tensor rows =
        (first_row + best.floor_divide(vocabulary)).flatten();
    const torch::Tensor token = best.remainder(vocabulary).flatten();
    ids = at::cat({ids.index_select(0, rows), token.unsqueeze(1)}, 1);
    length = lengths.index_select(0, rows);
    ended = ended.index_select(0, rows).logical_or(token.eq(kEnd));
    if (ended.all().item<bool>()) break;
  }
  // The hypotheses of each sentence are in the order of their rank.
  return ids.view({batch, beam, -1}).select(1, 0).narrow(1, 1, ids.size(1) - 1);
}

GptLayerImpl::GptLayerImpl(const GptOptions& options)
    : attention_norm_(Norm(options.width)),
      attention_(
          AttentionOptions{options.width, options.heads, options.dropout}),
      feed_forward_norm_(Norm(options.width)),
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
  // Section 2.3: weights whose products are added to the residual stream start
  // smaller, by the square root of the number of such sums.
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
      norm_(Norm(options.width)) {
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
