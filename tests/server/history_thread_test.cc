#include "coordinator/server/journal/history_thread.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "coordinator/server/journal/history_tables.h"
#include "coordinator/server/journal/journal.h"
#include "core/text.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/server/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace gavel::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience(30);

class HistoryThreadTest : public ::testing::Test {
 protected:
  HistoryThreadTest() : path_(folder_.path() + "/journal.db") {}
  void WriteJobs(int count) {
    auto journal = Journal::Open(path_);
    ASSERT_OK(journal);
    std::vector<HistoryRow> rows;
    for (int i = 1; i <= count; ++i) {
      HistoryJob job;
      job.job = static_cast<uint64_t>(i);
      job.name = "job-" + std::to_string(i);
      rows.emplace_back(job);
    }
    auto database = SqliteDatabase::Open(path_);
    ASSERT_OK(database);
    ASSERT_OK(WriteHistory(*database, rows));
  }
  std::unique_ptr<HistoryThread> Make() {
    return std::make_unique<HistoryThread>(path_, [this] {
      const std::lock_guard lock(mutex_);
      ++told_;
      changed_.notify_all();
    });
  }
  // Until so many answers are there.
  void Wait(int answers) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, kPatience, [&] { return told_ >= answers; }));
  }
  static QueryRequest Request(uint64_t number, const std::string& table) {
    HistoryFilter filter;
    filter.table = table;
    QueryRequest request{number, QueryKind::kHistory, JobId()};
    request.filter = FormatHistoryFilter(filter);
    return request;
  }

  TemporaryFolder folder_;
  std::string path_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int told_ = 0;
};

TEST_F(HistoryThreadTest, AnswersInOrderToWhoAsked) {
  WriteJobs(3);
  const auto thread = Make();
  EXPECT_TRUE(thread->Ask("anna", "anna", Request(7, "jobs")));
  EXPECT_TRUE(thread->Ask("ben", "ben", Request(8, "leases")));
  Wait(2);
  const auto first = thread->TakeAnswer();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->peer, "anna");
  EXPECT_EQ(first->reply.request, 7u);
  EXPECT_EQ(nlohmann::json::parse(first->reply.json).size(), 3u);
  const auto second = thread->TakeAnswer();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->peer, "ben");
  EXPECT_EQ(second->reply.json, "[]");
  EXPECT_FALSE(thread->TakeAnswer().has_value());
}

TEST_F(HistoryThreadTest, AnErrorIsAnAnswer) {
  const auto thread = Make();
  EXPECT_TRUE(
      thread->Ask("anna", "anna", Request(1, "jobs")));  // there is no file
  QueryRequest wrong = Request(2, "jobs");
  wrong.filter = "nonsense";
  EXPECT_TRUE(thread->Ask("anna", "anna", wrong));
  Wait(2);
  const auto no_file = thread->TakeAnswer();
  ASSERT_TRUE(no_file.has_value());
  EXPECT_THAT(no_file->reply.error, HasSubstr("journal.db"));
  const auto no_filter = thread->TakeAnswer();
  ASSERT_TRUE(no_filter.has_value());
  EXPECT_THAT(no_filter->reply.error, HasSubstr("filter"));
}

// Who asks without end fills no memory: answers that nobody takes count.
TEST_F(HistoryThreadTest, RefusesWhenTooManyWait) {
  WriteJobs(1);
  const auto thread = Make();
  const auto ask = [&](size_t reader) {
    return thread->Ask("peer", StrCat("reader-", reader), Request(1, "jobs"));
  };
  for (size_t i = 0; i < HistoryThread::kWaitingMax; ++i) {
    EXPECT_TRUE(ask(i / HistoryThread::kOfOneMax));
  }
  EXPECT_FALSE(ask(99));
  Wait(1);
  ASSERT_TRUE(thread->TakeAnswer().has_value());
  EXPECT_TRUE(ask(99));
}

TEST_F(HistoryThreadTest, OneReaderLeavesRoomForOthers) {
  WriteJobs(1);
  const auto thread = Make();
  for (size_t i = 0; i < HistoryThread::kOfOneMax; ++i) {
    EXPECT_TRUE(thread->Ask("anna", "anna", Request(i, "jobs")));
  }
  EXPECT_FALSE(thread->Ask("anna", "anna", Request(0, "jobs")));
  EXPECT_TRUE(thread->Ask("ben", "ben", Request(0, "jobs")));
  Wait(1);
  ASSERT_TRUE(thread->TakeAnswer().has_value());
  EXPECT_TRUE(thread->Ask("anna", "anna", Request(0, "jobs")));
}

}  // namespace
}  // namespace gavel::testing
