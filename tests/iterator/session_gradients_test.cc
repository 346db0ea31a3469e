// Gradients that add up over several steps come back from a checkpoint: each
// training below is killed after each of its steps and started again, and
// reports the same values to the bit as one that nobody disturbed.
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <map>

#include "gavel/session.h"
#include "runtime/checkpoint/generation_store.h"
#include "tests/iterator/session_fixture.h"
#include "tests/iterator/training.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr int64_t kSteps = 14;

at::Tensor Input(const Session& session) {
  const auto step = static_cast<double>(session.steps_done());
  return torch::sin(torch::arange(6, torch::kFloat) * (step + 1))
      .view({2, 3})
      .to(session.device());
}

at::Tensor Loss(torch::nn::Linear& model, const Session& session) {
  return model->forward(Input(session)).tanh().pow(2).mean();
}

// A training of `kSteps` steps.
struct Program {
  virtual ~Program() = default;
  virtual void Track(Session& session) = 0;
  // Trains one step; what it reports.
  virtual double Step(Session& session) = 0;
};

using Values = std::map<int64_t, double>;  // by step

// Trains until the process is killed after `die_after` steps. A checkpoint that
// is being written is completed.
template <class Kind, class... Arguments>
void TrainUntil(const SessionOptions& options, int64_t die_after,
                Values* values, const Arguments&... arguments) {
  torch::manual_seed(3);
  Kind program(arguments...);
  auto session = Session::Create(options);
  program.Track(*session);
  while (session->Boundary() && session->steps_done() < kSteps) {
    const int64_t step = session->steps_done();
    if (step == die_after) return;
    (*values)[step] = program.Step(*session);
    session->StepDone();
  }
  EXPECT_EQ(session->Finish(), 0) << session->status().message();
}

class SessionGradients : public SessionTest {
 protected:
  SessionOptions In(const TemporaryFolder& folder) {
    SessionOptions options = Alone();
    options.checkpoint_directory = folder.path();
    options.checkpoint_interval_s = 0;
    options.checkpoint_interval_steps = 1;
    return options;
  }

  template <class Kind, class... Arguments>
  void SurvivesAKillAfterEachStep(const Arguments&... arguments) {
    const TemporaryFolder undisturbed;
    Values whole;
    TrainUntil<Kind>(In(undisturbed), -1, &whole, arguments...);
    ASSERT_EQ(whole.size(), static_cast<size_t>(kSteps));
    for (int64_t step = 1; step < kSteps; ++step) {
      const TemporaryFolder folder;
      Values values;
      TrainUntil<Kind>(In(folder), step, &values, arguments...);
      TrainUntil<Kind>(In(folder), -1, &values, arguments...);
      EXPECT_EQ(values, whole) << "killed after step " << step;
    }
  }

  // Counts the gradients in the newest checkpoint.
  static size_t GradientsIn(const std::string& directory) {
    auto store = GenerationStore::Open(directory);
    EXPECT_TRUE(store.ok()) << store.status();
    const auto restored = store->Restore();
    EXPECT_TRUE(restored.ok()) << restored.status();
    size_t count = 0;
    for (const auto& [name, tensor] : restored->snapshot.tensors) {
      count += name.starts_with("gavel/gradient/") ? 1 : 0;
    }
    return count;
  }
};

// Steps of the optimizer after each, and from step `from` on after each fourth.
struct Accumulating : Program {
  Accumulating(int64_t begin, double momentum, bool at_begin)
      : from(begin),
        resets_at_begin(at_begin),
        optimizer(model->parameters(),
                  torch::optim::SGDOptions(0.1).momentum(momentum)) {}
  void Track(Session& session) override {
    session.Track("model", model);
    session.Track("optimizer", optimizer);
  }
  double Step(Session& session) override {
    const int64_t n = session.steps_done() - from;
    if (resets_at_begin && (n < 0 || n % 4 == 0)) optimizer.zero_grad();
    const at::Tensor loss = Loss(model, session);
    loss.backward();
    if (n < 0 || n % 4 == 3) {
      optimizer.step();
      if (!resets_at_begin) optimizer.zero_grad();
    }
    return loss.item<double>();
  }
  int64_t from;
  bool resets_at_begin;
  torch::nn::Linear model{3, 4};
  torch::optim::SGD optimizer;
};

TEST_F(SessionGradients, ThatAddUpFromTheFirstStepComeBack) {
  SurvivesAKillAfterEachStep<Accumulating>(0, 0.0, false);
}

TEST_F(SessionGradients, ThatAddUpFromALaterStepOnComeBack) {
  SurvivesAKillAfterEachStep<Accumulating>(7, 0.0, false);
  SurvivesAKillAfterEachStep<Accumulating>(8, 0.9, false);
}

TEST_F(SessionGradients, ThatAreResetWhereTheNextSumBeginsComeBack) {
  SurvivesAKillAfterEachStep<Accumulating>(0, 0.9, true);
  SurvivesAKillAfterEachStep<Accumulating>(6, 0.0, true);
}

// The copy that follows the model changes in each step.
struct Averaged : Accumulating {
  Averaged() : Accumulating(2, 0.0, false) {
    for (const at::Tensor& one : model->parameters()) {
      average.push_back(one.detach().clone());
    }
  }
  void Track(Session& session) override {
    Accumulating::Track(session);
    session.Track("average", average);
  }
  double Step(Session& session) override {
    const double loss = Accumulating::Step(session);
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < average.size(); ++i) {
      average[i].mul_(0.9).add_(model->parameters()[i], 0.1);
    }
    return loss + average[0].sum().item<double>();
  }
  std::vector<at::Tensor> average;
};

TEST_F(SessionGradients, BesideAnAverageOfEachStepComeBack) {
  SurvivesAKillAfterEachStep<Averaged>();
}

// Two optimizers, of which one makes a step in each second only.
struct Adversarial : Program {
  void Track(Session& session) override {
    session.Track("generator", generator);
    session.Track("discriminator", discriminator);
    session.Track("generator_optimizer", generator_optimizer);
    session.Track("discriminator_optimizer", discriminator_optimizer);
  }
  double Step(Session& session) override {
    const at::Tensor fake = generator->forward(Input(session)).tanh();
    const at::Tensor judged = discriminator->forward(fake.detach()).mean();
    judged.pow(2).backward();
    if (session.steps_done() % 2 == 1) {
      discriminator_optimizer.step();
      discriminator_optimizer.zero_grad();
    }
    generator_optimizer.zero_grad();
    const at::Tensor loss = (discriminator->forward(fake).mean() - 1).pow(2);
    loss.backward({}, std::nullopt, false, generator->parameters());
    generator_optimizer.step();
    return loss.item<double>() + judged.item<double>();
  }
  torch::nn::Linear generator{3, 3};
  torch::nn::Linear discriminator{3, 1};
  torch::optim::Adam generator_optimizer{generator->parameters(), 0.01};
  torch::optim::Adam discriminator_optimizer{discriminator->parameters(), 0.01};
};

TEST_F(SessionGradients, OfOneOptimizerBesideAnotherComeBack) {
  SurvivesAKillAfterEachStep<Adversarial>();
}

// After each step of the optimizer, half of the gradients stay, from `from` on.
struct Leaking : Program {
  explicit Leaking(int64_t begin) : from(begin) {}
  void Track(Session& session) override {
    session.Track("model", model);
    session.Track("optimizer", optimizer);
  }
  double Step(Session& session) override {
    if (session.steps_done() < from) {
      optimizer.zero_grad();
    } else {
      const at::NoGradGuard no_grad;
      for (at::Tensor& one : model->parameters()) {
        if (one.grad().defined()) one.mutable_grad().mul_(0.5);
      }
    }
    const at::Tensor loss = Loss(model, session);
    loss.backward();
    optimizer.step();
    return loss.item<double>();
  }
  int64_t from;
  torch::nn::Linear model{3, 4};
  torch::optim::Adam optimizer{model->parameters(), 0.01};
};

TEST_F(SessionGradients, ThatStayAfterAStepOfTheOptimizerComeBack) {
  SurvivesAKillAfterEachStep<Leaking>(0);
}

// Nothing shows it before: the one checkpoint that lacks them is named, and the
// next has them.
TEST_F(SessionGradients, ThatACheckpointLacksAreToldAndAreInTheNextOne) {
  const TemporaryFolder undisturbed;
  Values whole;
  TrainUntil<Leaking>(In(undisturbed), -1, &whole, 6);
  EXPECT_EQ(log_.Count("the checkpoint of step 6 was written without the "
                       "gradients of 'optimizer', and step 7 added to them"),
            1)
      << log_.Text();
  for (int64_t step = 7; step < kSteps; ++step) {
    const TemporaryFolder folder;
    Values values;
    TrainUntil<Leaking>(In(folder), step, &values, 6);
    EXPECT_EQ(GradientsIn(folder.path()), 2u);
    TrainUntil<Leaking>(In(folder), -1, &values, 6);
    EXPECT_EQ(values, whole) << "killed after step " << step;
  }
}

// A checkpoint between the ones by steps, taken because the last one lacks
// them.
TEST_F(SessionGradients, ThatACheckpointLacksMakeAnotherOneAtOnce) {
  const TemporaryFolder folder;
  SessionOptions options = In(folder);
  options.checkpoint_interval_steps = 6;
  Values values;
  TrainUntil<Leaking>(options, 8, &values, 6);
  auto store = GenerationStore::Open(folder.path());
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(store->LatestGeneration()->step, 7u);
  EXPECT_EQ(GradientsIn(folder.path()), 2u);
}

struct Ordinary : Accumulating {
  explicit Ordinary(bool at_begin) : Accumulating(kSteps, 0.9, at_begin) {}
};

TEST_F(SessionGradients, OfOneStepAreNotInACheckpointOnceItIsSeen) {
  for (const int64_t step : {3, 4, 9}) {
    const TemporaryFolder folder;
    Values values;
    TrainUntil<Ordinary>(In(folder), step, &values, true);
    EXPECT_EQ(GradientsIn(folder.path()), 0u) << "after step " << step;
  }
  EXPECT_FALSE(log_.Contain("gradients"));
}

TEST_F(SessionGradients, AreInACheckpointAsTheOptionSays) {
  for (const auto& [mode, count] : {std::pair(Gradients::kSaveAlways, 2u),
                                    std::pair(Gradients::kSaveNever, 0u)}) {
    const TemporaryFolder folder;
    SessionOptions options = In(folder);
    options.gradients = mode;
    Values values;
    TrainUntil<Ordinary>(options, 5, &values, true);
    EXPECT_EQ(GradientsIn(folder.path()), count);
    // In the middle of a sum.
    const TemporaryFolder other;
    options.checkpoint_directory = other.path();
    TrainUntil<Accumulating>(options, 6, &values, 0, 0.0, false);
    EXPECT_EQ(GradientsIn(other.path()), count);
  }
}

}  // namespace
}  // namespace gavel::testing
