// Trains actors to play Pong, asynchronously (A3C): each thread plays its own
// game with its own copy of the network, and updates the shared network. A step
// is --rollouts parts of games, and a free actor takes the next one. Runs alone
// or under a coordinator; with one actor every run is the same. The game is
// implemented in this library, so all data are synthetic. Unlike the trainers
// that read a data set, this one has no --synthetic flag, which trains on the
// first batch over and over: no data are read, and the observations follow from
// the actions. Prints one line of JSON at the end: the mean margin in points of
// games against the same opponent (negative if they are lost), beside that of
// acting at random.
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "examples/training.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "models/actor_critic.h"
#include "models/training.h"

namespace {

using gavel::models::ActorCritic;
using gavel::models::Pong;

struct Flags : gavel::examples::TrainingFlags {
  Flags() {
    steps = 1500;
    learning_rate = 0.003;
  }
  int64_t actors = 2;
  int64_t rollouts = 8;
  int64_t rollout_length = 20;
  int64_t decay_steps = 0;
  bool pixels = false;
  gavel::models::PongOptions game{.points = 5};
  gavel::models::AdvantageOptions advantage{.lambda = 0.95};
  gavel::models::ActorCriticLossOptions loss;
};

void AddFlags(CLI::App& app, Flags& flags) {
  AddTrainingFlags(app, flags);
  app.add_option("--actors", flags.actors, "threads that play")
      ->check(CLI::Range(1, 256));
  app.add_option("--rollouts", flags.rollouts, "parts of games in a step")
      ->check(CLI::PositiveNumber);
  app.add_option("--rollout-length", flags.rollout_length, "actions in each")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--decay-steps", flags.decay_steps,
                 "of the learning rate's cosine; 0: as many as training has")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--pixels", flags.pixels, "see pictures, not positions");
  app.add_option("--points", flags.game.points, "that end a game; Atari's: 21")
      ->check(CLI::PositiveNumber);
  app.add_option("--discount", flags.advantage.discount, "of later points")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--lambda", flags.advantage.lambda,
                 "of generalized advantages; 1: plain returns")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--entropy", flags.loss.entropy_weight, "weight of its bonus")
      ->check(CLI::NonNegativeNumber);
}

ActorCritic Network(const Flags& flags) {
  return ActorCritic(gavel::models::ActorCriticOptions{
      .actions = Pong::kActions,
      .features = flags.pixels ? 0 : int64_t{Pong::kFeatures}});
}

torch::Tensor Observe(const Flags& flags, const Pong& game) {
  if (!flags.pixels) {
    const auto features = game.Features();
    return at::tensor(at::ArrayRef<float>(features)).unsqueeze(0);
  }
  torch::Tensor picture =
      at::empty({1, Pong::kPictures, Pong::kPixels, Pong::kPixels});
  game.Draw({picture.mutable_data_ptr<float>(),
             static_cast<size_t>(picture.numel())});
  return picture;
}

// Draws an action with the probabilities of the policy.
int64_t Sample(const torch::Tensor& logits, std::mt19937_64& engine) {
  const torch::Tensor sums = logits.softmax(1).cumsum(1).cpu();
  const double chance = static_cast<double>(engine() >> 11) * 0x1p-53;
  int64_t action = 0;
  while (action + 1 < Pong::kActions &&
         chance >= sums.const_data_ptr<float>()[action]) {
    ++action;
  }
  return action;
}

// State that all actors change, one at a time under `mutex`.
struct Shared {
  explicit Shared(const Flags& flags)
      : model(Network(flags)),
        optimizer(
            model->parameters(),
            torch::optim::AdamOptions(flags.learning_rate).amsgrad(true)) {}

  ActorCritic model;
  torch::optim::Adam optimizer;
  std::mutex mutex;
  double loss = 0;               // summed over the step's rollouts
  std::vector<double> finished;  // margins of the games that the step ended
};

class Actor {
 public:
  Actor(const Flags& flags, uint64_t seed)
      : flags_(flags),
        game_(flags.game, seed),
        engine_(seed),
        model_(Network(flags)) {}

  void Track(gavel::Session& session, const std::string& name) {
    session.Track(name + "_engine", engine_);
    session.Track(
        name + "_game", [this] { return game_.Save(); },
        [this](const std::string& bytes) {
          if (game_.Load(bytes)) return;
          gavel::examples::Fail(
              "the checkpoint holds no game of this kind; give the same flags, "
              "or another checkpoint directory");
        });
  }

  // Takes rollouts until none is left.
  void Work(Shared& shared, std::atomic<int64_t>& rollouts_left,
            const torch::Device& device) {
    at::set_num_threads(1);  // of this thread's operators: the actors are many
    model_->to(device);
    while (rollouts_left.fetch_sub(1) > 0) Rollout(shared, device);
    model_->to(torch::kCPU);  // nothing untracked stays on the accelerator
  }

 private:
  void Rollout(Shared& shared, const torch::Device& device) {
    CopyFrom(shared);
    std::vector<torch::Tensor> seen;
    std::vector<int64_t> actions;
    gavel::models::Rewards rewards;
    std::vector<double> finished;
    for (int64_t step = 0; step <= flags_.rollout_length; ++step) {
      const torch::NoGradGuard no_grad;
      const torch::Tensor observation = Observe(flags_, game_).to(device);
      const auto [logits, value] = model_(observation);
      rewards.values.push_back(value.item<float>());
      if (step == flags_.rollout_length) break;
      seen.push_back(observation);
      actions.push_back(Sample(logits, engine_));
      const Pong::Outcome outcome = game_.Step(actions.back());
      rewards.rewards.push_back(static_cast<float>(outcome.reward));
      rewards.ended.push_back(outcome.ended);
      if (outcome.ended) {
        finished.push_back(static_cast<double>(game_.own_points()) -
                           static_cast<double>(game_.opponent_points()));
      }
    }
    const auto advantages = Advantages(rewards, flags_.advantage);
    std::vector<float> returns(advantages);
    for (size_t at = 0; at < returns.size(); ++at) {
      returns[at] += rewards.values[at];
    }
    const torch::Tensor loss =
        ActorCriticLoss(model_(at::cat(seen)), at::tensor(actions).to(device),
                        at::tensor(advantages).to(device),
                        at::tensor(returns).to(device), flags_.loss);
    model_->zero_grad();
    loss.backward();
    Apply(shared, loss.item<double>(), finished);
  }

  void CopyFrom(Shared& shared) {
    const torch::NoGradGuard no_grad;
    const std::lock_guard lock(shared.mutex);
    const auto from = shared.model->parameters();
    const auto to = model_->parameters();
    for (size_t at = 0; at < to.size(); ++at) to[at].copy_(from[at]);
  }

  // Updates the shared parameters with this copy's gradients, although other
  // actors may have updated them since they were copied.
  void Apply(Shared& shared, double loss, const std::vector<double>& finished) {
    const std::lock_guard lock(shared.mutex);
    const auto from = model_->parameters();
    const auto to = shared.model->parameters();
    for (size_t at = 0; at < to.size(); ++at) {
      to[at].mutable_grad() = from[at].grad();
    }
    torch::nn::utils::clip_grad_norm_(to, 0.5);
    shared.optimizer.step();
    shared.optimizer.zero_grad();
    shared.loss += loss;
    shared.finished.insert(shared.finished.end(), finished.begin(),
                           finished.end());
  }

  const Flags& flags_;
  Pong game_;
  std::mt19937_64 engine_;
  ActorCritic model_;
};

// The learning rate falls to a tenth, as training at the full rate can unlearn
// the game again; it is constant if training has no end. V. Mnih et al.,
// Asynchronous Methods for Deep Reinforcement Learning, ICML 2016, section 8,
// decrease it linearly.
double LearningRate(const Flags& flags, int64_t budget, int64_t step) {
  const int64_t steps = flags.decay_steps > 0 ? flags.decay_steps : budget;
  if (steps == 0) return flags.learning_rate;
  return gavel::models::CosineRate(step, {.peak = flags.learning_rate}, steps);
}

// The mean margin of games with a new seed. Without a model, actions are
// random.
double Play(const Flags& flags, ActorCritic* model,
            const torch::Device& device) {
  constexpr int64_t kGames = 30;
  const torch::NoGradGuard no_grad;
  std::mt19937_64 engine(flags.seed + 1'000'000);
  Pong game(flags.game, flags.seed + 1'000'000);
  double margin = 0;
  for (int64_t games = 0; games < kGames;) {
    int64_t action = static_cast<int64_t>(engine() % Pong::kActions);
    if (model != nullptr) {
      const auto output = (*model)(Observe(flags, game).to(device));
      action = Sample(output.logits, engine);
    }
    const Pong::Outcome outcome = game.Step(action);
    margin += outcome.reward;
    games += outcome.ended;
  }
  return margin / kGames;
}

int Train(const Flags& flags) {
  Seed(flags);
  Shared shared(flags);
  std::deque<Actor> actors;
  double margin = -static_cast<double>(flags.game.points);  // of late, smoothed

  const int64_t budget = SessionOptionsOf(flags).steps_total;
  const auto session = OpenSession(flags);
  session->Track("model", shared.model);
  session->Track("optimizer", shared.optimizer);
  session->Track("margin", margin);
  for (int64_t index = 0; index < flags.actors; ++index) {
    const auto number = static_cast<uint64_t>(index);
    actors.emplace_back(flags, flags.seed * 1000 + number)
        .Track(*session, "actor_" + std::to_string(index));
  }

  // The range has no end: the session stops the loop after --steps.
  const auto steps = std::views::iota(int64_t{0});
  for (auto step : gavel::Iterator(*session, steps, gavel::Resume::kForward)) {
    gavel::models::SetLearningRate(shared.optimizer,
                                   LearningRate(flags, budget, step));
    std::atomic<int64_t> rollouts_left = flags.rollouts;
    const torch::Device device = session->device();
    std::vector<std::future<void>> threads;
    for (Actor& actor : actors) {
      threads.push_back(std::async(std::launch::async, [&] {
        actor.Work(shared, rollouts_left, device);
      }));
    }
    for (auto& thread : threads) thread.get();
    for (const double game : std::exchange(shared.finished, {})) {
      margin += 0.05 * (game - margin);
    }
    session->Report("loss", std::exchange(shared.loss, 0.0) /
                                static_cast<double>(flags.rollouts));
    session->Report("margin", margin);
  }

  if (session->finished()) {
    const torch::Device device = session->device();
    std::printf(
        "{\"data\": \"synthetic\", \"steps\": %lld, \"margin_in_training\": "
        "%.9g, "
        "\"margin\": %.9g, \"random_margin\": %.9g}\n",
        static_cast<long long>(session->steps_done()), margin,
        Play(flags, &shared.model, device), Play(flags, nullptr, device));
  }
  return session->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains actors to play Pong.");
  Flags flags;
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  return Train(flags);
}
