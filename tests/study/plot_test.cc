#include <cmath>
#include <limits>

#include "study/report_page.h"
#include "tests/support/test.h"

namespace gavel::study {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

PlotRange RangeOf(double min, double max) {
  PlotRange range;
  range.Add(min);
  range.Add(max);
  return range;
}

TEST(PlotScale, TicksAreRoundNumbersThatCoverTheData) {
  const PlotScale scale = PlotScale::Linear(RangeOf(3, 97), true);
  EXPECT_EQ(scale.min(), 0);
  EXPECT_EQ(scale.max(), 100);
  std::vector<std::string> labels;
  for (const PlotTick& tick : scale.ticks()) labels.push_back(tick.label);
  EXPECT_THAT(labels,
              ::testing::ElementsAre("0", "20", "40", "60", "80", "100"));
}

TEST(PlotScale, AFlatLineHasAnAxis) {
  const PlotScale scale = PlotScale::Linear(RangeOf(5, 5), false);
  EXPECT_LT(scale.min(), scale.max());
  EXPECT_GE(scale.ticks().size(), 2);
  EXPECT_GE(PlotScale::Linear(PlotRange(), true).ticks().size(), 2);
}

TEST(PlotScale, NumbersThatAreNoneLeaveTheRangeAlone) {
  PlotRange range = RangeOf(1, 2);
  range.Add(kNaN);
  range.Add(std::numeric_limits<double>::infinity());
  EXPECT_EQ(range.max, 2);
}

TEST(PlotScale, ALogarithmicAxisSpreadsPowersEvenly) {
  PlotScale scale = PlotScale::Log(RangeOf(1, 1000));
  scale.Place(0, 300);
  EXPECT_NEAR(scale.At(1), 0, 1e-9);
  EXPECT_NEAR(scale.At(10), 100, 1e-9);
  EXPECT_NEAR(scale.At(1000), 300, 1e-9);
  EXPECT_TRUE(std::isfinite(scale.At(0)));
  EXPECT_TRUE(std::isfinite(scale.At(-5)));
}

TEST(PlotScale, NumbersAreShort) {
  EXPECT_EQ(PlotNumber(0), "0");
  EXPECT_EQ(PlotNumber(0.30000000000000004), "0.3");
  EXPECT_EQ(PlotNumber(1200), "1200");
  EXPECT_EQ(PlotNumber(-2.5), "-2.5");
  EXPECT_EQ(PlotNumber(1e20), "1e+20");
}

Plot SamplePlot() {
  Plot plot;
  plot.title = "A & B <1>";
  plot.x.label = "jobs per hour";
  plot.y.label = "JCT (h)";
  plot.series.push_back(
      {"one", 0, PlotMark::kLineAndDots, {{1, 2, "note"}, {2, 3, ""}}});
  plot.series.push_back({"two", 1, PlotMark::kLine, {{1, 4, ""}, {2, 1, ""}}});
  return plot;
}

TEST(Plot, HasAxesWithUnitsTicksLegendAndData) {
  const std::string svg = RenderPlot(SamplePlot());
  EXPECT_THAT(svg, AllOf(HasSubstr("jobs per hour"), HasSubstr("JCT (h)"),
                         HasSubstr(">one</text>"), HasSubstr(">two</text>"),
                         HasSubstr("<title>note</title>"),
                         HasSubstr("class=\"line\" d=\"M")));
  EXPECT_THAT(svg, HasSubstr("A &amp; B &lt;1&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(Plot, AHoleInTheDataIsAHoleInTheLine) {
  Plot plot = SamplePlot();
  plot.series = {{"one",
                  0,
                  PlotMark::kLine,
                  {{1, 1, ""}, {2, kNaN, ""}, {3, 1, ""}, {4, 2, ""}}}};
  const std::string svg = RenderPlot(plot);
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  const size_t line = svg.find("class=\"line\" d=\"");
  const std::string path = svg.substr(line, svg.find('>', line) - line);
  EXPECT_EQ(std::count(path.begin(), path.end(), 'M'), 2);
}

TEST(Plot, NothingToDrawIsNoError) {
  EXPECT_THAT(RenderPlot(Plot()), HasSubstr("</svg>"));
  EXPECT_THAT(RenderBars(BarChart()), HasSubstr("</svg>"));
  EXPECT_THAT(RenderHeatMap(HeatMap()), HasSubstr("</svg>"));
}

TEST(Plot, BarsLieInTheirRows) {
  BarChart chart;
  chart.x_max = 10;
  chart.groups = {{"v100", 2}};
  chart.bars = {{0, 0, 5, 0, "job 1"}, {1, 5, 10, 13, "job 2"}};
  const std::string svg = RenderBars(chart);
  EXPECT_THAT(svg, AllOf(HasSubstr("class=\"b0\""), HasSubstr("class=\"b3\""),
                         HasSubstr("job 2"), HasSubstr("v100")));
}

TEST(Plot, BarsLeaveRoomForLongNames) {
  BarChart chart;
  chart.x_max = 10;
  chart.groups = {{"v100", 1}};
  const std::string narrow = RenderBars(chart);
  EXPECT_THAT(narrow, HasSubstr("text-anchor=\"end\" x=\"56.0\""));
  chart.groups.push_back({"Recommendation", 1});
  // 14 letters of 6.6.
  EXPECT_THAT(RenderBars(chart),
              AllOf(HasSubstr("text-anchor=\"end\" x=\"100.4\""),
                    Not(HasSubstr("text-anchor=\"end\" x=\"56.0\""))));
}

TEST(Plot, AMapShowsWhatCannotShareDark) {
  HeatMap map;
  map.names = {"a", "b"};
  map.values = {1, 0, kNaN, 0.5};
  const std::string svg = RenderHeatMap(map);
  EXPECT_THAT(svg, AllOf(HasSubstr("#fde725"), HasSubstr("#440154"),
                         HasSubstr("b with a: can't share")));
}

}  // namespace
}  // namespace gavel::study
