#include "coordinator/server/journal/history_tables.h"
#include "coordinator/server/journal/journal.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "tests/support/temporary_folder.h"

namespace gavel::testing {
namespace {

class AnswerHistoryTest : public ::testing::Test {
 protected:
  AnswerHistoryTest() : path_(folder_.path() + "/journal.db") {}
  void WriteJobs(uint64_t count) {
    ASSERT_OK(Journal::Open(path_));
    std::vector<HistoryRow> rows;
    for (uint64_t i = 1; i <= count; ++i) {
      HistoryJob job;
      job.job = i;
      job.name = StrCat("job-", i);
      rows.emplace_back(job);
    }
    auto database = SqliteDatabase::Open(path_);
    ASSERT_OK(database);
    ASSERT_OK(WriteHistory(*database, rows));
  }
  QueryReply Ask(uint64_t number, const std::string& filter) const {
    QueryRequest request{number, QueryKind::kHistory, JobId()};
    request.filter = filter;
    return AnswerHistory(request, path_);
  }
  static std::string FilterOf(const std::string& table) {
    HistoryFilter filter;
    filter.table = table;
    return FormatHistoryFilter(filter);
  }

  TemporaryFolder folder_;
  std::string path_;
};

TEST_F(AnswerHistoryTest, IsOfTheTableThatWasAskedFor) {
  WriteJobs(3);
  const QueryReply jobs = Ask(7, FilterOf("jobs"));
  EXPECT_EQ(jobs.request, 7u);
  EXPECT_EQ(nlohmann::json::parse(jobs.json).size(), 3u);
  EXPECT_EQ(Ask(8, FilterOf("leases")).json, "[]");
}

TEST_F(AnswerHistoryTest, AnErrorIsAnAnswer) {
  EXPECT_THAT(Ask(1, FilterOf("jobs")).error, HasSubstr("journal.db"));
  EXPECT_THAT(Ask(2, "nonsense").error, HasSubstr("filter"));
}

}  // namespace
}  // namespace gavel::testing
