// Bids that apps make themselves, in the auctions of Themis (NSDI'20, section
// 4). tests/engine/engine_bidding_test.cc has those that are refused.
#include "coordinator/policy/own_bids.h"

#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// Two apps, of the first two jobs and of the others. Each job makes a step a
// second on each of `types` types.
PolicyProblem TwoApps(std::vector<int> capacity, size_t jobs) {
  const size_t types = capacity.size();
  PolicyProblem problem = MakeProblem(
      std::move(capacity),
      std::vector<std::vector<double>>(jobs, std::vector<double>(types, 1)));
  problem.round_s = 60;
  problem.apps.resize(2);
  for (size_t m = 0; m < jobs; ++m) {
    problem.jobs[m].steps_remaining = 600;
    problem.jobs[m].app = m < 2 ? 0 : 1;
  }
  return problem;
}

std::vector<int> Of(const PolicyProblem& problem, const PolicyResult& result,
                    size_t app) {
  return policy::AcceleratorsOf(problem, result.assignment).at(app);
}

TEST(OwnBids, OnlyThePoliciesThatHoldAuctionsTakeThem) {
  EXPECT_TRUE(policy::HoldsAuctions("themis"));
  EXPECT_TRUE(policy::HoldsAuctions("themis_f=0.5"));
  EXPECT_FALSE(policy::HoldsAuctions("strawman"));
}

TEST(OwnBids, ItsRhoDecidesWhoIsOffered) {
  PolicyProblem problem = TwoApps({1}, 3);
  problem.apps[0].bid = OwnBid{0.1, 0.2, {{{{0, 1}}, 0.1}}};
  const PolicyResult result = Solved("themis_f=1", problem);
  ASSERT_THAT(result.bids, SizeIs(2));
  EXPECT_EQ(result.bids[0].app, JobId(3));
  EXPECT_FALSE(result.bids[0].own);
  EXPECT_EQ(result.bids[1].rho, 0.1);
  EXPECT_TRUE(result.bids[1].own);
  EXPECT_FALSE(result.bids[1].offered);
  EXPECT_THAT(Of(problem, result, 1), ElementsAre(1));
}

// By the coordinator's throughputs the two types are alike.
TEST(OwnBids, ARowThatTheAppValuesMoreIsChosen) {
  PolicyProblem problem = TwoApps({2, 2}, 4);
  problem.apps[0].bid = OwnBid{4, 4, {{{{0, 1}}, 3}, {{{1, 2}}, 1}}};
  const PolicyResult result = Solved("themis_f=0", problem);
  EXPECT_THAT(Of(problem, result, 0), ElementsAre(0, 2));
  EXPECT_THAT(Of(problem, result, 1), ElementsAre(2, 0));
}

TEST(OwnBids, ABundleMayHaveSeveralTypes) {
  PolicyProblem problem = TwoApps({1, 1}, 2);
  problem.apps[0].bid = OwnBid{4, 4, {{{{0, 1}, {1, 1}}, 1}}};
  const PolicyResult result = Solved("themis_f=0", problem);
  EXPECT_THAT(Of(problem, result, 0), ElementsAre(1, 1));
  ASSERT_THAT(result.bids, SizeIs(1));
  EXPECT_EQ(result.bids[0].bid, 2);
  EXPECT_EQ(result.bids[0].given, 2);
}

// Its rows are about nothing else: the second accelerator comes from the rest.
TEST(OwnBids, ABidCountsUntilItHasWonSomething) {
  PolicyProblem problem = TwoApps({2}, 2);
  problem.apps[0].bid = OwnBid{4, 4, {{{{0, 1}}, 1}}};
  const PolicyResult result = Solved("themis_f=0", problem);
  ASSERT_THAT(result.bids, SizeIs(1));
  EXPECT_EQ(result.bids[0].given, 1);
  EXPECT_THAT(Of(problem, result, 0), ElementsAre(2));
}

// An app that has no use for accelerators leaves them to others, but none that
// a job can use stays idle.
TEST(OwnBids, AnEmptyBidGetsWhatOthersLeave) {
  PolicyProblem problem = TwoApps({2}, 3);
  problem.apps[0].bid = OwnBid{4, 4, {}};
  const PolicyResult result = Solved("themis_f=0", problem);
  EXPECT_THAT(Of(problem, result, 0), ElementsAre(1));
  EXPECT_THAT(Of(problem, result, 1), ElementsAre(1));
}

// A row that is not possible, as after the loss of an accelerator, is left out.
TEST(OwnBids, ARowAboveTheCapacityIsLeftOut) {
  PolicyProblem problem = TwoApps({2}, 3);
  problem.apps[0].bid = OwnBid{4, 4, {{{{0, 3}}, 1}, {{{0, 1}}, 2}}};
  const PolicyResult result = Solved("themis_f=0", problem);
  EXPECT_THAT(Of(problem, result, 0), ElementsAre(1));
}

absl::Status Divided(const PolicyProblem& problem, int app,
                     std::vector<JobPlace> places,
                     std::vector<TypeAssignment>& assignment) {
  return policy::Divide(problem, {{app, std::move(places)}}, assignment)
      .at(app);
}

TEST(OwnBids, ADivisionMovesOnlyTheAppsAccelerators) {
  PolicyProblem problem = TwoApps({1, 1}, 4);
  std::vector<TypeAssignment> assignment = {{{JobId(1), JobId()}, 0},
                                            {{JobId(3), JobId()}, 1}};
  ASSERT_OK(Divided(problem, 0, {{JobId(2), 0}}, assignment));
  EXPECT_THAT(assignment,
              UnorderedElementsAre(TypeAssignment{{JobId(2), JobId()}, 0},
                                   TypeAssignment{{JobId(3), JobId()}, 1}));
  const std::vector<TypeAssignment> before = assignment;
  EXPECT_FALSE(Divided(problem, 0, {{JobId(2), 1}}, assignment).ok());
  EXPECT_EQ(assignment, before);
}

TEST(OwnBids, AJobThatADivisionLeavesOnItsTypeKeepsItsHost) {
  PolicyProblem problem = TwoApps({1, 1}, 2);
  const std::vector<TypeAssignment> before = {
      {{JobId(1), JobId()}, 0, AcceleratorId(1)},
      {{JobId(2), JobId()}, 1, AcceleratorId(2)}};
  std::vector<TypeAssignment> assignment = before;
  ASSERT_OK(Divided(problem, 0, {{JobId(1), 0}, {JobId(2), 1}}, assignment));
  EXPECT_EQ(assignment, before);
  ASSERT_OK(Divided(problem, 0, {{JobId(1), 1}, {JobId(2), 0}}, assignment));
  EXPECT_FALSE(assignment[0].host.valid());
  EXPECT_FALSE(assignment[1].host.valid());
}

TEST(OwnBids, WhatADivisionLeavesStaysWhereItWas) {
  PolicyProblem problem = TwoApps({2}, 4);
  std::vector<TypeAssignment> assignment = {{{JobId(3), JobId()}, 0},
                                            {{JobId(4), JobId()}, 0}};
  ASSERT_OK(Divided(problem, 1, {{JobId(4), 0}}, assignment));
  EXPECT_THAT(assignment, SizeIs(2));
}

}  // namespace
}  // namespace gavel::testing
