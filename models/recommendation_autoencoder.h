// An autoencoder that tells what else a user may like from what the user liked:
// the denoising one of D. Liang et al., Variational Autoencoders for
// Collaborative Filtering, WWW 2018 (Mult-DAE). The "Recommendation" workload
// of Gavel (OSDI 2020). As thread-safe as any LibTorch module.
#ifndef GAVEL_MODELS_RECOMMENDATION_AUTOENCODER_H_
#define GAVEL_MODELS_RECOMMENDATION_AUTOENCODER_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace gavel::models {

struct RecommendationAutoencoderOptions {
  int64_t items = 0;     // > 0
  int64_t hidden = 200;  // the paper's
  double dropout = 0.5;  // of the input: the noise
};

class RecommendationAutoencoderImpl : public torch::nn::Module {
 public:
  explicit RecommendationAutoencoderImpl(
      const RecommendationAutoencoderOptions& options);
  // likes: [users, items], 1 where liked. The logits of all items, as many.
  torch::Tensor forward(const torch::Tensor& likes);

 private:
  torch::nn::Dropout dropout_;
  torch::nn::Linear encoder_;
  torch::nn::Linear decoder_;
};
TORCH_MODULE(RecommendationAutoencoder);

// The multinomial log likelihood of what is liked, negated, averaged over the
// users; equation 2. Both [users, items].
torch::Tensor MultinomialLoss(const torch::Tensor& logits,
                              const torch::Tensor& likes);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_RECOMMENDATION_AUTOENCODER_H_
