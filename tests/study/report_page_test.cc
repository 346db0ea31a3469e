#include "study/report_page.h"

#include <cmath>
#include <limits>

#include "coordinator/pages/pages.h"
#include "nlohmann/json.hpp"
#include "tests/support/test.h"

namespace gavel::study {
namespace {

using nlohmann::json;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr char kBefore[] = R"(<script type="application/json" id="report">)";

// The data of a page, as its script reads it.
json DataOf(const std::string& html) {
  const size_t begin = html.find(kBefore) + sizeof kBefore - 1;
  return json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

ReportPage PageWith(Figure figure) {
  ReportPage page;
  page.title = "A & B <1>";
  ReportSection& section = page.sections.emplace_back();
  section.id = "one";
  section.figures.push_back(std::move(figure));
  return page;
}

json FigureOf(Figure figure) {
  return DataOf(
      RenderPage(PageWith(std::move(figure))))["sections"][0]["figures"][0];
}

size_t CountOf(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(ReportPage, APlotHasItsAxesSeriesAndPoints) {
  Plot plot;
  plot.title = "JCT";
  plot.x = {"jobs per hour", true, false, {}, {}};
  plot.y = {"JCT (h)", false, true, 0, 100};
  plot.series.push_back(
      {"fifo", 3, PlotMark::kSteps, {{1, 2, "note"}, {2, 1.0 / 3, ""}}});
  EXPECT_EQ(FigureOf(plot), json::parse(R"json({
    "kind": "lines", "title": "JCT", "diagonal": false,
    "x": {"label": "jobs per hour", "log": true, "from_zero": false},
    "y": {"label": "JCT (h)", "log": false, "from_zero": true,
          "min": 0.0, "max": 100.0},
    "series": [{"name": "fifo", "color": 3, "mark": "steps",
                "points": [[1.0, 2.0, "note"], [2.0, 0.333333]]}]})json"));
}

TEST(ReportPage, APointOfSeveralSeedsHasItsErrorBar) {
  Plot plot;
  plot.series.push_back({"fifo", 0, PlotMark::kLine, {{1, 2, "", 1.5, 3}}});
  EXPECT_EQ(FigureOf(plot)["series"][0]["points"],
            json::parse(R"([[1.0, 2.0, "", 1.5, 3.0]])"));
}

TEST(ReportPage, AHoleInTheDataIsNull) {
  Plot plot;
  plot.series.push_back(
      {"one", 0, PlotMark::kLine, {{1, 1, ""}, {2, kNaN, ""}, {3, 1, ""}}});
  EXPECT_EQ(FigureOf(plot)["series"][0]["points"],
            json::parse("[[1.0, 1.0], [2.0, null], [3.0, 1.0]]"));
}

TEST(ReportPage, BarsLieInTheirRows) {
  BarChart chart;
  chart.title = "Rounds";
  chart.unit = "h";
  chart.x_max = 10;
  chart.rows = {"v100 1", "v100 2"};
  chart.bars = {{0, 0, 5, 0, "job 0"}, {1, 5, 10, 13, "job 13"}};
  EXPECT_EQ(FigureOf(chart), json::parse(R"({
    "kind": "bars", "title": "Rounds", "unit": "h", "to": 10.0,
    "rows": ["v100 1", "v100 2"], "names": [],
    "bars": [[0, 0.0, 5.0, 0, "job 0"], [1, 5.0, 10.0, 13, "job 13"]]})"));
}

TEST(ReportPage, AMapTellsNoValueFromZero) {
  HeatMap map;
  map.names = {"a", "b"};
  map.values = {1, 0, kNaN, 0.5};
  map.none = "can't share";
  const json figure = FigureOf(map);
  EXPECT_EQ(figure["values"], json::parse("[1.0, 0.0, null, 0.5]"));
  EXPECT_EQ(figure["none"], "can't share");
}

TEST(ReportPage, NamesCanNotLeaveTheData) {
  constexpr char kHostile[] = "</script><script>alert(1)</script><!-- \xff";
  Plot plot;
  plot.title = kHostile;
  plot.series.push_back({kHostile, 0, PlotMark::kLine, {{1, 1, kHostile}}});
  ReportPage page = PageWith(plot);
  page.title = page.summary = kHostile;
  page.sections[0].table = {{kHostile}, {{kHostile}}};
  page.sections[0].notes = {kHostile};
  const std::string html = RenderPage(page);
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("<!--")));
  // Chart.js, the data, and the report's own script.
  EXPECT_EQ(CountOf(html, "</script>"), 3);
  EXPECT_EQ(DataOf(html)["summary"],
            "</script><script>alert(1)</script><!-- \xef\xbf\xbd");
}

TEST(ReportPage, APageNeedsNothingElse) {
  const std::string html = RenderPage(PageWith(Plot()));
  EXPECT_THAT(html, AllOf(HasSubstr("default-src 'none'"),
                          HasSubstr("<title>A &amp; B &lt;1></title>"),
                          HasSubstr("Chart.js v"), HasSubstr("light-dark(")));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("src=\"")), Not(HasSubstr("@import")),
                          Not(HasSubstr("from './"))));
}

TEST(ReportPage, ALongCsvIsLeftToTheCommand) {
  ReportPage page = PageWith(Plot());
  page.sections[0].csv = Csv({"a"});
  page.sections[0].csv.Add({"1"});
  EXPECT_EQ(DataOf(RenderPage(page))["sections"][0]["csv"], "a\n1\n");
  page.sections[0].csv.Add({std::string(600 * 1024, 'x')});
  EXPECT_TRUE(DataOf(RenderPage(page))["sections"][0]["csv"].is_null());
}

TEST(Pages, TheScriptOfReportsIsOneWithItsModules) {
  for (const Page& page : CompiledPages()) {
    const std::string text(page.bytes);
    // It would end the element that a report puts it into.
    if (page.name == "report.js" || page.name == "chart.umd.js") {
      EXPECT_EQ(text.find("</script"), std::string::npos) << page.name;
    }
    if (page.name != "report.js") continue;
    EXPECT_THAT(text,
                AllOf(HasSubstr("class LineChart"), Not(HasSubstr("\nexport ")),
                      Not(HasSubstr("\nimport "))));
  }
}

}  // namespace
}  // namespace gavel::study
