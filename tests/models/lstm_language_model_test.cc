#include <ATen/ops/randint.h>

#include "models/text_models.h"
#include "tests/models/parameter_count.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

TEST(LstmLanguageModel, HasTheParametersOfItsLayers) {
  const LstmLanguageModel model(LstmLanguageModelOptions{
      .vocabulary = 50, .embedding = 20, .hidden = 30, .layers = 2});
  const int64_t embedding = 50 * 20;
  const int64_t first_layer = 4 * 30 * (20 + 30 + 2);
  const int64_t second_layer = 4 * 30 * (30 + 30 + 2);
  const int64_t decoder = 50 * (30 + 1);
  EXPECT_EQ(ParameterCount(*model),
            embedding + first_layer + second_layer + decoder);
}

// The parameters of the models by Zaremba et al. on the Penn Treebank's 10,000
// words: 20 and 66 million (S. Merity et al., Pointer Sentinel Mixture Models,
// ICLR 2017, table 2).
TEST(LstmLanguageModel, HasAsManyParametersAsThePublishedWordModels) {
  const auto count = [](int64_t width) {
    return ParameterCount(
        *LstmLanguageModel(LstmLanguageModelOptions{.vocabulary = 10'000,
                                                    .embedding = width,
                                                    .hidden = width,
                                                    .layers = 2}));
  };
  EXPECT_EQ(count(650), 19'780'400);
  EXPECT_EQ(count(1500), 66'034'000);
}

TEST(LstmLanguageModel, AnswersEveryTokenWithTheVocabulary) {
  LstmLanguageModel model(LstmLanguageModelOptions{.vocabulary = 50});
  const at::Tensor tokens = at::randint(50, {3, 7}, at::kLong);
  EXPECT_EQ(model(tokens).sizes(), at::IntArrayRef({3, 7, 50}));
}

TEST(LstmLanguageModel, SeesThePastAndNotTheFuture) {
  LstmLanguageModel model(LstmLanguageModelOptions{.vocabulary = 50});
  model->eval();
  const at::Tensor tokens = at::randint(50, {1, 9}, at::kLong);
  at::Tensor changed = tokens.clone();
  changed[0][5] = (changed[0][5].item<int64_t>() + 1) % 50;
  const at::Tensor difference =
      (model(tokens) - model(changed)).abs().sum(2)[0];
  EXPECT_EQ(difference.narrow(0, 0, 5).max().item<float>(), 0);
  EXPECT_GT(difference.narrow(0, 5, 4).min().item<float>(), 0);
}

}  // namespace
}  // namespace gavel::models
