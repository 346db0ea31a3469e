// Trains an autoencoder to recommend items, on ratings in MovieLens' form
// (--data ratings.csv) or, without --data, on generated ratings of low rank.
// Runs alone or under a coordinator. Prints one line of JSON at the end: the
// NDCG of its recommendations to users that it was not trained on, beside the
// NDCG of recommending the most popular items.
#include <ATen/ops/tensor.h>
#include <torch/optim/adam.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "examples/training.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "models/recommendation.h"

namespace {

using gavel::examples::OrFail;
using gavel::models::DenseLikes;
using gavel::models::HeldOutUser;
using gavel::models::LikedItems;
using gavel::models::MultinomialLoss;
using gavel::models::Ratings;
using gavel::models::RecommendationAutoencoder;

struct Flags : gavel::examples::TrainingFlags {
  Flags() {
    epochs = 50;
    batch_size = 512;
    learning_rate = 0.003;
  }
  gavel::models::RatingsOptions ratings;
  gavel::models::RecommendationAutoencoderOptions model;
  int64_t recommended = 100;
};

void AddFlags(CLI::App& app, Flags& flags) {
  AddTrainingFlags(app, flags);
  AddDataFlags(app, flags, "a CSV file: userId, movieId, rating", "users");
  app.add_option("--rating-min", flags.ratings.rating_min,
                 "a rating of so much is a like");
  app.add_option("--likes-min", flags.ratings.likes_min,
                 "users with fewer are left out")
      ->check(CLI::Range(2, 1'000'000));
  app.add_option("--hidden", flags.model.hidden, "width of the hidden layer")
      ->check(CLI::PositiveNumber);
  app.add_option("--dropout", flags.model.dropout, "of the input")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--recommended", flags.recommended, "the k of NDCG@k")
      ->check(CLI::PositiveNumber);
}

Ratings ReadRatings(const Flags& flags) {
  if (!flags.data.empty()) {
    return OrFail(Ratings::Read(flags.data, flags.ratings));
  }
  constexpr int64_t kUsers = 6000;
  constexpr int64_t kItems = 1000;
  return OrFail(
      Ratings::FromText(gavel::models::LowRankRatings(kUsers, kItems, 1),
                        "the generated ratings", flags.ratings));
}

// NDCG@k on the held-out users. `score` maps the items that users have seen to
// scores; both are [users, items].
template <class Score>
double Evaluate(const Ratings& ratings, int64_t k, const torch::Device& device,
                const Score& score) {
  constexpr size_t kBatchSize = 500;
  double sum = 0;
  std::span<const HeldOutUser> rest = ratings.held_out();
  while (!rest.empty()) {
    const auto part = rest.first(std::min(kBatchSize, rest.size()));
    rest = rest.subspan(part.size());
    std::vector<LikedItems> seen;
    std::vector<LikedItems> hidden;
    for (const HeldOutUser& user : part) {
      seen.push_back(user.seen);
      hidden.push_back(user.hidden);
    }
    const auto likes = DenseLikes(seen, ratings.items(), device);
    const auto scores = score(likes).masked_fill(
        likes.to(torch::kBool), -std::numeric_limits<float>::infinity());
    sum += gavel::models::NormalizedGain(
               scores, DenseLikes(hidden, ratings.items(), device), k) *
           static_cast<double>(part.size());
  }
  return sum / static_cast<double>(ratings.held_out().size());
}

// How many users like each item, [items].
torch::Tensor Popularity(const Ratings& ratings, const torch::Device& device) {
  std::vector<float> counts(static_cast<size_t>(ratings.items()));
  for (const LikedItems& user : ratings.train()) {
    for (const int64_t item : user) counts[static_cast<size_t>(item)] += 1;
  }
  return at::tensor(counts).to(device);
}

int Train(Flags& flags, const Ratings& ratings) {
  Seed(flags);
  flags.model.items = ratings.items();
  RecommendationAutoencoder model(flags.model);
  torch::optim::Adam optimizer(model->parameters(), flags.learning_rate);
  auto loader =
      LoaderOf(gavel::models::LikedItemsOfUsers(ratings.train()), flags);
  int64_t epoch = 0;

  const auto session = OpenSession(flags);
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  session->Track("epoch", epoch);
  gavel::examples::StepLoss step_loss(*session);

  while (epoch < flags.epochs && !session->stopped()) {
    for (auto& users : gavel::Iterator(*session, loader)) {
      const auto likes = DenseLikes(users, ratings.items(), session->device());
      optimizer.zero_grad();
      const auto loss = MultinomialLoss(model(likes), likes);
      loss.backward();
      step_loss.Add(loss);
      optimizer.step();
    }
    if (!session->stopped()) ++epoch;
  }

  if (session->finished()) {
    const torch::NoGradGuard no_grad;
    const torch::Device device = session->device();
    model->eval();
    const double learnt =
        Evaluate(ratings, flags.recommended, device,
                 [&](const torch::Tensor& likes) { return model(likes); });
    const torch::Tensor popularity = Popularity(ratings, device);
    const double popular = Evaluate(ratings, flags.recommended, device,
                                    [&](const torch::Tensor& likes) {
                                      return popularity.expand(likes.sizes());
                                    });
    std::printf(
        "{\"data\": \"%s\", \"steps\": %lld, \"items\": %lld, \"ndcg\": %.9g, "
        "\"popularity_ndcg\": %.9g}\n",
        DataLabel(flags), static_cast<long long>(session->steps_done()),
        static_cast<long long>(ratings.items()), learnt, popular);
  }
  return session->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains an autoencoder to recommend.");
  Flags flags;
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  return Train(flags, ReadRatings(flags));
}
