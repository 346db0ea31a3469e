#include "coordinator/http/metrics.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "core/text.h"
#include "gavel_paths.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

JobTotalsRow SomeJobs() {
  JobTotalsRow jobs;
  jobs.reasons = {{"PD", "priority", 1}, {"R", "running", 1}};
  jobs.pauses = 4;
  jobs.pausing_s = 3;
  jobs.sharing = 2;
  jobs.deviation = 0.25;
  jobs.deviation_max = 0.25;
  return jobs;
}

NodeRow Node(const std::string& server, const std::string& state) {
  NodeRow node;
  node.server = server;
  node.state = state;
  AcceleratorRow one;
  one.type = "v\"100\\";
  one.state = "allocated";
  one.utilisation_percent = 60;
  node.accelerators = {one, one};
  node.accelerators[1].utilisation_percent = 20;
  return node;
}

std::string SomeMetrics() {
  StatusRow status;
  status.term = 3;
  status.seq = 1234567890123;
  status.policy = "fifo";
  status.gap = 0.25;
  status.outcome = "optimal";
  status.solve_s = 0.5;
  status.rows_unwritten = 4;
  status.round_duration_s = 360;
  status.jobs = {{"PD", 1}, {"R", 2}};
  status.kept_out.messages_refused = 5;
  status.stays.pauses = 7;
  status.stays.moves = 2;
  status.stays.pausing_s = 4.5;
  status.stays.overhead = {{"move", {{0.5, 1}, {3, 0, 1}, 4.5}}};
  return MetricsText(
      status, {Node("a", "mixed"), Node("a", "mixed"), Node("b", "down")},
      SomeJobs(), /*checkpoint_age_s=*/90);
}

TEST(Metrics, HaveTheFiguresOfTheDocuments) {
  const std::string text = SomeMetrics();
  for (const char* line :
       {"gavel_term 3\n",
        "gavel_journal_rows_total 1234567890123\n",
        "gavel_journal_unwritten_rows 4\n",
        "gavel_jobs{state=\"R\"} 2\n",
        "gavel_jobs_by_reason{state=\"PD\",reason=\"priority\"} 1\n",
        "gavel_present_jobs_pauses 4\n",
        "gavel_present_jobs_pausing_seconds 3\n",
        "gavel_share_deviation_mean 0.125\n",
        "gavel_share_deviation_max 0.25\n",
        "gavel_servers_up 1\n",
        "gavel_servers{state=\"mixed\"} 1\n",
        "gavel_accelerators{type=\"v\\\"100\\\\\",state=\"allocated\"} 6\n",
        "gavel_accelerator_utilisation_ratio{type=\"v\\\"100\\\\\"} 0.4\n",
        "gavel_solve_gap_ratio 0.25\n",
        "gavel_solve_duration_seconds 0.5\n",
        "gavel_kept_out_total{kind=\"messages_refused\"} 5\n",
        "gavel_pauses_total 7\n",
        "gavel_moves_total 2\n",
        "gavel_pausing_seconds_total 4.5\n",
        "# TYPE gavel_lease_overhead_seconds histogram\n",
        "gavel_lease_overhead_seconds_bucket{after=\"move\",le=\"0.5\"} 3\n",
        "gavel_lease_overhead_seconds_bucket{after=\"move\",le=\"1\"} 3\n",
        "gavel_lease_overhead_seconds_bucket{after=\"move\",le=\"+Inf\"} 4\n",
        "gavel_lease_overhead_seconds_sum{after=\"move\"} 4.5\n",
        "gavel_lease_overhead_seconds_count{after=\"move\"} 4\n",
        "gavel_checkpoint_age_max_seconds 90\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Metrics, LeaveOutWhatIsNotKnown) {
  const std::string text = MetricsText({}, {}, {});
  EXPECT_THAT(text, Not(HasSubstr("gavel_solve_gap")));
  EXPECT_THAT(text, Not(HasSubstr("gavel_checkpoint_age")));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  EXPECT_THAT(text, HasSubstr("gavel_share_deviation_mean 0\n"));
}

TEST(CheckpointAges, CountFromWhenACheckpointOfARunningJobWasFirstSeen) {
  CheckpointAges ages;
  EXPECT_EQ(ages.Oldest(100, {{1, {1, 5}}}), 0);
  EXPECT_EQ(ages.Oldest(160, {{1, {1, 5}}}), 60);
  EXPECT_EQ(ages.Oldest(200, {{1, {1, 20}}}), 0);
  EXPECT_EQ(ages.Oldest(230, {{1, {1, 20}}}), 30);
  // A paused job loses nothing.
  EXPECT_FALSE(ages.Oldest(500, {}).has_value());
  EXPECT_EQ(ages.Oldest(600, {{1, {1, 20}}}), 0);
}

TEST(Metrics, HaveBoundedLabels) {
  std::vector<NodeRow> nodes(1);
  for (size_t i = 0; i < 3 * kSeriesOfOneMax; ++i) {
    AcceleratorRow one;
    one.type = StrCat("type-", i);
    one.state = "idle";
    nodes[0].accelerators.push_back(one);
  }
  const std::string text = MetricsText({}, nodes, {});
  size_t series = 0;
  double sum = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("gavel_accelerators{")) continue;
    ++series;
    sum += std::atof(line.substr(line.rfind(' ')).c_str());
  }
  EXPECT_EQ(series, kSeriesOfOneMax);
  EXPECT_EQ(sum, 3 * kSeriesOfOneMax);
  EXPECT_THAT(text, HasSubstr("{type=\"other\",state=\"other\"}"));
}

constexpr const char* kMonitoring = GAVEL_SOURCE_DIR "/docs/monitoring/";

// All matches of the first group of the pattern in a file of docs/monitoring.
std::set<std::string> Found(const std::string& file, const char* pattern) {
  const std::string text = ReadText(kMonitoring + file);
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end;
       match != end; ++match) {
    found.insert((*match)[1]);
  }
  EXPECT_THAT(found, Not(IsEmpty())) << file;
  return found;
}

TEST(Metrics, HaveWhatTheAlertsAndTheGrafanaDashboardName) {
  const std::string text = SomeMetrics();
  for (const char* file : {"gavel.rules.yml", "grafana.json"}) {
    for (const std::string& name : Found(file, "\\b(gavel_[a-z_0-9]+)")) {
      EXPECT_THAT(text, ContainsRegex(StrCat("\n", name, "[{ ]"))) << file;
    }
  }
}

TEST(Alerts, AreExplained) {
  EXPECT_EQ(Found("prometheus.md", "\n\\| (Gavel\\w+) \\|"),
            Found("gavel.rules.yml", "- alert: (\\w+)\n"));
}

class Promtool : public Test {
 protected:
  void SetUp() override {
    if (std::system("promtool --version >/dev/null 2>&1") != 0) {
      GTEST_SKIP() << "there is no promtool (Debian's package prometheus, "
                      "which starts a server)";
    }
  }
};

TEST_F(Promtool, FindsNothingInTheMetrics) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/metrics";
  std::ofstream(file) << SomeMetrics();
  EXPECT_EQ(std::system(StrCat("promtool check metrics <", file).c_str()), 0);
}

TEST_F(Promtool, TakesTheAlerts) {
  const std::string command =
      StrCat("promtool check rules ", kMonitoring, "gavel.rules.yml");
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace gavel::testing
