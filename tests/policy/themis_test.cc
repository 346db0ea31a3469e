// The arbiter of Themis (NSDI'20, section 4): who is offered accelerators, what
// apps bid and keep, and what becomes of the rest.
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// `n` apps of one job each, of 600 s, on a cluster of one type.
PolicyProblem Apps(int accelerators, size_t n) {
  PolicyProblem problem =
      MakeProblem({accelerators}, std::vector<std::vector<double>>(n, {1}));
  problem.round_s = 60;
  for (PolicyJob& job : problem.jobs) {
    job.steps_remaining = 600;
    job.apps_average = static_cast<double>(n);
  }
  return problem;
}

std::vector<JobId> Offered(const PolicyResult& result) {
  std::vector<JobId> offered;
  for (const AppBid& bid : result.bids) {
    if (bid.offered) offered.push_back(bid.app);
  }
  return offered;
}

// Section 4.1: the worst-off fraction 1 - f of the apps sees the offer.
TEST(Themis, TheOfferGoesToTheWorstOff) {
  PolicyProblem problem = Apps(1, 10);
  problem.jobs[6].time_since_start_s = 5000;
  problem.jobs[2].time_since_start_s = 4000;
  EXPECT_THAT(Offered(Solved("themis", problem)),
              ElementsAre(JobId(7), JobId(3)));
  EXPECT_THAT(Offered(Solved("themis_f=1", problem)), ElementsAre(JobId(7)));
  EXPECT_THAT(Offered(Solved("themis_f=0", problem)), SizeIs(10));
}

TEST(Themis, TheOnlyBidderKeepsItsWholeBundle) {
  PolicyProblem problem = Apps(2, 4);
  problem.jobs[3].time_since_start_s = 5000;
  const PolicyResult result = Solved("themis", problem);
  ASSERT_FALSE(result.bids.empty());
  const AppBid& worst = result.bids.front();
  EXPECT_EQ(worst.app, JobId(4));
  EXPECT_EQ(worst.bid, 1);
  EXPECT_EQ(worst.given, 1);
  EXPECT_DOUBLE_EQ(worst.kept, 1);
  // What it leaves goes to the app that is the next worst-off.
  EXPECT_THAT(result.assignment, SizeIs(2));
}

// Section 5.2: what the auction leaves is given work-conserving.
TEST(Themis, NothingThatAJobCanUseStaysIdle) {
  EXPECT_THAT(Solved("themis", Apps(7, 20)).assignment, SizeIs(7));
  EXPECT_THAT(Solved("themis_f=0", Apps(7, 20)).assignment, SizeIs(7));
  EXPECT_THAT(Solved("themis", Apps(20, 7)).assignment, SizeIs(7));
}

// Of two equal bidders for one accelerator the first wins each round. Without
// it the other would have the accelerator a round of 60 s sooner, so the winner
// keeps 600 / 660 of it, and the other has its turn in the rest of the rounds.
TEST(Themis, AppsThatKeepAFractionHaveItOverTheRounds) {
  PolicyProblem problem = Apps(1, 2);
  std::map<JobId, int> turns;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    problem.round = static_cast<uint64_t>(round);
    const PolicyResult result = Solved("themis_f=0", problem);
    ASSERT_THAT(result.assignment, SizeIs(1));
    ++turns[result.assignment.front().unit.job];
  }
  EXPECT_NEAR(turns[JobId(1)], kRounds * 600 / 660, 2);
  EXPECT_NEAR(turns[JobId(2)], kRounds * 60 / 660, 2);
}

TEST(Themis, AnAppOfSeveralJobsBidsForThemTogether) {
  PolicyProblem problem = Apps(4, 4);
  problem.apps = {{.age_s = 9000, .apps_average = 2}};
  for (size_t m = 0; m < 3; ++m) problem.jobs[m].app = 0;
  const PolicyResult result = Solved("themis", problem);
  ASSERT_THAT(result.bids, SizeIs(2));
  EXPECT_EQ(result.bids[0].app, JobId(1));
  EXPECT_EQ(result.bids[0].bid, 3);
  EXPECT_EQ(result.bids[0].given, 3);
  EXPECT_FALSE(result.bids[1].offered);
  EXPECT_THAT(result.assignment, SizeIs(4));
}

TEST(Themis, AnAppPrefersTheTypeWhereItIsFaster) {
  PolicyProblem problem = MakeProblem({1, 1}, {{1, 4}});
  problem.jobs[0].steps_remaining = 600;
  EXPECT_EQ(AssignedBy("themis", problem), (Assigned{{{1, 0}, 1}}));
}

TEST(Themis, AJobThatRunsStaysOnItsType) {
  PolicyProblem problem = Apps(3, 3);
  problem.types = {"a", "b"};
  problem.capacity = {3, 3};
  problem.throughputs = {1, 1, 1, 1, 1, 1};
  problem.jobs[1].running_on = 1;
  EXPECT_EQ(AssignedBy("themis", problem).at({2, 0}), 1u);
}

TEST(Themis, TheCertificateIsThatOfItsFirstAuction) {
  const PolicyResult result = Solved("themis_f=0", Apps(3, 6));
  EXPECT_EQ(result.outcome, SolveOutcome::kOptimal);
  EXPECT_GE(result.bound, result.objective - 1e-9);
  EXPECT_LE(result.gap, 1e-6);
}

TEST(Themis, KnobsOutsideTheRangeAreRefused) {
  for (const char* name :
       {"themis_f=", "themis_f=-0.1", "themis_f=1.5", "themis_f=nan"}) {
    EXPECT_THAT(MakePolicy(name),
                StatusIs(absl::StatusCode::kNotFound, "f is from 0"))
        << name;
  }
}

}  // namespace
}  // namespace gavel::testing
