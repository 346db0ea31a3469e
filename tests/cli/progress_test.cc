#include "coordinator/cli/local_run.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

QueueRow Row(uint64_t id, const std::string& state, const std::string& uuid) {
  QueueRow row;
  row.id = id;
  row.name = "job";
  row.state = state;
  if (!uuid.empty()) {
    row.accelerators.emplace_back();
    row.accelerators[0].server = "here";
    row.accelerators[0].type = "cpu";
    row.accelerators[0].uuid = uuid;
  }
  return row;
}

std::vector<std::string> Take(LocalProgress& progress, Time at,
                              const QueueRow& row) {
  return progress.Take({at, {}, {row}});
}

TEST(LocalProgress, TellsWhatChangedAndRunningJobsEveryFewSeconds) {
  LocalProgress progress;
  EXPECT_THAT(Take(progress, 0, Row(1, "PD", "")),
              ElementsAre(HasSubstr("job 1 job: waiting")));
  EXPECT_THAT(Take(progress, 1, Row(1, "PD", "")), IsEmpty());
  EXPECT_THAT(Take(progress, 2, Row(1, "R", "here-0")),
              ElementsAre(AllOf(HasSubstr("[    2.0 s]"),
                                HasSubstr("running on here-0 (cpu)"))));
  EXPECT_THAT(Take(progress, 3, Row(1, "R", "here-0")), IsEmpty());
  EXPECT_THAT(Take(progress, 4, Row(1, "R", "here-1")),
              ElementsAre(HasSubstr("here-1")));
  EXPECT_THAT(Take(progress, 10, Row(1, "R", "here-1")),
              ElementsAre(HasSubstr("here-1")));
  EXPECT_THAT(Take(progress, 11, Row(1, "CD", "")),
              ElementsAre(HasSubstr("finished")));
  EXPECT_THAT(Take(progress, 99, Row(1, "CD", "")), IsEmpty());
}

TEST(LocalProgress, TheSummaryNamesEachAcceleratorOnce) {
  LocalProgress progress;
  Json leases = Json::array();
  for (const char* uuid : {"here-1", "here-0", "here-1"}) {
    for (const int job : {1, 2}) {
      leases.push_back({{"job", job},
                        {"server", "here"},
                        {"uuid", StrCat(uuid, job == 2 ? "-of-2" : "")},
                        {"type", "cpu"}});
    }
  }
  QueueRow last = Row(1, "CD", "");
  last.last_generation = {4, 250};
  StatusRow status;
  status.rounds = 7;
  progress.Take({9, status, {last}});
  const Json summary = progress.Summary(leases);
  EXPECT_EQ(summary["rounds"], 7);
  const Json& job = summary["jobs"][0];
  EXPECT_EQ(job["state"], "finished");
  ASSERT_EQ(job["accelerators_used"].size(), 2);
  EXPECT_EQ(job["accelerators_used"][0]["uuid"], "here-1");
  EXPECT_EQ(job["accelerators_used"][1]["uuid"], "here-0");
  EXPECT_EQ(job["final_generation"]["step"], 250);
}

}  // namespace
}  // namespace gavel
