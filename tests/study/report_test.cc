#include "study/report.h"

#include <cmath>

#include "tests/study/sample_runs.h"
#include "tests/support/temporary_folder.h"

namespace gavel::testing {

using namespace study;
namespace {

class ReportTest : public ::testing::Test {
 protected:
  ReportPage PageOf(const std::vector<StoredRun>& runs, bool each_run = false) {
    auto store = SimulationStore::Open(folder_.path() + "/results.db");
    EXPECT_TRUE(store.ok()) << store.status();
    for (const StoredRun& run : runs) EXPECT_OK(store->Append(run));
    auto page = MakeReport(*store, {"Sample", each_run});
    EXPECT_TRUE(page.ok()) << page.status();
    return *std::move(page);
  }
  static std::vector<std::string> IdsOf(const ReportPage& page) {
    std::vector<std::string> ids;
    for (const ReportSection& section : page.sections) {
      ids.push_back(section.id);
    }
    return ids;
  }
  static const ReportSection& SectionOf(const ReportPage& page,
                                        const std::string& id) {
    return *std::ranges::find(page.sections, id, &ReportSection::id);
  }
  static const Plot& PlotOf(const ReportSection& section, size_t i = 0) {
    return std::get<Plot>(section.figures.at(i));
  }
  static std::vector<std::string> NamesIn(const Plot& plot) {
    std::vector<std::string> names;
    for (const PlotSeries& series : plot.series) names.push_back(series.name);
    return names;
  }
  TemporaryFolder folder_;
};

TEST_F(ReportTest, EachKindOfPlotIsThere) {
  const ReportPage page = PageOf(SampleSweep(), /*each_run=*/true);
  EXPECT_THAT(IdsOf(page),
              ElementsAre("jct-rate", "jct-cdf", "makespan-jobs", "rho-cdf",
                          "rho-time", "usage", "shares", "rounds", "runs"));
  for (const ReportSection& section : page.sections) {
    EXPECT_FALSE(section.csv.empty()) << section.id;
    if (section.id != "runs") {
      EXPECT_FALSE(section.figures.empty());
    }
  }
  EXPECT_THAT(page.summary, HasSubstr("43 runs"));
}

TEST_F(ReportTest, JctIsAMeanOverSeedsAndCrossesMarkWhatDoesNotDrain) {
  const ReportSection section = SectionOf(PageOf(SampleSweep()), "jct-rate");
  ASSERT_EQ(section.figures.size(), 1);
  const Plot& plot = PlotOf(section);
  EXPECT_EQ(plot.x.label, "jobs per hour");
  EXPECT_EQ(plot.y.label, "average JCT (h)");
  EXPECT_THAT(plot.series.front().points.front().note, HasSubstr("2 seeds"));
  const PlotSeries& crosses = plot.series.back();
  EXPECT_EQ(crosses.mark, PlotMark::kCrosses);
  EXPECT_EQ(crosses.points.at(0).note, "fifo at 3.5: does not drain");
  EXPECT_THAT(section.csv.text(), HasSubstr(",fifo,3.5,0,,,,2\n"));
}

TEST_F(ReportTest, ErrorBarsReachFromTheLeastSeedToTheGreatest) {
  std::vector<StoredRun> runs;
  for (const double rate : {1, 2}) {
    for (const uint64_t seed : {0, 1, 2}) {
      runs.push_back(SampleRun("fifo", rate, seed));
      runs.back().run.result.avg_jct_s =
          3600 * rate * static_cast<double>(1 + seed);
    }
  }
  const ReportSection section = SectionOf(PageOf(runs), "jct-rate");
  ASSERT_EQ(section.figures.size(), 1);
  const std::vector<PlotPoint>& points = PlotOf(section).series.at(0).points;
  ASSERT_EQ(points.size(), 2);
  EXPECT_EQ(points[1].y, 4);
  EXPECT_EQ(points[1].low, 2);
  EXPECT_EQ(points[1].high, 6);
  EXPECT_THAT(section.csv.text(), HasSubstr(",fifo,2,3,4,2,6,0\n"));
}

TEST_F(ReportTest, ASeedAloneHasNoErrorBar) {
  const ReportSection section = SectionOf(
      PageOf({SampleRun("fifo", 1, 0), SampleRun("fifo", 2, 0)}), "jct-rate");
  ASSERT_EQ(section.figures.size(), 1);
  EXPECT_TRUE(std::isnan(PlotOf(section).series.at(0).points.at(0).low));
}

TEST_F(ReportTest, RhoIsDrawnAsADistributionAndOverTime) {
  StoredRun run = SampleRun("fifo", 1, 0);
  run.run.result.jobs.resize(4);
  for (size_t i = 0; i < 4; ++i) {
    SimulatedJob& job = run.run.result.jobs[i];
    job.rho = 0.5 + static_cast<double>(i);
    job.completion_s = 3600 * static_cast<double>(i < 2 ? 1 : 80);
  }
  const ReportPage page = PageOf({run});
  const ReportSection& cdf = SectionOf(page, "rho-cdf");
  EXPECT_THAT(cdf.csv.text(), HasSubstr(",fifo,0.5,0.25\n"));
  EXPECT_THAT(cdf.csv.text(), HasSubstr(",fifo,3.5,1\n"));
  ASSERT_EQ(cdf.figures.size(), 1);
  EXPECT_EQ(PlotOf(cdf).x.label, "finish-time fairness (rho)");
  // Time is divided into 40 parts of 80 hours together. Two jobs end in the
  // first part, and two in the last.
  const ReportSection& over_time = SectionOf(page, "rho-time");
  EXPECT_THAT(over_time.csv.text(), AllOf(HasSubstr(",fifo,1,2,1,1.5\n"),
                                          HasSubstr(",fifo,79,2,3,3.5\n")));
  ASSERT_EQ(over_time.figures.size(), 1);
  EXPECT_EQ(PlotOf(over_time).series.at(0).points.back().note,
            "fifo at 79.0 h: 3.00, worst 3.50 of 2 jobs");
}

// A run of one app for each rho.
StoredRun RunWithApps(const std::string& policy, uint64_t seed,
                      const std::vector<double>& rhos) {
  StoredRun run = SampleRun(policy, 1, seed);
  SimulationResult& result = run.run.result;
  for (const double rho : rhos) {
    result.apps.push_back({"", 1, 0, 3600, rho, false});
  }
  result.median_app_rho = 1.5;
  result.max_app_rho = 2.25;
  result.app_jain_index = 0.875;
  return run;
}

TEST_F(ReportTest, RhoOfAppsOfAllSeedsIsADistributionOfItsOwn) {
  const ReportPage page =
      PageOf({RunWithApps("themis", 0, {0.5, 2}),
              RunWithApps("themis", 1, {1, 2.25}), SampleRun("fifo", 1, 0)});
  EXPECT_THAT(IdsOf(page), Contains("app-rho-cdf"));
  const ReportSection& cdf = SectionOf(page, "app-rho-cdf");
  EXPECT_THAT(cdf.csv.text(),
              AllOf(HasSubstr(",themis,0.5,0.25\n"),
                    HasSubstr(",themis,1,0.5\n"), HasSubstr(",themis,2,0.75\n"),
                    HasSubstr(",themis,2.25,1\n"), Not(HasSubstr("fifo"))));
  ASSERT_EQ(cdf.figures.size(), 1);
  EXPECT_THAT(NamesIn(PlotOf(cdf)), ElementsAre("themis"));
  EXPECT_EQ(PlotOf(cdf).y.label, "apps (fraction)");
  EXPECT_THAT(cdf.notes,
              ElementsAre(HasSubstr("fifo (fewer than two of its apps are")));
  const ReportTable& table = SectionOf(page, "runs").table;
  EXPECT_THAT(table.titles,
              IsSupersetOf({"median app rho", "worst app rho", "Jain"}));
  for (const auto& row : table.rows) {
    EXPECT_EQ(row.size(), table.titles.size());
  }
  const std::vector<std::string>& row = table.rows.front();
  EXPECT_THAT(std::vector(row.end() - 3, row.end()),
              ElementsAre("1.500", "2.250", "0.875"));
}

TEST_F(ReportTest, WithoutAppsThereIsNothingOfThem) {
  const ReportPage page = PageOf({SampleRun("fifo", 1, 0)});
  EXPECT_THAT(IdsOf(page), Not(Contains("app-rho-cdf")));
  EXPECT_THAT(SectionOf(page, "runs").table.titles, Not(Contains("Jain")));
}

TEST_F(ReportTest, TheHighestRateStandsBesideTheCapacity) {
  std::vector<StoredRun> runs;
  for (const double rate : {0.5, 1.0, 2.0}) {
    runs.push_back(SampleRun("fifo", rate, 0));
    runs.back().run.stretch_first = runs.back().run.stretch_second = 1;
    runs.back().run.offered_load = rate / 1.25;
  }
  const ReportTable table = SectionOf(PageOf(runs), "jct-rate").table;
  EXPECT_THAT(table.rows,
              ElementsAre(ElementsAre("all", "fifo", "1", "2", "1.25")));
}

TEST_F(ReportTest, ChartsOfSingleRunsAreDrawnOnRequestOnly) {
  const ReportPage page = PageOf(SampleSweep());
  const ReportPage each = PageOf({}, /*each_run=*/true);
  for (const char* id : {"usage", "shares"}) {
    // Each of three loads has one chart for all schedulers. "usage" has a
    // second one, of the waiting jobs.
    EXPECT_LE(SectionOf(page, id).figures.size(), 6) << id;
    EXPECT_GT(SectionOf(each, id).figures.size(),
              SectionOf(page, id).figures.size())
        << id;
  }
  EXPECT_EQ(SectionOf(page, "rounds").figures.size(), 0);
  EXPECT_THAT(SectionOf(page, "rounds").notes,
              ElementsAre("Rounds of 1 run are recorded; `gavel report "
                          "--each-run` draws them."));
  const ReportSection& rounds = SectionOf(each, "rounds");
  ASSERT_EQ(rounds.figures.size(), 1);
  const auto& chart = std::get<BarChart>(rounds.figures[0]);
  EXPECT_THAT(chart.rows.at(0), HasSubstr(" 1"));
  for (const BarChart::Bar& bar : chart.bars) {
    EXPECT_LT(bar.row, chart.rows.size());
  }
  EXPECT_THAT(NamesIn(PlotOf(SectionOf(page, "shares"))),
              ElementsAre("fifo", "max_min_fairness", "max_min_fairness_perf"));
}

TEST_F(ReportTest, WhatAChartLacksIsSaid) {
  const ReportPage page = PageOf(SampleSweep());
  EXPECT_THAT(SectionOf(page, "jct-cdf").notes,
              Contains(AllOf(HasSubstr("Not in the chart of"),
                             HasSubstr("fifo (no run of it ended: 2 "
                                       "cannot_drain)."))));
  EXPECT_THAT(SectionOf(page, "jct-cdf").notes,
              Contains(HasSubstr("6 of 7 loads are drawn")));
  EXPECT_THAT(SectionOf(page, "usage").notes,
              Contains(HasSubstr("its use over time was not recorded")));
  EXPECT_THAT(RenderPage(page), HasSubstr("Not in the chart of"));
}

TEST_F(ReportTest, ASchedulerThatWasNotRunIsSaid) {
  const ReportPage page =
      PageOf({SampleRun("fifo", 1, 0), SampleRun("fifo", 2, 0),
              SampleRun("sjf", 2, 0)});
  EXPECT_THAT(SectionOf(page, "jct-cdf").notes,
              Contains(HasSubstr("sjf (not run).")));
}

TEST_F(ReportTest, ASchedulerOfAnotherWorkloadIsNotMissing) {
  StoredRun other = SampleRun("sjf", 2, 0);
  other.spec.cluster = "v100:8";
  const ReportPage page =
      PageOf({SampleRun("fifo", 1, 0), SampleRun("fifo", 2, 0), other});
  for (const ReportSection& section : page.sections) {
    EXPECT_THAT(section.notes, Each(Not(HasSubstr("not run")))) << section.id;
  }
}

TEST_F(ReportTest, NothingIsDrawnOfASingleDot) {
  const ReportPage page =
      PageOf({SampleRun("fifo", 1, 0), SampleStaticRun("fifo", 1, 0)});
  EXPECT_EQ(SectionOf(page, "jct-rate").figures.size(), 0);
  EXPECT_THAT(SectionOf(page, "jct-rate").notes,
              ElementsAre(HasSubstr("one value of jobs per hour only")));
  EXPECT_EQ(SectionOf(page, "makespan-jobs").figures.size(), 0);
  EXPECT_EQ(SectionOf(page, "jct-cdf").figures.size(), 1);
  EXPECT_THAT(SectionOf(page, "jct-cdf").notes,
              ElementsAre(AllOf(HasSubstr("Nothing to draw of"),
                                HasSubstr("fewer than two jobs ended"))));
}

TEST_F(ReportTest, SchedulersThatDifferOtherThanByPolicyHaveTheirOwnLines) {
  StoredRun two = SampleRun("fifo", 1, 0);
  two.key = "two";
  two.spec.mechanism = "move_aware";
  two.spec.overheads = "pause=2";
  const ReportPage page =
      PageOf({SampleRun("fifo", 1, 0), SampleRun("fifo", 2, 0), two});
  EXPECT_THAT(
      NamesIn(PlotOf(SectionOf(page, "jct-rate"))),
      ElementsAre("fifo, gavel, overheads none", "fifo, move_aware, pause=2"));
}

TEST_F(ReportTest, OtherClustersHaveTheirOwnPlots) {
  std::vector<StoredRun> runs;
  for (const double rate : {1, 2}) {
    runs.push_back(SampleRun("fifo", rate, 0));
    runs.push_back(SampleRun("fifo", rate, 0));
    runs.back().key += "-eight";
    runs.back().spec.cluster = "v100:8";
    runs.back().spec.multi_gpu = true;
  }
  const ReportPage page = PageOf(runs);
  EXPECT_EQ(SectionOf(page, "jct-rate").figures.size(), 2);
  EXPECT_EQ(SectionOf(page, "jct-cdf").figures.size(), 4);
  EXPECT_THAT(PlotOf(SectionOf(page, "jct-cdf"), 3).title,
              HasSubstr("v100:8, multi gpu"));
}

TEST_F(ReportTest, NoRunsAreNoPage) {
  auto store = SimulationStore::Open(folder_.path() + "/results.db");
  ASSERT_OK(store.status());
  EXPECT_THAT(MakeReport(*store, {"Sample"}).status(),
              StatusIs(absl::StatusCode::kNotFound, "no runs in it"));
}

TEST(Csv, QuotesWhatNeedsIt) {
  Csv csv({"a", "b"});
  EXPECT_TRUE(csv.empty());
  csv.Add({"1,5", "say \"no\""});
  EXPECT_EQ(csv.text(), "a,b\n\"1,5\",\"say \"\"no\"\"\"\n");
  EXPECT_FALSE(csv.empty());
}

}  // namespace
}  // namespace gavel::testing
