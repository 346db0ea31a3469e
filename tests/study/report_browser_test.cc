// Opens the report in a real browser, which draws everything and logs no
// errors. Skipped if there is no Chromium.
#include <filesystem>
#include <fstream>

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

  // The value of the expression on the page once its charts are drawn. Fails
  // where the browser complains.
  std::string Ask(const std::string& expression) {
    std::string html = ReadText(Path("report.html"));
    html.insert(
        html.rfind("</body>"),
        "<script type=\"module\">document.title=" + expression + "</script>");
    std::ofstream(Path("probed.html")) << html;
    const auto [dom, errors] = Browse("probed.html", {"--dump-dom"});
    EXPECT_THAT(errors, Not(HasSubstr("CONSOLE")));
    const size_t title = dom.find("<title>") + 7;
    return dom.substr(title, dom.find("</title>") - title);
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

TEST_F(ReportBrowserTest, DrawsEveryFigureWithATableBehindIt) {
  EXPECT_GT(figures_, 10);
  // A canvas is drawn where some pixels are and others are not.
  EXPECT_EQ(
      Ask("(()=>{const all=f=>[...document.querySelectorAll(f)];"
          "const drawn=all('canvas').filter(c=>{const d=c.getContext('2d')"
          ".getImageData(0,0,c.width,c.height).data;let n=0;"
          "for(let i=3;i<d.length;i+=4)n+=d[i]>0;"
          "return n>1000&&n<d.length/8});"
          "const bars=all('.gantt rect').length;"
          "all('details').forEach(d=>{d.open=true;"
          "d.dispatchEvent(new Event('toggle'))});"
          "const tables=all('details table').filter(t=>t.rows.length>2);"
          "return `charts ${drawn.length+all('.gantt').length} bars ${bars>100}"
          " tables ${tables.length}`})()"),
      "charts " + std::to_string(figures_) + " bars true tables " +
          std::to_string(figures_));
}

TEST_F(ReportBrowserTest, TheTableSortsAndThePageFits) {
  EXPECT_EQ(
      Ask("(()=>{const h=[...document.querySelectorAll('th')].find(x=>"
          "x.textContent==='avg JCT h');h.querySelector('button').click();"
          "const i=[...h.parentNode.children].indexOf(h);"
          "const v=[...h.closest('table').tBodies[0].rows].map(r=>parseFloat("
          "r.cells[i].textContent)).filter(x=>!isNaN(x));"
          "const sorted=v.every((x,k)=>k===0||v[k-1]<=x);"
          "return `sorted ${sorted} ${h.ariaSort} rows ${v.length>30} "
          "fits ${document.documentElement.scrollWidth<=innerWidth}`})()"),
      "sorted true ascending rows true fits true");
}

TEST_F(ReportBrowserTest, AScreenshotIsNotBlank) {
  Browse("report.html", {"--screenshot=" + Path("shot.png")});
  // A blank page of this size is compressed to less than 10 kB.
  EXPECT_GT(std::filesystem::file_size(Path("shot.png")), 40'000);
}

}  // namespace
}  // namespace gavel::testing
