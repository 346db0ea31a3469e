#include "coordinator/server/history.h"
#include "coordinator/server/journal.h"
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
  QueryReply Ask(uint64_t number, const std::string& filter,
                 const Identity& reader = Identity()) const {
    QueryRequest request{number, QueryKind::kHistory, JobId()};
    request.filter = filter;
    return AnswerHistory(request, reader, path_);
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

TEST_F(AnswerHistoryTest, WhyAJobIsHeldIsForItsOwnerAndOperators) {
  ASSERT_OK(Journal::Open(path_));
  HistoryJob job;
  job.job = 7;
  job.user = "alice";
  job.state = "F";
  job.exit_code = 3;
  job.reason = "held: exit code 3, \"password=hunter2\"";
  auto database = SqliteDatabase::Open(path_);
  ASSERT_OK(database);
  ASSERT_OK(WriteHistory(*database, std::vector<HistoryRow>{job}));
  const auto row = [&](const std::string& name, Role role) {
    Identity reader;
    reader.name = name;
    reader.role = role;
    const QueryReply reply = Ask(1, FilterOf("jobs"), reader);
    return nlohmann::json::parse(reply.json).at(0);
  };
  EXPECT_EQ(row("alice", Role::kUser)["reason"], job.reason);
  EXPECT_EQ(row("olga", Role::kOperator)["reason"], job.reason);
  for (const nlohmann::json& others :
       {row("bob", Role::kUser), row("vera", Role::kViewer)}) {
    EXPECT_EQ(others["reason"], "`gavel why 7` says why");
    EXPECT_EQ(others["state"], "F");
    EXPECT_EQ(others["exit_code"], 3);
  }
}

TEST_F(AnswerHistoryTest, AnErrorIsAnAnswer) {
  EXPECT_THAT(Ask(1, FilterOf("jobs")).error, HasSubstr("journal.db"));
  EXPECT_THAT(Ask(2, "nonsense").error, HasSubstr("filter"));
}

}  // namespace
}  // namespace gavel::testing
