// OnEpoch, OnEvaluate, RestoreBest, Accumulate, and learning rates that are
// reported by themselves.
#include <signal.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "core/text.h"
#include "gavel/data_loader.h"
#include "gavel/iterator.h"
#include "gavel/training.h"
#include "tests/iterator/session_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace nn = torch::nn;

struct Numbers {
  at::Tensor get(size_t index) const {
    return torch::full({1}, static_cast<double>(index) / 10);
  }
  size_t size() const { return 20; }
};

// A training of 3 epochs of 5 steps, each of 4 samples.
struct Program {
  explicit Program(SessionOptions options, int64_t accumulate = 1) {
    data.batch_size = 4 / accumulate;
    loader.emplace(Numbers(), data);
    session = Session::Create(std::move(options));
    session->Track("model", model);
    session->Track("optimizer", optimizer);
    session->Track("epoch", epoch);
    if (accumulate > 1) session->Accumulate(accumulate);
    session->OnEpoch([this] { ++epoch; });
  }
  void Train() {
    while (epoch < 3 && !session->stopped()) {
      for (auto& batch : Iterator(*session, *loader)) {
        const at::Tensor loss = model->forward(batch).pow(2).mean();
        (loss * session->loss_scale()).backward();
        if (!session->last_micro_batch()) continue;
        optimizer.step();
        optimizer.zero_grad();
      }
    }
  }
  double weight() const { return model->parameters()[0].item<double>(); }

  int seeded = (torch::manual_seed(1), 0);  // before the model
  DataLoaderOptions data;
  nn::Dropout frozen{0.5};
  nn::Sequential model{nn::Linear(1, 1), frozen};
  torch::optim::SGD optimizer{model->parameters(),
                              torch::optim::SGDOptions(0.01)};
  std::optional<DataLoader<Numbers>> loader;
  int64_t epoch = 0;
  std::unique_ptr<Session> session;
};

class SessionHooks : public SessionTest {
 protected:
  SessionOptions Alone(const std::string& best = "") {
    SessionOptions options = SessionTest::Alone();
    options.device = "cpu";
    options.checkpoint_interval_s = 0;
    options.checkpoints_kept_best = best;
    return options;
  }
  // Reported as "score": least after step 6.
  static double Score(int64_t step) {
    return static_cast<double>((step - 6) * (step - 6));
  }
};

TEST_F(SessionHooks, EpochsAndEvaluationsAreCalledWhenTheyAreDue) {
  Program program(Alone());
  program.frozen->eval();
  Session& session = *program.session;
  std::string calls;
  session.OnEpoch(
      [&] { StrAppend(&calls, "epoch ", session.steps_done(), ";"); });
  session.OnEvaluate(0, [&] { StrAppend(&calls, "all "); });
  session.OnEvaluate(4, [&] {
    EXPECT_FALSE(program.model->is_training());
    EXPECT_FALSE(at::GradMode::is_enabled());
    EXPECT_TRUE(session.Boundary());
    StrAppend(&calls, session.steps_done(), " ");
  });
  program.Train();
  EXPECT_EQ(calls, "4 all epoch 5;8 all epoch 10;12 all epoch 15;");
  // As it was, part by part.
  EXPECT_TRUE(program.model->is_training());
  EXPECT_FALSE(program.frozen->is_training());
  EXPECT_EQ(session.Finish(), 0) << session.status().message();
}

TEST_F(SessionHooks, AnEvaluationAtTheLastStepOfTheBudgetIsDone) {
  SessionOptions options = Alone();
  options.steps_total = 8;
  Program program(options);
  int calls = 0;
  program.session->OnEvaluate(4, [&] { ++calls; });
  program.Train();
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(program.session->Finish(), 0);
}

TEST_F(SessionHooks, AnInterruptedEvaluationComesAgain) {
  const auto run = [this](bool interrupt, std::string* calls) {
    Program program(Alone());
    Session& session = *program.session;
    session.OnEvaluate(4, [&] {
      if (interrupt && session.steps_done() == 8) raise(SIGTERM);
      if (!session.Boundary()) return;
      // Random numbers are part of the state, too.
      StrAppend(calls, session.steps_done(), " ",
                torch::rand({1}).item<float>(), " ", program.weight(), ";");
    });
    program.Train();
    StrAppend(calls, program.epoch, " ", program.weight());
    return session.Finish();
  };
  std::string undisturbed;
  ASSERT_EQ(run(false, &undisturbed), 0) << log_.Text();
  std::filesystem::remove_all(folder_.path() + "/checkpoints");
  std::string first, second;
  ASSERT_EQ(run(true, &first), 75);
  ASSERT_EQ(run(false, &second), 0) << log_.Text();
  EXPECT_THAT(second, StartsWith("8 "));
  first.resize(first.find(';') + 1);  // that of step 4
  EXPECT_EQ(first + second, undisturbed);
}

TEST_F(SessionHooks, AnExceptionOfACallEndsTheLoop) {
  for (const bool of_epoch : {false, true}) {
    Program program(Alone());
    const auto call = [] { throw std::runtime_error("no disk"); };
    if (of_epoch) program.session->OnEpoch(call);
    if (!of_epoch) program.session->OnEvaluate(2, call);
    program.Train();
    EXPECT_TRUE(program.model->is_training());
    EXPECT_EQ(program.session->Finish(), 1);
    EXPECT_THAT(program.session->status().message(),
                AllOf(HasSubstr(of_epoch ? "OnEpoch()" : "OnEvaluate()"),
                      HasSubstr("no disk")));
  }
}

TEST_F(SessionHooks, TheBestModelComesBackAndTheLastCheckpointHasIt) {
  double best = 0;
  double last = 0;
  {
    Program program(Alone("min:score"));
    Session& session = *program.session;
    session.OnEvaluate(3, [&] {
      if (session.steps_done() == 6) best = program.weight();
      session.Report("score", Score(session.steps_done()));
    });
    program.Train();
    last = program.weight();
    const Status status = session.RestoreBest();
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(program.weight(), best);
    EXPECT_NE(last, best);
    EXPECT_EQ(session.steps_done(), 15);
    EXPECT_TRUE(log_.Contain("the best by score (0)")) << log_.Text();
    EXPECT_EQ(session.Finish(), 0) << session.status().message();
  }
  Program again(Alone("min:score"));
  again.Train();
  EXPECT_EQ(again.weight(), best);
  EXPECT_TRUE(again.session->RestoreBest().ok());
  EXPECT_EQ(again.weight(), best);
  EXPECT_EQ(again.session->Finish(), 0);
}

TEST_F(SessionHooks, TheEvaluationOfTheLastEpochCounts) {
  Program program(Alone("max:score"));
  Session& session = *program.session;
  session.OnEvaluate(0, [&] {
    session.Report("score", static_cast<double>(session.steps_done()));
  });
  program.Train();
  const double last = program.weight();
  EXPECT_TRUE(session.RestoreBest().ok());
  EXPECT_EQ(program.weight(), last);
  EXPECT_EQ(session.Finish(), 0);
}

TEST_F(SessionHooks, WithoutABestNothingChanges) {
  const auto message = [this](SessionOptions options) {
    Program program(std::move(options));
    program.session->OnEvaluate(2, [&] {
      EXPECT_THAT(program.session->RestoreBest().message(),
                  HasSubstr("is for outside of loops"));
    });
    program.Train();
    const double weight = program.weight();
    const Status status = program.session->RestoreBest();
    EXPECT_EQ(program.weight(), weight);
    EXPECT_EQ(program.session->Finish(), 0);
    return status.message();
  };
  EXPECT_THAT(message(Alone()), HasSubstr("GAVEL_CHECKPOINTS_KEPT_BEST"));
  EXPECT_THAT(message(Alone("min:score")),
              HasSubstr("has the scalar 'score', so none is the best"));
}

// ---- Accumulate().

TEST_F(SessionHooks, ASteppedSumOfBatchesIsOneLargeBatch) {
  double whole = 0;
  for (const int64_t batches : {1, 2, 4}) {
    SessionOptions options = Alone();
    options.checkpoint_directory.clear();
    Program program(options, batches);
    program.model = nn::Sequential(program.model->ptr<nn::LinearImpl>(0));
    program.Train();
    EXPECT_EQ(program.session->steps_done(), 15);
    if (batches == 1) whole = program.weight();
    EXPECT_NEAR(program.weight(), whole, 1e-6);
    EXPECT_EQ(program.session->Finish(), 0);
  }
}

TEST_F(SessionHooks, TheLastStepOfAnEpochHasWhatIsLeft) {
  auto session = Session::Create(Alone());
  session->Accumulate(3);
  DataLoaderOptions data;
  data.batch_size = 4;
  DataLoader loader(Numbers(), data);
  EXPECT_EQ(loader.steps_per_epoch(), 5);
  at::Tensor sum = torch::zeros({1});
  session->Track("sum", sum);
  std::string steps;
  for (auto& batch : Iterator(*session, loader)) {
    StrAppend(&steps, batch.size(0), "*", session->loss_scale(),
              session->last_micro_batch() ? ";" : "+");
  }
  EXPECT_EQ(steps, StrCat("4*", 1 / 3.0, "+4*", 1 / 3.0, "+4*", 1 / 3.0,
                          ";4*0.5+4*0.5;"));
  EXPECT_EQ(session->steps_done(), 2);
  EXPECT_EQ(loader.steps_per_epoch(), 2);
  EXPECT_EQ(session->Finish(), 0) << session->status().message();
}

TEST_F(SessionHooks, WrongAccumulationsAreTold) {
  for (const int64_t batches : {0, -2}) {
    auto session = Session::Create(Alone());
    EXPECT_EQ(session->Accumulate(batches).code(),
              StatusCode::kInvalidArgument);
    EXPECT_THAT(session->status().message(),
                HasSubstr("a step has at least one batch"));
  }
  at::Tensor sum = torch::zeros({1});
  DataLoaderOptions data;
  data.global_batch_size = 10;
  const auto message = [&](auto range) {
    auto session = Session::Create(Alone());
    session->Accumulate(2);
    session->Track("sum", sum);
    for (auto& batch : Iterator(*session, range)) EXPECT_FALSE(batch.defined());
    return session->status().message();
  };
  const char* const remedy = "needs a gavel::DataLoader without";
  EXPECT_THAT(message(std::vector<at::Tensor>(4, sum)), HasSubstr(remedy));
  EXPECT_THAT(message(DataLoader(Numbers(), data)), HasSubstr(remedy));
  auto session = Session::Create(Alone());
  EXPECT_EQ(session->OnEvaluate(-1, [] {}).code(),
            StatusCode::kInvalidArgument);
}

// ---- Learning rates.

TEST_F(SessionHooks, RatesAreReportedWhenTheyChange) {
  SessionOptions options = Alone();
  options.report_file = folder_.path() + "/reports";
  options.steps_total = 6;
  {
    Program program(options);
    Schedule schedule(program.optimizer, Curve::Linear(3));
    program.session->Track("schedule", schedule);
    program.session->OnEvaluate(1, [&] { schedule.step(); });
    program.Train();
    EXPECT_EQ(program.session->Finish(), 0);
  }
  std::ostringstream text;
  text << std::ifstream(options.report_file).rdbuf();
  char expected[200];
  std::snprintf(
      expected, sizeof(expected), "0 lr %a\n1 lr %a\n2 lr %a\n3 lr %a\n", 0.01,
      0.01 * Curve::Linear(3).At(1), 0.01 * Curve::Linear(3).At(2), 0.0);
  EXPECT_EQ(text.str(), expected);
}

TEST_F(SessionHooks, ANameThatTheProgramReportsIsItsOwn) {
  SessionOptions options = Alone();
  options.report_file = folder_.path() + "/reports";
  options.steps_total = 3;
  Program program(options);
  program.session->Report("lr", 7);
  program.Train();
  EXPECT_EQ(program.session->Finish(), 0);
  std::ostringstream text;
  text << std::ifstream(options.report_file).rdbuf();
  EXPECT_EQ(text.str(), "0 lr 0x1.cp+2\n");
}

}  // namespace
}  // namespace gavel::testing
