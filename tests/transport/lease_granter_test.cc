// Tests LeaseGranter: the side of the coordinator that a worker sees, without
// scheduling.
#include "runtime/transport/lease_granter.h"

#include <variant>

#include "runtime/transport/dealer_router.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr double kConnectMax_s = 10;
constexpr double kTurn_s = 0.05;
constexpr int kTurnsMax = 200;

class LeaseGranterTest : public Test {
 protected:
  void SetUp() override {
    auto granter = LeaseGranter::Open();
    ASSERT_OK(granter.status());
    granter_ = *std::move(granter);
    auto dealer = Dealer::Connect(granter_->endpoint());
    ASSERT_OK(dealer.status());
    dealer_ = *std::move(dealer);
    ASSERT_TRUE(dealer_->WaitUntilConnected(kConnectMax_s));
  }
  uint64_t Begin(int world_size = 1) {
    LeasedJob job;
    for (int rank = 0; rank < world_size; ++rank) {
      AcceleratorInfo place;
      place.uuid = "slot-" + std::to_string(rank);
      job.terms.places.push_back(place);
    }
    return granter_->Begin({job});
  }
  const LeasedJob& job() const { return granter_->jobs()[0]; }
  // Sends the message and returns the first answer of type T; nothing if none
  // came.
  template <class T>
  std::optional<T> Ask(Time now, const Message& message) {
    EXPECT_OK(dealer_->Send(message));
    return Next<T>(now);
  }
  template <class T>
  std::optional<T> Next(Time now) {
    for (int i = 0; i < kTurnsMax; ++i) {
      granter_->Turn(now, kTurn_s);
      const auto got = dealer_->Receive(0);
      if (!got.ok() || !*got) continue;
      if (const T* one = std::get_if<T>(&**got)) return *one;
    }
    return std::nullopt;
  }
  // Sends a message that has no answer, and waits until it has arrived.
  template <class Arrived>
  void Say(Time now, const Message& message, const Arrived& arrived) {
    EXPECT_OK(dealer_->Send(message));
    for (int i = 0; i < kTurnsMax && !arrived(); ++i) {
      granter_->Turn(now, kTurn_s);
    }
    EXPECT_TRUE(arrived());
  }
  LeaseRequest Request(uint64_t released_epoch = 0, int rank = 0) {
    LeaseRequest request;
    request.worker = {JobId(1), rank, 1};
    request.nonce = ++nonce_;
    request.released_epoch = released_epoch;
    return request;
  }
  LeaseRequest Renewal(uint64_t epoch) {
    LeaseRequest request = Request();
    request.holding = true;
    request.epoch = epoch;
    return request;
  }
  LeaseReleased Release(uint64_t epoch, uint64_t steps_done) {
    LeaseReleased released;
    released.worker = {JobId(1), 0, 1};
    released.epoch = epoch;
    released.progress.steps_done = steps_done;
    return released;
  }

  std::unique_ptr<LeaseGranter> granter_;
  std::unique_ptr<Dealer> dealer_;
  uint64_t nonce_ = 0;
};

TEST_F(LeaseGranterTest, GrantsAndRenewsThePresentEpoch) {
  EXPECT_EQ(Begin(), 1);
  EXPECT_FALSE(job().heard);
  const auto grant = Ask<LeaseGrant>(5, Request());
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->epoch, 1);
  EXPECT_EQ(grant->nonce, nonce_);
  EXPECT_EQ(grant->accelerator.uuid, "slot-0");
  EXPECT_EQ(job().granted_at, 5);
  EXPECT_FALSE(job().runs);
  EXPECT_TRUE(Ask<LeaseGrant>(6, Renewal(1)));
  EXPECT_TRUE(job().runs);
  EXPECT_EQ(job().granted_at, 5);
  EXPECT_TRUE(Ask<LeaseDenied>(7, Renewal(0))) << "of another epoch";
}

TEST_F(LeaseGranterTest, AsksForALeaseUntilItIsReleasedAndGrantsTheNext) {
  Begin();
  ASSERT_TRUE(Ask<LeaseGrant>(1, Request()));
  granter_->TakeBack(2, 0, PauseTier::kPark);
  const auto pause = Next<PauseRequest>(2);
  ASSERT_TRUE(pause);
  EXPECT_EQ(pause->epoch, 1);
  EXPECT_TRUE(Next<PauseRequest>(3)) << "asked again";
  EXPECT_TRUE(Ask<LeaseDenied>(3, Renewal(1)));
  Say(4, Release(1, 7), [&] { return job().released_at >= 0; });
  EXPECT_EQ(job().released_at, 4);
  EXPECT_EQ(job().steps_done, 7);
  EXPECT_TRUE(Ask<LeaseDenied>(5, Request(1)));

  granter_->terms(0).places[0].uuid = "slot-b";
  granter_->GrantNext(0);
  const auto notice = Next<LeaseNotice>(6);
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->epoch, 2);
  const auto grant = Ask<LeaseGrant>(7, Request(1));
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->epoch, 2);
  EXPECT_EQ(grant->accelerator.uuid, "slot-b");
  EXPECT_FALSE(job().runs);
}

TEST_F(LeaseGranterTest, OtherRanksWaitForTheStoreOfRankZero) {
  Begin(/*world_size=*/2);
  EXPECT_TRUE(Ask<LeaseDenied>(1, Request(0, /*rank=*/1)));
  const auto first = Ask<LeaseGrant>(1, Request());
  ASSERT_TRUE(first);
  EXPECT_EQ(first->world_size, 2);
  LeaseRequest opened = Renewal(1);
  opened.gang_address = "127.0.0.1:1234";
  ASSERT_TRUE(Ask<LeaseGrant>(2, opened));
  const auto second = Ask<LeaseGrant>(3, Request(0, 1));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->gang_address, "127.0.0.1:1234");
  EXPECT_EQ(second->accelerator.uuid, "slot-1");
}

TEST_F(LeaseGranterTest, KeepsRatesOnlyOfReportsWithNewSteps) {
  Begin();
  StepReport report;
  report.worker = {JobId(1), 0, 1};
  report.epoch = 1;
  report.progress.steps_done = 10;
  report.progress.throughput_steps_per_s = 4;
  report.progress.window_s = 1;
  report.progress.pausing_s = 0.5;
  Say(1, report, [&] { return job().steps_done == 10; });
  EXPECT_OK(dealer_->Send(report));
  report.progress.steps_done = 20;
  Say(2, report, [&] { return job().steps_done == 20; });
  EXPECT_EQ(job().rates.size(), 2u);
  EXPECT_EQ(job().stepped_at, 2);
  EXPECT_EQ(job().pausing_s, 0.5);
}

TEST_F(LeaseGranterTest, AFailureIsAnErrorAndAnEvictionIsNone) {
  Begin();
  granter_->TakeBack(1, 0, PauseTier::kEvict);
  WorkerFinished end;
  end.worker = {JobId(1), 0, 1};
  end.epoch = 1;
  end.exit_code = kExitEvicted;
  end.detail = "evicted";
  Say(2, end, [&] { return job().runs; });
  EXPECT_EQ(job().error, "");
  end.exit_code = 1;
  end.detail = "no data";
  Say(3, end, [&] { return !job().error.empty(); });
  EXPECT_EQ(job().error, "no data");
  EXPECT_FALSE(job().out_of_memory);
}

TEST_F(LeaseGranterTest, WorkersOfEarlierJobsGetNoAnswer) {
  Begin();
  EXPECT_EQ(Begin(), 2);
  EXPECT_OK(dealer_->Send(Request()));
  LeaseRequest later = Request();
  later.worker.incarnation = 2;
  const auto answer = Ask<LeaseGrant>(1, later);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->worker.incarnation, 2);
}

}  // namespace
}  // namespace gavel
