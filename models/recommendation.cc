#include "models/recommendation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/functional/normalization.h>
#include <torch/nn/init.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "core/status.h"
#include "models/dataset.h"

namespace gavel::models {
namespace {

constexpr std::string_view kRatingsRemedy =
    "give a CSV file with the columns userId, movieId and rating";
constexpr std::array<std::string_view, 3> kColumns = {"userId", "movieId",
                                                      "rating"};

// Fields and lines of a CSV text, one after the other.
class CsvReader {
 public:
  CsvReader(std::string_view text, std::string_view name)
      : text_(text), name_(name) {}

  // The fields of the next line that is not empty; false at the end.
  bool Next(std::vector<std::string_view>* fields) {
    std::string_view line;
    while (line.empty()) {
      if (text_.empty()) return false;
      const size_t end = text_.find('\n');
      line = text_.substr(0, end);
      text_.remove_prefix(end == std::string_view::npos ? text_.size()
                                                        : end + 1);
      if (line.ends_with('\r')) line.remove_suffix(1);
      ++number_;
    }
    fields->clear();
    while (true) {
      const size_t comma = line.find(',');
      fields->push_back(line.substr(0, comma));
      if (comma == std::string_view::npos) return true;
      line.remove_prefix(comma + 1);
    }
  }

  absl::Status Error(std::string_view why) const {
    return absl::InvalidArgumentError(
        StrCat(name_, ":", number_, ": ", why, "; ", kRatingsRemedy));
  }

 private:
  std::string_view text_;
  std::string_view name_;
  int64_t number_ = 0;
};

template <class Number>
bool ParseField(std::string_view text, Number* number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && rest == end;
}

// Where the columns of kColumns are.
absl::StatusOr<std::array<size_t, 3>> ColumnsOf(
    const CsvReader& reader, const std::vector<std::string_view>& header) {
  std::array<size_t, 3> places{};
  for (size_t column = 0; column < kColumns.size(); ++column) {
    const auto found =
        std::find(header.begin(), header.end(), kColumns[column]);
    if (found == header.end()) {
      return reader.Error(StrCat("no column ", kColumns[column]));
    }
    places[column] = static_cast<size_t>(found - header.begin());
  }
  return places;
}

// By user id, the movies that are liked.
absl::StatusOr<std::map<int64_t, std::vector<int64_t>>> LikesOf(
    std::string_view text, std::string_view name, double rating_min) {
  CsvReader reader(text, name);
  std::vector<std::string_view> fields;
  if (!reader.Next(&fields)) return reader.Error("is empty");
  GAVEL_ASSIGN_OR_RETURN(const auto places, ColumnsOf(reader, fields));
  const size_t width = fields.size();
  std::map<int64_t, std::vector<int64_t>> likes;
  while (reader.Next(&fields)) {
    if (fields.size() != width) {
      return reader.Error(StrCat(fields.size(), " fields instead of ", width));
    }
    int64_t user = 0;
    int64_t movie = 0;
    double rating = 0;
    if (!ParseField(fields[places[0]], &user) ||
        !ParseField(fields[places[1]], &movie) ||
        !ParseField(fields[places[2]], &rating)) {
      return reader.Error("userId, movieId or rating is not a number");
    }
    if (rating >= rating_min) likes[user].push_back(movie);
  }
  for (auto& [user, movies] : likes) {
    std::sort(movies.begin(), movies.end());
    movies.erase(std::unique(movies.begin(), movies.end()), movies.end());
  }
  return likes;
}

// std::shuffle's result is the library's choice; this one's is not.
template <class Value>
void Shuffle(std::vector<Value>* values, std::mt19937_64* engine) {
  for (size_t left = values->size(); left > 1; --left) {
    std::swap((*values)[left - 1], (*values)[(*engine)() % left]);
  }
}

// Parts a held-out user's items; false: nothing would be left on a side.
bool Hide(LikedItems items, double fraction, std::mt19937_64* engine,
          HeldOutUser* user) {
  if (items.size() < 2) return false;
  Shuffle(&items, engine);
  const auto hidden = std::clamp<size_t>(
      static_cast<size_t>(fraction * static_cast<double>(items.size())), 1,
      items.size() - 1);
  user->hidden.assign(items.begin(),
                      items.begin() + static_cast<ptrdiff_t>(hidden));
  user->seen.assign(items.begin() + static_cast<ptrdiff_t>(hidden),
                    items.end());
  std::sort(user->hidden.begin(), user->hidden.end());
  std::sort(user->seen.begin(), user->seen.end());
  return true;
}

}  // namespace

absl::StatusOr<Ratings> Ratings::FromText(std::string_view text,
                                          std::string_view name,
                                          const RatingsOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(auto likes, LikesOf(text, name, options.rating_min));
  std::vector<std::vector<int64_t>> users;
  for (auto& [user, movies] : likes) {
    if (static_cast<int64_t>(movies.size()) >= options.likes_min) {
      users.push_back(std::move(movies));
    }
  }
  std::mt19937_64 engine(options.seed);
  Shuffle(&users, &engine);
  const auto train_size = static_cast<size_t>(
      static_cast<double>(users.size()) * (1 - options.held_out_fraction));

  Ratings ratings;
  std::map<int64_t, int64_t> item_of;  // by movie id
  std::vector<LikedItems> train;
  std::vector<HeldOutUser> held_out;
  for (size_t user = 0; user < train_size; ++user) {
    for (const int64_t movie : users[user]) item_of[movie] = 0;
  }
  for (auto& [movie, item] : item_of) item = ratings.items_++;
  for (size_t user = 0; user < users.size(); ++user) {
    LikedItems items;
    for (const int64_t movie : users[user]) {
      const auto found = item_of.find(movie);
      if (found != item_of.end()) items.push_back(found->second);
    }
    HeldOutUser split;
    if (user < train_size) {
      train.push_back(std::move(items));
    } else if (Hide(std::move(items), options.hidden_fraction, &engine,
                    &split)) {
      held_out.push_back(std::move(split));
    }
  }
  if (train.empty() || held_out.empty()) {
    return absl::InvalidArgumentError(
        StrCat(name, ": has ", users.size(), " users with ", options.likes_min,
               " ratings of ", options.rating_min,
               " or more, too few to train on some and hold out others; ",
               kRatingsRemedy));
  }
  ratings.train_ =
      std::make_shared<const std::vector<LikedItems>>(std::move(train));
  ratings.held_out_ =
      std::make_shared<const std::vector<HeldOutUser>>(std::move(held_out));
  return ratings;
}

absl::StatusOr<Ratings> Ratings::Read(const std::string& path,
                                      const RatingsOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const std::string text,
                         ReadDataFile(path, kRatingsRemedy));
  return FromText(text, path, options);
}

at::Tensor DenseLikes(std::span<const LikedItems> users, int64_t items,
                      at::Device device) {
  at::Tensor likes =
      at::zeros({static_cast<int64_t>(users.size()), items}, at::kFloat);
  auto* row = likes.mutable_data_ptr<float>();
  for (const LikedItems& user : users) {
    for (const int64_t item : user) row[item] = 1;
    row += items;
  }
  return likes.to(device);
}

double NormalizedGain(const at::Tensor& scores, const at::Tensor& hidden,
                      int64_t k) {
  const int64_t size = std::min(k, scores.size(1));
  const at::Tensor discount =
      at::arange(2, size + 2, scores.options().dtype(at::kDouble))
          .log2_()
          .reciprocal_();
  const at::Tensor best = std::get<1>(scores.topk(size, 1));
  const at::Tensor gain =
      (hidden.gather(1, best).to(at::kDouble) * discount).sum(1);
  const at::Tensor ideal =
      at::cat({at::zeros({1}, discount.options()), discount.cumsum(0)}, 0);
  const at::Tensor relevant = hidden.sum(1).to(at::kLong).clamp_max(size);
  return (gain / ideal.index_select(0, relevant)).mean().item<double>();
}

std::string LowRankRatings(int64_t users, int64_t items, uint64_t seed) {
  constexpr size_t kRank = 4;
  constexpr double kPower = 0.8;  // of the popularity's decline
  constexpr double kTaste = 2.5;  // how much taste decides, beside popularity
  constexpr double kRated = 30;   // items that a user rates, about
  std::mt19937_64 engine(seed);
  const auto uniform = [&engine] {
    return static_cast<double>(engine() >> 11) * 0x1p-53;
  };
  const auto tastes = [&uniform](int64_t count) {
    std::vector<std::array<double, kRank>> rows(static_cast<size_t>(count));
    for (auto& row : rows) {
      for (double& value : row) value = 2 * uniform() - 1;
    }
    return rows;
  };
  const auto of_users = tastes(users);
  const auto of_items = tastes(items);
  std::string text = "userId,movieId,rating,timestamp\n";
  for (size_t user = 0; user < of_users.size(); ++user) {
    for (size_t item = 0; item < of_items.size(); ++item) {
      const double match =
          std::inner_product(of_users[user].begin(), of_users[user].end(),
                             of_items[item].begin(), 0.0);
      const double popularity =
          std::pow(static_cast<double>(item + 1), -kPower);
      const double total =
          std::pow(static_cast<double>(items), 1 - kPower) / (1 - kPower);
      if (uniform() > kRated * popularity / total * std::exp(kTaste * match)) {
        continue;
      }
      // Half stars from 0.5 to 5, as MovieLens has them.
      const double stars = std::clamp(3.5 + 1.5 * match + uniform(), 0.5, 5.0);
      StrAppend(&text, user + 1, ",", item + 1, ",", std::round(2 * stars) / 2,
                ",0\n");
    }
  }
  return text;
}

RecommendationAutoencoderImpl::RecommendationAutoencoderImpl(
    const RecommendationAutoencoderOptions& options)
    : dropout_(options.dropout),
      encoder_(options.items, options.hidden),
      decoder_(options.hidden, options.items) {
  register_module("dropout", dropout_);
  register_module("encoder", encoder_);
  register_module("decoder", decoder_);
  for (const torch::nn::Linear& linear : {encoder_, decoder_}) {
    torch::nn::init::xavier_uniform_(linear->weight);
    torch::nn::init::zeros_(linear->bias);
  }
}

torch::Tensor RecommendationAutoencoderImpl::forward(
    const torch::Tensor& likes) {
  const torch::Tensor scaled = torch::nn::functional::normalize(
      likes, torch::nn::functional::NormalizeFuncOptions().dim(1));
  return decoder_(at::tanh(encoder_(dropout_(scaled))));
}

torch::Tensor MultinomialLoss(const torch::Tensor& logits,
                              const torch::Tensor& likes) {
  return -(at::log_softmax(logits, 1) * likes).sum(1).mean();
}

}  // namespace gavel::models
