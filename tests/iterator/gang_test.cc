#include "iterator/gang.h"

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/test.h"

namespace gavel::internal {
namespace {

GangPlan PlanOf(int rank, uint64_t epoch) {
  GangPlan plan;
  plan.rank = rank;
  plan.hosts = rank == 0;
  plan.address = "127.0.0.1";
  plan.prefix = "gavel/7/" + std::to_string(epoch);
  return plan;
}

TEST(Gang, ARankOfAnotherEpochIsRefusedAtOnceAndDisturbsNobody) {
  const auto averages = [] { return true; };
  std::promise<std::string> opened;
  Gang first(averages);
  absl::Status hosted;
  std::thread host([&] {
    GangPlan plan = PlanOf(0, 3);
    plan.opened = [&](const std::string& at) { opened.set_value(at); };
    hosted = first.Join(plan);
  });
  const std::string endpoint = opened.get_future().get();

  const auto begin = std::chrono::steady_clock::now();
  for (const uint64_t epoch : {2, 4}) {
    Gang stale(averages);
    GangPlan plan = PlanOf(1, epoch);
    plan.endpoint = endpoint;
    const absl::Status refused = stale.Join(plan);
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("it is of the gang gavel/7/3, this rank is of "));
    EXPECT_FALSE(stale.joined());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));

  Gang second(averages);
  GangPlan plan = PlanOf(1, 3);
  plan.endpoint = endpoint;
  EXPECT_OK(second.Join(plan));
  host.join();
  EXPECT_OK(hosted);
  second.Leave(Leaving::kDone);
  first.Leave(Leaving::kDone);
}

// A rank's own work between two steps may take longer than the time-out of a
// meeting.
TEST(Gang, ACollectiveWaitsAsLongAsTheOthersLive) {
  std::promise<std::string> opened;
  std::shared_future<std::string> endpoint = opened.get_future().share();
  const auto train = [&](int rank) {
    auto model = std::make_shared<torch::nn::LinearImpl>(2, 1);
    Gang gang([] { return true; });
    gang.Add(model);
    GangPlan plan = PlanOf(rank, 1);
    plan.meeting_timeout_s = 2;
    if (plan.hosts) {
      plan.opened = [&](const std::string& at) { opened.set_value(at); };
    } else {
      plan.endpoint = endpoint.get();
    }
    EXPECT_OK(gang.Join(plan));
    gang.Pass(0, /*begins=*/true, [] { return false; });
    if (rank == 0) std::this_thread::sleep_for(std::chrono::seconds(4));
    model->forward(torch::ones({1, 2})).sum().backward();
    EXPECT_OK(gang.EndStep());
    gang.Leave(Leaving::kDone);
  };
  std::thread other([&] { train(1); });
  train(0);
  other.join();
}

TEST(Gang, TheEndOfTheLeaseEndsACollective) {
  std::promise<std::string> opened;
  std::shared_future<std::string> endpoint = opened.get_future().share();
  std::promise<void> ended;
  std::thread busy([&] {
    auto model = std::make_shared<torch::nn::LinearImpl>(2, 1);
    Gang gang([] { return true; });
    gang.Add(model);
    GangPlan plan = PlanOf(0, 1);
    plan.opened = [&](const std::string& at) { opened.set_value(at); };
    EXPECT_OK(gang.Join(plan));
    ended.get_future().wait();
    gang.Leave(Leaving::kBroken);
  });
  auto model = std::make_shared<torch::nn::LinearImpl>(2, 1);
  Gang gang([] { return true; });
  gang.Add(model);
  GangPlan plan = PlanOf(1, 1);
  plan.endpoint = endpoint.get();
  std::atomic<bool> is_over = true;  // as it is before the lease is held
  plan.lease_is_over = [&] { return is_over.load(); };
  EXPECT_OK(gang.Join(plan));
  is_over = false;
  gang.Pass(0, /*begins=*/true, [] { return false; });
  std::thread clock([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    is_over = true;
  });
  model->forward(torch::ones({1, 2})).sum().backward();
  EXPECT_TRUE(absl::IsUnavailable(gang.EndStep()));
  clock.join();
  ended.set_value();
  gang.Leave(Leaving::kBroken);
  busy.join();
}

// Runs two ranks without a model, each in a thread.
class GangCalls : public testing::Test {
 protected:
  using Rank = std::function<void(Gang&)>;
  void Run(const Rank& zero, const Rank& one) {
    std::promise<std::string> opened;
    std::thread second([&, endpoint = opened.get_future().share()] {
      Gang gang([] { return true; });
      GangPlan plan = PlanOf(1, 1);
      plan.endpoint = endpoint.get();
      plan.meeting_timeout_s = 1;
      ASSERT_OK(gang.Join(plan));
      gang.Pass(0, /*begins=*/true, [] { return false; });
      one(gang);
      gang.Leave(Leaving::kBroken);
    });
    Gang gang([] { return true; });
    GangPlan plan = PlanOf(0, 1);
    plan.meeting_timeout_s = 1;
    plan.opened = [&](const std::string& at) { opened.set_value(at); };
    EXPECT_OK(gang.Join(plan));
    gang.Pass(0, /*begins=*/true, [] { return false; });
    zero(gang);
    second.join();
    gang.Leave(Leaving::kBroken);
  }
};

TEST_F(GangCalls, TheFirstWaitsAsLongAsTheOthersLive) {
  const auto add = [](Gang& gang) {
    const at::Tensor sum = torch::ones({2});
    EXPECT_OK(gang.AllReduce(sum, ReduceOp::kSum));
    EXPECT_TRUE(sum.eq(2).all().item<bool>());
    EXPECT_OK(gang.Barrier());
  };
  Run(add, [&](Gang& gang) {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    add(gang);
  });
}

TEST_F(GangCalls, OneThatFailsMakesTheStepVoid) {
  Run(
      [](Gang& gang) {
        const absl::Status status =
            gang.AllReduce(torch::ones({2}), ReduceOp::kSum);
        EXPECT_TRUE(absl::IsUnavailable(status)) << status;
        EXPECT_TRUE(absl::IsUnavailable(gang.EndStep()));
      },
      [](Gang&) {});
}

TEST_F(GangCalls, RanksThatCallDifferentThingsAreTold) {
  Run(
      [](Gang& gang) {
        // The other rank does not join this call.
        const absl::Status status =
            gang.AllReduce(torch::ones({2, 3}), ReduceOp::kSum);
        EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      },
      [](Gang& gang) {
        const absl::Status status =
            gang.Broadcast(torch::ones({3}, torch::kDouble));
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr("rank 0 AllReduce(kSum) of Float [2, 3], rank 1 "
                              "Broadcast of Double [3], as call 1 "));
        // The program is at fault, so its job does not continue.
        EXPECT_TRUE(absl::IsFailedPrecondition(gang.EndStep()));
      });
}

TEST_F(GangCalls, TensorsThatCantBeChangedInPlaceAreRefused) {
  const auto refused = [](Gang& gang) {
    for (const auto& [tensor, why] :
         std::vector<std::pair<at::Tensor, std::string>>{
             {at::Tensor(), "undefined"},
             {torch::ones({1}).expand({3}), "use clone()"},
             {torch::eye(2).to_sparse(), "use to_dense()"}}) {
      const absl::Status status = gang.AllReduce(tensor, ReduceOp::kSum);
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    }
    EXPECT_OK(gang.Barrier());
  };
  Run(refused, refused);
}

}  // namespace
}  // namespace gavel::internal
