#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>

#include "iterator/optimizers.h"
#include "runtime/checkpoint/generation_store.h"
#include "runtime/device/device_move.h"
#include "tests/iterator/own_optimizer.h"
#include "tests/iterator/training.h"
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
  size_t tensors_per_parameter = 0;  // after one step
};

OptimizerKind KindFor(optim::Optimizer& optimizer) {
  if (dynamic_cast<OwnOptimizer*>(&optimizer) != nullptr) return OwnKind();
  auto kind = internal::KindOf(optimizer, "optimizer");
  EXPECT_OK(kind.status());
  return *kind;
}

absl::Status Collect(optim::Optimizer& optimizer, std::string_view prefix,
                     Snapshot* snapshot) {
  return internal::CollectOptimizerState(optimizer, KindFor(optimizer), prefix,
                                         snapshot);
}

absl::Status Restore(const Snapshot& snapshot, std::string_view prefix,
                     optim::Optimizer& optimizer) {
  return internal::RestoreOptimizerState(snapshot, prefix, KindFor(optimizer),
                                         optimizer);
}

template <class Optimizer, class Options>
Case CaseOf(const std::string& name, size_t tensors_per_parameter,
            Options options) {
  return {name,
          [options](std::vector<at::Tensor> parameters) {
            return std::make_unique<Optimizer>(std::move(parameters), options);
          },
          tensors_per_parameter};
}

nn::Sequential SmallModel() {
  torch::manual_seed(5);
  return nn::Sequential(nn::Linear(6, 8), nn::Linear(8, 1));
}

void TrainSteps(nn::Sequential& model, optim::Optimizer& optimizer, int steps,
                int first) {
  for (int step = first; step < first + steps; ++step) {
    at::Tensor input = at::arange(24, at::kFloat).view({4, 6}).add(step).sin();
    optimizer.step([&] {
      optimizer.zero_grad();
      at::Tensor loss = model->forward(input).pow(2).mean();
      loss.backward();
      return loss;
    });
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
  TrainSteps(model, *optimizer, 7, 0);
  // A learning rate that a scheduler has changed is state, too.
  optimizer->param_groups()[0].options().set_lr(0.0123456789012345678);
  std::vector<at::Tensor> weights = Copies(model->parameters());
  Snapshot snapshot;
  ASSERT_OK(Collect(*optimizer, "optimizer", &snapshot));
  snapshot = Stored(snapshot);
  TrainSteps(model, *optimizer, 20, 7);
  ASSERT_TRUE(model->parameters()[0].isfinite().all().item<bool>());

  nn::Sequential other = SmallModel();
  auto fresh = GetParam().make(other->parameters());
  CopyInto(weights, other->parameters());
  ASSERT_OK(Restore(snapshot, "optimizer", *fresh));
  TrainSteps(other, *fresh, 20, 7);
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_TRUE(other->parameters()[i].equal(model->parameters()[i])) << i;
  }

  // The comparison means something: without the state they differ.
  nn::Sequential without = SmallModel();
  auto empty = GetParam().make(without->parameters());
  CopyInto(weights, without->parameters());
  TrainSteps(without, *empty, 20, 7);
  EXPECT_FALSE(without->parameters()[0].equal(model->parameters()[0]));
}

TEST_P(OptimizerState, RestoringReplacesLaterState) {
  nn::Sequential model = SmallModel();
  auto optimizer = GetParam().make(model->parameters());
  Snapshot before;
  ASSERT_OK(Collect(*optimizer, "o", &before));
  size_t entries = optimizer->state().size();
  TrainSteps(model, *optimizer, 3, 0);
  ASSERT_OK(Restore(before, "o", *optimizer));
  EXPECT_EQ(optimizer->state().size(), entries);
  EXPECT_OK(Restore(before, "o", *optimizer));
}

// New memory at each step is what a move to another device comes to.
TEST_P(OptimizerState, MovesDoNotChangeTheTraining) {
  const at::Device cpu(at::kCPU);
  const auto weights_after = [&](bool move) {
    nn::Sequential model = SmallModel();
    auto optimizer = GetParam().make(model->parameters());
    for (int step = 0; step < 6; ++step) {
      TrainSteps(model, *optimizer, 1, step);
      if (!move) continue;
      auto tensors =
          internal::OptimizerTensors(*optimizer, KindFor(*optimizer));
      EXPECT_OK(tensors.status());
      if (step == 0 && GetParam().tensors_per_parameter > 0) {
        EXPECT_EQ(tensors->size(), 4 * GetParam().tensors_per_parameter);
      }
      const void* memory = tensors->front().const_data_ptr();
      EXPECT_OK(MoveTensors(*tensors, cpu, MoveCopy::kAlways));
      EXPECT_NE(tensors->front().const_data_ptr(), memory);
    }
    return Copies(model->parameters());
  };
  const std::vector<at::Tensor> moved = weights_after(true);
  const std::vector<at::Tensor> stayed = weights_after(false);
  for (size_t i = 0; i < moved.size(); ++i) {
    EXPECT_TRUE(moved[i].equal(stayed[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, OptimizerState,
    Values(CaseOf<optim::SGD>("Momentum", 1,
                              optim::SGDOptions(0.01).momentum(0.9)),
           CaseOf<optim::SGD>("Nesterov", 1,
                              optim::SGDOptions(0.01)
                                  .momentum(0.9)
                                  .nesterov(true)
                                  .weight_decay(1e-3)),
           CaseOf<optim::Adam>("Adam", 2, optim::AdamOptions(0.01)),
           CaseOf<optim::Adam>("Amsgrad", 3,
                               optim::AdamOptions(0.01).amsgrad(true)),
           CaseOf<optim::AdamW>("AdamW", 2, optim::AdamWOptions(0.01)),
           CaseOf<optim::RMSprop>(
               "RMSprop", 3,
               optim::RMSpropOptions(0.01).momentum(0.5).centered(true)),
           CaseOf<optim::Adagrad>("Adagrad", 1, optim::AdagradOptions(0.01)),
           CaseOf<optim::LBFGS>(
               "Lbfgs", 0,
               optim::LBFGSOptions(0.05).max_iter(3).history_size(4)),
           CaseOf<optim::LBFGS>(
               "LbfgsWithLineSearch", 0,
               optim::LBFGSOptions(0.05).max_iter(3).max_eval(5).line_search_fn(
                   "strong_wolfe")),
           CaseOf<OwnOptimizer>("OwnClass", 2, OwnOptions(0.02))),
    [](const auto& test) { return test.param.name; });

class UnknownOptimizer : public optim::Optimizer {
 public:
  using Optimizer::Optimizer;
  at::Tensor step(LossClosure) override { return {}; }
};

TEST(OptimizerStateErrors, AnUnknownClassIsNamedWithTheRemedy) {
  UnknownOptimizer unknown(SmallModel()->parameters(),
                           std::make_unique<OwnOptions>());
  EXPECT_THAT(internal::KindOf(unknown, "optimizer").status(),
              StatusIs(kUnimplemented, "UnknownOptimizer"));
  EXPECT_THAT(internal::KindOf(unknown, "optimizer").status(),
              StatusIs(kUnimplemented, "gavel::DescribeOptimizer"));
}

OptimizerKind KindWith(
    std::function<void(OwnState&, OptimizerFields&)> visit_state) {
  return DescribeOptimizer<OwnOptions, OwnState>(
      "OwnOptimizer", [](OwnOptions&, OptimizerFields&) {},
      std::move(visit_state));
}

TEST(OptimizerStateErrors, AFieldThatTheCheckpointLacksIsNamed) {
  nn::Sequential model = SmallModel();
  OwnOptimizer optimizer(model->parameters());
  TrainSteps(model, optimizer, 1, 0);
  const OptimizerKind one = KindWith([](OwnState& state, OptimizerFields& to) {
    to("momentum", state.momentum);
  });
  const OptimizerKind two = KindWith([](OwnState& state, OptimizerFields& to) {
    to("momentum", state.momentum);
    to("step", state.step);
  });
  Snapshot of_one;
  Snapshot of_two;
  ASSERT_OK(internal::CollectOptimizerState(optimizer, one, "o", &of_one));
  ASSERT_OK(internal::CollectOptimizerState(optimizer, two, "o", &of_two));
  EXPECT_THAT(internal::RestoreOptimizerState(of_one, "o", two, optimizer),
              StatusIs(kFailedPrecondition,
                       "no state step int64 of OwnOptimizer (it has state "
                       "momentum tensor)"));
  EXPECT_THAT(
      internal::RestoreOptimizerState(of_two, "o", one, optimizer),
      StatusIs(kFailedPrecondition,
               "state step int64 of OwnOptimizer, which this program does"));
}

TEST(OptimizerStateErrors, AWrongDescriptionIsRefused) {
  nn::Sequential model = SmallModel();
  optim::SGD sgd(model->parameters(), 0.1);
  EXPECT_THAT(internal::CheckOptimizerKind(sgd, OwnKind(), "o"),
              IsInvalid("SGDOptions"));
  OwnOptimizer own(model->parameters());
  const OptimizerKind twice =
      KindWith([](OwnState& state, OptimizerFields& to) {
        to("step", state.step);
        to("step", state.momentum);
      });
  EXPECT_THAT(internal::CheckOptimizerKind(own, twice, "o"),
              IsInvalid("'step' is there twice"));
  const OptimizerKind bad = KindWith(
      [](OwnState& state, OptimizerFields& to) { to("a b", state.step); });
  EXPECT_THAT(internal::CheckOptimizerKind(own, bad, "o"), IsInvalid("'a b'"));
  const OptimizerKind throws = KindWith([](OwnState&, OptimizerFields&) {
    throw std::runtime_error("of the user");
  });
  EXPECT_THAT(internal::CheckOptimizerKind(own, throws, "o"),
              StatusIs(absl::StatusCode::kInternal, "of the user"));
  const auto other_state = DescribeOptimizer<OwnOptions, optim::SGDParamState>(
      "OwnOptimizer", [](OwnOptions&, OptimizerFields&) {},
      [](optim::SGDParamState&, OptimizerFields&) {});
  TrainSteps(model, own, 1, 0);
  Snapshot snapshot;
  EXPECT_THAT(
      internal::CollectOptimizerState(own, other_state, "o", &snapshot),
      StatusIs(kFailedPrecondition, "state of class gavel::testing::OwnState"));
}

TEST(OptimizerStateErrors, StateOfNoParameterIsRefused) {
  nn::Sequential model = SmallModel();
  OwnOptimizer own(model->parameters());
  own.state()[nullptr] = std::make_unique<OwnState>();
  Snapshot snapshot;
  EXPECT_THAT(Collect(own, "o", &snapshot),
              StatusIs(kFailedPrecondition, "would be lost"));
}

// As earlier versions wrote it.
TEST(OptimizerStateVersions, ACheckpointWithoutFieldNamesIsRead) {
  nn::Sequential model = SmallModel();
  optim::Adam adam(model->parameters(), optim::AdamOptions(0.25));
  TrainSteps(model, adam, 2, 0);
  Snapshot snapshot;
  ASSERT_OK(Collect(adam, "o", &snapshot));
  EXPECT_EQ(snapshot.bytes.at("o/group/0/options"),
            "lr 0.25\nbeta1 0.90000000000000002\nbeta2 0.999\neps 1e-08\n"
            "weight_decay 0\namsgrad false\n");
  EXPECT_EQ(snapshot.bytes.at("o/state/3/step"), "2");
  ASSERT_EQ(snapshot.bytes.erase("o/fields"), 1u);
  ASSERT_EQ(snapshot.bytes.erase("o/group/0/parameters"), 1u);
  optim::Adam other(model->parameters());
  ASSERT_OK(Restore(snapshot, "o", other));
  EXPECT_EQ(other.state().size(), 4u);
  EXPECT_EQ(other.param_groups()[0].options().get_lr(), 0.25);
}

TEST(OptimizerStateErrors, AnotherKindIsRefused) {
  nn::Sequential model = SmallModel();
  optim::Adam adam(model->parameters());
  optim::SGD sgd(model->parameters(), 0.1);
  Snapshot snapshot;
  ASSERT_OK(Collect(adam, "optimizer", &snapshot));
  EXPECT_THAT(Restore(snapshot, "optimizer", sgd),
              StatusIs(kFailedPrecondition, "of Adam, this program uses SGD"));
  EXPECT_THAT(Restore(snapshot, "other", adam), StatusIs(kNotFound, "'other'"));
}

TEST(OptimizerStateErrors, AnotherModelIsRefusedAndNothingChanges) {
  nn::Sequential model = SmallModel();
  optim::Adam adam(model->parameters());
  TrainSteps(model, adam, 1, 0);
  Snapshot snapshot;
  ASSERT_OK(Collect(adam, "o", &snapshot));
  nn::Linear small(3, 3);
  optim::Adam fewer(small->parameters());
  EXPECT_THAT(Restore(snapshot, "o", fewer),
              StatusIs(kFailedPrecondition, "4 parameters"));
  nn::Sequential wider(nn::Linear(7, 8), nn::Linear(8, 1));
  optim::Adam other(wider->parameters(), optim::AdamOptions(0.5));
  EXPECT_THAT(Restore(snapshot, "o", other),
              StatusIs(kFailedPrecondition, "another shape"));
  EXPECT_TRUE(other.state().empty());
  EXPECT_EQ(other.param_groups()[0].options().get_lr(), 0.5);
}

TEST(OptimizerStateErrors, DamagedEntriesAreReported) {
  nn::Sequential model = SmallModel();
  optim::Adam adam(model->parameters());
  TrainSteps(model, adam, 1, 0);
  Snapshot snapshot;
  ASSERT_OK(Collect(adam, "o", &snapshot));
  for (const char* name :
       {"o/group/0/options", "o/state/0/step", "o/parameters"}) {
    for (const char* text : {"", "x", "\n\n", " ", "lr", "lr x\n"}) {
      Snapshot damaged = snapshot;
      damaged.bytes[name] = text;
      EXPECT_THAT(Restore(damaged, "o", adam), StatusIs(kDataLoss, name));
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
  ASSERT_OK(Collect(saved, "o", &snapshot));
  ASSERT_OK(Restore(snapshot, "o", restored));
  EXPECT_EQ(restored.param_groups()[0].options().get_lr(), 0.25);
  EXPECT_EQ(restored.param_groups()[1].options().get_lr(), 0.5);
  optim::SGD one_group(model->parameters(), optim::SGDOptions(1));
  EXPECT_THAT(Restore(snapshot, "o", one_group),
              StatusIs(kFailedPrecondition, "more groups"));
  const std::vector<at::Tensor> all = model->parameters();
  std::vector<optim::OptimizerParamGroup> uneven;
  uneven.emplace_back(std::vector<at::Tensor>{all[0], all[1], all[2]},
                      std::make_unique<optim::SGDOptions>(1));
  uneven.emplace_back(std::vector<at::Tensor>{all[3]},
                      std::make_unique<optim::SGDOptions>(1));
  optim::SGD cut_otherwise(uneven, optim::SGDOptions(1));
  EXPECT_THAT(
      Restore(snapshot, "o", cut_otherwise),
      StatusIs(kFailedPrecondition, "2 parameters in group 0, this program 3"));
}

}  // namespace
}  // namespace gavel::testing
