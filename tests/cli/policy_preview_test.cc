#include "coordinator/cli/what_if.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

class PolicyPreviewTest : public ::testing::Test {
 protected:
  PolicyPreviewTest() {
    live_.status = {{"policy", "fifo"}};
    live_.nodes = Json::array(
        {{{"server", "here"},
          {"accelerators",
           {{{"type", "v100"}, {"state", "allocated"}, {"uuid", "a"}},
            {{"type", "v100"}, {"state", "drained"}, {"uuid", "b"}}}}}});
    live_.jobs = Json::array();
  }
  void AddJob(uint64_t id, double age_s, double weight) {
    live_.jobs.push_back({{"id", id},
                          {"name", "job-" + std::to_string(id)},
                          {"owner", "ada"},
                          {"scale_factor", 1},
                          {"weight", weight},
                          {"age_s", age_s},
                          {"steps_left", nullptr},
                          {"throughputs", {{"v100", 1.0}}}});
  }

  // As the coordinator sends it.
  struct LiveJson {
    operator LiveState() const {
      return {ParseStatus(status), ParseNodes(nodes), ParseForecast(jobs)};
    }
    Json status;
    Json nodes;
    Json jobs;
  };
  LiveJson live_;
};

TEST_F(PolicyPreviewTest, SaysWhoGainsAndLosesWhichShare) {
  AddJob(3, 10, 1);
  AddJob(7, 100, 1);
  ASSERT_OK_AND_ASSIGN(const PolicyPreview preview,
                       Preview(live_, "max_min_fairness"));
  ASSERT_EQ(preview.jobs.size(), 2u);
  // The older one has it alone, by fifo; the drained one is nobody's.
  EXPECT_EQ(preview.jobs[0].id, 3u);
  EXPECT_NEAR(preview.jobs[0].before, 0, 1e-6);
  EXPECT_NEAR(preview.jobs[1].before, 1, 1e-6);
  EXPECT_NEAR(preview.jobs[0].after, 0.5, 1e-3);
  EXPECT_NEAR(preview.jobs[1].after, 0.5, 1e-3);
  const std::string text = RenderPreview(preview, 200);
  EXPECT_THAT(text, HasSubstr("of 2 jobs 1 lose, 1 gain, 0 keep"));
  EXPECT_THAT(text, HasSubstr("nothing has been changed"));
  EXPECT_EQ(PreviewJson(preview)["jobs"].size(), 2u);
}

// fifo lets jobs go on that run, however late they came.
TEST_F(PolicyPreviewTest, KnowsWhichJobsRun) {
  live_.status["policy"] = "max_min_fairness";
  AddJob(3, 100, 1);
  AddJob(7, 10, 1);
  live_.nodes[0]["accelerators"][0]["jobs"] = Json::array({uint64_t{7}});
  ASSERT_OK_AND_ASSIGN(const PolicyPreview preview, Preview(live_, "fifo"));
  EXPECT_NEAR(preview.jobs[0].after, 0, 1e-6);
  EXPECT_NEAR(preview.jobs[1].after, 1, 1e-6);
}

TEST_F(PolicyPreviewTest, CountsAcceleratorsOfJobsThatStart) {
  AddJob(3, 10, 1);
  AddJob(7, 100, 1);
  Json& accelerator = live_.nodes[0]["accelerators"][0];
  accelerator["state"] = "starting";
  accelerator["starting_jobs"] = Json::array({uint64_t{3}});
  live_.status["policy"] = "max_min_fairness";
  ASSERT_OK_AND_ASSIGN(const PolicyPreview preview, Preview(live_, "fifo"));
  EXPECT_NEAR(preview.jobs[0].after, 1, 1e-6);
}

TEST_F(PolicyPreviewTest, RefusesWhatItCannotSolve) {
  EXPECT_THAT(Preview(live_, "max_min_fairness").status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "no jobs"));
  AddJob(1, 1, 1);
  EXPECT_FALSE(Preview(live_, "no_such_policy").ok());
}

}  // namespace
}  // namespace gavel
