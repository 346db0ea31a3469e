#include "models/attention.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <optional>

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

}  // namespace gavel::models
