// Apps that bid themselves: the engine waits for bids and divisions a second at
// most, acts for a bidder whose answer it can't use, and journals what counted.
#include <limits>

#include "coordinator/engine/apps.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

class EngineBiddingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    driver_.Step(event::PolicyChanged{"themis"});
    first_ = Submit("a");
    driver_.Step(event::BidderJoined{key_});
  }

  JobId Submit(const std::string& name, const std::string& app = "search") {
    JobSpec spec;
    spec.owner = "ann";
    spec.app = app;
    spec.steps_total = 1000;
    spec.throughputs = {{"v100", 10}};
    return driver_.Submit(name, 1, spec);
  }
  // A bid for one accelerator.
  static OwnBid OneAccelerator() { return {2, 4, {{{{0, 1}}, 2}}}; }
  void Bid(OwnBid bid) {
    driver_.Step(event::BidReceived{
        {key_, driver_.Last<BidRequest>()->auction, std::move(bid)}});
  }
  void Divide(std::vector<JobPlace> places) {
    driver_.Step(event::ShareDivided{
        {key_, driver_.Last<BidRequest>()->auction, std::move(places)}});
  }
  std::vector<JobId> Allocated(const Engine& engine) const {
    std::vector<JobId> jobs;
    for (const TypeAssignment& one : engine.allocation().assignment) {
      jobs.push_back(one.unit.job);
    }
    return jobs;
  }
  std::vector<JobId> Allocated() const { return Allocated(driver_.engine()); }
  std::string BidderText() const {
    return driver_.engine().BidderText(driver_.job(first_));
  }
  // The last notice that the coordinator acted for the bidder.
  std::string Told() const {
    std::string text;
    for (const Action& action : driver_.actions) {
      const auto* notice = EngineDriver::MessageIn<BidderNotice>(action);
      if (notice != nullptr && notice->kind == BidderNoticeKind::kDefault) {
        text = notice->text;
      }
    }
    return text;
  }
  bool HasBid() const { return driver_.problem.apps.at(0).bid.has_value(); }
  // The engine acts by itself when the time for an answer is over.
  bool EndsInTime() const {
    return driver_.engine().NextDeadline() <=
           driver_.now + engine::Bidding::kAnswerWait_s;
  }

  EngineDriver driver_{1, "themis"};
  const BidderKey key_{"ann", "search", 7};
  JobId first_;
};

TEST_F(EngineBiddingTest, OneProcessBidsForAnAppWithJobs) {
  const auto hello = [&](const std::string& app, uint64_t incarnation) {
    driver_.Step(event::BidderJoined{{"ann", app, incarnation}});
    return driver_.Last<BidderNotice>()->kind;
  };
  EXPECT_EQ(driver_.Last<BidderNotice>()->kind, BidderNoticeKind::kAccepted);
  EXPECT_EQ(hello("other", 7), BidderNoticeKind::kNoApp);
  EXPECT_EQ(hello("search", 8), BidderNoticeKind::kAccepted);
  EXPECT_EQ(hello("search", 7), BidderNoticeKind::kRefused);
  EXPECT_EQ(hello("search", 8), BidderNoticeKind::kAccepted);
  driver_.Step(event::BidderJoined{{"eve", "search", 9}});
  EXPECT_EQ(driver_.Last<BidderNotice>()->kind, BidderNoticeKind::kNoApp);
}

TEST_F(EngineBiddingTest, AtMostSoManyAppsBidThemselves) {
  for (size_t i = 0; i <= engine::Bidding::kBiddersMax; ++i) {
    const std::string app = StrCat("app-", i);
    Submit(app, app);
    driver_.At(driver_.now + 2);
    driver_.Step(event::BidderJoined{{"ann", app, 1}});
  }
  EXPECT_EQ(driver_.Last<BidderNotice>()->kind, BidderNoticeKind::kRefused);
}

TEST_F(EngineBiddingTest, AnOfferTellsWhatABidNeeds) {
  driver_.At(50);
  const JobId second = Submit("b");
  const std::optional<BidRequest> offer = driver_.Last<BidRequest>();
  ASSERT_TRUE(offer.has_value());
  EXPECT_EQ(offer->bidder, key_);
  EXPECT_EQ(offer->types, std::vector<std::string>{"v100"});
  EXPECT_EQ(offer->accelerators, std::vector<int>{1});
  EXPECT_EQ(offer->round_s, 100);
  EXPECT_EQ(offer->age_s, 50);
  EXPECT_NEAR(offer->ideal_s, 200, 1e-9);  // 2 x 1000 steps at 10 a second
  ASSERT_EQ(offer->jobs.size(), 2u);
  EXPECT_EQ(offer->jobs[0].running_on, 0);
  EXPECT_EQ(offer->jobs[1], (OfferedJob{second, 1, 0, 1000, -1, {10}}));
}

TEST_F(EngineBiddingTest, TheSolveWaitsForTheBidAndContainsIt) {
  const int solves = driver_.solves;
  Submit("b");
  EXPECT_EQ(driver_.solves, solves);
  EXPECT_TRUE(EndsInTime());
  Bid(OneAccelerator());
  EXPECT_EQ(driver_.solves, solves + 1);
  ASSERT_TRUE(HasBid());
  EXPECT_EQ(*driver_.problem.apps[0].bid, OneAccelerator());
  Divide({});
  const AppBid* bid = driver_.engine().BidOf(driver_.job(first_));
  ASSERT_NE(bid, nullptr);
  EXPECT_TRUE(bid->own);
  EXPECT_EQ(bid->rho, 2);
  EXPECT_EQ(BidderText(), "itself");
}

TEST_F(EngineBiddingTest, WithoutABidInTimeTheDefaultCounts) {
  const int solves = driver_.solves;
  Submit("b");
  driver_.At(driver_.now + engine::Bidding::kAnswerWait_s - 0.01);
  EXPECT_EQ(driver_.solves, solves);
  driver_.At(driver_.now + 0.02);
  EXPECT_EQ(driver_.solves, solves + 1);
  EXPECT_FALSE(HasBid());
  EXPECT_EQ(Told(), "no bid came in time (1 s at most)");
  EXPECT_EQ(BidderText(), Told());
  ASSERT_EQ(Allocated().size(), 1u);
  // A bid for that auction has no effect any more.
  Bid(OneAccelerator());
  EXPECT_EQ(driver_.solves, solves + 1);
}

// A process that is gone delays one solve, not each.
TEST_F(EngineBiddingTest, NothingWaitsForABidderThatWasLateUntilItIsInTime) {
  Submit("b");
  driver_.At(driver_.now + 2);
  const int solves = driver_.solves;
  Submit("c");
  EXPECT_EQ(driver_.solves, solves + 1);
  driver_.At(driver_.now + 0.5);
  Bid(OneAccelerator());  // in time, though nothing had waited
  Submit("d");
  EXPECT_EQ(driver_.solves, solves + 1);
}

TEST_F(EngineBiddingTest, ABidThatCantBeUsedIsNotWaitedForAgain) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<OwnBid, std::string>> bids = {
      {{kNan, 4, {}}, "rho is nan"},
      {{2, -1, {}}, "rho_nothing is -1"},
      {{2, 4, {{{{0, 1}}, kInfinity}}}, "row 0: rho is inf"},
      {{2, 4, {{{{0, 1}}, 0}}}, "row 0: rho is 0"},
      {{2, 4, {{{{0, 2}}, 1}}}, "row 0: it asks for 2 v100; ask for 1 to 1"},
      {{2, 4, {{{{0, -1}}, 1}}}, "row 0: it asks for -1 v100"},
      {{2, 4, {{{{1, 1}}, 1}}}, "row 0: type 1 is out of place"},
      {{2, 4, {{{{0, 1}, {0, 1}}, 1}}}, "row 0: type 0 is out of place"},
      {{2, 4, {{{}, 1}}}, "row 0: it asks for no accelerators"},
      {{2, 4, std::vector<OwnBidRow>(kOwnBidRowsMax + 1)}, "257 rows"},
  };
  for (const auto& [bid, why] : bids) {
    SCOPED_TRACE(why);
    const int solves = driver_.solves;
    Submit(StrCat("job-", solves));
    Bid(bid);
    EXPECT_EQ(driver_.solves, solves + 1);
    EXPECT_FALSE(HasBid());
    EXPECT_THAT(Told(), ::testing::HasSubstr(why));
    EXPECT_EQ(BidderText(), Told());
    Divide({});
  }
}

TEST_F(EngineBiddingTest, TheAppDividesWhatItWon) {
  const JobId second = Submit("b");
  Bid(OneAccelerator());
  const std::optional<DivideRequest> asked = driver_.Last<DivideRequest>();
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->won, std::vector<int>{1});
  EXPECT_EQ(Allocated(), std::vector<JobId>{first_});
  EXPECT_TRUE(EndsInTime());
  Divide({{second, 0}});
  EXPECT_EQ(Allocated(), std::vector<JobId>{second});
}

TEST_F(EngineBiddingTest, WhatItDoesNotDivideIsDividedForIt) {
  Submit("b");
  Bid(OneAccelerator());
  Divide({});
  EXPECT_EQ(Allocated(), std::vector<JobId>{first_});
  EXPECT_EQ(Told(), "");
  const JobId third = Submit("c");
  Bid(OneAccelerator());
  driver_.At(driver_.now + 2);
  EXPECT_EQ(Allocated().size(), 1u);
  EXPECT_EQ(Told(), "no division came in time (1 s at most)");
  Divide({{third, 0}});  // too late
  EXPECT_NE(Allocated(), std::vector<JobId>{third});
}

// It has seen no offer that it could divide.
TEST_F(EngineBiddingTest, AProcessThatCameAfterTheOfferIsNotAskedToDivide) {
  Submit("b");
  const BidderKey later{"ann", "search", 8};
  driver_.Step(event::BidderJoined{later});
  driver_.At(driver_.now + 2);
  EXPECT_FALSE(driver_.Last<DivideRequest>().has_value());
  EXPECT_EQ(Allocated().size(), 1u);
  Submit("c");
  const std::optional<BidRequest> offer = driver_.Last<BidRequest>();
  ASSERT_TRUE(offer.has_value());
  EXPECT_EQ(offer->bidder, later);
  driver_.Step(event::BidReceived{{later, offer->auction, OneAccelerator()}});
  const std::optional<DivideRequest> asked = driver_.Last<DivideRequest>();
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->auction, offer->auction);
}

TEST_F(EngineBiddingTest, ADivisionThatIsNotPossibleHasNoEffect) {
  const JobId other = Submit("o", "other");
  Bid(OneAccelerator());
  Divide({});
  const std::vector<std::pair<std::vector<JobPlace>, std::string>> divisions = {
      {{{other, 0}}, "is no active job of the app"},
      {{{JobId(99), 0}}, "job 99 is no active job of the app"},
      {{{first_, 1}}, "can't run on type 1"},
      {{{first_, -1}}, "can't run on type -1"},
      {{{first_, 0}, {first_, 0}}, "has two places"},
  };
  for (const auto& [places, why] : divisions) {
    SCOPED_TRACE(why);
    const JobId job = Submit(StrCat("job-", driver_.solves));
    Bid({9, 9, {{{{0, 1}}, 1}}});  // the worst-off: it gets the accelerator
    Divide(places);
    EXPECT_THAT(Told(), ::testing::HasSubstr(why));
    EXPECT_EQ(Allocated().size(), 1u);
    EXPECT_NE(Allocated().front(), job);
  }
  const JobId second = Submit("b");
  Bid({9, 9, {{{{0, 1}}, 1}}});
  Divide({{first_, 0}, {second, 0}});
  EXPECT_THAT(Told(), ::testing::HasSubstr("has not won so many v100"));
}

// Rows of the journal have the allocation as it was divided, and the bid from
// which it can be computed again.
TEST_F(EngineBiddingTest, AReplayGivesTheSameAllocation) {
  const JobId second = Submit("b");
  Bid(OneAccelerator());
  Divide({{second, 0}});
  EXPECT_EQ(Allocated(driver_.Replayed(driver_.engine().options())),
            Allocated());
  const auto* ready = [&]() -> const event::AllocationReady* {
    for (auto row = driver_.rows.rbegin(); row != driver_.rows.rend(); ++row) {
      if (row->event == nullptr) continue;
      if (auto* found = std::get_if<event::AllocationReady>(&*row->event)) {
        return found;
      }
    }
    return nullptr;
  }();
  ASSERT_NE(ready, nullptr);
  ASSERT_EQ(ready->own.size(), 1u);
  EXPECT_EQ(ready->own[0].app, 0);
  EXPECT_EQ(ready->own[0].bid, OneAccelerator());
  EXPECT_EQ(ready->own[0].places, (std::vector<JobPlace>{{second, 0}}));
}

TEST_F(EngineBiddingTest, ARestartForgetsBiddersUntilTheySayHello) {
  Submit("b");
  const uint64_t before = driver_.Last<BidRequest>()->auction;
  driver_.Restart();
  driver_.Step(event::PolicyChanged{"themis"});
  const int solves = driver_.solves;
  Bid(OneAccelerator());  // for the auction of the term before
  Submit("c");
  EXPECT_EQ(driver_.solves, solves + 1);
  driver_.Step(event::BidderJoined{key_});
  Submit("d");
  EXPECT_EQ(driver_.solves, solves + 1);
  EXPECT_GT(driver_.Last<BidRequest>()->auction, before);
  Bid(OneAccelerator());
  EXPECT_TRUE(HasBid());
}

TEST_F(EngineBiddingTest, ANewPolicyEndsTheWait) {
  const int before = driver_.solves;
  Submit("b");
  EXPECT_EQ(driver_.solves, before);
  driver_.Step(event::PolicyChanged{"fifo"});
  EXPECT_EQ(driver_.solves, before + 1);
  driver_.Step(event::PolicyChanged{"themis"});
  Submit("c");
  Bid(OneAccelerator());
  ASSERT_TRUE(driver_.Last<DivideRequest>().has_value());
  const int solves = driver_.solves;
  driver_.Step(event::PolicyChanged{"fifo"});
  EXPECT_EQ(driver_.solves, solves + 1);
}

TEST_F(EngineBiddingTest, ABidderEndsWithItsApp) {
  driver_.Step(event::JobCommanded{first_, CommandKind::kCancel, 1});
  driver_.Step(event::BidderJoined{key_});
  EXPECT_EQ(driver_.Last<BidderNotice>()->kind, BidderNoticeKind::kNoApp);
}

}  // namespace
}  // namespace gavel
