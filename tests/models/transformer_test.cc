#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <cmath>

#include "models/text.h"
#include "models/text_models.h"
#include "tests/models/parameter_count.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

TransformerOptions Small() {
  return {.vocabulary = 20,
          .width = 16,
          .feed_forward = 32,
          .heads = 2,
          .layers = 2,
          .dropout = 0};
}

at::Tensor Sentences(int64_t batch, int64_t length) {
  return at::randint(kMarks, 20, {batch, length}, at::kLong);
}

// Table 3 has 65 million for the base model, with 37,000 tokens (section 5.1).
TEST(Transformer, HasThePublishedNumberOfParameters) {
  const Transformer model(TransformerOptions{.vocabulary = 37'000});
  const int64_t attention = 4 * (512 * 512 + 512);
  const int64_t feed_forward = 512 * 2048 + 2048 + 2048 * 512 + 512;
  const int64_t norm = 2 * 512;
  EXPECT_EQ(ParameterCount(*model),
            37'000 * 512 + 6 * (attention + feed_forward + 2 * norm) +
                6 * (2 * attention + feed_forward + 3 * norm));
  EXPECT_EQ(ParameterCount(*model), 63'082'496);
}

TEST(Transformer, SeesTheSourceAndTheTargetsPast) {
  torch::manual_seed(1);
  Transformer model(Small());
  const at::Tensor source = Sentences(1, 7);
  const at::Tensor target = Sentences(1, 9);
  const at::Tensor logits = model(source, target);
  EXPECT_EQ(logits.sizes(), at::IntArrayRef({1, 9, 20}));
  at::Tensor changed = target.clone();
  changed[0][5] = kMarks + (changed[0][5].item<int64_t>() - 2) % 17;
  at::Tensor difference = (model(source, changed) - logits).abs().sum(2)[0];
  EXPECT_LT(difference.narrow(0, 0, 5).max().item<float>(), 1e-5);
  EXPECT_GT(difference.narrow(0, 5, 4).min().item<float>(), 1e-3);
  changed = source.clone();
  changed[0][6] = kMarks + (changed[0][6].item<int64_t>() - 2) % 17;
  difference = (model(changed, target) - logits).abs().sum(2)[0];
  EXPECT_GT(difference.min().item<float>(), 1e-3);
}

TEST(Transformer, WhatFillsUpABatchChangesNothing) {
  torch::manual_seed(1);
  Transformer model(Small());
  const std::vector<SentencePair> both{{{4, 5, 6}, {7, 8}},
                                       {{4, 9, 9, 9, 9, 9}, {3, 3, 3, 3, 3}}};
  const SentenceBatch one = PadBatch(std::span(both).first(1), at::kCPU);
  const SentenceBatch two = PadBatch(both, at::kCPU);
  const at::Tensor alone = model(one.source, one.target_in);
  const at::Tensor beside = model(two.source, two.target_in);
  EXPECT_TRUE(alone[0].allclose(beside[0].narrow(0, 0, 3), 1e-4, 1e-5));
  const at::Tensor first = TranslationLoss(alone, one.target_out, 0.1);
  const at::Tensor second = TranslationLoss(
      beside.narrow(0, 1, 1), two.target_out.narrow(0, 1, 1), 0.1);
  const at::Tensor mean = TranslationLoss(beside, two.target_out, 0.1);
  EXPECT_NEAR(mean.item<float>(), (first + second).item<float>() / 2, 1e-4);
}

TEST(TranslationLoss, SmoothsLabels) {
  const at::Tensor logits =
      at::tensor({1.0F, 2.0F, 3.0F, 4.0F}).view({1, 1, 4});
  const at::Tensor log_probabilities = logits.log_softmax(-1).flatten();
  const at::Tensor target = at::tensor({3}, at::kLong).view({1, 1});
  EXPECT_NEAR(TranslationLoss(logits, target, 0).item<float>(),
              -log_probabilities[3].item<float>(), 1e-6);
  EXPECT_NEAR(TranslationLoss(logits, target, 0.1).item<float>(),
              -0.9 * log_probabilities[3].item<float>() -
                  0.1 * log_probabilities.mean().item<float>(),
              1e-6);
}

// Two sentences of one and three tokens: a token counts as much in either.
TEST(SumTokenLoss, CountsTokensAndNotSentences) {
  const at::Tensor logits =
      at::tensor({1.0F, 2.0F, 3.0F, 4.0F}).repeat({2, 3, 1});
  const at::Tensor log_probabilities = logits[0][0].log_softmax(-1);
  const std::vector<int64_t> ids = {3, kPad, kPad, 1, 2, 1};
  const at::Tensor target = at::tensor(ids, at::kLong).view({2, 3});
  const TokenLoss loss = SumTokenLoss(logits, target);
  EXPECT_EQ(loss.tokens, 4);
  EXPECT_NEAR(
      loss.sum,
      -(log_probabilities[3] + 2 * log_probabilities[1] + log_probabilities[2])
           .item<float>(),
      1e-5);
}

TEST(Transformer, EveryParameterGetsAGradient) {
  Transformer model(Small());
  const at::Tensor target = Sentences(2, 5);
  TranslationLoss(model(Sentences(2, 4), target), target, 0.1).backward();
  for (const auto& parameter : model->named_parameters()) {
    EXPECT_TRUE(parameter->grad().defined()) << parameter.key();
  }
}

// The score of a translation: log probability over length penalty.
double Score(Transformer& model, const at::Tensor& source,
             const std::vector<int64_t>& ids) {
  std::vector<int64_t> in(ids);
  in.insert(in.begin(), kBegin);
  in.pop_back();
  const at::Tensor log_probabilities =
      model(source, at::tensor(in, at::kLong).unsqueeze(0)).log_softmax(-1)[0];
  double sum = 0;
  for (size_t at = 0; at < ids.size(); ++at) {
    sum += log_probabilities[static_cast<int64_t>(at)][ids[at]].item<double>();
  }
  return sum / std::pow((5.0 + static_cast<double>(ids.size())) / 6, 0.6);
}

std::vector<int64_t> Row(const at::Tensor& ids, int64_t row) {
  std::vector<int64_t> result;
  for (int64_t at = 0; at < ids.size(1); ++at) {
    const auto id = ids[row][at].item<int64_t>();
    if (id == kPad) break;
    result.push_back(id);
  }
  return result;
}

TEST(Translate, GreedyTakesTheBestTokenAfterEach) {
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  Transformer model(Small());
  const at::Tensor source = Sentences(3, 4);
  const at::Tensor ids = Translate(model, source, {.length_max = 6});
  for (int64_t row = 0; row < 3; ++row) {
    std::vector<int64_t> in{kBegin};
    for (const int64_t id : Row(ids, row)) {
      at::Tensor logits = model(source.narrow(0, row, 1),
                                at::tensor(in, at::kLong).unsqueeze(0))[0][-1];
      logits[kPad] = -1e9;
      EXPECT_EQ(id, logits.argmax().item<int64_t>());
      in.push_back(id);
    }
  }
}

TEST(Translate, AWideBeamFindsTheBestOfAllTranslations) {
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  TransformerOptions options = Small();
  options.vocabulary = 5;
  Transformer model(options);
  const at::Tensor source = at::tensor({3, 4, 3, 2}, at::kLong).unsqueeze(0);
  model->eval();
  std::map<double, std::vector<int64_t>> all;
  const std::vector<int64_t> tokens{1, 3, 4};
  all[Score(model, source, {kEnd})] = {kEnd};
  for (const int64_t a : tokens) {
    all[Score(model, source, {a, kEnd})] = {a, kEnd};
    for (const int64_t b : tokens) {
      for (const int64_t c : {int64_t{1}, kEnd, int64_t{3}, int64_t{4}}) {
        all[Score(model, source, {a, b, c})] = {a, b, c};
      }
    }
  }
  const at::Tensor ids =
      Translate(model, source, {.beam = 50, .length_max = 3});
  EXPECT_EQ(Row(ids, 0), all.rbegin()->second);
}

TEST(Transformer, LearnsToRepeatASentence) {
  torch::manual_seed(1);
  Transformer model(Small());
  torch::optim::Adam optimizer(model->parameters(),
                               torch::optim::AdamOptions(0.003));
  std::vector<SentencePair> pairs;
  const at::Tensor sentences = Sentences(32, 3);
  for (int64_t row = 0; row < 32; ++row) {
    std::vector<int64_t> ids;
    for (int64_t at = 0; at < 3; ++at) {
      ids.push_back(sentences[row][at].item<int64_t>());
    }
    pairs.push_back({ids, ids});
  }
  const SentenceBatch batch = PadBatch(pairs, at::kCPU);
  for (int step = 0; step < 150; ++step) {
    optimizer.zero_grad();
    TranslationLoss(model(batch.source, batch.target_in), batch.target_out, 0)
        .backward();
    optimizer.step();
  }
  const at::Tensor ids = Translate(model, batch.source, {.length_max = 8});
  EXPECT_TRUE(ids.equal(batch.target_out));
}

}  // namespace
}  // namespace gavel::models
