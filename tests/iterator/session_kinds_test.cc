// Track takes more kinds of state than modules, optimizers and numbers. Each
// comes back from a checkpoint, and the error names state that does not fit.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/_amp_update_scale.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <random>

#include "gavel/iterator.h"
#include "gavel/session.h"
#include "tests/iterator/session_fixture.h"
#include "tests/iterator/training.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class SessionKinds : public SessionTest {
 protected:
  // Does a step, so that the next generation is a new one.
  static void Save(Session& session) {
    std::vector<int> range = {1};
    for (auto& i : Iterator(session, range)) static_cast<void>(i);
    EXPECT_EQ(session.Finish(), 0) << session.status().message();
  }
  static void Run(Session& session) {
    std::vector<int> range = {1, 2};
    for (auto& i : Iterator(session, range)) static_cast<void>(i);
  }
  // Tracks `one`, saves it, and restores it as `other`.
  template <class T>
  Status SaveAndRestore(T& one, T& other) {
    auto first = Open();
    const Status status = first->Track("thing", one);
    if (!status.ok()) return status;
    Save(*first);
    return Open()->Track("thing", other);
  }
  template <class T>
  Status Restore(T& other) {
    return Open()->Track("thing", other);
  }
};

// ---- learning-rate schedulers

struct Scheduled {
  torch::Tensor weight = torch::ones({2}, torch::requires_grad());
  torch::optim::SGD optimizer{{weight}, 0.8};
  torch::optim::StepLR by_step{optimizer, 3, 0.5};
  torch::optim::ReduceLROnPlateauScheduler plateau{
      optimizer,
      torch::optim::ReduceLROnPlateauScheduler::min,
      0.5f,
      /*patience=*/2,
      1e-4,
      torch::optim::ReduceLROnPlateauScheduler::rel,
      /*cooldown=*/1};
  double lr() const { return optimizer.param_groups()[0].options().get_lr(); }
  // Tracks everything but the schedulers.
  void Track(Session& session) {
    EXPECT_TRUE(session.Track("weight", weight).ok());
    EXPECT_TRUE(session.Track("optimizer", optimizer).ok());
  }
};

TEST_F(SessionKinds, AStepSchedulerGoesOnWithItsCount) {
  Scheduled whole;
  Scheduled first;
  for (int i = 0; i < 5; ++i) whole.by_step.step();
  for (int i = 0; i < 2; ++i) first.by_step.step();
  {
    auto session = Open();
    first.Track(*session);
    session->Track("scheduler", first.by_step);
    Save(*session);
  }
  Scheduled second;
  auto session = Open();
  second.Track(*session);
  EXPECT_TRUE(session->Track("scheduler", second.by_step).ok());
  EXPECT_EQ(second.lr(), first.lr());
  for (int i = 0; i < 3; ++i) second.by_step.step();
  EXPECT_EQ(second.lr(), whole.lr());
  EXPECT_EQ(whole.lr(), 0.4);
}

TEST_F(SessionKinds, APlateauSchedulerGoesOnWithItsPatience) {
  const std::vector<float> losses = {4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 3, 3, 3};
  // The session restarts after `cut` losses; the learning rates of the rest
  // have to be the same.
  for (size_t cut = 0; cut < losses.size(); ++cut) {
    TemporaryFolder folder;
    std::swap(folder_, folder);
    Scheduled whole;
    Scheduled first;
    std::vector<double> expected;
    for (size_t i = 0; i < losses.size(); ++i) {
      whole.plateau.step(losses[i]);
      if (i < cut) first.plateau.step(losses[i]);
      if (i >= cut) expected.push_back(whole.lr());
    }
    EXPECT_LT(whole.lr(), 0.4);  // it has reduced more than once
    {
      auto session = Open();
      first.Track(*session);
      session->Track("scheduler", first.plateau);
      Save(*session);
    }
    Scheduled second;
    auto session = Open();
    second.Track(*session);
    ASSERT_TRUE(session->Track("scheduler", second.plateau).ok());
    std::vector<double> found;
    for (size_t i = cut; i < losses.size(); ++i) {
      second.plateau.step(losses[i]);
      found.push_back(second.lr());
    }
    EXPECT_EQ(found, expected) << "cut at " << cut;
  }
}

TEST_F(SessionKinds, AnotherKindOfSchedulerIsNamed) {
  Scheduled one;
  {
    auto session = Open();
    one.Track(*session);
    session->Track("thing", one.by_step);
    Save(*session);
  }
  const Status status = Restore(one.plateau);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("'thing' is a plateau scheduler"),
                    HasSubstr("learning-rate scheduler in the checkpoint")));
}

// ---- gradient scaling

// LibTorch's C++ API has only the operators of a gradient scaler, not its
// class. The state of a scaler is two tensors.
TEST_F(SessionKinds, AGradientScalerIsTwoTensors) {
  torch::Tensor scale = torch::full({1}, 1024.0f);
  torch::Tensor growth = torch::zeros({1}, torch::kInt);
  const auto update = [](torch::Tensor& factor, torch::Tensor& tracker,
                         bool overflow) {
    at::_amp_update_scale_(factor, tracker,
                           torch::full({1}, overflow ? 1.0f : 0.0f), 2.0, 0.5,
                           /*growth_interval=*/3);
  };
  update(scale, growth, true);
  update(scale, growth, false);
  update(scale, growth, false);
  {
    auto session = Open();
    session->Track("scale", scale);
    session->Track("growth", growth);
    Save(*session);
  }
  torch::Tensor scale_again = torch::full({1}, 1024.0f);
  torch::Tensor growth_again = torch::zeros({1}, torch::kInt);
  auto session = Open();
  session->Track("scale", scale_again);
  session->Track("growth", growth_again);
  EXPECT_EQ(scale_again.item<float>(), 512);
  update(scale_again, growth_again, false);  // the third one in a row
  EXPECT_EQ(scale_again.item<float>(), 1024);
}

// ---- lists of tensors: a copy that follows the model

TEST_F(SessionKinds, AListOfTensorsKeepsItsTensors) {
  std::vector<at::Tensor> average = {torch::ones({2, 3}), at::Tensor(),
                                     torch::arange(4)};
  std::vector<at::Tensor> other = {torch::zeros({2, 3}), at::Tensor(),
                                   torch::zeros({4}, torch::kLong)};
  const at::Tensor alias = other[0];
  ASSERT_TRUE(SaveAndRestore(average, other).ok());
  EXPECT_TRUE(torch::equal(alias, average[0]));  // in place
  EXPECT_FALSE(other[1].defined());
  EXPECT_TRUE(torch::equal(other[2], average[2]));
  std::vector<at::Tensor> empty;
  ASSERT_TRUE(Restore(empty).ok());
  ASSERT_EQ(empty.size(), 3u);
  EXPECT_TRUE(torch::equal(empty[2], average[2]));
  std::vector<at::Tensor> shorter = {torch::zeros({2, 3})};
  EXPECT_THAT(Restore(shorter).message(),
              HasSubstr("'thing' has 1 tensors here and 3 in the checkpoint"));
  std::vector<at::Tensor> wider = {torch::zeros({2, 4}), at::Tensor(),
                                   torch::zeros({4}, torch::kLong)};
  EXPECT_THAT(Restore(wider).message(),
              AllOf(HasSubstr("'thing/0'"), HasSubstr("Float[2,4]")));
}

TEST_F(SessionKinds, TrainedTensorsOfAListNeedAnOptimizer) {
  std::vector<at::Tensor> weights = {torch::ones({2}, torch::requires_grad())};
  torch::optim::SGD optimizer(weights, 0.1);
  auto session = Open();
  session->Track("weights", weights);
  std::vector<int> range = {1, 2, 3, 4};
  for (auto& i : Iterator(*session, range)) {
    static_cast<void>(i);
    weights[0].sum().backward();
    optimizer.step();
  }
  EXPECT_EQ(session->Finish(), 1);
  EXPECT_THAT(session->status().message(), HasSubstr("'weights/0'"));
}

// ---- sparse tensors

at::Tensor Coo(double value, int64_t columns = 5) {
  const at::Tensor indices = torch::tensor({0, 2, 2, 1, 0, 4}).view({2, 3});
  const at::Tensor values =
      torch::tensor({value, value + 1, value + 2}, torch::kDouble);
  return torch::sparse_coo_tensor(indices, values, {3, columns});
}

TEST_F(SessionKinds, ASparseCooTensorComesBackInPlace) {
  for (const bool coalesced : {false, true}) {
    TemporaryFolder folder;
    std::swap(folder_, folder);
    at::Tensor one = coalesced ? Coo(1).coalesce() : Coo(1);
    // It has another number of nonzero elements than `one`.
    at::Tensor other = torch::zeros({3, 5}, torch::kDouble).to_sparse();
    const at::Tensor alias = other;
    const Status status = SaveAndRestore(one, other);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(alias.layout(), torch::kSparse);
    EXPECT_EQ(alias.is_coalesced(), coalesced);
    EXPECT_TRUE(torch::equal(alias.to_dense(), one.to_dense()));
    at::Tensor undefined;
    ASSERT_TRUE(Restore(undefined).ok());
    EXPECT_TRUE(torch::equal(undefined.to_dense(), one.to_dense()));
  }
}

TEST_F(SessionKinds, ASparseCsrTensorComesBackInPlace) {
  at::Tensor one = Coo(1).coalesce().to_sparse_csr();
  at::Tensor other = torch::zeros({3, 5}, torch::kDouble).to_sparse_csr();
  const at::Tensor alias = other;
  const Status status = SaveAndRestore(one, other);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(alias.layout(), torch::kSparseCsr);
  EXPECT_TRUE(torch::equal(alias.to_dense(), one.to_dense()));
}

TEST_F(SessionKinds, ASparseTensorThatDoesNotFitIsNamed) {
  at::Tensor one = Coo(1);
  ASSERT_TRUE(SaveAndRestore(one, one).ok());
  at::Tensor wide = Coo(1, 6);
  EXPECT_THAT(Restore(wide).message(),
              AllOf(HasSubstr("'thing'"), HasSubstr("Double[3,6]"),
                    HasSubstr("Double[3,5]")));
  at::Tensor csr = one.coalesce().to_sparse_csr();
  EXPECT_THAT(Restore(csr).message(), HasSubstr("SparseCsr Double[3,5] here"));
  at::Tensor dense = torch::zeros({3, 5}, torch::kDouble);
  EXPECT_THAT(Restore(dense).message(), HasSubstr("Strided Double[3,5] here"));
}

TEST_F(SessionKinds, ADenseCheckpointDoesNotFitASparseTensor) {
  at::Tensor dense = torch::ones({3, 5});
  at::Tensor sparse = torch::ones({3, 5}).to_sparse();
  const Status status = SaveAndRestore(dense, sparse);
  EXPECT_THAT(status.message(),
              HasSubstr("'thing' is Sparse here and dense in the checkpoint"));
}

TEST_F(SessionKinds, ALayoutThatCannotBeSavedIsNamed) {
  at::Tensor csc = Coo(1).coalesce().to_sparse_csc();
  auto session = Open();
  session->Track("thing", csc);
  std::vector<int> range = {1};
  for (auto& i : Iterator(*session, range)) static_cast<void>(i);
  EXPECT_EQ(session->Finish(), 1);
  EXPECT_THAT(session->status().message(),
              AllOf(HasSubstr("'thing'"), HasSubstr("SparseCsc")));
}

// ---- TorchScript

torch::jit::Module Script(double value, int64_t width = 2) {
  torch::jit::Module inner("inner");
  inner.register_parameter("weight", torch::full({width}, value),
                           /*is_buffer=*/false);
  torch::jit::Module module("outer");
  module.register_module("inner", inner);
  module.register_buffer("mean", torch::full({1}, value));
  module.register_attribute("table", c10::TensorType::get(),
                            torch::full({2}, value));
  module.register_attribute("calls", c10::IntType::get(),
                            static_cast<int64_t>(value));
  module.register_attribute("rate", c10::FloatType::get(), value / 3);
  module.define(R"(
    def forward(self, x):
        self.calls += 1
        self.mean.add_(1.0)
        return x * self.inner.weight * self.calls
  )");
  return module;
}

TEST_F(SessionKinds, AScriptModuleComesBackWithItsAttributes) {
  torch::jit::Module one = Script(3);
  torch::jit::Module other = Script(0);
  const at::Tensor x = torch::ones({2});
  one.forward({x});
  const at::Tensor alias = other.attr("mean").toTensor();
  const Status status = SaveAndRestore(one, other);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(alias.item<float>(), 4);  // in place
  EXPECT_EQ(other.attr("calls").toInt(), 4);
  EXPECT_EQ(other.attr("rate").toDouble(), 1.0);
  EXPECT_TRUE(torch::equal(other.attr("table").toTensor(),
                           one.attr("table").toTensor()));
  EXPECT_TRUE(
      torch::equal(other.forward({x}).toTensor(), one.forward({x}).toTensor()));
  torch::jit::Module wide = Script(0, 3);
  EXPECT_THAT(Restore(wide).message(),
              AllOf(HasSubstr("'thing/inner/weight'"), HasSubstr("[3]")));
}

TEST_F(SessionKinds, AScriptModuleOfOtherAttributesIsNamed) {
  torch::jit::Module one("one");
  one.register_attribute("depth", c10::IntType::get(), int64_t{2});
  torch::jit::Module other("other");
  other.register_attribute("depth", c10::FloatType::get(), 2.5);
  EXPECT_THAT(SaveAndRestore(one, other).message(),
              AllOf(HasSubstr("'thing/depth'"), HasSubstr("float 2.5 here"),
                    HasSubstr("int 2 in the checkpoint")));
}

// A module with an optional tensor, which is None at first, and with containers
// that forward() fills.
torch::jit::Module Remembering() {
  torch::jit::Module module("remembering");
  module.register_attribute("memory",
                            c10::OptionalType::create(c10::TensorType::get()),
                            c10::IValue());
  module.register_attribute("states", c10::ListType::ofTensors(),
                            c10::List<at::Tensor>());
  module.register_attribute(
      "named",
      c10::DictType::create(c10::StringType::get(), c10::TensorType::get()),
      c10::Dict<std::string, at::Tensor>());
  module.register_attribute("note", c10::StringType::get(),
                            std::string("begin"));
  module.register_attribute(
      "pair",
      c10::TupleType::create({c10::IntType::get(), c10::TensorType::get()}),
      c10::ivalue::Tuple::create({c10::IValue(0), torch::zeros({1})}));
  module.define(R"(
    def forward(self, x):
        memory = self.memory
        if memory is None:
            m = x.mean()
        else:
            m = memory * 0.5 + x.mean()
        self.memory = m
        self.states.append(x * 2.0)
        self.named["last"] = x + 1.0
        self.note = self.note + "\n" + str(len(self.states))
        self.pair = (self.pair[0] + 1, x)
        return m
  )");
  return module;
}

TEST_F(SessionKinds, AScriptModuleComesBackWithOptionalTensorsAndContainers) {
  torch::jit::Module one = Remembering();
  one.forward({torch::ones({2})});
  one.forward({torch::full({3}, 2.0f)});
  torch::jit::Module other = Remembering();
  const c10::List<at::Tensor> alias = other.attr("states").toTensorList();
  const Status status = SaveAndRestore(one, other);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(alias.size(), 2u);  // in place
  for (const float value : {4.0f, 5.0f}) {
    const at::Tensor x = torch::full({2}, value);
    EXPECT_TRUE(torch::equal(other.forward({x}).toTensor(),
                             one.forward({x}).toTensor()));
  }
  EXPECT_EQ(alias.size(), 4u);
  for (size_t i = 0; i < alias.size(); ++i) {
    EXPECT_TRUE(
        torch::equal(alias.get(i), one.attr("states").toTensorList().get(i)));
  }
  EXPECT_EQ(other.attr("note").toStringRef(), "begin\n1\n2\n3\n4");
  EXPECT_EQ(other.attr("pair").toTupleRef().elements()[0].toInt(), 4);
  EXPECT_TRUE(
      torch::equal(other.attr("named").toGenericDict().at("last").toTensor(),
                   torch::full({2}, 6.0f)));
  // Restoring a checkpoint from before the first forward() makes it None again.
  TemporaryFolder folder;
  std::swap(folder_, folder);
  torch::jit::Module unused = Remembering();
  ASSERT_TRUE(SaveAndRestore(unused, other).ok());
  EXPECT_TRUE(other.attr("memory").isNone());
  EXPECT_EQ(other.attr("states").toListRef().size(), 0u);
}

TEST_F(SessionKinds, AScriptAttributeThatCannotBeSavedIsNamed) {
  torch::jit::Module module("odd");
  module.register_attribute("odd", c10::GeneratorType::get(),
                            at::detail::createCPUGenerator(1));
  auto session = Open();
  session->Track("thing", module);
  Run(*session);
  EXPECT_EQ(session->Finish(), 1);
  EXPECT_EQ(session->steps_done(), 1);
  EXPECT_THAT(session->status().message(), HasSubstr("'thing/odd'"));
}

// ---- tensors of other kinds

TEST_F(SessionKinds, AComplexTensorComesBack) {
  at::Tensor one =
      torch::polar(torch::ones({8}), torch::arange(8, torch::kFloat));
  at::Tensor other = torch::zeros({8}, torch::kComplexFloat);
  Status status = SaveAndRestore(one, other);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(torch::equal(other, one));
  TemporaryFolder folder;
  std::swap(folder_, folder);
  at::Tensor conjugate = one.conj();
  status = SaveAndRestore(conjugate, other);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(torch::equal(other, one.conj()));
}

TEST_F(SessionKinds, AnExpandedTensorComesBackInPlace) {
  at::Tensor one = torch::tensor({1.0f, NAN, 3.0f}).expand({2, 4, 3});
  at::Tensor base = torch::zeros({3});
  at::Tensor other = base.expand({2, 4, 3});
  const Status status = SaveAndRestore(one, other);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(base[2].item<float>(), 3);
  EXPECT_TRUE(std::isnan(base[1].item<float>()));
  EXPECT_EQ(other[1][3][0].item<float>(), 1);
}

TEST_F(SessionKinds, RowsThatDifferDoNotFitAnExpandedTensor) {
  at::Tensor one = torch::arange(6, torch::kFloat).view({2, 3});
  at::Tensor other = torch::zeros({3}).expand({2, 3});
  EXPECT_THAT(SaveAndRestore(one, other).message(),
              AllOf(HasSubstr("'thing'"), HasSubstr("expand()")));
}

// The momentum of sparse gradients is sparse, too.
TEST_F(SessionKinds, SparseMomentumGoesOn) {
  struct Embedded {
    torch::nn::Embedding model{torch::nn::EmbeddingOptions(50, 4).sparse(true)};
    torch::optim::SGD optimizer{model->parameters(),
                                torch::optim::SGDOptions(0.1).momentum(0.9)};
    void Step(int64_t i) {
      optimizer.zero_grad();
      const at::Tensor rows = (torch::arange(8) * 7 + i * 3) % 50;
      model->forward(rows).pow(2).sum().backward();
      optimizer.step();
    }
  };
  torch::manual_seed(1);
  Embedded whole;
  torch::manual_seed(1);
  Embedded first;
  for (int64_t i = 0; i < 6; ++i) whole.Step(i);
  {
    auto session = Open();
    session->Track("model", first.model);
    session->Track("optimizer", first.optimizer);
    std::vector<int64_t> range = {0, 1, 2};
    for (auto& i : Iterator(*session, range)) first.Step(i);
    ASSERT_EQ(session->Finish(), 0) << session->status().message();
  }
  Embedded second;
  auto session = Open();
  ASSERT_TRUE(session->Track("model", second.model).ok());
  const Status status = session->Track("optimizer", second.optimizer);
  ASSERT_TRUE(status.ok()) << status.message();
  for (int64_t i = 3; i < 6; ++i) second.Step(i);
  EXPECT_TRUE(torch::equal(second.model->weight, whole.model->weight));
}

// ---- random generators

TEST_F(SessionKinds, StandardRandomEnginesGoOn) {
  std::mt19937 small(7);
  std::mt19937_64 large(7);
  std::ranlux24 shuffled(7);
  small.discard(1000);
  large.discard(5);
  shuffled.discard(3);
  {
    auto session = Open();
    session->Track("small", small);
    session->Track("large", large);
    session->Track("shuffled", shuffled);
    Save(*session);
  }
  std::mt19937 small_again;
  std::mt19937_64 large_again;
  std::ranlux24 shuffled_again;
  auto session = Open();
  EXPECT_TRUE(session->Track("small", small_again).ok());
  EXPECT_TRUE(session->Track("large", large_again).ok());
  EXPECT_TRUE(session->Track("shuffled", shuffled_again).ok());
  EXPECT_EQ(small_again(), small());
  EXPECT_EQ(large_again(), large());
  EXPECT_EQ(shuffled_again(), shuffled());
}

TEST_F(SessionKinds, AnotherTypeOfEngineIsRefusedAndKeepsItsState) {
  std::mt19937 small(7);
  ASSERT_TRUE(SaveAndRestore(small, small).ok());
  std::mt19937_64 large(9);
  const std::mt19937_64 before = large;
  const Status status = Restore(large);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("random engine 'thing'"));
  EXPECT_EQ(large, before);
  std::minstd_rand tiny;
  EXPECT_THAT(Restore(tiny).message(), HasSubstr("random engine 'thing'"));
}

TEST_F(SessionKinds, AGeneratorOfLibTorchGoesOn) {
  at::Generator one = at::detail::createCPUGenerator(11);
  at::Generator other = at::detail::createCPUGenerator(12);
  torch::rand({3}, one);
  const Status status = SaveAndRestore(one, other);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(torch::equal(torch::rand({4}, other), torch::rand({4}, one)));
  at::Generator none;
  EXPECT_EQ(Restore(none).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace gavel::testing
