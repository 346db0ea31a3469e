// Recommendations: ratings in MovieLens' form, the score of a ranking, and an
// autoencoder that predicts what else a user may like. The "Recommendation"
// workload of Gavel (OSDI 2020). The same table always gives the same numbers.
#ifndef GAVEL_MODELS_RECOMMENDATION_H_
#define GAVEL_MODELS_RECOMMENDATION_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gavel::models {

// The items that one user likes: indices in [0, items), ascending, each once.
using LikedItems = std::vector<int64_t>;

// One held-out user: from `seen` a model has to predict `hidden`.
struct HeldOutUser {
  LikedItems seen;
  LikedItems hidden;
};

// The preparation of MovieLens in D. Liang et al., Variational Autoencoders for
// Collaborative Filtering, WWW 2018, section 4.1, which Gavel's workload uses.
struct RatingsOptions {
  double rating_min = 4;           // a rating of so much or more is a like
  int64_t likes_min = 5;           // users with fewer are left out. >= 2
  double held_out_fraction = 0.1;  // of the users. In (0, 1)
  double hidden_fraction = 0.2;    // of a held-out user's likes. In (0, 1)
  uint64_t seed = 1;               // selects the users and the hidden likes
};

// A value; copies share the users, which nobody writes after construction, so
// that several threads may read.
class Ratings {
 public:
  // CSV: a header with the columns userId, movieId and rating among others, in
  // any order, then a line for each rating (MovieLens: ratings.csv).
  // INVALID_ARGUMENT, as "NAME:17: ...": a column that is missing, a line with
  // fewer or more fields than the header, a field that is not a number, or too
  // few users.
  static absl::StatusOr<Ratings> FromText(std::string_view text,
                                          std::string_view name,
                                          const RatingsOptions& options);
  // Also NOT_FOUND. The name is the path.
  static absl::StatusOr<Ratings> Read(const std::string& path,
                                      const RatingsOptions& options);

  int64_t items() const { return items_; }
  std::span<const LikedItems> train() const { return *train_; }
  std::span<const HeldOutUser> held_out() const { return *held_out_; }

 private:
  Ratings() = default;

  int64_t items_ = 0;  // those that a user to train on likes
  std::shared_ptr<const std::vector<LikedItems>> train_;
  std::shared_ptr<const std::vector<HeldOutUser>> held_out_;
};

// A dataset over users that live longer.
class LikedItemsOfUsers {
 public:
  explicit LikedItemsOfUsers(std::span<const LikedItems> users)
      : users_(users) {}
  size_t size() const { return users_.size(); }
  LikedItems get(size_t index) const { return users_[index]; }

 private:
  std::span<const LikedItems> users_;
};

// [users, items] floats, 1 where liked.
at::Tensor DenseLikes(std::span<const LikedItems> users, int64_t items,
                      at::Device device);

// Normalized discounted cumulative gain of the k best scores, averaged over the
// rows, in [0, 1]. scores: [users, items], those of items that were seen at
// -infinity; hidden: [users, items], 1 where relevant, in each row at least
// one. K. Jarvelin and J. Kekalainen, Cumulated Gain-Based Evaluation of IR
// Techniques, TOIS 2002, with gains of 0 and 1.
double NormalizedGain(const at::Tensor& scores, const at::Tensor& hidden,
                      int64_t k);

// Ratings to learn without any data, as CSV: tastes of a few dimensions (low
// rank), and few items that nearly everybody rates (a power law).
std::string LowRankRatings(int64_t users, int64_t items, uint64_t seed);

// The denoising autoencoder of D. Liang et al., Variational Autoencoders for
// Collaborative Filtering, WWW 2018 (Mult-DAE): from the items that a user
// liked it predicts others. As thread-safe as any LibTorch module.

struct RecommendationAutoencoderOptions {
  int64_t items = 0;     // > 0
  int64_t hidden = 200;  // the paper's
  double dropout = 0.5;  // of the input: the noise
};

class RecommendationAutoencoderImpl : public torch::nn::Module {
 public:
  explicit RecommendationAutoencoderImpl(
      const RecommendationAutoencoderOptions& options);
  // likes: [users, items], 1 where liked. The result is the logits of all
  // items, of the same shape.
  torch::Tensor forward(const torch::Tensor& likes);

 private:
  torch::nn::Dropout dropout_;
  torch::nn::Linear encoder_;
  torch::nn::Linear decoder_;
};
TORCH_MODULE(RecommendationAutoencoder);

// The negative multinomial log likelihood of the liked items, averaged over the
// users; equation 2. Both [users, items].
torch::Tensor MultinomialLoss(const torch::Tensor& logits,
                              const torch::Tensor& likes);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_RECOMMENDATION_H_
