// Jobs that wait for others: after_success and after_any.
#include "coordinator/engine/related_jobs.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

using Names = std::vector<std::string>;

JobSpec After(Names parents, std::string owner = "") {
  JobSpec spec;
  spec.after_success = std::move(parents);
  spec.owner = std::move(owner);
  return spec;
}

JobSpec AfterAny(Names parents) {
  JobSpec spec;
  spec.after_any = std::move(parents);
  return spec;
}

JobSpec Of(std::string owner) { return After({}, std::move(owner)); }

void Do(EngineDriver& driver, JobId job, CommandKind kind) {
  driver.Step(event::JobCommanded{job, kind, 1});
  EXPECT_EQ(driver.LastReply(), "");
}

void Cancel(EngineDriver& driver, JobId job) {
  Do(driver, job, CommandKind::kCancel);
}

// The job runs to its end.
void Finish(EngineDriver& driver, JobId job) {
  if (driver.job(job).assigned.empty()) {
    driver.At(driver.now + 101);  // the next round
  }
  ASSERT_FALSE(driver.job(job).assigned.empty());
  driver.Gone(driver.Run(job), 0);
  ASSERT_EQ(driver.job(job).state, JobState::kFinished);
}

std::string Update(EngineDriver& driver, JobId job,
                   std::optional<Names> after_success,
                   std::optional<Names> after_any = std::nullopt) {
  event::JobUpdated updated{job, {}, 1};
  updated.update.after_success = std::move(after_success);
  updated.update.after_any = std::move(after_any);
  driver.Step(updated);
  return driver.LastReply();
}

bool Waits(const EngineDriver& driver, JobId job) {
  return engine::AwaitsJobs(driver.job(job)) &&
         driver.job(job).assigned.empty();
}

int CountCancelled(const Engine& engine) {
  return static_cast<int>(
      std::ranges::count_if(engine.jobs(), [](const auto& entry) {
        return entry.second.state == JobState::kCancelled;
      }));
}

TEST(AfterAny, TheWaitForAParentIsNoWaitForAccelerators) {
  EngineDriver driver(1, "finish_time_fairness");
  const JobId parent = driver.Submit("prepare");
  const JobId child = driver.Submit("train", 1, AfterAny({"prepare"}));
  driver.At(90);
  Cancel(driver, parent);
  driver.At(driver.now + 1);
  ASSERT_EQ(driver.problem.jobs.size(), 1u);
  EXPECT_EQ(driver.problem.jobs[0].id, child);
  EXPECT_LE(driver.problem.jobs[0].time_since_start_s, 1);
  EXPECT_NEAR(driver.problem.jobs[0].apps_average, 1, 1e-9);
}

TEST(AfterAny, AJobThatRanBeforeItWasHeldKeepsItsAge) {
  EngineDriver driver(1, "finish_time_fairness");
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  driver.At(5);
  Do(driver, job, CommandKind::kHold);
  driver.GiveBack(key);
  driver.Gone(key, kExitEvicted);
  driver.At(90);
  Do(driver, job, CommandKind::kRelease);
  ASSERT_EQ(driver.problem.jobs.size(), 1u);
  EXPECT_NEAR(driver.problem.jobs[0].time_since_start_s, 90, 1e-9);
}

JobSpec Elements(JobSpec spec, std::string array) {
  spec.array = std::move(array);
  return spec;
}

JobSpec ByIndex(std::string parent, std::string array) {
  JobSpec spec;
  spec.after_by_index = {std::move(parent)};
  return Elements(spec, std::move(array));
}

JobId Named(const EngineDriver& driver, const std::string& name) {
  for (const auto& [id, job] : driver.engine().jobs()) {
    if (job.spec.name == name) return id;
  }
  return {};
}

JobState StateOf(const EngineDriver& driver, const std::string& name) {
  return driver.job(Named(driver, name)).state;
}

bool Waits(const EngineDriver& driver, const std::string& name) {
  return Waits(driver, Named(driver, name));
}

TEST(AfterSuccess, TheJobStartsOnceItsParentHasFinished) {
  EngineDriver driver(2);
  const JobId parent = driver.Submit("prepare");
  const JobId child = driver.Submit("train", 1, After({"prepare"}));
  EXPECT_EQ(driver.LastReply(), "");
  EXPECT_EQ(driver.Why(child),
            "waiting: for job 1 prepare (waiting); `gavel release 2` lets it "
            "start without them");
  const WorkerKey key = driver.Run(parent);
  EXPECT_THAT(driver.Why(child), HasSubstr("job 1 prepare (running)"));
  driver.At(8);
  EXPECT_TRUE(Waits(driver, child)) << "an accelerator is idle";
  driver.Gone(key, 0);
  EXPECT_TRUE(driver.job(child).active());
  EXPECT_EQ(driver.job(child).assigned.size(), 1u);
}

TEST(AfterSuccess, TheJobIsCancelledAtOnceIfItsParentIs) {
  EngineDriver driver;
  const JobId parent = driver.Submit("prepare");
  const JobId child = driver.Submit("train", 1, After({"prepare"}));
  Cancel(driver, parent);
  EXPECT_EQ(driver.job(child).state, JobState::kCancelled);
  EXPECT_THAT(driver.Why(child),
              HasSubstr("its parent 1 prepare was cancelled"));
  EXPECT_THAT(driver.job(child).parents, IsEmpty());
}

TEST(AfterSuccess, AChainRunsOneJobAfterTheOther) {
  EngineDriver driver(3);
  const JobId a = driver.Submit("a");
  const JobId b = driver.Submit("b", 1, After({"a"}));
  const JobId c = driver.Submit("c", 1, After({"b"}));
  Finish(driver, a);
  EXPECT_TRUE(driver.job(b).active());
  EXPECT_TRUE(Waits(driver, c));
  Finish(driver, b);
  EXPECT_TRUE(driver.job(c).active());
}

TEST(AfterSuccess, AJobWaitsForAllOfItsParents) {
  EngineDriver driver(2);
  const JobId top = driver.Submit("top");
  const JobId left = driver.Submit("left", 1, After({"top"}));
  const JobId right = driver.Submit("right", 1, After({"top"}));
  const JobId bottom = driver.Submit("bottom", 1, After({"left", "right"}));
  EXPECT_THAT(driver.Why(bottom),
              HasSubstr("for job 2 left (waiting), job 3 right (waiting);"));
  Finish(driver, top);
  Finish(driver, left);
  EXPECT_TRUE(Waits(driver, bottom));
  EXPECT_THAT(driver.Why(bottom),
              HasSubstr("waiting: for job 3 right (waiting);"));
  Finish(driver, right);
  EXPECT_TRUE(driver.job(bottom).active());
}

TEST(AfterSuccess, TheReasonNamesThreeParentsAndCountsTheOthers) {
  EngineDriver driver(1);
  for (const char* name : {"a", "b", "c", "d", "e"}) driver.Submit(name);
  const JobId child = driver.Submit("f", 1, After({"a", "b", "c", "d", "e"}));
  EXPECT_EQ(driver.Why(child),
            "waiting: for job 1 a (waiting), job 2 b (waiting), job 3 c "
            "(waiting) and 2 more; `gavel release 6` lets it start without "
            "them");
}

TEST(AfterSuccess, OneFailedParentOfSeveralIsEnough) {
  EngineDriver driver(2);
  const JobId left = driver.Submit("left");
  const JobId right = driver.Submit("right");
  const JobId child = driver.Submit("c", 1, After({"left", "right"}));
  Cancel(driver, right);
  EXPECT_EQ(driver.job(child).state, JobState::kCancelled);
  Finish(driver, left);
  EXPECT_EQ(driver.job(child).state, JobState::kCancelled);
}

TEST(AfterSuccess, AHeldParentHasNotEnded) {
  EngineDriver driver;
  const JobId parent = driver.Submit("a");
  const JobId child = driver.Submit("b", 1, After({"a"}));
  const WorkerKey key = driver.Run(parent);
  Do(driver, parent, CommandKind::kHold);
  driver.GiveBack(key);
  driver.Gone(key, kExitEvicted);
  driver.At(500);
  EXPECT_TRUE(Waits(driver, child));
  EXPECT_THAT(driver.Why(child),
              HasSubstr("waiting: for job 1 a (held: by `gavel hold`; `gavel "
                        "release 1` lets it go on; release or cancel it);"));
  Do(driver, parent, CommandKind::kRelease);
  Finish(driver, parent);
  EXPECT_TRUE(driver.job(child).active());
}

TEST(AfterSuccess, AHeldParentIsNamedBeforeTheOthers) {
  EngineDriver driver;
  driver.Submit("a");
  const JobId held = driver.Submit("b");
  const JobId child = driver.Submit("c", 1, After({"a", "b"}));
  Do(driver, held, CommandKind::kHold);
  EXPECT_THAT(driver.Why(child),
              AllOf(HasSubstr("waiting: for job 2 b (held: by `gavel hold`"),
                    HasSubstr("cancel it), job 1 a")));
}

TEST(AfterAny, TheJobStartsHoweverItsParentsEnd) {
  EngineDriver driver(2);
  const JobId good = driver.Submit("good");
  const JobId bad = driver.Submit("bad");
  const JobId child = driver.Submit("c", 1, AfterAny({"good", "2"}));
  Finish(driver, good);
  EXPECT_TRUE(Waits(driver, child));
  Cancel(driver, bad);
  EXPECT_TRUE(driver.job(child).active());
}

TEST(AfterAny, AParentOfBothListsHasToFinish) {
  EngineDriver driver;
  const JobId parent = driver.Submit("a");
  JobSpec spec = After({"a"});
  spec.after_any = {"1"};
  const JobId child = driver.Submit("b", 1, spec);
  EXPECT_EQ(driver.job(child).parents.size(), 1u);
  Cancel(driver, parent);
  EXPECT_EQ(driver.job(child).state, JobState::kCancelled);
}

TEST(Dependencies, AParentThatHasEndedCountsAtOnce) {
  EngineDriver driver(2);
  Finish(driver, driver.Submit("good"));
  Cancel(driver, driver.Submit("bad"));
  EXPECT_TRUE(driver.job(driver.Submit("a", 1, After({"good"}))).active());
  EXPECT_TRUE(driver.job(driver.Submit("b", 1, AfterAny({"bad"}))).active());
  const JobId late = driver.Submit("c", 1, After({"good", "bad"}));
  EXPECT_EQ(driver.LastReply(), "");
  EXPECT_EQ(driver.job(late).state, JobState::kCancelled);
}

TEST(Dependencies, ANameIsThatOfTheLatestJobAtSubmission) {
  EngineDriver driver(6);
  const JobId old = driver.Submit("a");
  Cancel(driver, old);
  const JobId parent = driver.Submit("a");
  const JobId child = driver.Submit("b", 1, After({"a"}));
  ASSERT_EQ(driver.job(child).parents.size(), 1u);
  EXPECT_EQ(driver.job(child).parents[0].job, parent);
  Finish(driver, parent);
  EXPECT_TRUE(driver.job(child).active());

  const JobId other = driver.Submit("other");
  const JobId third = driver.Submit("c", 1, After({"a", "other"}));
  driver.Submit("a");
  EXPECT_EQ(driver.job(third).parents.size(), 1u) << "the new one is not meant";
  Finish(driver, other);
  EXPECT_TRUE(driver.job(third).active());
}

TEST(Dependencies, JobsThatAreNotTheOwnersAreRefused) {
  EngineDriver driver(2);
  driver.Submit("a", 1, Of("ada"));
  driver.Submit("b", 1, After({"a"}, "bob"));
  EXPECT_THAT(driver.LastReply(),
              HasSubstr("job \"b\": after_success names \"a\", and its owner "
                        "has no such job"));
  driver.Submit("b", 1, After({"1"}, "bob"));
  EXPECT_THAT(driver.LastReply(),
              HasSubstr("names job 1, which is another user's"));
  JobSpec any = Of("bob");
  any.after_any = {"77"};
  driver.Submit("b", 1, any);
  EXPECT_THAT(driver.LastReply(), HasSubstr("after_any names job 77, and"));
  EXPECT_EQ(driver.engine().jobs().size(), 1u);
  const JobId child = driver.Submit("b", 1, After({"a"}, "ada"));
  EXPECT_TRUE(Waits(driver, child));
}

TEST(Dependencies, StayOverARestart) {
  EngineDriver driver(2);
  const JobId parent = driver.Submit("a");
  const JobId other = driver.Submit("b");
  const JobId child = driver.Submit("c", 1, After({"a", "b"}));
  Finish(driver, parent);
  driver.Restart();
  EXPECT_TRUE(Waits(driver, child));
  EXPECT_EQ(driver.job(child).parents.size(), 1u);
  Finish(driver, other);
  EXPECT_TRUE(driver.job(child).active());
}

// The coordinator dies between the row of the parent's end and that of the
// child's start.
TEST(Dependencies, ARestartReleasesWhatWasYetToBeReleased) {
  EngineDriver driver(2);
  const JobId parent = driver.Submit("a");
  const JobId child = driver.Submit("b", 1, After({"a"}));
  Finish(driver, parent);
  const auto row = std::ranges::find_if(driver.rows, [](const auto& one) {
    return std::holds_alternative<event::ParentsEnded>(*DecodeEvent(one.row));
  });
  ASSERT_NE(row, driver.rows.end());
  driver.rows.erase(row, driver.rows.end());
  driver.Replay();
  EXPECT_TRUE(Waits(driver, child));
  driver.Restart();
  EXPECT_TRUE(driver.job(child).active());
}

TEST(Dependencies, ASnapshotHasThem) {
  EngineDriver driver(2);
  const JobId parent = driver.Submit("a");
  const JobId child = driver.Submit("b", 1, After({"a"}));
  const JobId next = driver.Submit("c", 1, After({"b"}));
  Engine restored = driver.Restored();
  EXPECT_EQ(RenderReason(restored.Why(child, 0)), driver.Why(child));
  restored.Step(0, event::JobCommanded{parent, CommandKind::kCancel, 1});
  EXPECT_EQ(restored.FindJob(child)->state, JobState::kCancelled);
  EXPECT_EQ(restored.FindJob(next)->state, JobState::kCancelled);
}

TEST(Dependencies, AParentMayBeForgottenOnceItHasEnded) {
  EngineDriver driver(2, "fifo",
                      [](EngineOptions& o) { o.ended_jobs_kept = 1; });
  const JobId first = driver.Submit("a");
  const JobId second = driver.Submit("b");
  const JobId child = driver.Submit("c", 1, After({"a", "b"}));
  Finish(driver, first);
  Cancel(driver, driver.Submit("d"));
  Cancel(driver, driver.Submit("e"));
  ASSERT_EQ(driver.engine().FindJob(first), nullptr);
  EXPECT_TRUE(Waits(driver, child));
  driver.Restart();
  Finish(driver, second);
  EXPECT_TRUE(driver.job(child).active());
  driver.Submit("f", 1, After({"a"}));
  EXPECT_THAT(driver.LastReply(), HasSubstr("its owner has no such job"));
}

TEST(Dependencies, AnUpdateNamesOtherParents) {
  EngineDriver driver(2);
  const JobId a = driver.Submit("a");
  const JobId b = driver.Submit("b");
  const JobId child = driver.Submit("c", 1, After({"a"}));
  EXPECT_EQ(Update(driver, child, Names{"b"}), "");
  Cancel(driver, a);
  EXPECT_TRUE(Waits(driver, child)) << "that is no parent any more";
  driver.Restart();
  Finish(driver, b);
  EXPECT_TRUE(driver.job(child).active());
}

TEST(Dependencies, AnUpdateOfOneListLeavesTheOther) {
  EngineDriver driver(2);
  const JobId a = driver.Submit("a");
  const JobId b = driver.Submit("b");
  const JobId child = driver.Submit("c", 1, After({"a"}));
  EXPECT_EQ(Update(driver, child, std::nullopt, Names{"b"}), "");
  EXPECT_EQ(driver.job(child).parents.size(), 2u);
  EXPECT_EQ(Update(driver, child, std::nullopt, Names()), "");
  EXPECT_EQ(driver.job(child).parents.size(), 1u);
  EXPECT_EQ(Update(driver, child, Names()), "");
  EXPECT_TRUE(driver.job(child).active()) << "it waits for nothing";
  EXPECT_TRUE(driver.job(a).active());
  EXPECT_TRUE(driver.job(b).active());
}

TEST(Dependencies, AnUpdateOfOneListLeavesAParentOfBothInTheOther) {
  EngineDriver driver(2);
  const JobId parent = driver.Submit("a");
  const JobId child = driver.Submit("b", 1, After({"a"}));
  EXPECT_EQ(Update(driver, child, std::nullopt, Names{"a"}), "");
  EXPECT_EQ(driver.job(child).parents.size(), 1u);
  EXPECT_EQ(Update(driver, child, Names()), "");
  EXPECT_TRUE(Waits(driver, child)) << "however it ends";
  Cancel(driver, parent);
  EXPECT_TRUE(driver.job(child).active());
}

TEST(Dependencies, AJobThatWaitsInTheQueueCanGetParents) {
  EngineDriver driver(1);
  const JobId first = driver.Submit("a");
  driver.Run(first);
  const JobId second = driver.Submit("b");
  EXPECT_EQ(Update(driver, second, Names{"a"}), "");
  EXPECT_TRUE(Waits(driver, second));
  EXPECT_THAT(Update(driver, first, Names{"b"}),
              HasSubstr("job 1: it has started"));
}

TEST(Dependencies, NoJobWaitsForItself) {
  EngineDriver driver(1);
  driver.Run(driver.Submit("runs"));
  const JobId a = driver.Submit("a");
  const JobId b = driver.Submit("b", 1, After({"a"}));
  const JobId c = driver.Submit("c", 1, After({"b"}));
  EXPECT_THAT(Update(driver, a, Names{"a"}),
              HasSubstr("it can't wait for itself"));
  EXPECT_THAT(Update(driver, a, Names{"c"}),
              HasSubstr("job 2: job 3 b waits for it"));
  EXPECT_THAT(Update(driver, b, std::nullopt, Names{"c"}),
              HasSubstr("job 4 c waits for it"));
  EXPECT_TRUE(driver.job(a).active()) << "nothing has changed";
  EXPECT_EQ(driver.job(b).parents.size(), 1u);
  EXPECT_EQ(driver.job(c).parents.size(), 1u);
}

TEST(Dependencies, AnUpdateThatWouldLookAtTooManyJobsIsRefused) {
  EngineDriver driver(1);
  driver.Run(driver.Submit("runs"));
  const JobId top = driver.Submit("top");
  driver.Submit("child", 1, After({"top"}));
  for (const char* name : {"a", "b", "c"}) driver.Submit(name);
  driver.Submit("x", 1, Elements(After({"a", "b", "c"}), "0-9999"));
  EXPECT_THAT(Update(driver, top, Names{"x"}),
              HasSubstr("more than 20000 jobs would have to end before it"));
}

// One step does a bounded part of it.
TEST(Dependencies, ThousandsOfJobsEndInStepsThatStallNobody) {
  constexpr int kJobs = 1000;
  EngineDriver driver(1);
  driver.hold_solver = true;
  const JobId parent = driver.Submit("a");
  std::string chain = "a";
  for (int i = 0; i < kJobs; ++i) {
    const std::string name = StrCat("b", i);
    driver.Submit(name, 1, After({i < kJobs / 2 ? "a" : chain}));
    chain = name;
  }
  driver.hold_disk = true;
  driver.Step(event::JobCommanded{parent, CommandKind::kCancel, 1});
  EXPECT_EQ(CountCancelled(driver.engine()), 1 + 64);
  driver.Step(event::Tick{});
  EXPECT_EQ(CountCancelled(driver.engine()), 1 + 2 * 64);
  driver.At(driver.now);
  EXPECT_EQ(CountCancelled(driver.engine()), 1 + kJobs);
}

TEST(Dependencies, TheOwnerMayStartOrCancelAJobThatWaits) {
  EngineDriver driver(2);
  const JobId parent = driver.Submit("a");
  const JobId released = driver.Submit("b", 1, After({"a"}));
  Do(driver, released, CommandKind::kRelease);
  EXPECT_TRUE(driver.job(released).active());
  const JobId cancelled = driver.Submit("c", 1, After({"a"}));
  Cancel(driver, cancelled);
  Cancel(driver, parent);
  EXPECT_TRUE(driver.job(released).active()) << "it waits for nobody any more";
  EXPECT_EQ(driver.job(cancelled).state, JobState::kCancelled);
}

TEST(Dependencies, AJobThatWaitsIsNotCalledHeld) {
  EngineDriver driver(2);
  driver.Submit("a");
  const JobId child = driver.Submit("b", 1, After({"a"}));
  JobSpec later;
  later.not_before_s = 300;
  const JobId ahead = driver.Submit("c", 1, later);
  for (const CommandKind kind :
       {CommandKind::kRequeue, CommandKind::kCheckpoint}) {
    driver.Step(event::JobCommanded{child, kind, 1});
    EXPECT_EQ(driver.LastReply(),
              "job 2 waits for other jobs and does not run; there is nothing "
              "to do");
    driver.Step(event::JobCommanded{ahead, kind, 1});
    EXPECT_EQ(driver.LastReply(),
              "job 3 waits for its time and does not run; there is nothing to "
              "do");
  }
}

TEST(Dependencies, AJobThatIsHeldWaitsOnAfterItsRelease) {
  EngineDriver driver(2);
  const JobId parent = driver.Submit("a");
  const JobId child = driver.Submit("b", 1, After({"a"}));
  Do(driver, child, CommandKind::kHold);
  EXPECT_FALSE(Waits(driver, child));
  Do(driver, child, CommandKind::kRelease);
  EXPECT_TRUE(Waits(driver, child));
  Do(driver, child, CommandKind::kHold);
  Finish(driver, parent);
  EXPECT_EQ(driver.job(child).state, JobState::kHeld) << "by its owner";
  Do(driver, child, CommandKind::kRelease);
  EXPECT_TRUE(driver.job(child).active());
}

TEST(Dependencies, AJobsTimeCountsOnceItsParentsHaveEnded) {
  EngineDriver driver(2);
  const JobId parent = driver.Submit("a");
  JobSpec spec = After({"a"});
  spec.not_before_s = 300;
  const JobId child = driver.Submit("b", 1, spec);
  EXPECT_TRUE(Waits(driver, child));
  Finish(driver, parent);
  EXPECT_FALSE(driver.job(child).active());
  EXPECT_THAT(driver.Why(child), HasSubstr("its not_before is"));
  driver.At(301);
  EXPECT_TRUE(driver.job(child).active());
}

TEST(Dependencies, TheNameIsTakenWhileAJobWaits) {
  EngineDriver driver;
  driver.Submit("a");
  driver.Submit("b", 1, After({"a"}));
  driver.Submit("b");
  EXPECT_THAT(driver.LastReply(), HasSubstr("the name is taken by job 2"));
}

// ---- arrays as parents

TEST(ArraysAsParents, AJobWaitsForAllElements) {
  EngineDriver driver(4);
  driver.Submit("prep", 1, Elements({}, "0-2"));
  const JobId child = driver.Submit("train", 1, After({"prep"}));
  EXPECT_EQ(driver.LastReply(), "");
  ASSERT_EQ(driver.job(child).parents.size(), 1u);
  EXPECT_EQ(driver.job(child).parents[0].job, JobId(1));
  EXPECT_EQ(driver.Why(child),
            "waiting: for job 1 prep (an array, 3 jobs of which have not "
            "ended); `gavel release 5` lets it start without them");
  Finish(driver, Named(driver, "prep_2"));
  Finish(driver, Named(driver, "prep_0"));
  EXPECT_TRUE(Waits(driver, child));
  EXPECT_THAT(driver.Why(child), HasSubstr("1 job of which has not ended)"));
  driver.Step(event::JobCommanded{Named(driver, "prep_1"), CommandKind::kHold});
  EXPECT_THAT(driver.Why(child),
              HasSubstr("1 job of which has not ended, 1 held or waiting for "
                        "other jobs)"));
  driver.Step(
      event::JobCommanded{Named(driver, "prep_1"), CommandKind::kRelease});
  driver.Restart();
  Engine restored = driver.Restored();
  EXPECT_EQ(RenderReason(restored.Why(child, 0)), driver.Why(child));
  Finish(driver, Named(driver, "prep_1"));
  EXPECT_TRUE(driver.job(child).active());
}

TEST(ArraysAsParents, OneFailedElementCancelsTheJobAndIsNamed) {
  EngineDriver driver(4);
  driver.Submit("prep", 1, Elements({}, "0-2"));
  const JobId strict = driver.Submit("strict", 1, After({"1"}));
  const JobId any = driver.Submit("any", 1, AfterAny({"prep"}));
  Cancel(driver, Named(driver, "prep_1"));
  EXPECT_EQ(driver.job(strict).state, JobState::kCancelled);
  EXPECT_THAT(driver.Why(strict),
              HasSubstr("its parent 1_1 prep_1 was cancelled"));
  EXPECT_TRUE(Waits(driver, any)) << "the others have not ended";
  // A child that comes later is cancelled at once.
  const JobId late = driver.Submit("late", 1, After({"prep"}));
  EXPECT_EQ(driver.job(late).state, JobState::kCancelled);
  Finish(driver, Named(driver, "prep_0"));
  Cancel(driver, Named(driver, "prep_2"));
  EXPECT_TRUE(driver.job(any).active());
}

// The element is forgotten, and so is the one that first had the mark of it.
TEST(ArraysAsParents, AFailedElementThatIsForgottenCancelsLaterJobs) {
  EngineDriver driver(2, "fifo",
                      [](EngineOptions& o) { o.ended_jobs_kept = 1; });
  driver.Submit("prep", 1, Elements({}, "0-3"));
  Cancel(driver, Named(driver, "prep_3"));
  for (const char* name : {"prep_0", "prep_1"}) {
    Finish(driver, Named(driver, name));
  }
  ASSERT_EQ(Named(driver, "prep_3"), JobId());
  ASSERT_EQ(Named(driver, "prep_0"), JobId());
  const JobId late = driver.Submit("late", 1, After({"prep"}));
  EXPECT_EQ(driver.job(late).state, JobState::kCancelled);
  EXPECT_THAT(driver.Why(late), HasSubstr("its parent 1 prep was cancelled"));
  EXPECT_TRUE(Waits(driver, driver.Submit("any", 1, AfterAny({"prep"}))));

  Engine restored = driver.Restored();
  JobSpec spec = After({"prep"});
  spec.name = "restored";
  restored.Step(driver.now, event::JobSubmitted{spec, 1});
  EXPECT_EQ(restored.jobs().rbegin()->second.state, JobState::kCancelled);
  driver.Restart();
  Finish(driver, Named(driver, "prep_2"));
  const JobId last = driver.Submit("last", 1, After({"prep"}));
  EXPECT_EQ(driver.job(last).state, JobState::kCancelled);
}

TEST(ArraysAsParents, ByIndexEachElementWaitsForOne) {
  EngineDriver driver(8);
  driver.Submit("prep", 1, Elements({}, "0-3"));
  const auto before = static_cast<ptrdiff_t>(driver.rows.size());
  driver.Submit("train", 1, ByIndex("prep", "1-3"));
  EXPECT_EQ(driver.LastReply(), "");
  EXPECT_EQ(std::count_if(driver.rows.begin() + before, driver.rows.end(),
                          [](const auto& one) {
                            return EventName(*DecodeEvent(one.row)) ==
                                   "JobSubmitted";
                          }),
            1);
  EXPECT_THAT(driver.Why(Named(driver, "train_2")),
              HasSubstr("for job 1_2 prep_2 ("));
  EXPECT_THAT(driver.job(Named(driver, "train_2")).spec.after_success,
              ElementsAre("prep_2"));
  Finish(driver, Named(driver, "prep_2"));
  EXPECT_EQ(StateOf(driver, "train_2"), JobState::kActive);
  EXPECT_TRUE(Waits(driver, "train_1"));
  driver.Restart();
  Cancel(driver, Named(driver, "prep_1"));
  EXPECT_EQ(StateOf(driver, "train_1"), JobState::kCancelled);
  EXPECT_THAT(driver.Why(Named(driver, "train_1")),
              HasSubstr("its parent 1_1 prep_1 was cancelled"));
  EXPECT_TRUE(Waits(driver, "train_3")) << "its own parent is there";
  Cancel(driver, Named(driver, "prep_0"));
  EXPECT_TRUE(Waits(driver, "train_3")) << "that is nobody's parent";
  Finish(driver, Named(driver, "prep_3"));
  EXPECT_EQ(StateOf(driver, "train_3"), JobState::kActive);
}

TEST(ArraysAsParents, AReleaseOfTheArrayEndsHoldsAndNoWait) {
  EngineDriver driver(8);
  driver.Submit("prep", 1, Elements({}, "0-3"));
  driver.Submit("train", 1, ByIndex("prep", "0-3"));
  const JobId array = driver.job(Named(driver, "train_0")).array;
  const auto command = [&](CommandKind kind, const std::string& elements) {
    event::JobCommanded commanded{array, kind, 1};
    commanded.elements = elements;
    driver.Step(commanded);
    EXPECT_EQ(driver.LastReply(), "");
  };
  command(CommandKind::kHold, "1-2");
  command(CommandKind::kRelease, "");
  for (const char* name : {"train_0", "train_1", "train_2", "train_3"}) {
    EXPECT_TRUE(Waits(driver, name)) << name;
    EXPECT_FALSE(driver.job(Named(driver, name)).parents.empty()) << name;
  }
  // With none of them held, it lets all start without their parents.
  command(CommandKind::kRelease, "");
  EXPECT_TRUE(driver.job(Named(driver, "train_3")).active());
}

TEST(ArraysAsParents, ByIndexElementsThatHaveEndedCountAtOnce) {
  EngineDriver driver(8);
  driver.Submit("prep", 1, Elements({}, "5,7,9"));
  Finish(driver, Named(driver, "prep_5"));
  Cancel(driver, Named(driver, "prep_7"));
  driver.Submit("train", 1, ByIndex("1", "5,7,9"));
  EXPECT_EQ(driver.LastReply(), "");
  EXPECT_EQ(StateOf(driver, "train_5"), JobState::kActive);
  EXPECT_EQ(StateOf(driver, "train_7"), JobState::kCancelled);
  EXPECT_TRUE(Waits(driver, "train_9"));
}

TEST(ArraysAsParents, ByIndexRefusesWhatTheParentLacks) {
  EngineDriver driver(4);
  driver.Submit("prep", 1, Elements({}, "0-2,4"));
  driver.Submit("train", 1, ByIndex("prep", "1-5"));
  EXPECT_EQ(driver.LastReply(),
            "job \"train\": after_by_index names array 1 prep, which has no "
            "element 3,5; it has 0-2,4, without those that ended long ago; "
            "submit the indices that both have");
  driver.Submit("plain");
  driver.Submit("train", 1, ByIndex("plain", "0-1"));
  EXPECT_THAT(driver.LastReply(),
              HasSubstr("after_by_index names job 6 plain, which is no array; "
                        "write after_success"));
  driver.Submit("train", 1, ByIndex("nobody", "0-1"));
  EXPECT_THAT(driver.LastReply(),
              HasSubstr("after_by_index names \"nobody\", and its owner has"));
  EXPECT_EQ(Named(driver, "train_0"), JobId());
}

TEST(ArraysAsParents, OneElementIsNamedAsElsewhere) {
  EngineDriver driver(4);
  driver.Submit("prep", 1, Elements({}, "3,5"));
  const JobId a = driver.Submit("a", 1, After({"1_5"}));
  const JobId b = driver.Submit("b", 1, After({"prep_3"}));
  driver.Submit("c", 1, After({"1_4"}));
  EXPECT_THAT(driver.LastReply(), HasSubstr("names \"1_4\", and its owner"));
  driver.Submit("c", 1, After({"0_3"}));
  EXPECT_THAT(driver.LastReply(), HasSubstr("names \"0_3\", and its owner"));
  Finish(driver, Named(driver, "prep_5"));
  EXPECT_TRUE(driver.job(a).active());
  EXPECT_TRUE(Waits(driver, b));
}

TEST(ArraysAsParents, ANameIsThatOfTheLatestJobOrArray) {
  EngineDriver driver(8);
  Cancel(driver, driver.Submit("prep"));
  driver.Submit("prep", 1, Elements({}, "0-1"));
  JobSpec spec = After({"prep"});
  spec.name = "restored";
  Engine restored = driver.Restored();
  restored.Step(driver.now, event::JobSubmitted{spec, 1});
  EXPECT_EQ(restored.jobs().rbegin()->second.parents.at(0).job, JobId(2));
  driver.Restart();
  const JobId first = driver.Submit("first", 1, After({"prep"}));
  EXPECT_EQ(driver.job(first).parents[0].job, JobId(2));
  const JobId latest = driver.Submit("prep");
  const JobId second = driver.Submit("second", 1, After({"prep"}));
  EXPECT_EQ(driver.job(second).parents[0].job, latest);
}

TEST(ArraysAsParents, AnotherUsersArrayIsRefused) {
  EngineDriver driver(4);
  driver.Submit("prep", 1, Elements(Of("ada"), "0-1"));
  driver.Submit("b", 1, After({"1"}, "bob"));
  EXPECT_THAT(driver.LastReply(), HasSubstr("job 1, which is another user's"));
  driver.Submit("b", 1, After({"1_0"}, "bob"));
  EXPECT_THAT(driver.LastReply(), HasSubstr("which is another user's"));
}

TEST(ArraysAsParents, NoJobWaitsForItselfThroughAnArray) {
  EngineDriver driver(1);
  driver.Run(driver.Submit("runs"));
  const JobId top = driver.Submit("top");
  driver.Submit("prep", 1, Elements(After({"top"}), "0-1"));
  driver.Submit("train", 1, ByIndex("prep", "0-1"));
  EXPECT_THAT(Update(driver, top, Names{"train"}),
              HasSubstr("waits for it, so that neither would start"));
  EXPECT_THAT(Update(driver, Named(driver, "prep_0"), Names{"prep"}),
              HasSubstr("it can't wait for itself"));
  EXPECT_THAT(Update(driver, Named(driver, "prep_0"), Names{"train_0"}),
              HasSubstr("job 6_0 train_0 waits for it"));
  EXPECT_EQ(Update(driver, Named(driver, "prep_0"), Names{"train_1"}), "")
      << "that one waits for prep_1";
}

TEST(ArraysAsParents, LargeArraysWaitForLargeArrays) {
  EngineDriver driver(1);
  driver.hold_solver = true;
  driver.Submit("prep", 1, Elements({}, "0-999"));
  driver.Submit("index", 1, ByIndex("prep", "0-999"));
  driver.Submit("any", 1, Elements(AfterAny({"prep"}), "0-999"));
  driver.hold_disk = true;
  driver.Step(event::JobCommanded{JobId(1), CommandKind::kCancel, 1});
  driver.At(driver.now);
  EXPECT_EQ(StateOf(driver, "index_999"), JobState::kCancelled);
  EXPECT_EQ(StateOf(driver, "any_0"), JobState::kActive);
  EXPECT_FALSE(Waits(driver, "any_999"));
}

}  // namespace
}  // namespace gavel
