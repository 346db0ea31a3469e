#include "runtime/checkpoint/optimizer_state.h"

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>

#include "runtime/checkpoint/generation_store.h"
#include "tests/checkpoint/snapshot_samples.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using MakeOptimizer =
    std::function<std::unique_ptr<optim::Optimizer>(std::vector<at::Tensor>)>;

struct Case {
  std::string name;
  MakeOptimizer make;
};

template <class Optimizer, class Options>
Case CaseOf(const std::string& name, Options options) {
  return {name, [options](std::vector<at::Tensor> parameters) {
            return std::make_unique<Optimizer>(std::move(parameters), options);
          }};
}

nn::Sequential SmallModel() {
  torch::manual_seed(5);
  return nn::Sequential(nn::Linear(6, 8), nn::Linear(8, 1));
}

void Train(nn::Sequential& model, optim::Optimizer& optimizer, int steps,
           int first) {
  for (int step = first; step < first + steps; ++step) {
    at::Tensor input = at::arange(24, at::kFloat).view({4, 6}).add(step).sin();
    optimizer.zero_grad();
    model->forward(input).pow(2).mean().backward();
    optimizer.step();
  }
}

std::vector<at::Tensor> Copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.detach().clone());
  }
  return copies;
}

void CopyInto(const std::vector<at::Tensor>& from,
              const std::vector<at::Tensor>& to) {
  for (size_t i = 0; i < from.size(); ++i) to[i].detach().copy_(from[i]);
}

// Through a generation on disk, as in real life.
Snapshot Stored(const Snapshot& snapshot) {
  TemporaryFolder folder;
  auto store = GenerationStore::Open(folder.path());
  EXPECT_OK(store->Commit({1, 1}, snapshot));
  auto restored = store->Restore();
  EXPECT_OK(restored.status());
  return std::move(restored->snapshot);
}

class OptimizerState : public TestWithParam<Case> {};

TEST_P(OptimizerState, TheNextTwentyStepsAreBitIdentical) {
  nn::Sequential model = SmallModel();
  auto optimizer = GetParam().make(model->parameters());
  Train(model, *optimizer, 7, 0);
  // A learning rate that a scheduler has changed is state, too.
  optimizer->param_groups()[0].options().set_lr(0.0123456789012345678);
  std::vector<at::Tensor> weights = Copies(model->parameters());
  Snapshot snapshot;
  ASSERT_OK(CollectOptimizerState(*optimizer, "optimizer", &snapshot));
  snapshot = Stored(snapshot);
  Train(model, *optimizer, 20, 7);
  ASSERT_TRUE(model->parameters()[0].isfinite().all().item<bool>());

  nn::Sequential other = SmallModel();
  auto fresh = GetParam().make(other->parameters());
  CopyInto(weights, other->parameters());
  ASSERT_OK(RestoreOptimizerState(snapshot, "optimizer", *fresh));
  Train(other, *fresh, 20, 7);
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_TRUE(other->parameters()[i].equal(model->parameters()[i])) << i;
  }

  // The comparison means something: without the state they differ.
  nn::Sequential without = SmallModel();
  auto empty = GetParam().make(without->parameters());
  CopyInto(weights, without->parameters());
  Train(without, *empty, 20, 7);
  EXPECT_FALSE(without->parameters()[0].equal(model->parameters()[0]));
}

TEST_P(OptimizerState, RestoringReplacesLaterState) {
  nn::Sequential model = SmallModel();
  auto optimizer = GetParam().make(model->parameters());
  Snapshot before;
  ASSERT_OK(CollectOptimizerState(*optimizer, "o", &before));
  size_t entries = optimizer->state().size();
  Train(model, *optimizer, 3, 0);
  ASSERT_OK(RestoreOptimizerState(before, "o", *optimizer));
  EXPECT_EQ(optimizer->state().size(), entries);
  EXPECT_OK(RestoreOptimizerState(before, "o", *optimizer));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, OptimizerState,
    Values(
        CaseOf<optim::SGD>("Momentum", optim::SGDOptions(0.01).momentum(0.9)),
        CaseOf<optim::SGD>("Nesterov", optim::SGDOptions(0.01)
                                           .momentum(0.9)
                                           .nesterov(true)
                                           .weight_decay(1e-3)),
        CaseOf<optim::Adam>("Adam", optim::AdamOptions(0.01)),
        CaseOf<optim::Adam>("Amsgrad", optim::AdamOptions(0.01).amsgrad(true)),
        CaseOf<optim::AdamW>("AdamW", optim::AdamWOptions(0.01)),
        CaseOf<optim::RMSprop>(
            "RMSprop",
            optim::RMSpropOptions(0.01).momentum(0.5).centered(true)),
        CaseOf<optim::Adagrad>("Adagrad", optim::AdagradOptions(0.01))),
    [](const auto& test) { return test.param.name; });

TEST(OptimizerStateErrors, OtherOptimizersAreRefusedByName) {
  nn::Sequential model = SmallModel();
  optim::LBFGS lbfgs(model->parameters());
  Snapshot snapshot;
  EXPECT_THAT(CollectOptimizerState(lbfgs, "optimizer", &snapshot),
              StatusIs(kUnimplemented, "'optimizer' is LBFGS"));
  EXPECT_THAT(RestoreOptimizerState(snapshot, "optimizer", lbfgs),
              StatusIs(kUnimplemented, "save and load callbacks"));
}

TEST(OptimizerStateErrors, AnotherKindIsRefused) {
  nn::Sequential model = SmallModel();
  optim::Adam adam(model->parameters());
  optim::SGD sgd(model->parameters(), 0.1);
  Snapshot snapshot;
  ASSERT_OK(CollectOptimizerState(adam, "optimizer", &snapshot));
  EXPECT_THAT(RestoreOptimizerState(snapshot, "optimizer", sgd),
              StatusIs(kFailedPrecondition, "of Adam, this program uses SGD"));
  EXPECT_THAT(RestoreOptimizerState(snapshot, "other", adam),
              StatusIs(kNotFound, "'other'"));
}

TEST(OptimizerStateErrors, AnotherModelIsRefusedAndNothingChanges) {
  nn::Sequential model = SmallModel();
  optim::Adam adam(model->parameters());
  Train(model, adam, 1, 0);
  Snapshot snapshot;
  ASSERT_OK(CollectOptimizerState(adam, "o", &snapshot));
  nn::Linear small(3, 3);
  optim::Adam fewer(small->parameters());
  EXPECT_THAT(RestoreOptimizerState(snapshot, "o", fewer),
              StatusIs(kFailedPrecondition, "4 parameters"));
  nn::Sequential wider(nn::Linear(7, 8), nn::Linear(8, 1));
  optim::Adam other(wider->parameters(), optim::AdamOptions(0.5));
  EXPECT_THAT(RestoreOptimizerState(snapshot, "o", other),
              StatusIs(kFailedPrecondition, "another shape"));
  EXPECT_TRUE(other.state().empty());
  EXPECT_EQ(other.param_groups()[0].options().get_lr(), 0.5);
}

TEST(OptimizerStateErrors, DamagedEntriesAreReported) {
  nn::Sequential model = SmallModel();
  optim::Adam adam(model->parameters());
  Train(model, adam, 1, 0);
  Snapshot snapshot;
  ASSERT_OK(CollectOptimizerState(adam, "o", &snapshot));
  for (const char* name :
       {"o/group/0/options", "o/state/0/step", "o/parameters"}) {
    for (const char* text : {"", "x", "\n\n", " ", "lr", "lr x\n"}) {
      Snapshot damaged = snapshot;
      damaged.bytes[name] = text;
      EXPECT_THAT(RestoreOptimizerState(damaged, "o", adam),
                  StatusIs(kDataLoss, name));
    }
  }
}

TEST(OptimizerStateGroups, EachGroupHasItsOptions) {
  nn::Sequential model = SmallModel();
  auto groups = [&](double lr) {
    std::vector<at::Tensor> all = model->parameters();
    std::vector<optim::OptimizerParamGroup> result;
    result.emplace_back(std::vector<at::Tensor>{all[0], all[1]},
                        std::make_unique<optim::SGDOptions>(lr));
    result.emplace_back(std::vector<at::Tensor>{all[2], all[3]},
                        std::make_unique<optim::SGDOptions>(2 * lr));
    return result;
  };
  optim::SGD saved(groups(0.25), optim::SGDOptions(1));
  optim::SGD restored(groups(7), optim::SGDOptions(1));
  Snapshot snapshot;
  ASSERT_OK(CollectOptimizerState(saved, "o", &snapshot));
  ASSERT_OK(RestoreOptimizerState(snapshot, "o", restored));
  EXPECT_EQ(restored.param_groups()[0].options().get_lr(), 0.25);
  EXPECT_EQ(restored.param_groups()[1].options().get_lr(), 0.5);
  optim::SGD one_group(model->parameters(), optim::SGDOptions(1));
  EXPECT_THAT(RestoreOptimizerState(snapshot, "o", one_group),
              StatusIs(kFailedPrecondition, "more groups"));
}

}  // namespace
}  // namespace gavel::testing
