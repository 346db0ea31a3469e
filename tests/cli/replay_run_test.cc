#include "coordinator/cli/replay_run.h"

#include "coordinator/engine/event.h"
#include "tests/server/busy_engine.h"
#include "tests/server/journal_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class ReplayRunTest : public JournalFixture {
 protected:
  // Writes a journal of five jobs on two accelerators that end one after the
  // other. As with a real clock, no two steps of the engine have the same time.
  void WriteJournal(const std::function<void(Event&)>& change = {}) {
    std::vector<JournalRow> rows;
    BusyEngine busy([&](const action::Persist& row, const Engine&) {
      rows.push_back(row);
      busy.now += 1e-6;
    });
    busy.now = 1;
    busy.Start(1, 1'000'000);
    busy.now = 2;
    busy.AddAccelerators(2);
    for (int i = 1; i <= 5; ++i) {
      busy.now += 3;
      busy.Submit("job-" + std::to_string(i));
    }
    for (uint64_t i = 1; i <= 4; ++i) {
      busy.now += 100;
      busy.ReportAll(i * 100);
      busy.now += 1;
      busy.End(JobId(i), i * 100);
    }
    if (change) {
      for (JournalRow& row : rows) {
        Event event = *DecodeEvent(row.row);
        change(event);
        row.row = EncodeEvent(event);
      }
    }
    ASSERT_OK(MustOpen()->Append(rows));
    rows_ = rows.size();
  }

  ReplaySummary Replay(ReplayOptions options = {}) {
    options.path = path();
    const auto summary = ReplayJournal(options, [this](const ReplayStep& step) {
      steps_.push_back(step);
      return true;
    });
    EXPECT_OK(summary);
    return summary.ok() ? *summary : ReplaySummary{};
  }

  std::string Text() const {
    std::string text;
    for (const ReplayStep& step : steps_) {
      for (const auto* lines :
           {&step.events, &step.actions, &step.reasons, &step.differences}) {
        for (const std::string& line : *lines) text += line + "\n";
      }
    }
    return text;
  }

  size_t rows_ = 0;
  std::vector<ReplayStep> steps_;
};

TEST_F(ReplayRunTest, TheSameBuildDecidesTheSame) {
  WriteJournal();
  const ReplaySummary summary = Replay();
  EXPECT_EQ(summary.rows, rows_);
  EXPECT_GT(summary.decided, 5u);
  EXPECT_EQ(summary.other, 0u) << Text();
  EXPECT_GT(summary.same, summary.not_told) << Text();
  EXPECT_GT(summary.solves, 0u);
  EXPECT_THAT(Text(), HasSubstr("JobSubmitted: \"job-3\""));
  EXPECT_THAT(Text(), HasSubstr("LeaseStarted: job 1 rank 0 #1"));
  EXPECT_THAT(Text(), HasSubstr("LaunchWorker to agent v100-0"));
  EXPECT_EQ(steps_.front().wall_s, 1'000'000);
}

// The journal has all inputs of the decisions: the policy of each term, and the
// reported speeds, although most reports have no row of their own.
TEST_F(ReplayRunTest, ARestartWithAnotherPolicyAndReportsAreFollowed) {
  std::vector<JournalRow> rows;
  BusyEngine busy([&](const action::Persist& row, const Engine&) {
    rows.push_back(row);
    busy.now += 1e-6;
  });
  busy.now = 1;
  busy.Start(1, 1'000'000);
  busy.now = 2;
  busy.AddAccelerators(2, "v100");
  busy.AddAccelerators(2, "k80");
  for (int i = 1; i <= 6; ++i) {
    busy.now += 3;
    busy.Submit("job-" + std::to_string(i));
  }
  uint64_t steps = 0;
  const auto report_and_end = [&](JobId job) {
    for (int i = 0; i < 25; ++i) {
      busy.now += 1;
      busy.ReportAll(steps += 10, 3.0 + 0.37 * i);
    }
    busy.End(job, steps);
  };
  report_and_end(JobId(1));
  report_and_end(JobId(2));
  busy.now += 1;
  busy.Start(2, 1'000'100, "finish_time_fairness_perf");
  report_and_end(JobId(3));
  report_and_end(JobId(4));
  busy.now += 1;
  busy.Start(3, 1'000'200, "max_min_fairness_perf");
  report_and_end(JobId(5));
  ASSERT_OK(MustOpen()->Append(rows));
  const ReplaySummary summary = Replay();
  EXPECT_EQ(summary.other, 0u) << Text();
  EXPECT_GT(summary.solves, 6u);
  EXPECT_GT(summary.same, summary.not_told) << Text();
}

TEST_F(ReplayRunTest, WhatBecameOfAJobWithParentsIsTold) {
  std::vector<JournalRow> rows;
  BusyEngine busy([&](const action::Persist& row, const Engine&) {
    rows.push_back(row);
    busy.now += 1e-6;
  });
  busy.now = 1;
  busy.Start(1, 1'000'000);
  for (const char* parent : {"cancelled", "done"}) {
    busy.Submit(parent);
    JobSpec child;
    child.name = StrCat("after-", parent);
    child.argv = {"./train"};
    child.owner = "ada";
    child.after_success = {parent};
    busy.Step(event::JobSubmitted{child, 1});
  }
  busy.Step(event::JobCommanded{JobId(1), CommandKind::kCancel});
  busy.Step(event::Tick{});
  busy.AddAccelerators(1);
  busy.now += 100;
  busy.End(JobId(3), 500);
  busy.Step(event::Tick{});
  ASSERT_OK(MustOpen()->Append(rows));
  Replay();
  EXPECT_THAT(Text(), HasSubstr("job 2 is cancelled, as a parent failed"));
  EXPECT_THAT(Text(), HasSubstr("job 4 need not wait for other jobs"));
}

// The journal is as if an older build had given the accelerator to another job.
TEST_F(ReplayRunTest, AnotherDecisionIsTold) {
  bool changed = false;
  WriteJournal([&changed](Event& event) {
    auto* assigned = std::get_if<event::UnitsAssigned>(&event);
    if (changed || assigned == nullptr || assigned->places.empty() ||
        assigned->places.front().first.job != JobId(3)) {
      return;
    }
    assigned->places.front().first.job = JobId(5);
    changed = true;
  });
  ASSERT_TRUE(changed);
  const ReplaySummary summary = Replay();
  EXPECT_GE(summary.other, 1u) << Text();
}

TEST_F(ReplayRunTest, OnlyWhatIsAskedForIsShown) {
  WriteJournal();
  ReplayOptions some;
  some.from = 6;
  some.to = 9;
  Replay(some);
  ASSERT_FALSE(steps_.empty());
  EXPECT_GE(steps_.front().last_row, 6u);
  EXPECT_LE(steps_.back().first_row, 9u);
  steps_.clear();
  ReplayOptions of_job;
  of_job.job = JobId(5);
  Replay(of_job);
  ASSERT_FALSE(steps_.empty());
  for (const ReplayStep& step : steps_) {
    EXPECT_THAT(step.events, Contains(HasSubstr("5")));
    EXPECT_THAT(step.jobs, Contains(JobId(5)));
  }
  EXPECT_THAT(Text(), HasSubstr("JobSubmitted: \"job-5\""));
}

TEST_F(ReplayRunTest, WhatTheJournalDoesNotHaveIsAnError) {
  WriteJournal();
  ReplayOptions options;
  options.path = path();
  const auto show = [](const ReplayStep&) { return true; };
  options.from = rows_ + 1;
  EXPECT_THAT(ReplayJournal(options, show),
              StatusIs(kOutOfRange, "behind the last row"));
  options.from = 1;
  options.job = JobId(77);
  EXPECT_THAT(ReplayJournal(options, show),
              StatusIs(kNotFound, "names job 77"));
}

TEST_F(ReplayRunTest, ADamagedRowIsNamed) {
  WriteJournal();
  auto database = SqliteDatabase::Open(path());
  ASSERT_OK(database);
  ASSERT_OK(
      database->Execute("UPDATE journal SET event = x'00' WHERE seq = 5"));
  ReplayOptions options;
  options.path = path();
  EXPECT_THAT(ReplayJournal(options, [](const ReplayStep&) { return true; }),
              StatusIs(kDataLoss, "row 5 is damaged"));
}

}  // namespace
}  // namespace gavel::testing
