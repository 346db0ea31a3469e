// Fairness between users or apps first, and jobs whose figures no solver takes.
#include "coordinator/engine/solver.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

class UserSharesTest : public ::testing::Test {
 protected:
  JobId Submit(const std::string& owner, double weight = 1,
               double owner_weight = 1, const std::string& entity = "") {
    JobSpec spec;
    spec.owner = owner;
    spec.weight = weight;
    spec.owner_weight = owner_weight;
    spec.entity = entity;
    return driver_.Submit(owner + std::to_string(++jobs_), 1, spec);
  }
  std::map<JobId, double> Weights() const {
    std::map<JobId, double> weights;
    for (const PolicyJob& job : driver_.problem.jobs) {
      weights[job.id] = job.weight;
    }
    return weights;
  }

  int jobs_ = 0;
  EngineDriver driver_{4, "max_min_fairness_perf", [](EngineOptions& options) {
                         options.user_shares = true;
                         options.progress = false;
                       }};
};

TEST_F(UserSharesTest, ManyJobsOfOneUserAreOneShare) {
  const JobId lone = Submit("bob");
  for (int i = 0; i < 8; ++i) Submit("alice");
  std::map<JobId, double> weights = Weights();
  EXPECT_EQ(weights[lone], 1);
  double alice = 0;
  for (const auto& [id, weight] : weights) alice += id == lone ? 0 : weight;
  EXPECT_NEAR(alice, 1, 1e-12);
}

TEST_F(UserSharesTest, WeightsOfJobsDivideTheUsers) {
  const JobId heavy = Submit("alice", 3, 2);
  const JobId light = Submit("alice", 1, 2);
  const JobId nobodys = Submit("", 5);
  EXPECT_EQ(Weights()[heavy], 1.5);
  EXPECT_EQ(Weights()[light], 0.5);
  EXPECT_EQ(Weights()[nobodys], 5);
}

TEST_F(UserSharesTest, WhoseJobsEndLeaveTheWeightToTheOthers) {
  const JobId first = Submit("alice");
  const JobId second = Submit("alice");
  EXPECT_EQ(Weights()[second], 0.5);
  driver_.Step(event::JobCommanded{first, CommandKind::kCancel, 1});
  EXPECT_EQ(Weights()[second], 1);
}

TEST_F(UserSharesTest, EachEntityHasItsOwn) {
  const JobId one = Submit("alice", 1, 1, "vision");
  const JobId other = Submit("alice", 1, 1, "speech");
  EXPECT_EQ(Weights()[one], 1);
  EXPECT_EQ(Weights()[other], 1);
}

TEST_F(UserSharesTest, JobsOfOneAppAreOneShare) {
  driver_.Restart([](EngineOptions& options) {
    options.user_shares = false;
    options.app_shares = true;
  });
  const auto submit = [&](const std::string& owner, const std::string& app) {
    JobSpec spec;
    spec.owner = owner;
    spec.app = app;
    spec.weight = 2;
    return driver_.Submit(owner + std::to_string(++jobs_), 1, spec);
  };
  const JobId first = submit("alice", "search");
  const JobId second = submit("alice", "search");
  const JobId other_app = submit("alice", "final");
  const JobId other_user = submit("bob", "search");
  const JobId alone = submit("bob", "");
  EXPECT_EQ(Weights()[first], 0.5);
  EXPECT_EQ(Weights()[second], 0.5);
  EXPECT_EQ(Weights()[other_app], 1);
  EXPECT_EQ(Weights()[other_user], 1);
  EXPECT_EQ(Weights()[alone], 2);
}

TEST_F(UserSharesTest, ARestartFollowsTheJournalAndThenTheOptions) {
  Submit("alice");
  const JobId second = Submit("alice");
  driver_.Restart();
  EXPECT_EQ(Weights()[second], 0.5);
  driver_.Restart([](EngineOptions& options) { options.user_shares = false; });
  EXPECT_EQ(Weights()[second], 1);
}

TEST(TooExtreme, IsToldWhyItWaits) {
  EngineDriver driver(1, "max_min_fairness_perf");
  driver.answer = [&](const PolicyProblem& problem) {
    PolicyResult result;
    result.outcome = SolveOutcome::kOptimal;
    result.allocation = Allocation::FromRows({{JobId(1), JobId()}}, 1, {1});
    if (problem.jobs.size() > 1) result.too_extreme = {JobId(2)};
    return result;
  };
  driver.Run(driver.Submit("a"));
  JobSpec spec;
  spec.weight = 1e308;
  const JobId extreme = driver.Submit("b", 1, spec);
  EXPECT_THAT(driver.Why(extreme),
              HasSubstr("its figures (weight 1e+308) are too far"));
}

}  // namespace
}  // namespace gavel
