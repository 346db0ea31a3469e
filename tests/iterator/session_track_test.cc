// What can be tracked, what can't, and what comes back.
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>
#include <stdexcept>

#include "gavel/iterator.h"
#include "gavel/session.h"
#include "tests/iterator/session_fixture.h"
#include "tests/iterator/training.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class SessionTrack : public SessionTest {
 protected:
  // One loop of two steps.
  static void Run(Session& session) {
    std::vector<int> range = {1, 2};
    for (auto& i : Iterator(session, range)) static_cast<void>(i);
  }
};

TEST_F(SessionTrack, EverythingComesBack) {
  int64_t epoch = 3;
  int small = -4;
  double rate = 0.1;
  bool flag = true;
  std::string text("with\0zero", 9);
  at::Tensor tensor = torch::arange(6);
  std::string bytes = "own state";
  {
    auto session = Open();
    session->Track("epoch", epoch);
    session->Track("small", small);
    session->Track("rate", rate);
    session->Track("flag", flag);
    session->Track("text", text);
    session->Track("tensor", tensor);
    session->Track(
        "own", [&] { return bytes; }, [](const std::string&) {});
    Run(*session);
    ASSERT_EQ(session->Finish(), 0) << log_.Text();
  }
  int64_t epoch2 = 0;
  int small2 = 0;
  double rate2 = 0;
  bool flag2 = false;
  std::string text2;
  at::Tensor tensor2;
  std::string bytes2;
  auto session = Open();
  EXPECT_TRUE(session->Track("epoch", epoch2).ok());
  EXPECT_TRUE(session->Track("small", small2).ok());
  EXPECT_TRUE(session->Track("rate", rate2).ok());
  EXPECT_TRUE(session->Track("flag", flag2).ok());
  EXPECT_TRUE(session->Track("text", text2).ok());
  EXPECT_TRUE(session->Track("tensor", tensor2).ok());
  EXPECT_TRUE(session
                  ->Track(
                      "own", [] { return std::string(); },
                      [&](const std::string& saved) { bytes2 = saved; })
                  .ok());
  EXPECT_EQ(epoch2, epoch);
  EXPECT_EQ(small2, small);
  EXPECT_EQ(rate2, rate);
  EXPECT_EQ(flag2, flag);
  EXPECT_EQ(text2, text);
  EXPECT_TRUE(torch::equal(tensor2, tensor.cpu()));
  EXPECT_EQ(bytes2, bytes);
  EXPECT_EQ(session->steps_done(), 2);
}

TEST_F(SessionTrack, ANameIsUniqueAndWellFormed) {
  auto session = Open();
  int64_t epoch = 0;
  EXPECT_TRUE(session->Track("epoch", epoch).ok());
  const Status twice = session->Track("epoch", epoch);
  EXPECT_EQ(twice.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(twice.message(), HasSubstr("'epoch'"));
  EXPECT_EQ(session->status().code(), StatusCode::kAlreadyExists);
  Run(*session);
  EXPECT_EQ(session->steps_done(), 0);
  EXPECT_EQ(session->Finish(), 1);
  for (const char* bad : {"", "a/b", "gavel", "with space"}) {
    EXPECT_EQ(Open()->Track(bad, epoch).code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(SessionTrack, OneThingUnderTwoNamesIsAnError) {
  torch::nn::Linear model(2, 2);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  int64_t epoch = 0;
  {
    auto session = Open();
    EXPECT_TRUE(session->Track("model", model).ok());
    const Status twice = session->Track("net", model);
    EXPECT_EQ(twice.code(), StatusCode::kAlreadyExists);
    EXPECT_THAT(
        twice.message(),
        HasSubstr("'net' is the module that is tracked as 'model' already"));
    EXPECT_EQ(session->Finish(), 1);
  }
  {
    auto session = Open();
    EXPECT_TRUE(session->Track("a", optimizer).ok());
    EXPECT_EQ(session->Track("b", optimizer).code(),
              StatusCode::kAlreadyExists);
  }
  auto session = Open();
  EXPECT_TRUE(session->Track("a", epoch).ok());
  EXPECT_EQ(session->Track("b", epoch).code(), StatusCode::kAlreadyExists);
}

TEST_F(SessionTrack, IsTooLateOnceTheLoopWasBegun) {
  auto session = Open();
  Run(*session);
  int64_t epoch = 0;
  const Status late = session->Track("epoch", epoch);
  EXPECT_EQ(late.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(late.message(), HasSubstr("before the first gavel::Iterator"));
}

TEST_F(SessionTrack, ANullModuleIsAnError) {
  torch::nn::Linear none = nullptr;
  std::shared_ptr<torch::nn::Module> null;
  EXPECT_EQ(Open()->Track("model", null).code(), StatusCode::kInvalidArgument);
}

TEST_F(SessionTrack, AModelOfAnotherShapeIsRefused) {
  {
    auto session = Open();
    torch::nn::Linear model(2, 3);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    session->Track("model", model);
    session->Track("optimizer", optimizer);
    Run(*session);
    ASSERT_EQ(session->Finish(), 0);
  }
  torch::nn::Linear model(2, 4);
  const Status shape = Open()->Track("model", model);
  EXPECT_EQ(shape.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(shape.message(), HasSubstr("model/weight"));
  EXPECT_THAT(shape.message(), HasSubstr("[4,2]"));
  torch::nn::Linear same(2, 3);
  EXPECT_EQ(Open()->Track("net", same).code(), StatusCode::kNotFound);
  int64_t number = 0;
  const Status kind = Open()->Track("model", number);
  EXPECT_EQ(kind.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(kind.message(), HasSubstr("module"));
}

// Bytes of the same size would be read as another number.
TEST_F(SessionTrack, ANumberOfAnotherTypeIsRefused) {
  {
    auto session = Open();
    int64_t best = 7;
    session->Track("best", best);
    Run(*session);
    ASSERT_EQ(session->Finish(), 0);
  }
  double real = 0;
  const Status status = Open()->Track("best", real);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("floating-point number of 8 bytes"));
  uint64_t unsigned_number = 0;
  EXPECT_FALSE(Open()->Track("best", unsigned_number).ok());
  int64_t same = 0;
  EXPECT_TRUE(Open()->Track("best", same).ok());
  EXPECT_EQ(same, 7);
}

TEST_F(SessionTrack, SaysWhatTheCheckpointHasAndTheProgramDoesNot) {
  int64_t number = 5;
  {
    auto session = Open();
    session->Track("scheduler", number);
    Run(*session);
    session->Finish();
  }
  auto session = Open();
  Run(*session);
  EXPECT_EQ(session->Finish(), 0);
  EXPECT_EQ(log_.Count("'scheduler', which this program does not track"), 1);
}

TEST_F(SessionTrack, ACallbackThatThrowsBecomesAStatus) {
  {
    auto session = Open();
    session->Track(
        "own", []() -> std::string { throw std::runtime_error("no luck"); },
        [](const std::string&) {});
    Run(*session);
    EXPECT_EQ(session->Finish(), 1);
    EXPECT_THAT(session->status().message(), HasSubstr("no luck"));
    EXPECT_THAT(session->status().message(), HasSubstr("'own'"));
  }
  {
    auto session = Open();
    session->Track(
        "own", [] { return std::string("state"); }, [](const std::string&) {});
    Run(*session);
    EXPECT_EQ(session->Finish(), 0);
  }
  auto session = Open();
  const Status status = session->Track(
      "own", [] { return std::string(); }, [](const std::string&) { throw 7; });
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  Run(*session);
  EXPECT_EQ(session->Finish(), 1);
}

TEST_F(SessionTrack, ALogCallbackThatThrowsIsNotCalledAgain) {
  int calls = 0;
  SessionOptions options;
  options.log = [&calls](LogLevel, const std::string&) {
    ++calls;
    throw std::runtime_error("the log is full");
  };
  auto session = Session::Create(options);
  Run(*session);
  EXPECT_EQ(session->Finish(), 0);
  EXPECT_EQ(calls, 1);
}

// A copy that follows the model (a moving average) has no optimizer.
TEST_F(SessionTrack, AFollowingCopyNeedsNoOptimizer) {
  torch::nn::Linear model(2, 3);
  torch::nn::Linear average(2, 3);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  auto session = Open();
  session->Track("model", model);
  session->Track("average", average);
  session->Track("optimizer", optimizer);
  std::vector<int> range = {1, 2, 3, 4};
  for (auto& i : Iterator(*session, range)) {
    static_cast<void>(i);
    optimizer.zero_grad();
    model->forward(torch::ones({1, 2}, session->device())).sum().backward();
    optimizer.step();
    const torch::NoGradGuard no_grad;
    average->weight.lerp_(model->weight, 0.5);
  }
  EXPECT_EQ(session->Finish(), 0) << session->status().message();
}

// One of two optimizers was forgotten.
TEST_F(SessionTrack, TheSecondOptimizerIsMissedToo) {
  torch::nn::Linear generator(2, 2);
  torch::nn::Linear critic(2, 1);
  torch::optim::SGD one(generator->parameters(), 0.1);
  torch::optim::SGD two(critic->parameters(), 0.1);
  auto session = Open();
  session->Track("generator", generator);
  session->Track("critic", critic);
  session->Track("one", one);
  std::vector<int> range = {1, 2, 3, 4};
  for (auto& i : Iterator(*session, range)) {
    static_cast<void>(i);
    critic->forward(generator->forward(torch::ones({1, 2}, session->device())))
        .sum()
        .backward();
    one.step();
    two.step();
  }
  EXPECT_EQ(session->Finish(), 1);
  EXPECT_THAT(session->status().message(), HasSubstr("'critic/"));
}

// What is not trained changes nothing, whatever requires_grad says.
TEST_F(SessionTrack, AFrozenPartNeedsNoOptimizer) {
  torch::nn::Linear frozen(2, 2);
  torch::nn::Linear head(2, 1);
  torch::optim::SGD optimizer(head->parameters(), 0.1);
  auto session = Open();
  session->Track("frozen", frozen);
  session->Track("head", head);
  session->Track("optimizer", optimizer);
  std::vector<int> range = {1, 2, 3, 4};
  for (auto& i : Iterator(*session, range)) {
    static_cast<void>(i);
    head->forward(frozen->forward(torch::ones({1, 2}, session->device())))
        .sum()
        .backward();
    optimizer.step();
  }
  EXPECT_EQ(session->Finish(), 0) << session->status().message();
}

// Gradients of four steps add up before the optimizer's. Ends in their midst.
struct Accumulated {
  int64_t steps = 0;
  std::vector<float> weights;
};

Accumulated TrainAccumulating(SessionOptions options) {
  torch::manual_seed(3);
  torch::nn::Linear model(3, 1);
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(0.1).momentum(0.9));
  auto session = Session::Create(std::move(options));
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  while (session->Boundary() && session->steps_done() < 16) {
    const auto input = static_cast<float>(session->steps_done() + 1);
    model->forward(torch::full({1, 3}, input, session->device()))
        .sum()
        .backward();
    if (session->steps_done() % 4 == 3) {
      optimizer.step();
      optimizer.zero_grad();
    }
    session->StepDone();
  }
  EXPECT_EQ(session->Finish(), 0) << session->status().message();
  const at::Tensor weights = model->weight.detach().cpu().contiguous();
  const auto* const data = weights.const_data_ptr<float>();
  return {session->steps_done(), {data, data + weights.numel()}};
}

TEST_F(SessionTrack, GradientsThatAddUpOverStepsAreInACheckpoint) {
  const TemporaryFolder folder;
  SessionOptions options = Alone();
  options.checkpoint_directory = folder.path();
  const Accumulated whole = TrainAccumulating(options);
  EXPECT_EQ(whole.steps, 16);
  // A process for each step.
  options = Alone();
  for (int64_t steps = 1; steps < 16; ++steps) {
    options.steps_total = steps;
    EXPECT_EQ(TrainAccumulating(options).steps, steps);
  }
  options.steps_total = 0;
  EXPECT_EQ(TrainAccumulating(options).weights, whole.weights);
}

TEST_F(SessionTrack, GradientsOfOneStepAreNotInACheckpoint) {
  EXPECT_EQ(Train(Alone()).exit_code, 0);
  EXPECT_FALSE(log_.Contain("gradients add up"));
}

// SGD writes parameters without raising their versions.
TEST_F(SessionTrack, GradientsOfSgdAreNotInACheckpoint) {
  const TemporaryFolder folder;
  // The simulated accelerator has no sparse tensors.
  torch::nn::Embedding model(
      torch::nn::EmbeddingOptions(8, 2).sparse(!OnAccelerator()));
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(0.1));
  SessionOptions options = Alone();
  options.checkpoint_directory = folder.path();
  auto session = Session::Create(std::move(options));
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  while (session->Boundary() && session->steps_done() < 8) {
    optimizer.zero_grad();
    model->forward(torch::tensor({1, 3}, session->device())).sum().backward();
    optimizer.step();
    session->StepDone();
  }
  EXPECT_EQ(session->Finish(), 0) << session->status().message();
  EXPECT_FALSE(log_.Contain("gradients add up"));
}

// Its parameters are NaN and stay so.
TEST_F(SessionTrack, GradientsOfADivergedTrainingAreNotInACheckpoint) {
  torch::nn::Linear model(2, 1);
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(0.1));
  auto session = Session::Create(Alone());
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  while (session->Boundary() && session->steps_done() < 4) {
    optimizer.zero_grad();
    (model->forward(torch::ones({1, 2}, session->device())).sum() * NAN)
        .backward();
    optimizer.step();
    session->StepDone();
  }
  EXPECT_EQ(session->Finish(), 0) << session->status().message();
  EXPECT_FALSE(log_.Contain("gradients add up"));
}

}  // namespace
}  // namespace gavel::testing
