// The history has a notice for each event that people may want to know of.
#include "coordinator/engine/event.h"
#include "coordinator/server/history.h"
#include "core/packer.h"
#include "tests/server/busy_engine.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class Notices : public Test {
 protected:
  Notices()
      : busy_([this](const action::Persist& row, const Engine& engine) {
          rows_.push_back(row);
          Take(projector_.Observe(row.seq, row.time, *row.event, engine));
        }) {
    busy_.Start(1, /*wall_s=*/1'000'000);
  }

  void Take(std::vector<HistoryRow> history) {
    for (HistoryRow& row : history) {
      auto* const notice = std::get_if<HistoryNotice>(&row);
      if (notice != nullptr) notices_.push_back(std::move(*notice));
      const auto* const job = std::get_if<HistoryJob>(&row);
      if (job != nullptr) jobs_[job->job] = *job;
    }
  }
  void Submit(JobSpec spec) {
    if (spec.name.empty()) spec.name = "a";
    spec.argv = {"./train"};
    spec.owner = "ada";
    busy_.Step(event::JobSubmitted{std::move(spec), 1});
  }
  void FailUntilHeld() {
    for (int i = 0; i < 10 && busy_.engine.jobs().at(JobId(1)).active(); ++i) {
      busy_.now += 100;
      busy_.End(JobId(1), 7, /*exit_code=*/3);
    }
  }
  // A process that has told the coordinator nothing ends.
  void Exit(JobId job, int exit_code, std::string launch_error = "") {
    const Worker worker = busy_.engine.jobs().at(job).workers.front();
    WorkerExited exit;
    exit.server = worker.server;
    exit.worker = {job, 0, worker.incarnation};
    exit.exit_code = exit_code;
    exit.launch_error = std::move(launch_error);
    busy_.Step(event::WorkerGone{exit});
  }
  std::vector<std::string> Events() const {
    std::vector<std::string> events;
    for (const HistoryNotice& notice : notices_) events.push_back(notice.event);
    return events;
  }

  HistoryProjector projector_;
  std::vector<action::Persist> rows_;
  std::vector<HistoryNotice> notices_;
  std::map<uint64_t, HistoryJob> jobs_;  // as each was last written
  BusyEngine busy_;
};

TEST_F(Notices, AJobStartsOnceAndFinishes) {
  busy_.AddAccelerators(1);
  Submit({});
  busy_.now = 50;
  busy_.End(JobId(1), 500);
  EXPECT_THAT(Events(), ElementsAre("started", "finished"));
  const HistoryNotice& started = notices_.at(0);
  EXPECT_EQ(started.job, 1u);
  EXPECT_EQ(started.name, "a");
  EXPECT_EQ(started.user, "ada");
  EXPECT_EQ(started.at_s, 1'000'000);
  EXPECT_EQ(started.text,
            "Job 1 \"a\" of ada has started on v100 of server v100-0.");
  EXPECT_FALSE(started.chosen);
  EXPECT_EQ(notices_.at(1).text, "Job 1 \"a\" of ada has finished.");
  EXPECT_LT(notices_.at(0).id, notices_.at(1).id);
}

TEST_F(Notices, AFailedJobIsNoHeldJobAndIsToldOncePerHold) {
  busy_.AddAccelerators(1);
  Submit({});
  FailUntilHeld();
  EXPECT_THAT(Events(), ElementsAre("started", "failed"));
  EXPECT_THAT(notices_.back().reason, HasSubstr("held: failed"));
  busy_.Step(event::JobCommanded{JobId(1), CommandKind::kRelease});
  EXPECT_EQ(notices_.size(), 2u);
  FailUntilHeld();
  EXPECT_THAT(Events(), ElementsAre("started", "failed", "failed"));
}

TEST_F(Notices, HeldAndCancelledJobsAreToldWithTheirReasons) {
  Submit({});
  busy_.Step(event::JobCommanded{JobId(1), CommandKind::kHold});
  busy_.Step(event::JobCommanded{JobId(1), CommandKind::kCancel, 0, "root"});
  EXPECT_THAT(Events(), ElementsAre("held", "cancelled"));
  EXPECT_THAT(notices_.at(0).reason, HasSubstr("`gavel hold`"));
  EXPECT_THAT(notices_.at(1).reason, HasSubstr("root"));
}

TEST_F(Notices, AJobThatMayNotStartYetIsNotHeld) {
  JobSpec spec;
  spec.not_before_s = 1000;
  Submit(spec);
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(Notices, JobsThatWaitForOthersAreNotHeld) {
  JobSpec array;
  array.array = "0-9%1";
  Submit(array);
  JobSpec child;
  child.name = "child";
  child.after_any = {"2"};  // the first element
  Submit(child);
  EXPECT_THAT(Events(), IsEmpty());
}

// A parent of `after_success`, and the job that waits for it.
class ParentNotices : public Notices {
 protected:
  ParentNotices() {
    JobSpec parent;
    parent.name = "parent";
    parent.notify = {"none"};
    Submit(parent);
    JobSpec child;
    child.name = "child";
    child.after_success = {"parent"};
    Submit(child);
  }
};

TEST_F(ParentNotices, AJobWhoseParentWasCancelledIsCancelled) {
  EXPECT_THAT(Events(), IsEmpty());
  busy_.Step(event::JobCommanded{JobId(1), CommandKind::kCancel});
  busy_.Step(event::Tick{});
  ASSERT_THAT(Events(), ElementsAre("cancelled"));
  EXPECT_EQ(notices_.at(0).name, "child");
}

TEST_F(ParentNotices, AJobThatWaitsForOthersIsHeldByCommandAlone) {
  busy_.Step(event::JobCommanded{JobId(2), CommandKind::kHold});
  EXPECT_THAT(Events(), ElementsAre("held"));
}

TEST_F(Notices, AHeldJobSaysHowManyWaitForIt) {
  busy_.AddAccelerators(1);
  Submit({});
  for (const char* name : {"child", "other"}) {
    JobSpec child;
    child.name = name;
    child.after_success = {"a"};
    Submit(child);
  }
  FailUntilHeld();
  ASSERT_THAT(Events(), ElementsAre("started", "failed"));
  EXPECT_EQ(notices_.back().text,
            "Job 1 \"a\" of ada has failed and is held; 2 jobs wait for it.");
  busy_.Step(event::JobCommanded{JobId(3), CommandKind::kCancel});
  busy_.Step(event::JobCommanded{JobId(1), CommandKind::kRelease});
  busy_.Step(event::JobCommanded{JobId(1), CommandKind::kHold});
  EXPECT_EQ(notices_.back().text,
            "Job 1 \"a\" of ada is held; 1 job waits for it.");
}

TEST_F(ParentNotices, AReleasedJobThatCantBeLaunchedHasFailed) {
  busy_.AddAccelerators(1);
  busy_.now = 50;
  busy_.launched_speak = false;
  busy_.End(JobId(1), 500);
  busy_.now = 60;
  Exit(JobId(2), 0, "./train: no such file");
  EXPECT_THAT(Events(), ElementsAre("failed"));
}

TEST_F(ParentNotices, TheLastRowOfACancelledChildIsOver) {
  busy_.Step(event::JobCommanded{JobId(1), CommandKind::kCancel});
  busy_.Step(event::Tick{});
  EXPECT_EQ(jobs_.at(2).state, "CA");
  EXPECT_TRUE(jobs_.at(2).over);
}

TEST_F(Notices, AnInteractiveJobHasFinishedWithItsCode) {
  busy_.AddAccelerators(1);
  JobSpec spec;
  spec.job_class = JobClass::kInteractive;
  busy_.launched_speak = false;
  Submit(spec);
  busy_.Step(event::Tick{});
  busy_.now = 50;
  Exit(JobId(1), /*exit_code=*/3);
  ASSERT_THAT(Events(), ElementsAre("started", "finished"));
  EXPECT_THAT(notices_.at(1).reason, HasSubstr("3"));
}

// A snapshot of earlier versions: it lacks the notice that was sent of job 1,
// which is held.
std::string SnapshotWithoutTold() {
  Packer packer(kJournalLimits);
  packer.Array(4);
  PutField(packer, 1'000'000.0);
  packer.Array(1);
  packer.Array(2);
  PutField(packer, JobId(1));
  packer.Array(1);
  packer.Array(8);
  PutField(packer, uint64_t{1});
  PutField(packer, uint64_t{1});
  PutField(packer, false);
  for (const char* text : {"a", "ada", "", "", "F"}) {
    PutField(packer, std::string(text));
  }
  PutField(packer, std::string("fifo"));
  PutField(packer, 60.0);
  return packer.Take();
}

TEST_F(Notices, AJobThatWasHeldBeforeAnUpgradeIsNotToldOf) {
  busy_.AddAccelerators(1);
  Submit({});
  FailUntilHeld();
  HistoryProjector upgraded;
  ASSERT_OK(upgraded.Load(SnapshotWithoutTold()));
  projector_ = std::move(upgraded);
  notices_.clear();
  busy_.Step(event::ServerLost{"v100-0", /*left=*/true});
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(Notices, AJobsOwnListChoosesAndNoneIsNothing) {
  busy_.AddAccelerators(1);
  JobSpec spec;
  spec.notify = {"ended"};
  Submit(spec);
  busy_.now = 50;
  busy_.End(JobId(1), 500);
  ASSERT_THAT(Events(), ElementsAre("finished"));
  EXPECT_TRUE(notices_.at(0).chosen);
  spec.notify = {"none"};
  Submit(spec);
  busy_.now = 90;
  busy_.End(JobId(2), 500);
  EXPECT_EQ(notices_.size(), 1u);
}

TEST_F(Notices, ServersAndAcceleratorsThatFailAreOfNoJob) {
  busy_.AddAccelerators(2);
  busy_.Step(event::AcceleratorLost{"v100-0", "v100-0-1"});
  busy_.Step(event::ServerLost{"v100-0"});
  ASSERT_THAT(Events(), ElementsAre("node_lost", "node_lost"));
  EXPECT_EQ(notices_.at(0).job, 0u);
  EXPECT_THAT(notices_.at(0).text, HasSubstr("v100-0-1"));
  EXPECT_THAT(notices_.at(1).text, HasSubstr("v100-0 is lost"));
}

TEST_F(Notices, AServerThatLeavesInOrderIsNotLost) {
  busy_.AddAccelerators(1);
  busy_.Step(event::ServerLost{"v100-0", /*left=*/true});
  EXPECT_THAT(Events(), IsEmpty());
}

class Deadlines : public Notices {
 protected:
  // A round begins with each allocation or tick that is due.
  void NextRound() {
    busy_.now = std::max(busy_.now + 1, busy_.engine.round_ends_at());
    busy_.Step(event::Tick{});
  }
  // 10 steps/s, as the job reports.
  void SubmitAndRun(uint64_t steps, double deadline_s) {
    busy_.AddAccelerators(1);
    JobSpec spec;
    spec.steps_total = steps;
    spec.deadline_s = deadline_s;
    spec.notify = {"at_risk"};
    Submit(spec);
    busy_.now += 10;
    busy_.ReportAll(100, /*steps_per_s=*/10);
  }
};

TEST_F(Deadlines, OneThatCantBeMetIsToldOnceAtARoundsBeginning) {
  SubmitAndRun(100'000'000, 2e6);
  NextRound();
  ASSERT_THAT(Events(), ElementsAre("at_risk"));
  EXPECT_THAT(notices_.at(0).text, HasSubstr("will miss its deadline"));
  NextRound();
  EXPECT_EQ(notices_.size(), 1u);
}

TEST_F(Deadlines, OneThatCanBeMetIsNot) {
  SubmitAndRun(15'000'000, 4e6);
  NextRound();
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(Deadlines, OneThatHasPassedIsTold) {
  busy_.AddAccelerators(1);
  JobSpec spec;
  spec.deadline_s = 100;
  spec.notify = {"at_risk"};
  Submit(spec);
  NextRound();
  ASSERT_THAT(Events(), ElementsAre("at_risk"));
  EXPECT_THAT(notices_.at(0).text, HasSubstr("has missed its deadline"));
}

TEST_F(Deadlines, OneOfAJobThatWaitsForOthersIsToldOnceItHasPassed) {
  busy_.AddAccelerators(1);
  Submit({});
  JobSpec child;
  child.name = "child";
  child.after_any = {"1"};
  child.deadline_s = 100;
  child.notify = {"at_risk"};
  Submit(child);
  notices_.clear();
  NextRound();
  EXPECT_THAT(Events(), ElementsAre("at_risk"));
}

TEST_F(Deadlines, AnotherDeadlineIsToldAnew) {
  SubmitAndRun(100'000'000, 2e6);
  NextRound();
  JobUpdate update;
  update.deadline_s = 3e6;
  busy_.Step(event::JobUpdated{JobId(1), update});
  NextRound();
  EXPECT_THAT(Events(), ElementsAre("at_risk", "at_risk"));
}

// A snapshot between two rows changes nothing, and neither does a replay.
TEST_F(Deadlines, AReplayNotesTheSame) {
  SubmitAndRun(100'000'000, 2e6);
  NextRound();
  busy_.End(JobId(1), 200, 0);
  const std::vector<HistoryNotice> before = std::exchange(notices_, {});
  ASSERT_GE(before.size(), 1u);
  Engine engine(BusyOptions());
  HistoryProjector projector;
  for (const action::Persist& row : rows_) {
    const auto event = DecodeEvent(row.row);
    ASSERT_OK(event);
    engine.Replay(row.seq, row.term, row.time, *event);
    HistoryProjector next;
    ASSERT_OK(next.Load(projector.Save()));
    projector = std::move(next);
    Take(projector.Observe(row.seq, row.time, *event, engine));
  }
  ASSERT_EQ(notices_.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(notices_[i].id, before[i].id);
    EXPECT_EQ(notices_[i].event, before[i].event);
    EXPECT_EQ(notices_[i].text, before[i].text);
  }
}

}  // namespace
}  // namespace gavel::testing
