#include "iterator/gang.h"

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace gavel::internal {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace gavel::internal
