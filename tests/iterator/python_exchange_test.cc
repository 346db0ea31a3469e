// A job's state is exported to Python's torch, trained there, imported, and
// trained here: the result is as if all the training had been done here.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "coordinator/cli/pytorch_files.h"
#include "core/text.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "runtime/checkpoint/generation_store.h"
#include "runtime/files/files.h"
#include "tests/iterator/own_optimizer.h"
#include "tests/iterator/session_fixture.h"
#include "tests/iterator/training.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;
namespace optim = torch::optim;

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void ReplaceIn(const std::string& path, const std::string& from,
               const std::string& to) {
  std::string text = ReadText(path);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << text;
  WriteText(path, text.replace(at, from.size(), to));
}

// The same model as in train.py.
struct Model {
  // Tanh is between the two, because a bias directly before a batch norm has
  // gradients of rounding only.
  nn::Sequential net{nn::Linear(3, 6), nn::Tanh(), nn::BatchNorm1d(6),
                     nn::Linear(6, 1)};

  void Train(optim::Optimizer& optimizer, int i) {
    const at::Tensor input =
        torch::arange(12, torch::kFloat).view({4, 3}).add(i).sin();
    optimizer.step([&] {
      optimizer.zero_grad();
      at::Tensor loss = net->forward(input).sub(1).pow(2).mean();
      loss.backward();
      return loss;
    });
  }
};

constexpr char kTrainPy[] = R"(
import sys
exported, make, first, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sys.path.insert(0, exported)
import gavel_checkpoint
import torch
from torch import nn, optim
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.BatchNorm1d(6), nn.Linear(6, 1))
optimizer = eval(make)
state = gavel_checkpoint.load(exported)
net.load_state_dict(state["net"])
optimizer.load_state_dict(state["optimizer"])
for i in range(first, first + steps):
    inputs = torch.arange(12, dtype=torch.float).view(4, 3).add(i).sin()
    def closure():
        optimizer.zero_grad()
        loss = net(inputs).sub(1).pow(2).mean()
        loss.backward()
        return loss
    optimizer.step(closure)
gavel_checkpoint.save(exported, steps=steps, net=net, optimizer=optimizer)
)";

struct Case {
  std::string name;
  std::string python;
  std::function<std::unique_ptr<optim::Optimizer>(std::vector<at::Tensor>)>
      make;
  double tolerance = 1e-5;
};

template <class Optimizer, class Options>
Case CaseOf(const std::string& name, const std::string& python, Options options,
            double tolerance = 1e-5) {
  return {name, python,
          [options](std::vector<at::Tensor> parameters) {
            return std::make_unique<Optimizer>(std::move(parameters), options);
          },
          tolerance};
}

class PythonExchange : public SessionTest {
 protected:
  static bool HasTorch() {
    const std::string command = StrCat(
        GAVEL_VENV_PYTHON, " -c 'import torch, safetensors' 2>/dev/null");
    return ::access(GAVEL_VENV_PYTHON, X_OK) == 0 &&
           std::system(command.c_str()) == 0;
  }

  // Trains in a session that continues from the checkpoint. Returns the steps
  // done.
  int64_t Train(Model& model, optim::Optimizer& optimizer, int first,
                int steps) {
    std::vector<int> range;
    for (int i = 0; i < steps; ++i) range.push_back(first + i);
    auto session = Open();
    session->Track("net", model.net);
    session->Track("optimizer", optimizer);
    for (auto& i : Iterator(*session, range)) model.Train(optimizer, i);
    EXPECT_EQ(session->Finish(), 0) << session->status().message();
    return session->steps_done();
  }

  int TrainInPython(const std::string& make, int first, int steps) {
    const std::string script = folder_.path() + "/train.py";
    WriteText(script, kTrainPy);
    const std::string command =
        StrCat(GAVEL_VENV_PYTHON, " ", script, " ", exported_, " '", make, "' ",
               first, " ", steps);
    return std::system(command.c_str());
  }

  std::string checkpoints_ = folder_.path() + "/checkpoints";
  std::string exported_ = folder_.path() + "/exported";
};

class PythonExchangeOfKind : public PythonExchange,
                             public WithParamInterface<Case> {};

TEST_P(PythonExchangeOfKind, TrainsAsIfItHadStayedHere) {
  if (!HasTorch()) {
    GTEST_SKIP() << "no Python with torch at " << GAVEL_VENV_PYTHON;
  }
  torch::manual_seed(3);
  Model whole;
  Model first;
  for (size_t i = 0; i < whole.net->parameters().size(); ++i) {
    first.net->parameters()[i].detach().copy_(
        whole.net->parameters()[i].detach());
  }
  auto of_whole = GetParam().make(whole.net->parameters());
  for (int i = 0; i < 10; ++i) whole.Train(*of_whole, i);

  auto of_first = GetParam().make(first.net->parameters());
  Train(first, *of_first, 0, 4);
  ASSERT_OK_AND_ASSIGN(const PyTorchFiles exported,
                       ExportToPyTorch(checkpoints_, exported_));
  EXPECT_EQ(exported.generation.step, 4u);
  ASSERT_EQ(TrainInPython(GetParam().python, 4, 3), 0);
  ASSERT_OK_AND_ASSIGN(const PyTorchFiles imported,
                       ImportFromPyTorch(exported_, checkpoints_));
  EXPECT_EQ(imported.generation.step, 7u);
  EXPECT_THAT(imported.notes, IsEmpty());

  Model second;
  auto of_second = GetParam().make(second.net->parameters());
  EXPECT_EQ(Train(second, *of_second, 7, 3), 10);
  const auto expected = whole.net->named_parameters();
  for (const auto& one : second.net->named_parameters()) {
    EXPECT_TRUE(torch::allclose(one.value(), expected[one.key()],
                                GetParam().tolerance, GetParam().tolerance))
        << one.key() << "\n"
        << one.value() << "\n"
        << expected[one.key()];
  }
  EXPECT_TRUE(second.net->named_buffers()["2.num_batches_tracked"].equal(
      whole.net->named_buffers()["2.num_batches_tracked"]));
}

// Shows that the comparison means something: an optimizer without its state
// makes a different step.
TEST_F(PythonExchange, WithoutTheOptimizersStateTheResultDiffers) {
  torch::manual_seed(3);
  Model whole;
  optim::Adam of_whole(whole.net->parameters(), optim::AdamOptions(0.05));
  for (int i = 0; i < 10; ++i) {
    if (i == 4) of_whole.state().clear();
    whole.Train(of_whole, i);
  }
  torch::manual_seed(3);
  Model other;
  optim::Adam of_other(other.net->parameters(), optim::AdamOptions(0.05));
  for (int i = 0; i < 10; ++i) other.Train(of_other, i);
  EXPECT_FALSE(torch::allclose(whole.net->parameters()[0],
                               other.net->parameters()[0], 1e-4, 1e-4));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, PythonExchangeOfKind,
    Values(CaseOf<optim::SGD>(
               "Sgd", "optim.SGD(net.parameters(), lr=1)",
               optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3)),
           CaseOf<optim::Adam>("Adam", "optim.Adam(net.parameters(), lr=1)",
                               optim::AdamOptions(0.05).amsgrad(true)),
           CaseOf<optim::AdamW>("AdamW", "optim.AdamW(net.parameters(), lr=1)",
                                optim::AdamWOptions(0.05).weight_decay(0.1)),
           CaseOf<optim::RMSprop>(
               "RmsProp", "optim.RMSprop(net.parameters(), lr=1)",
               optim::RMSpropOptions(0.01).momentum(0.5).centered(true)),
           CaseOf<optim::Adagrad>("Adagrad",
                                  "optim.Adagrad(net.parameters(), lr=1)",
                                  optim::AdagradOptions(0.05)),
           CaseOf<optim::LBFGS>(
               "Lbfgs", "optim.LBFGS(net.parameters(), lr=1)",
               optim::LBFGSOptions(0.05).max_iter(3).history_size(4), 1e-3)),
    [](const auto& test) { return test.param.name; });

// ---- The files as such, and what does not fit: without torch in Python

class PythonFiles : public PythonExchange {
 protected:
  PythonFiles() {
    Train(model_, optimizer_, 0, 2);
    const auto exported = ExportToPyTorch(checkpoints_, exported_);
    EXPECT_OK(exported.status());
  }
  auto Import() { return ImportFromPyTorch(exported_, checkpoints_); }

  Model model_;
  optim::Adam optimizer_{model_.net->parameters(), optim::AdamOptions(0.05)};
  std::string index_ = exported_ + "/checkpoint.json";
};

TEST_F(PythonFiles, AreNotImportedBesideAProgramThatRuns) {
  const FileLock running = *FileLock::Take(checkpoints_ + "/.in-use");
  const absl::Status status = Import().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("gavel hold JOB"));
}

TEST_F(PythonFiles, UnchangedTheyAreTheSameGenerationOnceMore) {
  const std::vector<at::Tensor> before = model_.net->parameters();
  ASSERT_OK_AND_ASSIGN(const PyTorchFiles imported, Import());
  EXPECT_TRUE(imported.folder.ends_with("-000000000002.1")) << imported.folder;
  Model other;
  optim::Adam of_other(other.net->parameters());
  EXPECT_EQ(Train(other, of_other, 0, 0), 2);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(other.net->parameters()[i].equal(before[i])) << i;
  }
  EXPECT_EQ(of_other.param_groups()[0].options().get_lr(), 0.05);
  EXPECT_EQ(of_other.state().size(), before.size());
}

TEST_F(PythonFiles, ANamedGenerationIsExported) {
  Train(model_, optimizer_, 2, 3);
  const std::string older = [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(checkpoints_)) {
      if (entry.is_directory()) names.push_back(entry.path().string());
    }
    return *std::ranges::min_element(names);
  }();
  const std::string to = folder_.path() + "/older";
  ASSERT_OK_AND_ASSIGN(const PyTorchFiles files, ExportToPyTorch(older, to));
  EXPECT_EQ(files.generation.step, 2u);
  EXPECT_THAT(ExportToPyTorch(checkpoints_, to).status(),
              IsInvalid("not an empty"));
  // The exported state is behind the newest checkpoint by now.
  EXPECT_THAT(Import().status(), IsInvalid("its step is 2"));
}

TEST_F(PythonFiles, WhatDoesNotFitIsNamed) {
  const std::string whole = ReadText(index_);
  const auto with = [&](const std::string& from, const std::string& to) {
    WriteText(index_, whole);
    ReplaceIn(index_, from, to);
    return Import().status();
  };
  EXPECT_THAT(with("\"Adam\"", "\"SGD\""), IsInvalid("class \"SGD\""));
  EXPECT_THAT(with("\"lr\"", "\"rate\""), IsInvalid("param_groups[0][\"lr\"]"));
  EXPECT_THAT(with("\"lr\": 0.05", "\"lr\": \"fast\""),
              IsInvalid("param_groups[0][\"lr\"]"));
  EXPECT_THAT(with("\"step\": 2", "\"step\": -2"), IsInvalid("step"));
  EXPECT_THAT(with("\"net\"", "\"model\""), IsInvalid("nothing as 'model'"));
  EXPECT_THAT(with("\"format_version\": 1", "\"format_version\": 2"),
              StatusIs(kFailedPrecondition, "version 2"));
  EXPECT_THAT(with("\"0.exp_avg\"", "\"9.exp_avg\""),
              IsInvalid("the tensor '9.exp_avg'"));
  EXPECT_THAT(with("\"modules\"", "\"module\""), IsInvalid("modules"));
  WriteText(index_, "{");
  EXPECT_THAT(Import().status(), IsInvalid("checkpoint.json"));
}

TEST_F(PythonFiles, WhatIsNoStateOfTheModuleIsNamed) {
  const std::string net = exported_ + "/net.safetensors";
  const std::string whole = ReadText(net);
  const auto with = [&](const std::string& text) {
    WriteText(net, text);
    return Import().status();
  };
  EXPECT_THAT(with(whole.substr(0, whole.size() - 1)),
              IsInvalid("net.safetensors is not in the safetensors layout"));
  EXPECT_THAT(with("{}"), IsInvalid("its header is cut off"));
  EXPECT_THAT(with(ReadText(exported_ + "/optimizer.safetensors")),
              IsInvalid("has no '0.bias', which 'net' of the checkpoint has"));
  fs::remove(net);
  EXPECT_THAT(Import().status(), IsInvalid("net.safetensors: No such file"));
}

TEST_F(PythonFiles, AnImportThatFailsLeavesTheGenerationsAsTheyWere) {
  const auto generations = [this] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(checkpoints_)) {
      if (entry.is_directory()) names.push_back(entry.path().string());
    }
    return names;
  };
  const std::vector<std::string> before = generations();
  fs::remove(exported_ + "/optimizer.safetensors");
  EXPECT_FALSE(Import().ok());
  EXPECT_EQ(generations(), before);
}

TEST_F(PythonFiles, OptionsThatOnlyPythonHasAreLeftOutWithANote) {
  ReplaceIn(index_, "\"lr\"", "\"maximize\": true, \"lr\"");
  ASSERT_OK_AND_ASSIGN(const PyTorchFiles imported, Import());
  EXPECT_THAT(imported.notes,
              ElementsAre("param_groups[0][\"maximize\"] of optimizer has no "
                          "place in C++'s Adam and is left out"));
  EXPECT_THAT(imported.names, ElementsAre("net", "optimizer"));
}

TEST_F(PythonFiles, WithoutPythonTheErrorSaysWhatToInstall) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", folder_.path().c_str(), 1);
  const absl::Status exported =
      ExportToPyTorch(checkpoints_, folder_.path() + "/to").status();
  const absl::Status imported = Import().status();
  setenv("PATH", path.c_str(), 1);
  EXPECT_THAT(exported, StatusIs(kFailedPrecondition, "install Python 3"));
  EXPECT_THAT(imported, StatusIs(kFailedPrecondition, "install Python 3"));
  EXPECT_FALSE(fs::exists(folder_.path() + "/to"));
}

TEST_F(PythonFiles, WithoutTorchLoadingSaysWhatToInstall) {
  const std::string errors = folder_.path() + "/errors";
  const std::string command = StrCat(
      "cd ", exported_, " && python3 -c \"import sys; sys.modules['torch'] = ",
      "None; import gavel_checkpoint; gavel_checkpoint.load('.')\" 2>", errors);
  EXPECT_NE(std::system(command.c_str()), 0);
  EXPECT_THAT(ReadText(errors),
              HasSubstr("python3 -m pip install torch safetensors"));
}

TEST_F(PythonFiles, AnotherShapeOfTheModelIsNamed) {
  Model wide;
  wide.net = nn::Sequential(nn::Linear(3, 7), nn::Tanh(), nn::BatchNorm1d(7),
                            nn::Linear(7, 1));
  optim::Adam of_wide(wide.net->parameters());
  checkpoints_ = folder_.path() + "/wide";
  SessionOptions options = Alone();
  options.checkpoint_directory = checkpoints_;
  auto session = Session::Create(options);
  session->Track("net", wide.net);
  session->Track("optimizer", of_wide);
  std::vector<int> range = {1};
  for (auto& i : Iterator(*session, range)) wide.Train(of_wide, i);
  ASSERT_EQ(session->Finish(), 0);
  EXPECT_THAT(Import().status(), IsInvalid("F32 [7] in the checkpoint"));
}

TEST_F(PythonFiles, ADamagedGenerationIsNotExported) {
  for (const auto& entry : fs::recursive_directory_iterator(checkpoints_)) {
    if (entry.path().filename() != "shard-00000.safetensors") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  }
  EXPECT_THAT(
      ExportToPyTorch(checkpoints_, folder_.path() + "/damaged").status(),
      StatusIs(kDataLoss, "is damaged"));
  EXPECT_THAT(ExportToPyTorch(folder_.path() + "/none", exported_).status(),
              StatusIs(kNotFound, "/none"));
}

TEST_F(PythonFiles, PartsOfWorkersAreNotExported) {
  const std::string directory = folder_.path() + "/sharded";
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Snapshot snapshot;
      snapshot.tensors.emplace_back("net/0.weight", torch::ones({2, 3}));
      snapshot.partitions["net/0.weight"] = {.dim = 0, .size = 4};
      EXPECT_OK(GenerationStore::Open(directory)->Commit(
          {1, 1}, snapshot,
          {.rank = rank, .world_size = 2, .gang_wait_s = 20}));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(
      ExportToPyTorch(directory, folder_.path() + "/to").status(),
      StatusIs(absl::StatusCode::kUnimplemented, "sharded over workers"));
}

TEST_F(PythonExchange, AnOwnOptimizerGoesThereAndBack) {
  Model model;
  OwnOptimizer optimizer(model.net->parameters());
  std::vector<int> range = {1, 2, 3};
  {
    auto session = Open();
    session->Track("net", model.net);
    session->Track("optimizer", optimizer, OwnKind());
    for (auto& i : Iterator(*session, range)) model.Train(optimizer, i);
    ASSERT_EQ(session->Finish(), 0);
  }
  ASSERT_OK(ExportToPyTorch(checkpoints_, exported_).status());
  const std::string index = ReadText(exported_ + "/checkpoint.json");
  EXPECT_THAT(index, HasSubstr("\"note\": \"two\\nlines\""));
  EXPECT_THAT(index, HasSubstr("\"remembered\": 2"));
  ReplaceIn(exported_ + "/checkpoint.json", "\"remembered\": 2",
            "\"remembered\": null");
  ASSERT_OK(ImportFromPyTorch(exported_, checkpoints_).status());
  Model other;
  OwnOptimizer of_other(other.net->parameters());
  auto session = Open();
  EXPECT_TRUE(session->Track("net", other.net).ok());
  EXPECT_TRUE(session->Track("optimizer", of_other, OwnKind()).ok());
  const auto& options =
      dynamic_cast<OwnOptions&>(of_other.param_groups()[0].options());
  EXPECT_FALSE(options.remembered.has_value());
  EXPECT_EQ(options.note, "two\nlines");
  for (size_t i = 0; i < 2; ++i) {
    const auto state_of = [i](Model& of, OwnOptimizer& its) -> OwnState& {
      return dynamic_cast<OwnState&>(
          *its.state()[of.net->parameters()[i].unsafeGetTensorImpl()]);
    };
    const OwnState& saved = state_of(model, optimizer);
    const OwnState& restored = state_of(other, of_other);
    EXPECT_EQ(restored.step, 3);
    EXPECT_TRUE(restored.momentum.equal(saved.momentum));
    ASSERT_EQ(restored.last.size(), 2u);
    EXPECT_TRUE(restored.last[1].equal(saved.last[1]));
  }
}

}  // namespace
}  // namespace gavel::testing
