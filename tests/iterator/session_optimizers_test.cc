// Sessions with optimizers beside those of every day: LBFGS, and a class of the
// user's own. A restart and pauses that move the device change no bit.
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/lbfgs.h>
#include <torch/types.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "gavel/iterator.h"
#include "gavel/session.h"
#include "tests/iterator/own_optimizer.h"
#include "tests/iterator/session_fixture.h"
#include "tests/iterator/training.h"
#include "tests/support/coordinator_thread.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

struct Trained {
  std::vector<at::Tensor> weights;
  int exit_code = -1;
  int64_t steps_done = 0;
  Status status;
};

class SessionOptimizers : public SessionTest,
                          public WithParamInterface<const char*> {
 protected:
  static std::unique_ptr<torch::optim::Optimizer> Make(
      const std::vector<at::Tensor>& parameters) {
    if (std::string(GetParam()) == "Own") {
      return std::make_unique<OwnOptimizer>(parameters);
    }
    return std::make_unique<torch::optim::LBFGS>(
        parameters,
        torch::optim::LBFGSOptions(0.05).max_iter(3).history_size(3));
  }
  static Status Track(Session& session, torch::optim::Optimizer& optimizer) {
    return std::string(GetParam()) == "Own"
               ? session.Track("optimizer", optimizer, OwnKind())
               : session.Track("optimizer", optimizer);
  }

  // Twelve steps in the end.
  static Trained Train(const SessionOptions& options,
                       const std::function<void()>& after_step = {}) {
    torch::manual_seed(11);
    torch::nn::Sequential model(torch::nn::Linear(3, 5),
                                torch::nn::Linear(5, 1));
    auto optimizer = Make(model->parameters());
    auto session = Session::Create(options);
    session->Track("model", model);
    EXPECT_TRUE(Track(*session, *optimizer).ok());
    std::vector<int> range = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    for (auto& i : Iterator(*session, range, Resume::kForward)) {
      const at::Tensor input = torch::arange(12, torch::kFloat)
                                   .view({4, 3})
                                   .add(i)
                                   .sin()
                                   .to(session->device());
      optimizer->step([&] {
        optimizer->zero_grad();
        at::Tensor loss = model->forward(input).sub(1).pow(2).mean();
        loss.backward();
        return loss;
      });
      if (after_step) after_step();
    }
    Trained run;
    run.exit_code = session->Finish();
    run.steps_done = session->steps_done();
    run.status = session->status();
    for (const at::Tensor& weight : model->parameters()) {
      run.weights.push_back(weight.detach().cpu().clone());
    }
    return run;
  }

  Trained Whole() {
    SessionOptions options = Alone();
    options.device = ReferenceDevice();
    options.checkpoint_directory.clear();
    return Train(options);
  }

  void ExpectSame(const Trained& run, const Trained& whole) {
    EXPECT_EQ(run.exit_code, 0) << run.status.message() << log_.Text();
    EXPECT_EQ(run.steps_done, 12);
    ASSERT_EQ(run.weights.size(), whole.weights.size());
    for (size_t i = 0; i < run.weights.size(); ++i) {
      EXPECT_TRUE(run.weights[i].equal(whole.weights[i])) << i;
    }
  }
};

TEST_P(SessionOptimizers, ARestartChangesNoBit) {
  const Trained whole = Whole();
  for (const int64_t steps_done : {2, 7}) {
    int64_t steps = steps_done == 2 ? 2 : 5;
    const auto stop = [&] {
      if (--steps == 0) {
        EXPECT_EQ(raise(SIGTERM), 0);
      }
    };
    const Trained part = Train(Alone(), stop);
    EXPECT_EQ(part.exit_code, 75) << log_.Text();
    EXPECT_EQ(part.steps_done, steps_done);
  }
  ExpectSame(Train(Alone()), whole);
}

TEST_P(SessionOptimizers, PausesThatMoveTheDeviceChangeNoBit) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  int moves = 0;
  const auto move = [&] {
    coordinator.PauseThenGrant(
        TestSlot(++moves % 2 == 0 ? "slot-a" : "slot-b"));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  ExpectSame(Train(Under(coordinator.endpoint()), move), Whole());
  EXPECT_GE(log_.Count("paused after step"), 8) << log_.Text();
}

INSTANTIATE_TEST_SUITE_P(Kinds, SessionOptimizers, Values("Lbfgs", "Own"),
                         [](const auto& test) { return test.param; });

class SessionOwnOptimizer : public SessionTest {};

TEST_F(SessionOwnOptimizer, WithoutADescriptionIsRefusedWhenItIsTracked) {
  OwnOptimizer optimizer({torch::ones({2}, torch::requires_grad())});
  auto session = Open();
  const Status status = session->Track("optimizer", optimizer);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("gavel::testing::OwnOptimizer"),
                                      HasSubstr("gavel::DescribeOptimizer")));
  EXPECT_EQ(session->status().message(), status.message());
  EXPECT_EQ(session->Finish(), 1);
}

}  // namespace
}  // namespace gavel::testing
