// Tests which objects can be tracked, which can't, and that their state comes
// back.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>
#include <filesystem>
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
  // Runs one loop of two steps.
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

// A part that is not trained needs no optimizer, even if it requires gradients.
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

// ---- tracked state comes back, or is refused

// A module whose buffers a test chooses.
struct WithBufferImpl : torch::nn::Module {
  explicit WithBufferImpl(const std::string& name = "",
                          const at::Tensor& value = {}) {
    weight = register_parameter("weight", torch::ones({2}));
    if (!name.empty()) register_buffer(name, value);
  }
  at::Tensor weight;
};
TORCH_MODULE(WithBuffer);

TEST_F(SessionTrack, ABufferThatTheProgramNoLongerHasIsRefusedByName) {
  {
    WithBuffer model("running", torch::ones({3}));
    auto session = Open();
    session->Track("model", model);
    Run(*session);
    ASSERT_EQ(session->Finish(), 0) << session->status().message();
  }
  WithBuffer without;
  const Status status = Open()->Track("model", without);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("'model/running'"), HasSubstr("has no place"),
                    HasSubstr("GAVEL_PARTIAL_RESTORE")));
  WithBuffer other("other", torch::ones({3}));
  EXPECT_THAT(Open()->Track("model", other).message(),
              HasSubstr("no tensor 'model/other'"));
}

TEST_F(SessionTrack, APartialRestoreTakesWhatFitsAndNamesTheRest) {
  {
    WithBuffer model("running", torch::ones({3}));
    at::Tensor forgotten = torch::ones({2});
    auto session = Open();
    session->Track("model", model);
    session->Track("forgotten", forgotten);
    model->weight.set_data(torch::full({2}, 5.0f));
    Run(*session);
    ASSERT_EQ(session->Finish(), 0) << session->status().message();
  }
  WithBuffer model("other", torch::full({3}, 7.0f));
  at::Tensor added = torch::full({2}, 8.0f);
  SessionOptions options = Alone();
  options.partial_restore = true;
  auto session = Session::Create(options);
  EXPECT_TRUE(session->Track("model", model).ok());
  EXPECT_TRUE(session->Track("added", added).ok());
  Run(*session);
  EXPECT_EQ(session->Finish(), 0) << session->status().message();
  EXPECT_EQ(model->weight[0].item<float>(), 5);
  EXPECT_EQ(model->named_buffers()["other"][0].item<float>(), 7);
  EXPECT_EQ(added[0].item<float>(), 8);
  for (const char* name :
       {"'model/running'", "'model/other'", "'added'", "'forgotten'"}) {
    EXPECT_EQ(log_.Count(name), 1) << name;
  }
}

TEST_F(SessionTrack, TensorsThatTheProgramDoesNotTrackAreRefusedByName) {
  {
    at::Tensor average = torch::ones({2});
    auto session = Open();
    session->Track("average", average);
    Run(*session);
    ASSERT_EQ(session->Finish(), 0);
  }
  auto session = Open();
  Run(*session);
  EXPECT_EQ(session->Finish(), 1);
  EXPECT_THAT(session->status().message(),
              AllOf(HasSubstr("'average'"), HasSubstr("does not track it")));
}

// A reference, because LibTorch saves the tensor that it has registered, so the
// model has to assign to that one.
struct LazyImpl : torch::nn::Module {
  LazyImpl() : scale(register_buffer("scale", at::Tensor())) {}
  void forward(double value) {
    if (!scale.defined()) scale = torch::full({2}, value);
  }
  at::Tensor& scale;
};
TORCH_MODULE(Lazy);

TEST_F(SessionTrack, ABufferThatTheFirstForwardDefinesComesBack) {
  {
    Lazy model;
    auto session = Open();
    session->Track("model", model);
    std::vector<int> range = {1, 2};
    for (auto& i : Iterator(*session, range)) model->forward(3.0 * i);
    ASSERT_EQ(session->Finish(), 0) << session->status().message();
  }
  Lazy again;
  ASSERT_TRUE(Open()->Track("model", again).ok());
  ASSERT_TRUE(again->scale.defined());
  EXPECT_EQ(again->scale[1].item<float>(), 3);
}

// A value that a module assigns to its own member does not reach the registered
// buffer, because the member is another handle.
TEST_F(SessionTrack, ABufferWithoutAValueAfterTheFirstStepIsNamed) {
  WithBuffer model("scale", at::Tensor());
  torch::nn::BatchNorm1d usual(
      torch::nn::BatchNorm1dOptions(2).track_running_stats(false));
  model->register_module("usual", usual);
  auto session = Open();
  session->Track("model", model);
  Run(*session);
  EXPECT_EQ(session->Finish(), 0) << session->status().message();
  EXPECT_EQ(log_.Count("buffer 'model/scale' is registered and has no value"),
            1);
  EXPECT_EQ(log_.Count("is registered and has no value"), 1) << log_.Text();
}

struct LateImpl : torch::nn::Module {
  void forward() {
    if (named_buffers().is_empty()) register_buffer("mean", torch::ones({2}));
  }
};
TORCH_MODULE(Late);

TEST_F(SessionTrack, ABufferThatTheFirstForwardRegistersIsRefusedAtThatStep) {
  Late model;
  auto session = Open();
  session->Track("model", model);
  std::vector<int> range = {1, 2, 3};
  int steps = 0;
  for (auto& i : Iterator(*session, range)) {
    static_cast<void>(i);
    model->forward();
    ++steps;
  }
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(session->Finish(), 1);
  EXPECT_THAT(session->status().message(),
              AllOf(HasSubstr("'model/mean'"), HasSubstr("before Track")));
}

TEST_F(SessionTrack, ATensorOfAnotherShapeIsRefusedAtTheFirstStep) {
  at::Tensor cache = torch::ones({2});
  auto session = Open();
  session->Track("cache", cache);
  std::vector<int> range = {1, 2, 3};
  for (auto& i : Iterator(*session, range)) {
    cache = torch::ones({2 + i}, session->device());
  }
  EXPECT_EQ(session->Finish(), 1);
  EXPECT_EQ(session->steps_done(), 1);
  EXPECT_THAT(session->status().message(),
              AllOf(HasSubstr("'cache'"), HasSubstr("Float[2]"),
                    HasSubstr("Float[3]")));
}

TEST_F(SessionTrack, AStateThatCannotBeSavedEndsTheRunAtItsFirstCheckpoint) {
  at::Tensor tensor;
  SessionOptions options = Alone();
  options.checkpoint_interval_steps = 3;
  auto session = Session::Create(options);
  session->Track("tensor", tensor);
  std::vector<int> range(20, 1);
  for (auto& i : Iterator(*session, range)) {
    static_cast<void>(i);
    if (session->steps_done() == 1) {
      tensor = torch::ones({2}, torch::kComplexDouble);
    }
  }
  EXPECT_EQ(session->Finish(), 1);
  EXPECT_EQ(session->steps_done(), 3);
  EXPECT_THAT(session->status().message(),
              AllOf(HasSubstr("'tensor'"), HasSubstr("ComplexDouble")));
}

TEST_F(SessionTrack, AnOptimizerWhoseModuleIsForgottenIsRefused) {
  torch::nn::Linear model(2, 1);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  {
    auto session = Open();
    session->Track("optimizer", optimizer);
    Run(*session);
    EXPECT_EQ(session->Finish(), 1);
    EXPECT_EQ(session->steps_done(), 0);
    EXPECT_THAT(session->status().message(),
                AllOf(HasSubstr("optimizer 'optimizer' trains 2 parameters"),
                      HasSubstr("Track(\"model\", model)")));
  }
  // It is enough to track the parameters as tensors, or to turn off
  // require_tracked_parameters.
  std::vector<at::Tensor> parameters = model->parameters();
  auto session = Open();
  session->Track("optimizer", optimizer);
  session->Track("weights", parameters);
  Run(*session);
  EXPECT_EQ(session->Finish(), 0) << session->status().message();
  const TemporaryFolder folder;
  SessionOptions options = Alone();
  options.checkpoint_directory = folder.path();
  options.require_tracked_parameters = false;
  auto other = Session::Create(options);
  other->Track("optimizer", optimizer);
  Run(*other);
  EXPECT_EQ(other->Finish(), 0) << other->status().message();
}

TEST_F(SessionTrack, AScheduleWhoseOptimizerIsNotTrackedIsRefused) {
  torch::nn::Linear model(2, 1);
  torch::optim::SGD tracked(model->parameters(), 0.1);
  torch::optim::SGD other(model->parameters(), 0.1);
  torch::optim::StepLR by_step(other, 2);
  torch::optim::ReduceLROnPlateauScheduler plateau(other);
  const auto train = [&](auto& scheduler) {
    const TemporaryFolder folder;
    SessionOptions options = Alone();
    options.checkpoint_directory = folder.path();
    auto session = Session::Create(options);
    session->Track("model", model);
    session->Track("optimizer", tracked);
    session->Track("schedule", scheduler);
    Run(*session);
    session->Finish();
    return session->status();
  };
  for (const Status& status : {train(by_step), train(plateau)}) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("'schedule'"), HasSubstr("is not tracked")));
  }
  torch::optim::StepLR own(tracked, 2);
  torch::optim::ReduceLROnPlateauScheduler own_plateau(tracked);
  EXPECT_TRUE(train(own).ok());
  EXPECT_TRUE(train(own_plateau).ok());
}

// ---- options of the optimizer that the program changes

class ChangedRate : public SessionTrack {
 protected:
  // Returns the rate at the end. Like a schedule, each run halves it.
  double Restart(double rate, bool keep_program_options = false) {
    torch::nn::Linear model(2, 1);
    torch::optim::SGD optimizer(model->parameters(),
                                torch::optim::SGDOptions(rate).momentum(0.9));
    SessionOptions options = Alone();
    options.keep_program_options = keep_program_options;
    auto session = Session::Create(options);
    session->Track("model", model);
    session->Track("optimizer", optimizer);
    const int64_t until = session->steps_done() + 1;
    while (session->steps_done() < until && session->Boundary()) {
      session->StepDone();
    }
    auto& used = optimizer.param_groups()[0].options();
    used.set_lr(used.get_lr() / 2);
    EXPECT_EQ(session->Finish(), 0) << session->status().message();
    return used.get_lr();
  }
};

TEST_F(ChangedRate, IsToldEachTimeAndTheCheckpointsIsUsed) {
  EXPECT_EQ(Restart(0.5), 0.25);
  EXPECT_EQ(Restart(0.5), 0.125);  // the schedule changed it, not the program
  EXPECT_FALSE(log_.Contain("gives lr"));
  EXPECT_EQ(Restart(0.125), 0.0625);
  EXPECT_EQ(log_.Count("optimizer 'optimizer': the program gives lr 0.125, and "
                       "gave 0.5 when the checkpoint was written; the "
                       "checkpoint's 0.125 is used"),
            1)
      << log_.Text();
  EXPECT_EQ(Restart(0.125), 0.03125);
  EXPECT_EQ(log_.Count("gives lr"), 2);
  EXPECT_EQ(Restart(0.5), 0.015625);
  EXPECT_EQ(log_.Count("gives lr"), 2);
}

TEST_F(ChangedRate, IsUsedWhereTheProgramsOptionsAreKept) {
  EXPECT_EQ(Restart(0.5), 0.25);
  EXPECT_EQ(Restart(2, true), 1);
  EXPECT_EQ(log_.Count("2 is used"), 1) << log_.Text();
  // It is the program's rate from here on.
  EXPECT_EQ(Restart(2, true), 0.5);
  EXPECT_EQ(log_.Count("gives lr"), 1);
}

TEST_F(SessionTrack, ATensorThatIsNoScalarIsNotReportedAndTheTrainingGoesOn) {
  auto session = Open();
  std::vector<int> range = {1, 2, 3};
  for (auto& i : Iterator(*session, range)) {
    static_cast<void>(i);
    session->Report("losses", torch::ones({3}));
    session->Report("nothing", at::Tensor());
    session->Report("loss", torch::ones({1, 1}));
  }
  EXPECT_EQ(session->Finish(), 0) << session->status().message();
  EXPECT_EQ(session->steps_done(), 3);
  EXPECT_EQ(log_.Count("'losses' is not reported: the tensor has 3 elements"),
            1);
}

TEST_F(SessionTrack, ADirectoryThatLostAllCheckpointsIsNotBegunAnew) {
  const auto count = [this] {
    int64_t number = 0;
    auto session = Open();
    session->Track("number", number);
    Run(*session);
    session->Finish();
    return session->status();
  };
  ASSERT_TRUE(count().ok());
  const std::filesystem::path directory = Alone().checkpoint_directory;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.is_directory()) {
      std::filesystem::remove(entry.path() / "manifest.json");
    }
  }
  const Status status = count();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(directory.string()), HasSubstr("manifest.json"),
                    HasSubstr("empty the directory")));
  std::filesystem::remove_all(directory);
  EXPECT_TRUE(count().ok());
}

// The result of a training in which the optimizer makes a step on the sum of
// the gradients of four steps. The training may end between these.
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
  // Each step runs in its own session.
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
