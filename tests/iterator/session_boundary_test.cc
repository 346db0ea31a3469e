// Tests Boundary() and StepDone(): pauses anywhere, and loops without Iterator.
#include <signal.h>
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <stdexcept>

#include "core/generation.h"
#include "gavel/iterator.h"
#include "gavel/profile.h"
#include "gavel/session.h"
#include "tests/iterator/session_fixture.h"
#include "tests/iterator/training.h"
#include "tests/support/coordinator_thread.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class SessionBoundary : public SessionTest {
 protected:
  static SessionOptions Unbothered(SessionOptions options) {
    options.checkpoint_interval_s = 0;
    return options;
  }
  SessionOptions Alone() { return Unbothered(SessionTest::Alone()); }
  SessionOptions Under(const CoordinatorThread& coordinator) {
    return Unbothered(SessionTest::Under(coordinator.endpoint()));
  }
  // An evaluation that continues until the job has been paused and moves to
  // another slot.
  static void EvaluateUntilMoved(Session& session,
                                 CoordinatorThread& coordinator) {
    coordinator.PauseThenGrant(TestSlot("slot-b"));
    EXPECT_TRUE(Eventually([&] {
      EXPECT_TRUE(session.Boundary());
      return !coordinator.Heard<LeaseReleased>().empty();
    }));
  }
  // An evaluation that a signal interrupts.
  static void EvaluateUntilStopped(Session& session) {
    EXPECT_TRUE(session.Boundary());
    EXPECT_TRUE(session.Boundary());
    raise(SIGTERM);
    EXPECT_FALSE(session.Boundary());
    EXPECT_FALSE(session.Boundary());
    EXPECT_TRUE(session.stopped());
  }
  void ExpectTheRestIsTrained(const std::string& from) {
    const Outcome rest = Train(Alone());
    EXPECT_EQ(rest.exit_code, 0) << log_.Text();
    EXPECT_TRUE(log_.Contain("going on from " + from)) << log_.Text();
    EXPECT_EQ(rest.weights, Uninterrupted().weights);
  }
};

TEST_F(SessionBoundary, ALongEvaluationBetweenLoopsPausesAndMoves) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  TrainingOptions training;
  training.after_epoch = [&](Session& session, torch::nn::Module&) {
    if (session.steps_done() == 12) EvaluateUntilMoved(session, coordinator);
  };
  const Outcome outcome = Train(Under(coordinator), training);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.losses, Uninterrupted().losses);
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
  const auto released = coordinator.Heard<LeaseReleased>();
  ASSERT_FALSE(released.empty());
  EXPECT_EQ(released[0].progress.steps_done, 12u);
  ASSERT_TRUE(coordinator.Wait(
      [&] { return !coordinator.Heard<WorkerFinished>().empty(); }));
  EXPECT_EQ(coordinator.Heard<WorkerFinished>().back().progress.moves, 1u);
}

TEST_F(SessionBoundary, ALongEvaluationInsideAStepPausesAndMoves) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  TrainingOptions training;
  training.after_step = [&](Session& session) {
    if (session.steps_done() == 8) EvaluateUntilMoved(session, coordinator);
  };
  const Outcome outcome = Train(Under(coordinator), training);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.losses, Uninterrupted().losses);
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
  // Step 9 is not over, so there is nothing to restart from.
  EXPECT_TRUE(log_.Contain("no checkpoint is taken inside a step"));
}

TEST_F(SessionBoundary, AWarmUpMayPauseToo) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  torch::Tensor weight = torch::ones({2});
  auto session = Session::Create(Under(coordinator));
  session->Track("weight", weight);
  ASSERT_TRUE(session->Boundary()) << session->status().message();
  EvaluateUntilMoved(*session, coordinator);
  std::vector<int> range = {1, 2};
  for (auto& i : Iterator(*session, range)) weight.add_(i);
  EXPECT_EQ(session->Finish(), 0) << log_.Text();
  EXPECT_EQ(session->steps_done(), 2);
  EXPECT_EQ(weight[0].item<float>(), 4);
}

TEST_F(SessionBoundary, StoppedBetweenLoopsItGoesOnFromTheLoopsEnd) {
  TrainingOptions training;
  training.after_epoch = [](Session& session, torch::nn::Module&) {
    if (session.steps_done() == 12) EvaluateUntilStopped(session);
  };
  const Outcome outcome = Train(Alone(), training);
  EXPECT_EQ(outcome.exit_code, 75) << log_.Text();
  EXPECT_EQ(outcome.steps_done, 12);
  ExpectTheRestIsTrained(GenerationName({0, 12}));
}

TEST_F(SessionBoundary, StoppedInsideAStepItGoesOnFromTheLastCheckpoint) {
  SessionOptions options = Alone();
  options.checkpoint_interval_steps = 5;
  TrainingOptions training;
  training.after_step = [](Session& session) {
    if (session.steps_done() == 8) EvaluateUntilStopped(session);
  };
  EXPECT_EQ(Train(options, training).exit_code, 75);
  ExpectTheRestIsTrained(GenerationName({0, 5}));
}

TEST_F(SessionBoundary, StepDoneBeforeAnEvaluationLosesNothing) {
  SessionOptions options = Alone();
  options.checkpoint_interval_steps = 5;
  TrainingOptions training;
  training.after_step = [](Session& session) {
    if (session.steps_done() % 4 != 3) return;
    const int64_t steps = session.steps_done();
    session.StepDone();
    EXPECT_EQ(session.steps_done(), steps + 1);
    if (steps == 7) EvaluateUntilStopped(session);
  };
  EXPECT_EQ(Train(options, training).exit_code, 75);
  ExpectTheRestIsTrained(GenerationName({0, 8}));
}

TEST_F(SessionBoundary, StepDoneInsideALoopCountsNoStepTwice) {
  TrainingOptions training;
  training.after_step = [](Session& session) { session.StepDone(); };
  const Outcome outcome = Train(Alone(), training);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.steps_done, 24);
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
}

// After the restart, an evaluation draws the same random numbers again.
TEST_F(SessionBoundary, RandomNumbersOfAnEvaluationAreThoseOfTheLoopsEnd) {
  std::vector<double> drawn;
  TrainingOptions training;
  training.after_epoch = [&](Session&, torch::nn::Module&) {
    drawn.push_back(torch::rand({1}).item<double>());
  };
  SessionOptions options = Alone();
  options.checkpoint_directory.clear();
  const Outcome whole = Train(options, training);
  const std::vector<double> expected = std::exchange(drawn, {});
  training.after_epoch = [&](Session& session, torch::nn::Module&) {
    drawn.push_back(torch::rand({1}).item<double>());
    if (session.steps_done() == 12) EvaluateUntilStopped(session);
  };
  EXPECT_EQ(Train(Alone(), training).exit_code, 75);
  drawn.pop_back();
  training.after_epoch = [&](Session&, torch::nn::Module&) {
    drawn.push_back(torch::rand({1}).item<double>());
  };
  EXPECT_EQ(Train(Alone(), training).weights, whole.weights);
  EXPECT_EQ(drawn, expected);
}

TEST_F(SessionBoundary, ARangeWithoutPositionIsNotBegunAgainBehindItsEnd) {
  std::vector<int> range = {1, 2, 3};
  int64_t sum = 0;
  {
    auto session = Session::Create(Alone());
    session->Track("sum", sum);
    for (auto& i : Iterator(*session, range)) sum += i;
    EvaluateUntilStopped(*session);
    EXPECT_EQ(session->Finish(), 75);
  }
  sum = 0;
  auto session = Session::Create(Alone());
  session->Track("sum", sum);
  for (auto& i : Iterator(*session, range)) sum += i;
  EXPECT_EQ(sum, 6);
  for (auto& i : Iterator(*session, range)) sum += i;
  EXPECT_EQ(sum, 12);
  EXPECT_EQ(session->Finish(), 0) << log_.Text();
  EXPECT_EQ(session->steps_done(), 6);
}

// A program may evaluate, for example, the averaged weights in the place of the
// model.
TEST_F(SessionBoundary, AnEvaluationThatWritesToTheStateIsNotCheckpointed) {
  const std::vector<std::function<void(at::Tensor&)>> writes = {
      [](at::Tensor& weight) { weight.zero_(); },
      [](at::Tensor& weight) { weight.set_data(torch::zeros_like(weight)); }};
  for (const auto& write : writes) {
    TemporaryFolder folder;
    std::swap(folder_, folder);
    SessionOptions options = Alone();
    options.checkpoint_interval_steps = 5;
    TrainingOptions training;
    training.after_epoch = [&](Session& session, torch::nn::Module& model) {
      if (session.steps_done() != 12) return;
      const torch::NoGradGuard no_grad;
      write(model.parameters()[0]);
      EvaluateUntilStopped(session);
    };
    EXPECT_EQ(Train(options, training).exit_code, 75);
    ExpectTheRestIsTrained(GenerationName({0, 10}));
  }
}

TEST_F(SessionBoundary, AfterTheStepBudgetAnEvaluationStillRuns) {
  SessionOptions options = Alone();
  options.steps_total = 7;
  int evaluated = 0;
  std::vector<int> range(20);
  for (int run = 0; run < 2; ++run) {  // the second one has nothing to train
    auto session = Session::Create(options);
    for (auto& i : Iterator(*session, range)) static_cast<void>(i);
    EXPECT_TRUE(session->stopped());
    for (int i = 0; i < 3; ++i) evaluated += session->Boundary() ? 1 : 0;
    EXPECT_EQ(session->Finish(), 0) << log_.Text();
    EXPECT_EQ(session->steps_done(), 7);
  }
  EXPECT_EQ(evaluated, 6);
}

// ---- loops without Iterator

struct OwnLoop {
  std::vector<float> weights;
  int64_t steps = 0;
  int exit_code = -1;
};

// Steps draw random numbers and have an optimizer with moments.
OwnLoop TrainOwnLoop(SessionOptions options,
                     const std::function<void(Session&)>& after_step = {}) {
  torch::manual_seed(5);
  torch::Tensor weight = torch::ones({3}, torch::requires_grad());
  torch::optim::Adam optimizer({weight}, 0.1);
  int64_t next = 0;
  auto session = Session::Create(std::move(options));
  session->Track("weight", weight);
  session->Track("optimizer", optimizer);
  session->Track("next", next);
  while (session->Boundary() && next < 20) {
    optimizer.zero_grad();
    const torch::Tensor random = torch::rand({3}).to(session->device());
    (weight * random * static_cast<double>(next)).sum().backward();
    optimizer.step();
    ++next;
    session->StepDone();
    if (after_step) after_step(*session);
  }
  OwnLoop outcome;
  outcome.exit_code = session->Finish();
  outcome.steps = session->steps_done();
  const at::Tensor host = weight.detach().cpu().contiguous();
  outcome.weights.assign(host.data_ptr<float>(), host.data_ptr<float>() + 3);
  return outcome;
}

const OwnLoop& WholeOwnLoop() {
  static const OwnLoop outcome = [] {
    SessionOptions options;
    options.device = ReferenceDevice();
    options.log = [](LogLevel, const std::string&) {};
    return TrainOwnLoop(options);
  }();
  return outcome;
}

TEST_F(SessionBoundary, ALoopOfOnesOwnEndsWithItsBudgetAndGoesOnLater) {
  SessionOptions options = Alone();
  options.steps_total = 7;
  EXPECT_EQ(TrainOwnLoop(options).steps, 7);
  EXPECT_EQ(TrainOwnLoop(options).steps, 7);
  options.steps_total = 0;
  const OwnLoop rest = TrainOwnLoop(options);
  EXPECT_EQ(rest.exit_code, 0) << log_.Text();
  EXPECT_EQ(rest.steps, 20);
  EXPECT_EQ(rest.weights, WholeOwnLoop().weights);
}

TEST_F(SessionBoundary, ALoopOfOnesOwnGoesOnAfterItWasKilled) {
  SessionOptions options = Alone();
  options.checkpoint_interval_steps = 3;
  try {
    TrainOwnLoop(options, [](Session& session) {
      if (session.steps_done() == 11) throw std::runtime_error("killed");
    });
  } catch (const std::runtime_error&) {
  }
  const OwnLoop rest = TrainOwnLoop(options);
  EXPECT_TRUE(log_.Contain("going on from " + GenerationName({0, 9})))
      << log_.Text();
  EXPECT_EQ(rest.weights, WholeOwnLoop().weights);
}

TEST_F(SessionBoundary, ALoopOfOnesOwnPausesAndMoves) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  const OwnLoop outcome =
      TrainOwnLoop(Under(coordinator), [&](Session& session) {
        if (session.steps_done() == 6) EvaluateUntilMoved(session, coordinator);
      });
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.weights, WholeOwnLoop().weights);
}

TEST_F(SessionBoundary, ASignalEndsALoopOfOnesOwnWithACheckpoint) {
  const OwnLoop first = TrainOwnLoop(Alone(), [](Session& session) {
    if (session.steps_done() == 6) raise(SIGTERM);
  });
  EXPECT_EQ(first.exit_code, 75);
  EXPECT_EQ(first.steps, 6);
  const OwnLoop rest = TrainOwnLoop(Alone());
  EXPECT_TRUE(log_.Contain("going on from " + GenerationName({0, 6})))
      << log_.Text();
  EXPECT_EQ(rest.weights, WholeOwnLoop().weights);
}

TEST_F(SessionBoundary, AForgottenOptimizerIsFoundInALoopOfOnesOwn) {
  torch::Tensor weight = torch::ones({3}, torch::requires_grad());
  torch::optim::Adam optimizer({weight}, 0.1);
  auto session = Session::Create(Alone());
  session->Track("weight", weight);
  for (int i = 0; i < 4 && session->Boundary(); ++i) {
    weight.sum().backward();
    optimizer.step();
    session->StepDone();
  }
  session->Boundary();
  EXPECT_EQ(session->Finish(), 1);
  EXPECT_THAT(session->status().message(), HasSubstr("'weight' is trained"));
}

TEST_F(SessionBoundary, TheFirstBoundaryOfALoopOfOnesOwnIsTimedFromItsBegin) {
  torch::Tensor weight = torch::ones({3});
  auto session = Session::Create(Alone());
  session->Track("weight", weight);
  for (int i = 0; i < 3 && session->Boundary(); ++i) session->StepDone();
  for (const PhaseProfile& phase : session->profile().phases) {
    EXPECT_LT(phase.max_s, 60) << phase.name;
  }
}

TEST_F(SessionBoundary, StepDoneWithoutABoundaryIsAnError) {
  auto session = Session::Create(Alone());
  session->StepDone();
  EXPECT_FALSE(session->Boundary());
  EXPECT_EQ(session->Finish(), 1);
  EXPECT_THAT(session->status().message(), HasSubstr("call Boundary()"));
}

}  // namespace
}  // namespace gavel::testing
