#include "coordinator/cli/history_table.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

// Two hours: ada alone on one accelerator, then beside bob, who leaves early.
UsageHistory TwoUsers() {
  UsageHistory history;
  history.jobs = Json::parse(R"([
      {"job": 1, "user": "ada"}, {"job": 2, "user": "bob"}])");
  history.leases = Json::parse(R"([
      {"job": 1, "server": "s", "uuid": "u", "type": "v100",
       "from_s": 3600, "to_s": 0},
      {"job": 2, "server": "s", "uuid": "u", "type": "v100",
       "from_s": 7200, "to_s": 9000},
      {"job": 2, "server": "s", "uuid": "w", "type": "k80",
       "from_s": 0, "to_s": 3600}])");
  history.shares = Json::parse(R"([
      {"from_s": 3600, "to_s": 7200, "entitled": {"ada": 0.5, "bob": 0.5}},
      {"from_s": 5400, "to_s": 10800, "entitled": {"ada": 1}}])");
  return history;
}

TEST(Usage, CountsAcceleratorHoursByUserAndType) {
  const auto usage = UsageOf(TwoUsers(), 3600, 10800);
  // Half an hour of hers is shared.
  EXPECT_NEAR(usage.at("ada").used_h, 1.75, 1e-9);
  EXPECT_NEAR(usage.at("bob").used_h, 0.25, 1e-9);
  EXPECT_NEAR(usage.at("ada").used_h_by_type.at("v100"), 1.75, 1e-9);
  EXPECT_FALSE(usage.at("bob").used_h_by_type.contains("k80"))
      << "it ended before";
}

TEST(Usage, EntitledIsTheShareUntilTheNextRound) {
  const auto usage = UsageOf(TwoUsers(), 3600, 10800);
  EXPECT_NEAR(usage.at("ada").entitled_h, 0.25 + 1.5, 1e-9);
  EXPECT_NEAR(usage.at("bob").entitled_h, 0.25, 1e-9);
}

TEST(Usage, OnlyTheTimeThatIsAskedForCounts) {
  const auto usage = UsageOf(TwoUsers(), 9000, 9360);
  EXPECT_NEAR(usage.at("ada").used_h, 0.1, 1e-9);
  EXPECT_NEAR(usage.at("ada").entitled_h, 0.1, 1e-9);
  EXPECT_FALSE(usage.contains("bob"));
}

// No policy intends hours for a job that keeps its accelerators until its end.
TEST(Usage, HoursOfOpaqueJobsAreNotComparedWithThoseIntended) {
  UsageHistory history = TwoUsers();
  history.jobs.push_back({{"job", 3}, {"user", "ada"}, {"opaque", 1}});
  history.leases.push_back({{"job", 3},
                            {"server", "s"},
                            {"uuid", "x"},
                            {"type", "v100"},
                            {"from_s", 3600},
                            {"to_s", 10800}});
  const auto usage = UsageOf(history, 3600, 10800);
  const UserUsage& ada = usage.at("ada");
  EXPECT_NEAR(ada.used_h, 3.75, 1e-9);
  EXPECT_NEAR(ada.used_h_by_type.at("v100"), 3.75, 1e-9);
  EXPECT_NEAR(ada.opaque_h, 2, 1e-9);
  EXPECT_NEAR(usage.at("bob").opaque_h, 0, 1e-9);
  const std::string text = RenderUsage(usage, 200);
  EXPECT_THAT(text, HasSubstr("OPAQUE H"));
  EXPECT_THAT(text, HasSubstr("100 %"));
  EXPECT_THAT(text, Not(HasSubstr("214 %")));
  const Json json = UsageJson(usage, 3600, 10800);
  EXPECT_NEAR(json["users"][0]["opaque_h"].get<double>(), 2, 1e-9);
  EXPECT_NEAR(json["users"][0]["used_h"].get<double>(), 3.75, 1e-9);
}

TEST(Usage, IsATableWithASum) {
  const std::string text = RenderUsage(UsageOf(TwoUsers(), 3600, 10800), 200);
  EXPECT_THAT(text, HasSubstr("ada"));
  EXPECT_THAT(text, HasSubstr("100 %"));
  EXPECT_THAT(text, HasSubstr("all"));
}

}  // namespace
}  // namespace gavel
