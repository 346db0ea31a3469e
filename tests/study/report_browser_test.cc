// Opens the report in a real browser, which draws everything and logs no
// errors. Skipped if there is no Chromium.
#include <array>
#include <filesystem>
#include <fstream>
#include <regex>

#include "study/report.h"
#include "tests/study/sample_runs.h"
#include "tests/support/process.h"
#include "tests/support/temporary_folder.h"

namespace gavel::testing {

using namespace study;
namespace {

constexpr double kBrowserPatience_s = 100;

std::string FindChromium() {
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser",
                           "/usr/bin/google-chrome"}) {
    if (std::filesystem::exists(path)) return path;
  }
  return "";
}

size_t CountMatches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<size_t>(
      std::distance(std::sregex_iterator(text.begin(), text.end(), regex),
                    std::sregex_iterator()));
}

class ReportBrowserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    chromium_ = FindChromium();
    if (chromium_.empty()) GTEST_SKIP() << "there is no Chromium here";
    ASSERT_OK_AND_ASSIGN(SimulationStore store,
                         SimulationStore::Open(Path("results.db")));
    for (const StoredRun& run : SampleSweep()) ASSERT_OK(store.Append(run));
    ASSERT_OK_AND_ASSIGN(const ReportPage page,
                         MakeReport(store, {"Sample", true}));
    std::ofstream(Path("report.html")) << RenderPage(page);
    for (const ReportSection& section : page.sections) {
      figures_ += section.figures.size();
    }
  }

  std::string Path(const std::string& name) const {
    return folder_.path() + "/" + name;
  }

  // Standard output and errors of the browser on `page`.
  std::pair<std::string, std::string> Browse(
      const std::string& page, const std::vector<std::string>& options) {
    std::vector<std::string> argv = {chromium_,
                                     "--headless",
                                     "--no-sandbox",
                                     "--disable-gpu",
                                     "--user-data-dir=" + Path("profile"),
                                     "--enable-logging=stderr",
                                     "--window-size=1400,1000"};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.push_back("file://" + Path(page));
    Process browser(argv, Path("browser"));
    EXPECT_EQ(browser.Wait(kBrowserPatience_s), 0) << browser.errors();
    return {browser.output(), browser.errors()};
  }

  TemporaryFolder folder_;
  std::string chromium_;
  size_t figures_ = 0;
};

TEST_F(ReportBrowserTest, DrawsEveryPlotWithoutAComplaint) {
  const auto [dom, errors] = Browse("report.html", {"--dump-dom"});
  EXPECT_EQ(CountMatches(dom, "<svg class=\"plot\""), figures_);
  EXPECT_GT(figures_, 10);
  // Every line has points, and each series has its line.
  EXPECT_EQ(CountMatches(dom, "class=\"line\" d=\"\""), 0);
  EXPECT_GT(CountMatches(dom, "class=\"line\" d=\"M[0-9.]+ [0-9.]+[LHV]"), 40);
  EXPECT_GT(CountMatches(dom, "<path class=\"b[0-9]\" d=\"M"), 100);
  EXPECT_GT(CountMatches(dom, "<circle "), 100);
  EXPECT_THAT(errors, Not(HasSubstr("CONSOLE")));
  EXPECT_EQ(CountMatches(dom, "[ \"MLHV]-?(nan|NaN|inf)[ \"LHV]"), 0);
}

// Adds a script to the page, which writes its findings into the title.
TEST_F(ReportBrowserTest, TheSizesAreThoseOfAPageAndTheTableSorts) {
  std::string html = ReadText(Path("report.html"));
  const std::string probe =
      "<script>const box=document.querySelectorAll('svg .line');let seen=0;"
      "box.forEach(l=>{const b=l.getBBox();if(b.width>10)++seen});"
      "const h=[...document.querySelectorAll('th')].find(x=>x.textContent==="
      "'avg JCT h');h.click();const i=[...h.parentNode.children].indexOf(h);"
      "const v=[...h.closest('table').tBodies[0].rows].map(r=>parseFloat("
      "r.cells[i].textContent)).filter(x=>!isNaN(x));"
      "const sorted=v.every((x,k)=>k===0||v[k-1]<=x);"
      "document.title=`seen ${seen>40} sorted ${sorted} rows ${v.length>30} "
      "fits ${document.documentElement.scrollWidth<=innerWidth}`;</script>";
  html.insert(html.rfind("</body>"), probe);
  std::ofstream(Path("probed.html")) << html;
  const auto [dom, errors] = Browse("probed.html", {"--dump-dom"});
  const size_t title = dom.find("<title>") + 7;
  EXPECT_EQ(dom.substr(title, dom.find("</title>") - title),
            "seen true sorted true rows true fits true");
  EXPECT_THAT(errors, Not(HasSubstr("CONSOLE")));
}

TEST_F(ReportBrowserTest, AScreenshotIsNotBlank) {
  Browse("report.html", {"--screenshot=" + Path("shot.png")});
  // A blank page of this size is compressed to less than 10 kB.
  EXPECT_GT(std::filesystem::file_size(Path("shot.png")), 40'000);
}

}  // namespace
}  // namespace gavel::testing
