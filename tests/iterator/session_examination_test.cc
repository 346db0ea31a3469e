// The account of a run that its session writes for `gavel doctor`.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <fstream>

#include "gavel/iterator.h"
#include "gavel/session.h"
#include "tests/iterator/session_fixture.h"
#include "tests/iterator/training.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class SessionExamination : public SessionTest {
 protected:
  SessionOptions Examined() {
    SessionOptions options = Alone();
    options.examination_file = folder_.path() + "/examination";
    return options;
  }
  std::vector<std::string> Account() const {
    std::ifstream file(folder_.path() + "/examination");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  // Runs two loops of three steps over a linear model.
  template <class Body>
  void Loops(Session& session, torch::nn::Linear& model,
             torch::optim::SGD& optimizer, Body after_step) {
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<int> range = {1, 2, 3};
      for (auto& i : Iterator(session, range)) {
        optimizer.zero_grad();
        model->forward(torch::full({1, 2}, 1.0 * i)).sum().backward();
        optimizer.step();
        after_step();
      }
    }
  }
};

TEST_F(SessionExamination, TellsOfLoopsAndOfWhatIsTracked) {
  EXPECT_EQ(Train(Examined()).exit_code, 0) << log_.Text();
  const std::vector<std::string> account = Account();
  EXPECT_THAT(account, Contains("tracked 0 model module"));
  EXPECT_THAT(account, Contains("tracked 0 optimizer optimizer"));
  EXPECT_THAT(account, Contains(StartsWith("tracked 0 epoch signed number")));
  EXPECT_THAT(account, Contains("loop-begin 0 -"));
  EXPECT_THAT(account, Contains("loop-end 6 -"));
  EXPECT_THAT(account, Contains("loop-begin 6 -"));
  EXPECT_THAT(account, Contains("loop-end 24 -"));
  EXPECT_THAT(account, Not(Contains(StartsWith("loop-break"))));
  EXPECT_THAT(account, Not(Contains(StartsWith("evaluation"))));
  EXPECT_THAT(account, Not(Contains(StartsWith("untracked"))));
}

TEST_F(SessionExamination, TellsOfEvaluations) {
  TrainingOptions training;
  training.after_epoch = [](Session&, torch::nn::Module& model) {
    const torch::NoGradGuard no_grad;
    model.as<torch::nn::Sequential>()->forward(torch::zeros({4, 2}));
  };
  EXPECT_EQ(Train(Examined(), training).exit_code, 0) << log_.Text();
  EXPECT_THAT(Account(), Contains("evaluation 6 -"));
  EXPECT_THAT(Account(), Contains("evaluation 24 -"));
}

TEST_F(SessionExamination, TellsWhereALoopIsLeftByBreak) {
  auto session = Session::Create(Examined());
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<int> range = {1, 2, 3};
    for (auto& i : Iterator(*session, range)) {
      if (i == 3) break;
    }
  }
  EXPECT_EQ(session->Finish(), 0);
  EXPECT_THAT(Account(), Contains("loop-break 2 -"));
  EXPECT_THAT(Account(), Contains("loop-break 4 -"));
}

TEST_F(SessionExamination, SeesAnAverageThatNobodyTracks) {
  torch::nn::Linear model(2, 2);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  at::Tensor average = model->weight.detach().clone();
  const auto follow = [&] {
    const torch::NoGradGuard no_grad;
    average.mul_(0.9).add_(model->weight, 0.1);
  };
  {
    auto session = Session::Create(Examined());
    session->Track("model", model);
    session->Track("optimizer", optimizer);
    Loops(*session, model, optimizer, follow);
    EXPECT_EQ(session->Finish(), 0) << log_.Text();
  }
  EXPECT_THAT(Account(), Contains(HasSubstr("untracked 2 average a tensor of "
                                            "[2, 2], written by aten::")));
}

TEST_F(SessionExamination, SaysNothingOfAnAverageThatIsTracked) {
  torch::nn::Linear model(2, 2);
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(0.1).momentum(0.9));
  at::Tensor average = model->weight.detach().clone();
  const auto follow = [&] {
    const torch::NoGradGuard no_grad;
    average.mul_(0.9).add_(model->weight, 0.1);
  };
  auto session = Session::Create(Examined());
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  session->Track("average", average);
  Loops(*session, model, optimizer, follow);
  EXPECT_EQ(session->Finish(), 0) << log_.Text();
  EXPECT_THAT(Account(), Not(Contains(StartsWith("untracked"))));
}

TEST_F(SessionExamination, SeesASchedulerAndAModuleThatNobodyTracks) {
  torch::nn::Linear model(2, 2);
  torch::nn::Linear other(2, 2);
  std::vector<at::Tensor> parameters = model->parameters();
  for (const at::Tensor& one : other->parameters()) parameters.push_back(one);
  torch::optim::SGD optimizer(parameters, 0.1);
  torch::optim::StepLR scheduler(optimizer, 2, 0.5);
  SessionOptions options = Examined();
  options.require_tracked_parameters = false;
  auto session = Session::Create(options);
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  Loops(*session, model, optimizer, [&] { scheduler.step(); });
  EXPECT_EQ(session->Finish(), 0) << log_.Text();
  EXPECT_THAT(Account(), Contains("untracked 0 module 'optimizer' trains 2 "
                                  "parameters of no tracked module"));
  EXPECT_THAT(Account(), Contains(HasSubstr("schedule the learning rate of "
                                            "'optimizer' changes")));
}

TEST_F(SessionExamination, SeesAGeneratorThatNobodyTracks) {
  torch::nn::Linear model(2, 2);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  at::Generator generator = at::detail::createCPUGenerator(3);
  auto session = Session::Create(Examined());
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  Loops(*session, model, optimizer,
        [&] { static_cast<void>(at::randn({2}, generator)); });
  EXPECT_EQ(session->Finish(), 0) << log_.Text();
  EXPECT_THAT(Account(), Contains(HasSubstr("generator a generator on cpu")));
}

}  // namespace
}  // namespace gavel::testing
