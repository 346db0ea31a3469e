#include "coordinator/cli/what_if.h"

#include "coordinator/cli/past_jobs.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

class WhatIfTest : public ::testing::Test {
 protected:
  WhatIfTest() {
    live_.status = {{"policy", "fifo"}, {"round_duration_s", 10.0}};
    live_.nodes = Json::array({{{"server", "here"},
                                {"accelerators",
                                 {{{"type", "v100"}, {"state", "idle"}},
                                  {{"type", "v100"}, {"state", "lost"}}}}}});
    live_.jobs = Json::array();
    spec_.name = "asked";
    spec_.argv = {"./train"};
    spec_.steps_total = 1000;
    spec_.throughputs = {{"v100", 10.0}};
  }
  void AddJob(uint64_t id, Json steps_left, double rate) {
    live_.jobs.push_back({{"id", id},
                          {"name", "job-" + std::to_string(id)},
                          {"app", "lm"},
                          {"scale_factor", 1},
                          {"steps_left", steps_left},
                          {"throughputs", {{"v100", rate}}}});
  }

  // A job behind the queue, with 10 steps/s.
  Json& AddWaiting(uint64_t id, Json steps_left, Json awaits) {
    AddJob(id, std::move(steps_left), 10);
    live_.jobs.back()["waits"] = true;
    live_.jobs.back()["awaits"] = std::move(awaits);
    return live_.jobs.back();
  }
  void HaveAccelerators(int count) {
    live_.nodes[0]["accelerators"] = Json::array();
    for (int i = 0; i < count; ++i) {
      live_.nodes[0]["accelerators"].push_back(
          {{"type", "v100"}, {"state", "idle"}});
    }
  }
  std::map<uint64_t, JobForecast> Forecast() {
    std::map<uint64_t, JobForecast> by_id;
    const auto forecast = PredictQueue(live_, 60);
    EXPECT_OK(forecast);
    if (!forecast.ok()) return by_id;
    EXPECT_FALSE(forecast->cut_short);
    for (const JobForecast& job : forecast->jobs) by_id[job.id] = job;
    return by_id;
  }

  // The live state as JSON, as the coordinator sends it.
  struct LiveJson {
    operator LiveState() const {
      return {ParseStatus(status), ParseNodes(nodes), ParseForecast(jobs)};
    }
    Json status;
    Json nodes;
    Json jobs;
  };
  LiveJson live_;
  JobSpec spec_;
};

TEST_F(WhatIfTest, AloneItRunsAtItsThroughput) {
  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_NEAR(answer->job.start_s, 0, 0.1);
  EXPECT_NEAR(answer->job.finish_s, 100, 0.1);
  EXPECT_FALSE(answer->cut_short);
}

TEST_F(WhatIfTest, FitsWhereItsFileLetsItRun) {
  live_.nodes = Json::array(
      {{{"server", "a"},
        {"accelerators",
         {{{"type", "v100"}, {"state", "idle"}},
          {{"type", "v100"}, {"state", "allocated"}},
          {{"type", "k80"}, {"state", "idle"}}}}},
       {{"server", "b"},
        {"accelerators", {{{"type", "v100"}, {"state", "drained"}}}}}});
  const std::vector<NodeRow> nodes = ParseNodes(live_.nodes);
  spec_.throughputs.clear();
  spec_.scale_factor = 2;
  auto fits = FitOf(spec_, nodes);
  ASSERT_OK(fits);
  ASSERT_EQ(fits->size(), 1u) << "one k80 is too few";
  EXPECT_EQ(RenderFit(*fits), "  fits      3 v100 of a, b, 1 idle now\n");
  spec_.exclude_servers = {"b"};
  EXPECT_EQ(FitOf(spec_, nodes)->front().accelerators, 2);
  spec_.servers = {"a"};
  spec_.scale_factor = 3;
  EXPECT_EQ(FitOf(spec_, nodes).status().message(),
            "job \"asked\" can never run: it needs 3 accelerators of one type, "
            "and the cluster has 1 k80; 3 v100, of which its file lets it have "
            "2; change its scale_factor, types, servers or throughputs, or add "
            "accelerators");
  spec_.scale_factor_min = 1;
  spec_.types = {"k80"};
  EXPECT_EQ(FitOf(spec_, nodes)->front().type, "k80");
  spec_.throughputs = {{"k80", 0.0}};
  EXPECT_FALSE(FitOf(spec_, nodes).ok());
}

TEST_F(WhatIfTest, AJobIsNotExpectedOnTypesThatItExcludes) {
  live_.nodes[0]["accelerators"].push_back(
      {{"type", "k80"}, {"state", "idle"}});
  spec_.throughputs["k80"] = 1;
  spec_.types = {"k80"};
  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_NEAR(answer->job.finish_s, 1000, 1);
}

TEST_F(WhatIfTest, AJobThatCanNeverRunTakesNothingFromTheOthers) {
  AddJob(1, 500.0, 10);
  live_.jobs.back()["exclude_servers"] = Json::array({"here"});
  AddJob(2, 500.0, 10);
  live_.jobs.back()["servers"] = Json::array({"nowhere"});
  AddJob(3, 500.0, 0);  // its file bars the only type
  AddJob(4, 500.0, 10);
  live_.jobs.back()["scale_factor"] = 2;
  AddJob(5, 500.0, 10);
  AddWaiting(6, 100.0, {1});
  auto jobs = Forecast();
  for (const uint64_t id : {1, 2, 3, 4, 6}) {
    EXPECT_EQ(jobs[id].start.earliest_s, kNever) << id;
    EXPECT_EQ(jobs[id].finish.earliest_s, kNever) << id;
  }
  EXPECT_NEAR(jobs[5].start.latest_s, 0, 0.1);
  EXPECT_LE(jobs[5].finish.latest_s, 62.6);
  QueueRow row;
  row.id = 1;
  row.state = "PD";
  const auto forecast = PredictQueue(live_, 60);
  ASSERT_OK(forecast);
  EXPECT_THAT(RenderForecast(*forecast, {row}, 200), Not(HasSubstr("00:")));

  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_GE(answer->job.start_s, 50);
  EXPECT_LE(answer->job.finish_s, 50 + 100 + 2 * 10);
  EXPECT_EQ(answer->others.size(), 1u);
}

// Servers of different sizes, so that "big" is several in the simulation.
TEST_F(WhatIfTest, AJobIsExpectedOnTheServersThatItMayUse) {
  const Json idle = {{"type", "v100"}, {"state", "idle"}};
  live_.nodes = Json::array(
      {{{"server", "big"}, {"accelerators", Json::array({idle, idle})}},
       {{"server", "small"}, {"accelerators", Json::array({idle})}}});
  AddJob(1, 500.0, 10);
  live_.jobs.back()["servers"] = Json::array({"small"});
  AddJob(2, 500.0, 10);
  live_.jobs.back()["exclude_servers"] = Json::array({"big"});
  AddJob(3, 500.0, 10);
  live_.jobs.back()["servers"] = Json::array({"small", "nowhere"});
  live_.jobs.back()["scale_factor"] = 2;
  AddJob(4, 500.0, 10);
  live_.jobs.back()["exclude_servers"] = Json::array({"small"});
  auto jobs = Forecast();
  EXPECT_NEAR(jobs[1].start.latest_s, 0, 0.1);
  EXPECT_GE(jobs[2].start.earliest_s, 40 - 0.1) << "the other one has small";
  EXPECT_LE(jobs[2].start.latest_s, 62.5 + 10);
  EXPECT_EQ(jobs[3].start.earliest_s, kNever) << "small has one accelerator";
  EXPECT_NEAR(jobs[4].start.latest_s, 0, 0.1);

  spec_.servers = {"small"};
  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_GE(answer->job.start_s, 100 - 0.1);
  EXPECT_LE(answer->job.start_s, 100 + 3 * 10);
}

TEST_F(WhatIfTest, AnOpaqueJobThatRunsLeavesAJobItsOnlyServer) {
  live_.nodes = Json::array();
  for (const char* server : {"a", "b"}) {
    live_.nodes.push_back(
        {{"server", server},
         {"accelerators",
          Json::array({{{"type", "v100"}, {"state", "idle"}}})}});
  }
  AddJob(1, 1000.0, 10);
  live_.jobs.back()["opaque"] = true;
  live_.jobs.back()["placed"] = true;
  live_.nodes[1]["accelerators"][0]["state"] = "allocated";
  live_.nodes[1]["accelerators"][0]["jobs"] = Json::array({1});
  AddJob(2, 100.0, 10);
  live_.jobs.back()["servers"] = Json::array({"a"});
  AddJob(3, 100.0, 10);
  live_.jobs.back()["servers"] = Json::array({"b"});
  auto jobs = Forecast();
  EXPECT_LE(jobs[2].start.latest_s, 10) << "at the latest the next round";
  EXPECT_GE(jobs[3].start.earliest_s, 80 - 0.1);
}

TEST_F(WhatIfTest, AnElementThatCanNeverRunKeepsItsTurn) {
  HaveAccelerators(2);
  for (uint64_t id = 11; id <= 12; ++id) {
    AddWaiting(id, 300.0, Json::array());
    live_.jobs.back()["waits"] = id > 11;
    live_.jobs.back()["array"] = 10;
    live_.jobs.back()["array_at_once"] = 1;
  }
  AddWaiting(13, 100.0, {10});
  live_.jobs[0]["servers"] = Json::array({"nowhere"});
  auto jobs = Forecast();
  EXPECT_EQ(jobs[12].start.earliest_s, kNever);
  EXPECT_EQ(jobs[13].start.earliest_s, kNever);
}

TEST_F(WhatIfTest, NoForecastIsMadeOfAnArray) {
  EXPECT_EQ(NoForecastOf(spec_), "");
  spec_.array = "0-3%2";
  EXPECT_THAT(NoForecastOf(spec_), HasSubstr("an array of 4 jobs; once"));
  spec_.array = "7";
  EXPECT_THAT(NoForecastOf(spec_), HasSubstr("an array of 1 job; once"));
}

TEST_F(WhatIfTest, JobsThatWaitAreExpectedWithASpread) {
  AddJob(1, 500.0, 10);
  AddJob(2, 500.0, 10);
  AddJob(3, nullptr, 10);
  const auto forecast = PredictQueue(live_, 10);
  ASSERT_OK(forecast);
  ASSERT_EQ(forecast->jobs.size(), 3u);
  const JobForecast& second = forecast->jobs[1];
  EXPECT_EQ(second.id, 2u);
  // The first job takes 50 s, or between 40 and 62.5; then up to a round
  // passes.
  EXPECT_GE(second.start.earliest_s, 40);
  EXPECT_LE(second.start.latest_s, 62.5 + 10);
  EXPECT_LT(second.start.earliest_s, second.start.latest_s);
  EXPECT_GE(second.start.median_s, second.start.earliest_s);
  EXPECT_LE(second.start.median_s, second.start.latest_s);
  EXPECT_GT(second.finish.earliest_s, second.start.earliest_s + 35);
  EXPECT_EQ(forecast->jobs[2].finish.latest_s, kNever) << "no steps_total";

  std::vector<QueueRow> rows(2);
  rows[0].id = 2;
  rows[0].name = "two";
  rows[0].state = "PD";
  rows[1].id = 1;
  rows[1].state = "R";
  const std::string text = RenderForecast(*forecast, rows, 200);
  EXPECT_THAT(
      text, AllOf(HasSubstr("STARTS IN"), HasSubstr("two"), HasSubstr(" to ")));
  const Json json = ForecastJson(*forecast, rows);
  ASSERT_EQ(json["jobs"].size(), 1u) << "those that run have started";
  EXPECT_EQ(json["jobs"][0]["start"]["median_in_s"], second.start.median_s);
  EXPECT_EQ(RenderForecast({}, {}, 200), "no job waits\n");
  EXPECT_EQ(RenderForecast({}, {}, 200, /*are_chosen=*/true),
            "none of the jobs that were asked for waits\n");
}

TEST_F(WhatIfTest, WithoutAcceleratorsNothingIsExpected) {
  live_.nodes = Json::array();
  AddJob(1, 500.0, 10);
  EXPECT_THAT(PredictQueue(live_, 10).status().message(),
              HasSubstr("no accelerators at present"));
}

TEST_F(WhatIfTest, ItWaitsForThoseAheadAndLeavesThemAlone) {
  AddJob(4, 500.0, 10);
  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_GE(answer->job.start_s, 50);
  EXPECT_LE(answer->job.finish_s, 50 + 100 + 2 * 10);
  ASSERT_EQ(answer->others.size(), 1u);
  EXPECT_EQ(answer->others[0].id, 4u);
  EXPECT_NEAR(answer->others[0].finish_s, 50, 0.1);
  EXPECT_EQ(answer->others[0].finish_s, answer->others[0].finish_without_s);
  EXPECT_THAT(RenderWhatIf(*answer, 1e9),
              HasSubstr("1 other jobs, 0 of them end at another time"));
}

TEST_F(WhatIfTest, UnderFairSharesTheOthersEndLater) {
  live_.status["policy"] = "max_min_fairness";
  AddJob(1, 1000.0, 10);
  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_GT(answer->others.at(0).finish_s,
            answer->others.at(0).finish_without_s + 30);
  EXPECT_THAT(RenderWhatIf(*answer, 1e9), HasSubstr("job-1"));
}

// A job that has had much of its share comes after the new one; one that is
// owed comes before it.
TEST_F(WhatIfTest, WhatTheOthersHaveReceivedCounts) {
  live_.status["policy"] = "max_min_fairness";
  AddJob(1, 1000.0, 10);
  const auto received = [](double since_reset_s, double deficit_s) {
    return Json{
        {"v100", {{"since_reset_s", since_reset_s}, {"deficit_s", deficit_s}}}};
  };
  live_.jobs[0]["received_s"] = 40.0;
  live_.jobs[0]["received"] = received(40, -20);
  const auto after = Predict(live_, spec_, 10);
  ASSERT_OK(after);
  live_.jobs[0]["received_s"] = 0.0;
  live_.jobs[0]["received"] = received(0, 20);
  const auto before = Predict(live_, spec_, 10);
  ASSERT_OK(before);
  EXPECT_LT(after->job.finish_s, before->job.finish_s);
  EXPECT_GT(after->others.at(0).finish_s, before->others.at(0).finish_s);
}

// The deficit of a job that is ahead is remembered longer than the time since
// the reset.
TEST_F(WhatIfTest, AJobThatWasAheadBeforeTheResetComesLater) {
  live_.status["policy"] = "max_min_fairness";
  AddJob(1, 1000.0, 10);
  const auto others_finish_s = [this](double deficit_s) {
    live_.jobs[0]["received"] = {
        {"v100", {{"since_reset_s", 0.0}, {"deficit_s", deficit_s}}}};
    const auto answer = Predict(live_, spec_, 10);
    EXPECT_OK(answer);
    return answer.ok() ? answer->others.at(0).finish_s : 0;
  };
  EXPECT_GT(others_finish_s(-40), others_finish_s(0));
}

// With a memory of no rounds, which the coordinator reports, the past does not
// count.
TEST_F(WhatIfTest, TheCoordinatorsMechanismIsTaken) {
  live_.status["policy"] = "max_min_fairness";
  AddJob(1, 1000.0, 10);
  const auto plain = Predict(live_, spec_, 10);
  live_.jobs[0]["received"] = {
      {"v100", {{"since_reset_s", 40.0}, {"deficit_s", 0.0}}}};
  const auto counts = Predict(live_, spec_, 10);
  live_.status["memory_rounds"] = 0.0;
  live_.status["mechanism"] = "gavel";
  live_.status["queue"] = "global";
  const auto forgets = Predict(live_, spec_, 10);
  ASSERT_OK(plain);
  ASSERT_OK(counts);
  ASSERT_OK(forgets);
  EXPECT_LT(counts->job.finish_s, plain->job.finish_s);
  EXPECT_GT(forgets->job.finish_s, counts->job.finish_s);
}

TEST_F(WhatIfTest, AJobStartsAfterItsParents) {
  live_.nodes[0]["accelerators"][1]["state"] = "idle";
  AddJob(7, 300.0, 10);
  spec_.after_success = {"7"};
  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_FALSE(answer->after_parents);
  EXPECT_GE(answer->job.start_s, 30);
  EXPECT_LE(answer->job.start_s, 41);
  EXPECT_NEAR(answer->job.finish_s - answer->job.start_s, 100, 1);
}

TEST_F(WhatIfTest, AJobAfterParentsWithoutAnEndHasNoTime) {
  AddJob(7, nullptr, 10);
  for (const char* parent : {"7", "8"}) {
    spec_.after_any = {parent};
    const auto answer = Predict(live_, spec_, 10);
    ASSERT_OK(answer);
    EXPECT_TRUE(answer->after_parents);
    EXPECT_EQ(answer->job.start_s, kNever);
    EXPECT_EQ(WhatIfJson(*answer)["after_parents"], true);
    EXPECT_THAT(RenderWhatIf(*answer, 0),
                HasSubstr("starts    after its parents, whose end is not"));
  }
}

TEST_F(WhatIfTest, TheQueueSaysThatAJobStartsAfterItsParents) {
  QueueRow row;
  row.id = 9;
  row.state = "PD";
  row.awaits = {7};
  EXPECT_THAT(RenderForecast({}, {row}, 0), HasSubstr("after its parents"));
  EXPECT_EQ(ForecastJson({}, {row})["jobs"][0]["after_parents"], true);
  QueueForecast forecast;
  forecast.jobs = {{9, {10, 20, 30}, {40, 50, 60}}};
  EXPECT_THAT(RenderForecast(forecast, {row}, 0),
              AllOf(HasSubstr("00:00:20"), Not(HasSubstr("parents"))));
  EXPECT_EQ(ForecastJson(forecast, {row})["jobs"][0]["after_parents"], false);
}

TEST_F(WhatIfTest, AJobOfTheQueueStartsWhenTheLastOfItsParentsEnds) {
  HaveAccelerators(3);
  AddWaiting(1, 100.0, {4});  // `gavel update` may name a later job
  AddJob(2, 300.0, 10);
  AddJob(3, 500.0, 10);
  AddWaiting(4, 200.0, {2, 3});
  auto jobs = Forecast();
  EXPECT_GE(jobs[4].start.median_s, jobs[3].finish.median_s);
  EXPECT_LE(jobs[4].start.latest_s, jobs[3].finish.latest_s + 10);
  EXPECT_GE(jobs[1].start.earliest_s, jobs[4].finish.earliest_s);
  EXPECT_LE(jobs[1].finish.latest_s, 1.25 * (50 + 20 + 10) + 3 * 10);

  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_EQ(answer->others.size(), 4u);
  spec_.after_success = {"4"};
  const auto after = Predict(live_, spec_, 10);
  ASSERT_OK(after);
  EXPECT_GE(after->job.start_s, answer->others.at(3).finish_s);
}

TEST_F(WhatIfTest, AJobWithoutAnEndStartsAfterItsParentsToo) {
  AddJob(1, 300.0, 10);
  AddWaiting(2, nullptr, {1});
  AddWaiting(3, 100.0, {2});
  auto jobs = Forecast();
  EXPECT_GE(jobs[2].start.earliest_s, jobs[1].finish.earliest_s);
  EXPECT_LT(jobs[2].start.latest_s, kNever);
  EXPECT_EQ(jobs[2].finish.earliest_s, kNever);
  EXPECT_EQ(jobs[3].start.earliest_s, kNever);
}

TEST_F(WhatIfTest, AJobWhoseParentIsHeldHasNoTime) {
  HaveAccelerators(2);
  AddJob(1, 300.0, 10);
  live_.jobs.back()["held"] = true;
  AddJob(2, 300.0, 10);  // its time_limit holds it before its end
  live_.jobs.back()["time_left_s"] = 5.0;
  AddWaiting(3, 100.0, {1});
  AddWaiting(4, 100.0, {2});
  AddWaiting(5, 100.0, {4});
  AddWaiting(6, 100.0, {99});  // not there: ended otherwise than it should
  auto jobs = Forecast();
  EXPECT_EQ(jobs[1].start.earliest_s, kNever);
  EXPECT_NEAR(jobs[2].finish.latest_s, 5, 0.1);
  for (uint64_t id = 3; id <= 6; ++id) {
    EXPECT_EQ(jobs[id].start.earliest_s, kNever) << id;
  }
}

TEST_F(WhatIfTest, AnArrayRunsAtMostSoManyElementsAtOnceAsItsFileSays) {
  HaveAccelerators(6);
  for (uint64_t id = 11; id <= 15; ++id) {
    AddWaiting(id, 300.0, Json::array());
    live_.jobs.back()["waits"] = id > 12;
    live_.jobs.back()["array"] = 10;
    live_.jobs.back()["array_at_once"] = 2;
  }
  AddWaiting(16, 100.0, {10});
  auto jobs = Forecast();
  EXPECT_NEAR(jobs[12].start.latest_s, 0, 0.1);
  EXPECT_GE(jobs[13].start.earliest_s, 24);
  EXPECT_LE(jobs[13].start.latest_s, 37.5 + 10);
  EXPECT_GE(jobs[15].start.earliest_s, 2 * 24);
  EXPECT_LE(jobs[15].start.latest_s, 2 * (37.5 + 10));
  EXPECT_GE(jobs[16].start.median_s, jobs[15].finish.median_s);
  EXPECT_LE(jobs[16].start.latest_s, 3 * (37.5 + 10));

  // Two elements without an end keep their turns, and the array has no end.
  live_.jobs[0]["steps_left"] = nullptr;
  jobs = Forecast();
  EXPECT_LT(jobs[12].finish.latest_s, kNever);
  EXPECT_EQ(jobs[13].start.earliest_s, kNever);
  EXPECT_EQ(jobs[16].start.earliest_s, kNever);
}

// The first element was held and released, so it has the lowest id of those
// that wait for their turn.
TEST_F(WhatIfTest, AnElementThatWaitsForItsTurnTakesNoneOfThoseInTheQueue) {
  HaveAccelerators(4);
  for (uint64_t id = 11; id <= 13; ++id) {
    AddWaiting(id, 300.0, Json::array());
    live_.jobs.back()["waits"] = id == 11;
    live_.jobs.back()["array"] = 10;
    live_.jobs.back()["array_at_once"] = 2;
  }
  auto jobs = Forecast();
  EXPECT_NEAR(jobs[12].start.latest_s, 0, 0.1);
  EXPECT_NEAR(jobs[13].start.latest_s, 0, 0.1);
  EXPECT_GE(jobs[11].start.earliest_s, 24 - 0.1);
  EXPECT_LE(jobs[11].start.latest_s, 37.5 + 10);
}

TEST_F(WhatIfTest, AForecastThatTakesTooLongIsMadeFewerTimes) {
  for (uint64_t id = 11; id <= 400; ++id) {
    AddWaiting(id, 300.0, Json::array());
    live_.jobs.back()["waits"] = id > 12;
    live_.jobs.back()["array"] = 10;
    live_.jobs.back()["array_at_once"] = 2;
  }
  const auto forecast = PredictQueue(live_, 1e-6);
  ASSERT_OK(forecast);
  EXPECT_TRUE(forecast->cut_short);
  EXPECT_EQ(forecast->simulations, 1);
  EXPECT_EQ(forecast->jobs.size(), 390u);
  QueueForecast few;
  few.simulations = 2;
  QueueRow row;
  row.id = 11;
  row.state = "PD";
  EXPECT_THAT(RenderForecast(few, {row}, 0),
              HasSubstr("the spread is that of 2 simulations instead of 9"));
  EXPECT_EQ(ForecastJson(few, {row})["simulations"], 2);
}

TEST_F(WhatIfTest, AJobThatWaitsForATimeStartsThen) {
  AddWaiting(1, 100.0, Json::array())["not_before_s"] = 20'000.0;
  AddWaiting(2, 100.0, {1});
  auto jobs = Forecast();
  EXPECT_GE(jobs[1].start.earliest_s, 20'000);
  EXPECT_LE(jobs[1].start.latest_s, 20'010);
  EXPECT_GE(jobs[2].start.earliest_s, jobs[1].finish.earliest_s);
}

TEST_F(WhatIfTest, WhatWasMeasuredInTheQueueCountsMoreThanWhatIsGivenBehindIt) {
  AddJob(1, 500.0, 10);
  AddWaiting(2, 500.0, {1})["throughputs"]["v100"] = 99.0;
  spec_.throughputs.clear();
  spec_.app = "lm";
  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_GE(answer->job.finish_s - answer->job.start_s, 100);
}

TEST_F(WhatIfTest, TheElementsOfAnArrayThatHaveNotStartedShareALine) {
  std::vector<QueueRow> rows(4);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].id = 5 + i;
    rows[i].name = StrCat("lm_", i);
    rows[i].state = "PD";
    rows[i].array = 4;
    rows[i].array_name = "lm";
    rows[i].array_index = static_cast<int>(i);
  }
  rows[3].state = "R";
  QueueForecast forecast;
  forecast.jobs = {{5, {10, 20, 30}, {40, 50, 60}},
                   {6, {15, 25, 35}, {45, 55, 65}},
                   {7, {90, 90, 90}, {100, 110, 120}}};
  const std::string text = RenderForecast(forecast, rows, 200);
  EXPECT_THAT(
      text, AllOf(HasSubstr("4_[0-2]"), HasSubstr("lm "), Not(HasSubstr("lm_")),
                  HasSubstr("00:00:20"), HasSubstr("00:00:10 to 00:00:30"),
                  HasSubstr("00:01:40 to 00:02:00")));
  EXPECT_EQ(ForecastJson(forecast, rows)["jobs"].size(), 3u);
  // Those behind the queue have no forecast, so the end of all is not known.
  forecast.jobs.pop_back();
  EXPECT_THAT(
      RenderForecast(forecast, rows, 200),
      AllOf(HasSubstr("00:00:10 to 00:00:30"), Not(HasSubstr("00:01"))));
}

TEST_F(WhatIfTest, TheForecastOfAQueueHasColumnsToChooseFrom) {
  Json rows = Json::array({{{"id", 5}, {"name", "a"}, {"state", "PD"}},
                           {{"id", 6}, {"name", "b"}, {"state", "R"}},
                           {{"id", 7}, {"name", "c"}, {"state", "S"}},
                           {{"id", 8},
                            {"name", "d"},
                            {"state", "PD"},
                            {"awaits", Json::array({9})}}});
  QueueForecast forecast;
  forecast.jobs = {{5, {10, 20, 30}, {40, 50, 60}, /*at_most=*/true},
                   {7, {15, 15, 15}, {kNever, kNever, kNever}}};
  AddForecast(forecast, &rows);
  ASSERT_EQ(rows.size(), 3u) << "those that run have started";
  EXPECT_EQ(rows[0]["name"], "a");
  EXPECT_EQ(rows[0]["start"]["median_in_s"], 20);
  EXPECT_EQ(
      rows[1]["finish"].dump(),
      ForecastJson(forecast, ParseQueue(rows))["jobs"][1]["finish"].dump());
  FormatForecast(forecast, &rows);
  EXPECT_EQ(rows[0]["start"], "00:00:20 (00:00:10 to 00:00:30)");
  EXPECT_EQ(rows[0]["finish"], "at most 00:00:50 (00:00:40 to 00:01:00)");
  EXPECT_EQ(rows[1]["start"], "00:00:15");
  EXPECT_EQ(rows[1]["finish"], "-");
  EXPECT_EQ(rows[2]["start"], "after its parents");
}

TEST_F(WhatIfTest, JobsWithoutAnEndStay) {
  live_.status["policy"] = "max_min_fairness";
  AddJob(1, nullptr, 10);
  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_EQ(answer->endless, 1u);
  EXPECT_GE(answer->job.finish_s, 180);
  EXPECT_LE(answer->job.finish_s, 220);
}

// By its share it is the other job's turn, at the next round.
TEST_F(WhatIfTest, AJobThatStartsKeepsItsAcceleratorUntilTheRoundEnds) {
  live_.status["policy"] = "max_min_fairness";
  live_.status["round_ends_in_s"] = 4.0;
  AddJob(1, 200.0, 10);
  AddJob(2, 200.0, 10);
  live_.jobs[1]["placed"] = true;
  live_.jobs[1]["received_s"] = 40.0;
  live_.jobs[1]["received"] = {
      {"v100", {{"since_reset_s", 40.0}, {"deficit_s", -20.0}}}};
  live_.nodes[0]["accelerators"][0]["state"] = "starting";
  live_.nodes[0]["accelerators"][0]["starting_jobs"] = Json::array({2});
  auto jobs = Forecast();
  EXPECT_EQ(jobs[2].start.earliest_s, 0);
  EXPECT_EQ(jobs[2].start.latest_s, 0);
  EXPECT_NEAR(jobs[1].start.earliest_s, 4, 0.1);
  EXPECT_NEAR(jobs[1].start.latest_s, 4, 0.1);
  // Each takes 16 to 25 s, and the other one has a round in between.
  EXPECT_GE(jobs[2].finish.earliest_s, 16 + 10 - 0.1);
  EXPECT_LE(jobs[2].finish.latest_s, 2 * 25 + 0.1);

  HaveAccelerators(2);
  jobs = Forecast();
  EXPECT_NEAR(jobs[1].start.latest_s, 0, 0.1);
  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_EQ(answer->others.at(1).start_s, 0);
  EXPECT_NEAR(answer->others.at(1).finish_without_s, 20, 0.1);
  EXPECT_GE(answer->job.start_s, 3.9);
}

TEST_F(WhatIfTest, AnOpaqueJobThatRunsKeepsItsAccelerator) {
  live_.status["policy"] = "max_min_fairness";
  AddJob(1, 500.0, 10);
  AddJob(2, 500.0, 10);
  live_.jobs[1]["opaque"] = true;
  live_.nodes[0]["accelerators"][0]["state"] = "allocated";
  live_.nodes[0]["accelerators"][0]["jobs"] = Json::array({2});
  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  ASSERT_EQ(answer->others.size(), 2u);
  EXPECT_NEAR(answer->others[1].finish_s, 50, 0.1);
  EXPECT_GE(answer->others[0].start_s, 50);
  EXPECT_GE(answer->job.start_s, 50);
  const auto forecast = PredictQueue(live_, 10);
  ASSERT_OK(forecast);
  EXPECT_GE(forecast->jobs[0].start.earliest_s, 40);
}

TEST_F(WhatIfTest, AnOpaqueJobIsNotPausedOnceItRuns) {
  live_.status["policy"] = "max_min_fairness";
  AddJob(1, 1000.0, 10);
  spec_.job_class = JobClass::kOpaque;
  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_NEAR(answer->job.finish_s - answer->job.start_s, 100, 0.1);
  EXPECT_FALSE(answer->job.at_most);
}

TEST_F(WhatIfTest, AnOpaqueJobWithoutAnEndHoldsItsAcceleratorForEver) {
  AddJob(1, nullptr, 10);
  live_.jobs[0]["opaque"] = true;
  live_.nodes[0]["accelerators"][0]["state"] = "allocated";
  live_.nodes[0]["accelerators"][0]["jobs"] = Json::array({1});
  const auto full = Predict(live_, spec_, 10);
  ASSERT_OK(full);
  EXPECT_EQ(full->job.start_s, kNever);
  EXPECT_EQ(full->endless, 1u);
  EXPECT_FALSE(full->cut_short);
  const auto forecast = PredictQueue(live_, 10);
  ASSERT_OK(forecast);
  ASSERT_EQ(forecast->jobs.size(), 1u);
  EXPECT_EQ(forecast->jobs[0].finish.latest_s, kNever);

  live_.nodes[0]["accelerators"][1]["state"] = "idle";
  const auto free = Predict(live_, spec_, 10);
  ASSERT_OK(free);
  EXPECT_NEAR(free->job.finish_s, 100, 0.1);
}

TEST_F(WhatIfTest, AnOpaqueJobEndsAtTheLatestWithItsTimeLimit) {
  spec_.job_class = JobClass::kOpaque;
  spec_.steps_total = 0;
  spec_.throughputs.clear();
  spec_.time_limit_s = 60;
  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_NEAR(answer->job.finish_s, 60, 0.1);
  EXPECT_FALSE(answer->limited);
  EXPECT_EQ(WhatIfJson(*answer)["job"]["at_most"], true);
  EXPECT_THAT(RenderWhatIf(*answer, 1e9),
              HasSubstr("finishes  in at most 00:01:00, by "));

  AddJob(3, nullptr, 10);
  live_.jobs[0]["opaque"] = true;
  live_.jobs[0]["guessed"] = true;
  live_.jobs[0]["time_left_s"] = 60.0;
  const auto forecast = PredictQueue(live_, 10);
  ASSERT_OK(forecast);
  EXPECT_TRUE(forecast->jobs[0].at_most);
  EXPECT_NEAR(forecast->jobs[0].finish.latest_s, 60, 0.1);
  std::vector<QueueRow> rows(1);
  rows[0].id = 3;
  rows[0].state = "PD";
  EXPECT_THAT(RenderForecast(*forecast, rows, 200),
              HasSubstr("at most 00:01:00"));
  EXPECT_EQ(ForecastJson(*forecast, rows)["jobs"][0]["at_most"], true);
}

TEST_F(WhatIfTest, WhatComesBehindAnOpaqueJobStartsAtTheLatestThen) {
  HaveAccelerators(2);
  for (uint64_t id = 1; id <= 4; ++id) AddJob(id, 1000.0, 10);
  live_.jobs[0] = {{"id", 1},
                   {"opaque", true},
                   {"guessed", true},
                   {"time_left_s", 60.0},
                   {"placed", true},
                   {"scale_factor", 1},
                   {"throughputs", {{"v100", 1.0}}}};
  live_.nodes[0]["accelerators"][0]["state"] = "allocated";
  live_.nodes[0]["accelerators"][0]["jobs"] = Json::array({1});
  const auto forecast = PredictQueue(live_, 60);
  ASSERT_OK(forecast);
  ASSERT_EQ(forecast->jobs.size(), 4u);
  EXPECT_FALSE(forecast->jobs[1].start_at_most) << "it has room of its own";
  EXPECT_FALSE(forecast->jobs[1].at_most);
  EXPECT_NEAR(forecast->jobs[2].start.median_s, 60, 10.1);
  EXPECT_TRUE(forecast->jobs[2].start_at_most);
  EXPECT_TRUE(forecast->jobs[2].at_most);
  QueueRow row;
  row.id = 3;
  row.state = "PD";
  EXPECT_THAT(RenderForecast(*forecast, {row}, 200),
              HasSubstr(" at most 00:01:"));
  EXPECT_EQ(ForecastJson(*forecast, {row})["jobs"][0]["start_at_most"], true);

  const auto answer = Predict(live_, spec_, 30);
  ASSERT_OK(answer);
  EXPECT_TRUE(answer->job.start_at_most);
  EXPECT_THAT(RenderWhatIf(*answer, 1e9), HasSubstr("starts    in at most "));
  EXPECT_EQ(WhatIfJson(*answer)["others"][1]["start_at_most"], false);
}

TEST_F(WhatIfTest, AnAppThatRunsLendsItsThroughputs) {
  AddJob(1, 10.0, 20);
  spec_.throughputs.clear();
  spec_.app = "lm";
  const auto answer = Predict(live_, spec_, 10);
  ASSERT_OK(answer);
  EXPECT_NEAR(answer->job.finish_s - answer->job.start_s, 50, 0.5);
}

// Each job takes 100 s. Four of the five are ann's.
TEST_F(WhatIfTest, UsersDivideTheClusterWhereTheCoordinatorIsFairToThem) {
  live_.status["policy"] = "max_min_fairness";
  for (uint64_t id = 1; id <= 5; ++id) {
    AddJob(id, 1000.0, 10);
    live_.jobs.back()["owner"] = id == 5 ? "bob" : "ann";
  }
  const auto end_of_bobs_s = [&](const std::string& user, Time* added_s) {
    LiveState live = live_;
    live.user = user;
    const auto answer = Predict(live, spec_, 30);
    EXPECT_OK(answer);
    if (!answer.ok()) return 0.0;
    *added_s = answer->job.finish_s;
    return answer->others.at(4).finish_without_s;
  };
  Time added_s = 0;
  EXPECT_GE(end_of_bobs_s("", &added_s), 350);
  live_.status["user_shares"] = true;
  EXPECT_LE(end_of_bobs_s("", &added_s), 300);
  EXPECT_LE(added_s, 450) << "of a third user";
  EXPECT_LE(end_of_bobs_s("ann", &added_s), 300);
  EXPECT_GE(added_s, 450);

  // Parents are found by the name of their owner, too.
  spec_.after_success = {"5"};
  LiveState live = live_;
  live.user = "bob";
  const auto after = Predict(live, spec_, 30);
  ASSERT_OK(after);
  EXPECT_GE(after->job.start_s, after->others.at(4).finish_s);
  EXPECT_LT(after->job.finish_s, kNever);
}

TEST_F(WhatIfTest, WhatIsMissingIsNamed) {
  spec_.throughputs.clear();
  EXPECT_THAT(
      Predict(live_, spec_, 10),
      testing::StatusIs(absl::StatusCode::kInvalidArgument, "[throughputs]"));
  spec_.throughputs = {{"v100", 10.0}};
  spec_.steps_total = 0;
  EXPECT_THAT(
      Predict(live_, spec_, 10),
      testing::StatusIs(absl::StatusCode::kInvalidArgument, "steps_total"));
  spec_.steps_total = 1;
  live_.nodes = Json::array();
  EXPECT_THAT(
      Predict(live_, spec_, 10),
      testing::StatusIs(testing::kFailedPrecondition, "start an agent"));
}

TEST(PredictedWork, ServersOfDifferentSizesKeepWhatDividesThem) {
  const auto parts = PartsOf({{{"a", "v100"}, 8},
                              {{"b", "v100"}, 4},
                              {{"b", "k80"}, 2},
                              {{"c", "k80"}, 3}});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0], (ClusterPart{"k80", 5, 1}));
  EXPECT_EQ(parts[1], (ClusterPart{"v100", 12, 4}));
}

TEST(PastJobs, OutcomesCountWhatFinished) {
  Past past;
  for (uint64_t i = 0; i < 3; ++i) {
    PastJob job;
    job.job.id = i + 1;
    job.job.arrival_s = 0;
    job.job.steps = 100;
    job.job.steps_per_s = {{"v100", 10.0}};
    job.ended_s = 20.0 * static_cast<double>(i + 1);
    job.finished = i < 2;
    past.jobs.push_back(job);
  }
  const Outcome real = RealOutcome(past);
  EXPECT_EQ(real.finished, 2u);
  EXPECT_EQ(real.avg_jct_s, 30);
  EXPECT_EQ(real.makespan_s, 40);
  EXPECT_EQ(real.avg_slowdown, 3);
  EXPECT_EQ(real.worst_slowdown, 4);
  EXPECT_NEAR(real.fairness, 0.75 * 0.75 / (2 * (0.25 + 0.0625)), 1e-12);
  SimulationResult none;
  const Outcome empty = SimulatedOutcome(past, none, "simulated: fifo");
  EXPECT_EQ(empty.finished, 0u);
  EXPECT_THAT(RenderOutcomes({real, empty}), HasSubstr("simulated: fifo"));
}

}  // namespace
}  // namespace gavel
