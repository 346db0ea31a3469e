// Schedules, gradient scaling, moving averages and safetensors files of
// gavel/training.h, by themselves and beside Python's torch.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/text.h"
#include "gavel/training.h"
#include "tests/iterator/session_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace nn = torch::nn;
using Optimizer = torch::optim::SGD;

class TrainingParts : public SessionTest {
 protected:
  static double RateOf(torch::optim::Optimizer& optimizer, size_t group = 0) {
    return optimizer.param_groups()[group].options().get_lr();
  }
  std::string Path(const std::string& name) {
    return folder_.path() + "/" + name;
  }
  // The output of a program; empty where there is no Python with torch.
  std::string Python(const std::string& script) {
    std::ofstream(Path("script.py")) << script;
    const std::string command =
        StrCat(GAVEL_VENV_PYTHON, " ", Path("script.py"), " ", folder_.path(),
               " >", Path("printed"), " 2>", Path("errors"));
    if (::access(GAVEL_VENV_PYTHON, X_OK) != 0) return "";
    const bool done = std::system(command.c_str()) == 0;
    std::ostringstream text;
    text << std::ifstream(Path(done ? "printed" : "errors")).rdbuf();
    if (!done && text.str().find("ModuleNotFound") != std::string::npos) {
      return "";
    }
    EXPECT_TRUE(done) << text.str();
    return text.str();
  }

  at::Tensor weight_ = torch::ones({2}, torch::requires_grad());
};

// ---- Schedules.

TEST_F(TrainingParts, CurvesHaveTheirClosedForms) {
  for (int64_t t = 0; t <= 120; ++t) {
    const double x = static_cast<double>(t);
    EXPECT_DOUBLE_EQ(Curve::Constant(40).At(t), std::min(1.0, x / 40));
    const double rise = x / 20;
    const double part = std::min(1.0, (x - 20) / 80);
    EXPECT_DOUBLE_EQ(Curve::Linear(100, 20, 0.1).At(t),
                     t < 20 ? rise : 1 - 0.9 * part);
    EXPECT_NEAR(Curve::Cosine(100, 20, 0.1).At(t),
                t < 20 ? rise : 0.1 + 0.9 * (1 + std::cos(M_PI * part)) / 2,
                1e-15);
  }
  EXPECT_EQ(Curve::Cosine(100).At(0), 1);
  EXPECT_EQ(Curve::Cosine(100).At(100), 0);
  EXPECT_EQ(Curve::Constant(0).At(0), 1);
}

TEST_F(TrainingParts, SchedulesSetTheRateOfEachGroupFromTheFirstStepOn) {
  at::Tensor other = torch::ones({2}, torch::requires_grad());
  Optimizer optimizer({weight_}, torch::optim::SGDOptions(0.5));
  optimizer.add_param_group({{other}});
  optimizer.param_groups()[1].options().set_lr(0.1);
  Schedule schedule(optimizer, Curve::Linear(4, 0, 0.5));
  EXPECT_EQ(RateOf(optimizer), 0.5);
  schedule.step();
  EXPECT_DOUBLE_EQ(RateOf(optimizer, 0), 0.5 * 0.875);
  EXPECT_DOUBLE_EQ(RateOf(optimizer, 1), 0.1 * 0.875);
  for (int i = 0; i < 5; ++i) schedule.step();
  EXPECT_DOUBLE_EQ(RateOf(optimizer), 0.25);
}

TEST_F(TrainingParts, RatesAreThoseOfPython) {
  std::istringstream rates(Python(R"(
import torch
from torch.optim import lr_scheduler as s
def make():
    return torch.optim.SGD([torch.ones(1)], lr=0.3)
def show(optimizer, scheduler, steps):
    for _ in range(steps):
        print(repr(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
for total in (2, 3, 10, 97):
    o = make(); show(o, s.OneCycleLR(o, 0.3, total_steps=total), total)
o = make(); show(o, s.CosineAnnealingLR(o, 50, eta_min=0.03), 50)
o = make(); show(o, s.LinearLR(o, 1.0, 0.2, total_iters=30), 40)
o = make(); show(o, s.LambdaLR(o, lambda t: min(1, t / 12)), 20)
)"));
  if (rates.str().empty()) GTEST_SKIP() << "no torch at " << GAVEL_VENV_PYTHON;
  const auto compare = [&](const Curve& curve, int64_t steps) {
    for (int64_t t = 0; t < steps; ++t) {
      double rate = -1;
      rates >> rate;
      EXPECT_NEAR(0.3 * curve.At(t), rate, 1e-12) << t << " of " << steps;
    }
  };
  for (const int64_t total : {2, 3, 10, 97}) {
    compare(Curve::OneCycle(total), total);
  }
  compare(Curve::Cosine(50, 0, 0.1), 50);
  compare(Curve::Linear(30, 0, 0.2), 40);
  compare(Curve::Constant(12), 20);
}

TEST_F(TrainingParts, AScheduleWithoutStepsIsAnErrorOfTrack) {
  const std::pair<Curve, const char*> cases[] = {
      {Curve::Cosine(0), "a schedule of 0 steps"},
      {Curve::OneCycle(-1), "a schedule of -1 steps"},
      {Curve::Linear(10, 10), "a warm-up of 10 steps in a schedule of 10"},
      {Curve::Constant(-1), "a warm-up of -1 steps"},
      {Curve::Linear(10, 0, std::nan("")), "not a finite number"}};
  for (const auto& [curve, text] : cases) {
    EXPECT_EQ(curve.At(5), 1);
    Optimizer optimizer({weight_}, torch::optim::SGDOptions(0.5));
    Schedule schedule(optimizer, curve);
    auto session = Open();
    const Status status = session->Track("schedule", schedule);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(text));
    EXPECT_EQ(session->status().message(), status.message());
  }
}

// ---- Gradient scaling.

TEST_F(TrainingParts, ScalesGrowAfterGoodStepsAndFallAtAnOverflow) {
  Optimizer optimizer({weight_}, torch::optim::SGDOptions(1));
  GradScalerOptions options;
  options.init_scale = 8;
  options.growth_interval = 2;
  GradScaler scaler(options);
  const auto step = [&](double factor) {
    optimizer.zero_grad();
    scaler.Scale((weight_ * factor).sum()).backward();
    const bool stepped = scaler.Step(optimizer);
    scaler.Update();
    return stepped;
  };
  EXPECT_TRUE(step(0.25));
  EXPECT_EQ(weight_[0].item<float>(), 0.75f);
  EXPECT_EQ(scaler.scale(), 8);
  EXPECT_TRUE(step(0.25));
  EXPECT_EQ(scaler.scale(), 16);
  EXPECT_FALSE(step(std::numeric_limits<double>::infinity()));
  EXPECT_EQ(scaler.scale(), 8);
  EXPECT_EQ(weight_[0].item<float>(), 0.5f);
  EXPECT_FALSE(step(std::nan("")));
  EXPECT_EQ(scaler.scale(), 4);
  EXPECT_TRUE(step(0.25));  // counts from the overflow
  EXPECT_EQ(scaler.scale(), 4);
}

TEST_F(TrainingParts, UnscaleIsDoneOnceAndClippingSeesTheGradients) {
  Optimizer optimizer({weight_}, torch::optim::SGDOptions(1));
  GradScaler scaler;
  scaler.Scale((weight_ * 0.5).sum()).backward();
  scaler.Unscale(optimizer);
  scaler.Unscale(optimizer);
  EXPECT_EQ(weight_.grad()[0].item<float>(), 0.5f);
  EXPECT_TRUE(scaler.Step(optimizer));
  EXPECT_EQ(weight_[0].item<float>(), 0.5f);
}

TEST_F(TrainingParts, GradientsOfAllTypesAndSparseOnesAreUnscaled) {
  at::Tensor half = torch::ones({2}, torch::kBFloat16).requires_grad_();
  at::Tensor table = torch::ones({3, 2}, torch::requires_grad());
  Optimizer optimizer({weight_, half, table}, torch::optim::SGDOptions(1));
  GradScaler scaler;
  const at::Tensor rows = torch::embedding(
      table, torch::tensor({1, 1}, torch::kLong), -1, false, /*sparse=*/true);
  scaler.Scale(weight_.sum() + half.sum() + rows.sum()).backward();
  EXPECT_TRUE(scaler.Step(optimizer));
  EXPECT_EQ(weight_[0].item<float>(), 0);
  EXPECT_EQ(half[0].item<float>(), 0);
  EXPECT_EQ(table[1][0].item<float>(), -1);
}

TEST_F(TrainingParts, ADisabledScalerOnlySteps) {
  Optimizer optimizer({weight_}, torch::optim::SGDOptions(1));
  GradScalerOptions options;
  options.enabled = false;
  GradScaler scaler(options);
  scaler.Scale((weight_ * 0.5).sum()).backward();
  EXPECT_TRUE(scaler.Step(optimizer));
  scaler.Update();
  EXPECT_EQ(weight_[0].item<float>(), 0.5f);
  EXPECT_EQ(scaler.scale(), 1);
}

TEST_F(TrainingParts, AStepWithoutScaleIsPlainAndASecondOneDoesNothing) {
  Optimizer optimizer({weight_}, torch::optim::SGDOptions(1));
  GradScaler scaler;
  (weight_ * 0.5).sum().backward();
  EXPECT_TRUE(scaler.Step(optimizer));
  scaler.Update();
  EXPECT_EQ(weight_[0].item<float>(), 0.5f);
  optimizer.zero_grad();
  scaler.Scale((weight_ * 0.25).sum()).backward();
  EXPECT_TRUE(scaler.Step(optimizer));
  EXPECT_FALSE(scaler.Step(optimizer));
  EXPECT_EQ(weight_[0].item<float>(), 0.25f);
}

TEST_F(TrainingParts, WrongScalersAreAnErrorOfTrack) {
  GradScalerOptions options;
  options.growth_factor = 1;
  GradScaler scaler(options);
  auto session = Open();
  EXPECT_EQ(session->Track("scaler", scaler).code(),
            StatusCode::kInvalidArgument);
  EXPECT_THAT(session->status().message(),
              HasSubstr("'scaler' is a GradScaler with a wrong option"));
}

// ---- Moving averages.

TEST_F(TrainingParts, AnAverageFollowsAsItsDecaySays) {
  nn::Sequential model(nn::Linear(1, 1), nn::BatchNorm1d(1));
  nn::Sequential average(nn::Linear(1, 1), nn::BatchNorm1d(1));
  Ema ema(model, average, 0.75);
  at::Tensor from = model->parameters()[0];
  at::Tensor to = average->parameters()[0];
  EXPECT_TRUE(at::equal(from, to));
  EXPECT_FALSE(to.requires_grad());
  EXPECT_FALSE(average->is_training());
  const torch::NoGradGuard no_grad;
  from.fill_(8);
  ema.Update();  // the first one copies
  EXPECT_EQ(to.item<float>(), 8);
  from.fill_(16);
  model->buffers()[0].fill_(5);
  ema.Update();
  EXPECT_EQ(to.item<float>(), 10);
  EXPECT_EQ(average->buffers()[0].item<float>(), 5);
}

TEST_F(TrainingParts, WrongAveragesAreAnErrorOfTrack) {
  nn::Sequential model(nn::Linear(1, 1));
  nn::Sequential wide(nn::Linear(1, 2));
  nn::Sequential short_one;
  nn::Sequential same(nn::Linear(1, 1));
  const auto message = [&](Ema ema) {
    auto session = Open();
    session->Track("ema", ema);
    return session->status().message();
  };
  EXPECT_THAT(message(Ema(model, wide, 0.9)),
              HasSubstr("'ema': an Ema of two modules that differ in "
                        "'0.weight'"));
  EXPECT_THAT(message(Ema(model, short_one, 0.9)),
              HasSubstr("fewer parameters"));
  EXPECT_THAT(message(Ema(model, model, 0.9)), HasSubstr("two modules"));
  EXPECT_THAT(message(Ema(model, same, 1)), HasSubstr("an Ema of decay 1"));
}

// ---- All of them over a restart.

TEST_F(TrainingParts, ARestartContinuesWithAllOfThem) {
  const auto life = [this](int steps, bool late_schedule) {
    nn::Sequential model(nn::Linear(nn::LinearOptions(1, 1).bias(false)));
    nn::Sequential average(nn::Linear(nn::LinearOptions(1, 1).bias(false)));
    Optimizer optimizer(model->parameters(), torch::optim::SGDOptions(0.5));
    GradScalerOptions options;
    options.growth_interval = 3;
    GradScaler scaler(options);
    Ema ema(model, average, 0.5);
    std::optional<Schedule> schedule;
    auto session = Open();
    if (!late_schedule) schedule.emplace(optimizer, Curve::Linear(10, 2));
    session->Track("model", model);
    session->Track("optimizer", optimizer);
    if (late_schedule) schedule.emplace(optimizer, Curve::Linear(10, 2));
    session->Track("schedule", *schedule);
    session->Track("scaler", scaler);
    session->Track("ema", ema);
    std::vector<double> seen = {RateOf(optimizer), scaler.scale()};
    for (int i = 0; i < steps && session->Boundary(); ++i) {
      optimizer.zero_grad();
      scaler.Scale(model->forward(torch::ones({1, 1})).sum()).backward();
      scaler.Step(optimizer);
      scaler.Update();
      schedule->step();
      ema.Update();
      session->StepDone();
    }
    seen.push_back(RateOf(optimizer));
    seen.push_back(scaler.scale());
    EXPECT_EQ(session->Finish(), 0) << session->status().message();
    return seen;
  };
  EXPECT_EQ(life(4, false), (std::vector<double>{0, 65536, 0.375, 131072}));
  for (const bool late : {false, true}) {
    EXPECT_EQ(life(0, late),
              (std::vector<double>{0.375, 131072, 0.375, 131072}));
  }
  EXPECT_EQ(life(2, true), (std::vector<double>{0.375, 131072, 0.25, 262144}));
  EXPECT_EQ(log_.Count("was made with other learning rates"), 2);
}

// ---- Safetensors.

TEST_F(TrainingParts, AModuleComesBackFromItsFile) {
  nn::Sequential model(nn::Linear(2, 3), nn::BatchNorm1d(3));
  nn::Sequential other(nn::Linear(2, 3), nn::BatchNorm1d(3));
  for (int i = 0; i < 2; ++i) {  // the second one replaces the first
    model->parameters()[0].data().fill_(i);
    ASSERT_TRUE(SaveSafetensors(*model, Path("x")).ok());
  }
  const Status loaded = LoadSafetensors(*other, Path("x"));
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(
        at::equal(item.value(), *other->named_parameters().find(item.key())));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()),
                          std::filesystem::directory_iterator()),
            1)
      << "no unfinished file is left";
  EXPECT_THAT(SaveSafetensors(*model, Path("no/x")).message(),
              HasSubstr("no/x"));
}

TEST_F(TrainingParts, WhatDoesNotFitIsNamedAndNothingIsWritten) {
  nn::Sequential model(nn::Linear(2, 3), nn::Linear(3, 1));
  ASSERT_TRUE(SaveSafetensors(*model, Path("x")).ok());
  nn::Sequential other(nn::Linear(2, 4), nn::BatchNorm1d(4));
  const at::Tensor before = other->parameters()[0].clone();
  const Status strict = LoadSafetensors(*other, Path("x"));
  EXPECT_EQ(strict.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(strict.message(),
              AllOf(HasSubstr("it lacks: 1.num_batches_tracked, "
                              "1.running_mean, 1.running_var;"),
                    HasSubstr("0.weight is [4,2] here and [3,2] there"),
                    HasSubstr("1.weight is [4] here and [1,3] there")));
  EXPECT_TRUE(at::equal(other->parameters()[0], before));

  nn::Sequential head(nn::Linear(2, 3));
  EXPECT_THAT(LoadSafetensors(*head, Path("x")).message(),
              HasSubstr("the module has no: 1.bias, 1.weight; map"));
  SafetensorsOptions options;
  options.strict = false;
  EXPECT_TRUE(LoadSafetensors(*head, Path("x"), options).ok());
  EXPECT_TRUE(at::equal(head->parameters()[0], model->parameters()[0]));
  // Shapes are compared all the same.
  EXPECT_THAT(LoadSafetensors(*other, Path("x"), options).message(),
              HasSubstr("0.bias is [4] here"));
  options.rename = [](const std::string& name) { return "bert." + name; };
  EXPECT_THAT(LoadSafetensors(*head, Path("x"), options).message(),
              AllOf(HasSubstr("no tensor of"), HasSubstr("bert.0.bias")));
}

TEST_F(TrainingParts, AFileThatIsPutOverRestoredWeightsIsWarnedOf) {
  struct Warnings : c10::WarningHandler {
    void process(const c10::Warning& warning) override {
      text += warning.msg();
    }
    std::string text;
  } warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  nn::Sequential pretrained(nn::Linear(2, 3));
  ASSERT_TRUE(SaveSafetensors(*pretrained, Path("x")).ok());
  for (const bool restarted : {false, true}) {
    nn::Sequential model(nn::Linear(2, 3));
    ASSERT_TRUE(LoadSafetensors(*model, Path("x")).ok());
    auto session = Open();
    session->Track("model", model);
    EXPECT_EQ(warnings.text, "");
    ASSERT_TRUE(LoadSafetensors(*model, Path("x")).ok());
    EXPECT_EQ(warnings.text.find("call it before Track") != std::string::npos,
              restarted);
    if (session->Boundary()) session->StepDone();
    EXPECT_EQ(session->Finish(), 0) << session->status().message();
  }
}

TEST_F(TrainingParts, NamesAreMapped) {
  nn::Sequential model(nn::Linear(2, 3), nn::Linear(3, 1));
  ASSERT_TRUE(SaveSafetensors(*model, Path("x")).ok());
  nn::Sequential other(nn::Linear(3, 1));
  SafetensorsOptions options;
  options.rename = [](const std::string& name) {
    return name[0] == '1' ? "0" + name.substr(1) : "";
  };
  const Status loaded = LoadSafetensors(*other, Path("x"), options);
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_TRUE(at::equal(other->parameters()[0], model->parameters()[2]));
  options.rename = [](const std::string&) { return "0.weight"; };
  EXPECT_THAT(LoadSafetensors(*other, Path("x"), options).message(),
              HasSubstr("rename gives '0.weight' for two tensors"));
  options.rename = [](const std::string&) -> std::string {
    throw std::runtime_error("no name");
  };
  EXPECT_THAT(LoadSafetensors(*other, Path("x"), options).message(),
              HasSubstr("no name"));
}

struct TiedImpl : nn::Module {
  TiedImpl() {
    first = register_parameter("first", torch::rand({2, 2}));
    second = register_parameter("second", first);
  }
  at::Tensor first, second;
};

TEST_F(TrainingParts, ASharedTensorIsWrittenAndNeededOnce) {
  TiedImpl tied, other;
  ASSERT_TRUE(SaveSafetensors(tied, Path("x")).ok());
  EXPECT_LT(std::filesystem::file_size(Path("x")), 200u);
  const Status loaded = LoadSafetensors(other, Path("x"));
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_TRUE(at::equal(other.second, tied.first));
}

TEST_F(TrainingParts, FilesGoToPythonAndBackWholeAndSharded) {
  nn::Sequential model(nn::Linear(2, 3), nn::BatchNorm1d(3));
  ASSERT_TRUE(SaveSafetensors(*model, Path("ours.safetensors")).ok());
  const std::string printed = Python(R"(
import json, sys, torch
from safetensors.torch import load_file, save_file
folder = sys.argv[1]
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
net.load_state_dict(load_file(folder + "/ours.safetensors"))
state = {"model." + k: (v + 1).to(torch.bfloat16) if v.dim() == 2 else v + 1
         for k, v in net.state_dict().items()}
names = sorted(state)
index = {"metadata": {"total_size": 1}, "weight_map": {}}
for i, part in enumerate((names[:3], names[3:])):
    file = f"model-{i + 1:05}-of-00002.safetensors"
    save_file({k: state[k].contiguous() for k in part}, f"{folder}/{file}", {"format": "pt"})
    index["weight_map"].update({k: file for k in part})
json.dump(index, open(folder + "/model.safetensors.index.json", "w"))
print(len(names))
)");
  if (printed.empty()) GTEST_SKIP() << "no torch at " << GAVEL_VENV_PYTHON;
  EXPECT_EQ(printed, "7\n");
  nn::Sequential other(nn::Linear(2, 3), nn::BatchNorm1d(3));
  SafetensorsOptions options;
  options.rename = [](const std::string& name) { return name.substr(6); };
  const Status loaded = LoadSafetensors(*other, folder_.path(), options);
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_TRUE(at::equal(other->parameters()[1], model->parameters()[1] + 1));
  EXPECT_TRUE(
      at::allclose(other->parameters()[0], model->parameters()[0] + 1, 1e-2));
  EXPECT_TRUE(at::equal(other->buffers()[2], model->buffers()[2] + 1));
}

}  // namespace
}  // namespace gavel::testing
