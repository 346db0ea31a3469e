// Job arrays and sweeps: one submission, many jobs, of which few are in the
// queue at once.
#include "coordinator/engine/event.h"
#include "coordinator/engine/related_jobs.h"
#include "core/text.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

JobSpec ArrayOf(const std::string& array) {
  JobSpec spec;
  spec.array = array;
  return spec;
}

std::vector<uint64_t> Ids(const std::vector<JobId>& jobs) {
  std::vector<uint64_t> ids;
  for (const JobId id : jobs) ids.push_back(id.value());
  return ids;
}

// The elements in the queue, by index.
std::vector<int> Queued(const EngineDriver& driver) {
  std::vector<int> indices;
  for (const auto& [id, job] : driver.engine().jobs()) {
    if (job.active()) indices.push_back(job.array_index);
  }
  return indices;
}

std::vector<int> InState(const EngineDriver& driver, JobState state) {
  std::vector<int> indices;
  for (const auto& [id, job] : driver.engine().jobs()) {
    if (job.state == state) indices.push_back(job.array_index);
  }
  return indices;
}

JobId Element(const EngineDriver& driver, int index) {
  for (const auto& [id, job] : driver.engine().jobs()) {
    if (job.array.valid() && job.array_index == index) return id;
  }
  return {};
}

void Command(EngineDriver& driver, CommandKind kind, JobId array,
             const std::string& elements = "") {
  event::JobCommanded commanded{array, kind};
  commanded.elements = elements;
  driver.Step(commanded);
}

// The element runs, finishes and ends.
void Finish(EngineDriver& driver, int index) {
  driver.At(driver.now + 1);
  const JobId job = Element(driver, index);
  const WorkerKey key = driver.Run(job);
  driver.GiveBack(key, {}, ReleaseCause::kPaused, /*finished=*/true);
  driver.Gone(key, 0);
}

TEST(Arrays, OneSubmissionIsOneRowAndOneAnswer) {
  EngineDriver driver(4);
  const size_t before = driver.rows.size();
  driver.Submit("lm", 1, ArrayOf("0-9,20"));
  size_t submitted = 0;
  for (size_t i = before; i < driver.rows.size(); ++i) {
    submitted += EventName(*DecodeEvent(driver.rows[i].row)) == "JobSubmitted";
  }
  EXPECT_EQ(submitted, 1U);
  int replies = 0;
  JobId answered;
  for (const Action& action : driver.actions) {
    if (const auto* reply = std::get_if<action::Reply>(&action)) {
      ++replies;
      answered = reply->job;
    }
  }
  EXPECT_EQ(replies, 1);
  EXPECT_EQ(answered, JobId(1));
  // The array's own id is no job.
  EXPECT_EQ(driver.engine().FindJob(JobId(1)), nullptr);
  EXPECT_EQ(ElementsOf(driver.engine().jobs(), JobId(1)).size(), 11U);
  const Job& last = driver.job(Element(driver, 20));
  EXPECT_EQ(last.spec.name, "lm_20");
  EXPECT_EQ(last.id, JobId(12));
  EXPECT_EQ(driver.engine().next_job(), JobId(13));
}

TEST(Arrays, AtMostSoManyRunAtOnceAsTheFileSays) {
  EngineDriver driver(4);
  driver.Submit("lm", 1, ArrayOf("0-9%2"));
  EXPECT_THAT(Queued(driver), ElementsAre(0, 1));
  EXPECT_EQ(driver.Why(Element(driver, 2)),
            "waiting: for other elements of array 1, at most 2 at once");
  // No problem for the policy contains the others.
  EXPECT_EQ(driver.problem.jobs.size(), 2U);
  Finish(driver, 1);
  EXPECT_THAT(Queued(driver), ElementsAre(0, 2));
  Finish(driver, 0);
  EXPECT_THAT(Queued(driver), ElementsAre(2, 3));
  for (int index = 2; index < 10; ++index) {
    EXPECT_LE(Queued(driver).size(), 2U);
    Finish(driver, index);
  }
  EXPECT_THAT(Queued(driver), IsEmpty());
  EXPECT_EQ(InState(driver, JobState::kFinished).size(), 10U);
}

TEST(Arrays, WithoutALimitAsManyAreInTheQueueAsTheClusterCanRun) {
  EngineDriver driver(4);
  driver.Submit("lm", 1, ArrayOf("0-999"));
  EXPECT_EQ(Queued(driver).size(), 16U);
  EXPECT_EQ(driver.problem.jobs.size(), 16U);
  EXPECT_THAT(driver.Why(Element(driver, 999)),
              HasSubstr("as many as the cluster runs are before it"));
  driver.JoinServer("there", 1);
  EXPECT_EQ(Queued(driver).size(), 24U);
}

TEST(Arrays, AForgottenServerRunsNone) {
  EngineDriver driver(4);
  driver.JoinServer("there", 1);
  driver.Step(event::ServerLost{"there"});
  driver.Step(event::ServerForgotten{"there"});
  driver.Submit("lm", 1, ArrayOf("0-999"));
  EXPECT_EQ(Queued(driver).size(), 16U);
}

// Else the elements that come last would seem to be starved, and would have all
// accelerators.
TEST(Arrays, AnElementHasNotWaitedBeforeItEntersTheQueue) {
  EngineDriver driver(1, "finish_time_fairness");
  JobSpec spec = ArrayOf("0-1%1");
  driver.Submit("lm", 1, spec);
  driver.At(90);
  Command(driver, CommandKind::kCancel, JobId(1), "0");
  driver.At(driver.now + 1);
  ASSERT_EQ(driver.problem.jobs.size(), 1U);
  EXPECT_EQ(driver.problem.jobs[0].id, Element(driver, 1));
  EXPECT_LE(driver.problem.jobs[0].time_since_start_s, 1);
  const Engine restored = driver.Restored();
  EXPECT_EQ(restored.jobs().at(Element(driver, 1)).queued_at, 90);
}

TEST(Arrays, AnElementThatIsHeldMakesRoomAndComesBackInItsTurn) {
  EngineDriver driver(4);
  driver.Submit("lm", 1, ArrayOf("0-4%2"));
  Command(driver, CommandKind::kHold, JobId(1), "0");
  EXPECT_THAT(Queued(driver), ElementsAre(1, 2));
  EXPECT_EQ(driver.LastReply(), "");
  Command(driver, CommandKind::kRelease, JobId(1), "0");
  // There is no room for it now; it is the next one.
  EXPECT_THAT(Queued(driver), ElementsAre(1, 2));
  Finish(driver, 1);
  EXPECT_THAT(Queued(driver), ElementsAre(0, 2));
}

TEST(Arrays, ACommandIsForTheWholeArrayOrForThoseElementsThatItNames) {
  EngineDriver driver(4);
  driver.Submit("lm", 1, ArrayOf("0-9%2"));
  Command(driver, CommandKind::kCancel, JobId(1), "1,5-7");
  EXPECT_EQ(driver.LastReply(), "");
  EXPECT_THAT(InState(driver, JobState::kCancelled), ElementsAre(1, 5, 6, 7));
  EXPECT_THAT(Queued(driver), ElementsAre(0, 2));
  Command(driver, CommandKind::kHold, JobId(1));
  EXPECT_THAT(Queued(driver), IsEmpty());
  EXPECT_THAT(driver.Why(Element(driver, 9)), HasSubstr("held: by"));
  Command(driver, CommandKind::kRelease, JobId(1));
  EXPECT_THAT(Queued(driver), ElementsAre(0, 2));
  const size_t before = driver.rows.size();
  Command(driver, CommandKind::kCancel, JobId(1));
  EXPECT_EQ(InState(driver, JobState::kCancelled).size(), 10U);
  // One row, whatever the number of elements; none came into the queue on the
  // way.
  size_t commands = 0;
  for (size_t i = before; i < driver.rows.size(); ++i) {
    commands += EventName(*DecodeEvent(driver.rows[i].row)) == "JobCommanded";
  }
  EXPECT_EQ(commands, 1U);
  EXPECT_TRUE(driver.job(Element(driver, 9)).unqueued);
}

TEST(Arrays, ACommandThatFitsNoElementSaysWhy) {
  EngineDriver driver(4);
  driver.Submit("lm", 1, ArrayOf("0-9%2"));
  Command(driver, CommandKind::kCancel, JobId(1), "8-12");
  EXPECT_EQ(driver.LastReply(), "array 1 has no element 10-12; it has 0-9");
  Command(driver, CommandKind::kCancel, JobId(1), "9-8");
  EXPECT_THAT(driver.LastReply(), HasSubstr("\"9-8\" is an empty range"));
  Command(driver, CommandKind::kRelease, JobId(1));
  EXPECT_THAT(driver.LastReply(), HasSubstr("is not held, it is active"));
  Command(driver, CommandKind::kRelease, JobId(1), "5");
  EXPECT_EQ(driver.LastReply(), "job 1_5 waits for other elements of array 1");
  Command(driver, CommandKind::kRequeue, JobId(1), "5");
  EXPECT_THAT(driver.LastReply(), HasSubstr("waits for other elements"));
  Command(driver, CommandKind::kCancel, JobId(99));
  EXPECT_THAT(driver.LastReply(), HasSubstr("there is no job 99"));
  event::JobUpdated updated;
  updated.job = JobId(1);
  updated.update.weight = 2;
  driver.Step(updated);
  EXPECT_EQ(driver.LastReply(),
            "1 is an array of 10 jobs; name one of them, as 1_0");
  EXPECT_EQ(InState(driver, JobState::kCancelled).size(), 0U);
}

TEST(Arrays, AnAnswerAboutManyElementsFitsIntoAFrame) {
  EngineDriver driver(4);
  std::string present;
  std::string absent;
  for (int i = 0; i < 3000; ++i) {
    // No three of them are a range.
    const int index = 4 * i + (i % 3 == 0 ? 1 : 0);
    StrAppend(&present, i == 0 ? "" : ",", index);
    StrAppend(&absent, i == 0 ? "" : ",", index + 2);
  }
  driver.Submit("lm", 1, ArrayOf(present));
  ASSERT_EQ(driver.LastReply(), "");
  Command(driver, CommandKind::kCancel, JobId(1), absent);
  EXPECT_THAT(driver.LastReply(), HasSubstr("array 1 has no element 3,6,10,"));
  EXPECT_LT(driver.LastReply().size(), 1000U);
  Command(driver, CommandKind::kCancel, JobId(1), absent + ",x");
  EXPECT_THAT(driver.LastReply(), HasSubstr("elements \"3,6,10,"));
  EXPECT_LT(driver.LastReply().size(), 1000U);
}

TEST(Arrays, AnElementIsCommandedByItsOwnIdToo) {
  EngineDriver driver(4);
  driver.Submit("lm", 1, ArrayOf("0-9%2"));
  Command(driver, CommandKind::kCancel, Element(driver, 0));
  EXPECT_THAT(Queued(driver), ElementsAre(1, 2));
  EXPECT_THAT(InState(driver, JobState::kCancelled), ElementsAre(0));
}

TEST(Arrays, AnElementWaitsAfterAFailureOfAnother) {
  EngineDriver driver(4);
  JobSpec spec = ArrayOf("0-3%1");
  spec.retries_max = 0;
  driver.Submit("lm", 1, spec);
  const JobId first = Element(driver, 0);
  driver.Run(first);
  driver.Gone(driver.Key(first), 1);
  EXPECT_EQ(driver.job(first).state, JobState::kHeld);
  EXPECT_THAT(Queued(driver), ElementsAre(1));
}

TEST(Arrays, ARestartFindsTheSameElementsWaiting) {
  EngineDriver driver(4);
  driver.Submit("lm", 1, ArrayOf("0-9%2"));
  Command(driver, CommandKind::kCancel, JobId(1), "4");
  Finish(driver, 0);
  EXPECT_THAT(Queued(driver), ElementsAre(1, 2));
  driver.Restart();
  EXPECT_THAT(Queued(driver), ElementsAre(1, 2));
  Command(driver, CommandKind::kCancel, JobId(1), "1,2");
  EXPECT_THAT(Queued(driver), ElementsAre(3, 5));

  Engine restored = driver.Restored();
  event::JobCommanded cancel{JobId(1), CommandKind::kCancel};
  cancel.elements = "3";
  restored.Step(driver.now, cancel);
  std::vector<int> queued;
  for (const auto& [id, job] : restored.jobs()) {
    if (job.active()) queued.push_back(job.array_index);
  }
  EXPECT_THAT(queued, ElementsAre(5, 6));
}

TEST(Arrays, AllElementsWaitForTheTimeOfTheFile) {
  EngineDriver driver(4);
  JobSpec spec = ArrayOf("0-9%2");
  spec.not_before_s = 50;
  driver.Submit("lm", 1, spec);
  EXPECT_THAT(Queued(driver), IsEmpty());
  EXPECT_THAT(driver.Why(Element(driver, 3)), HasSubstr("its not_before is"));
  driver.Restart();
  const size_t before = driver.rows.size();
  driver.At(51);
  EXPECT_THAT(Queued(driver), ElementsAre(0, 1));
  size_t reached = 0;
  for (size_t i = before; i < driver.rows.size(); ++i) {
    reached += EventName(*DecodeEvent(driver.rows[i].row)) == "TimeReached";
  }
  // One row for all, and one for each that enters the queue.
  EXPECT_EQ(reached, 3U);
}

TEST(Arrays, OneElementMayStartBeforeTheTimeOfTheFile) {
  EngineDriver driver(4);
  JobSpec spec = ArrayOf("0-9%2");
  spec.not_before_s = 50;
  driver.Submit("lm", 1, spec);
  Command(driver, CommandKind::kRelease, JobId(1), "3");
  EXPECT_THAT(Queued(driver), ElementsAre(3));
  driver.At(51);
  EXPECT_THAT(Queued(driver), ElementsAre(0, 3));
}

TEST(Arrays, TheTimeOfTheFileIsNoRowWhereNoElementWaitsForIt) {
  EngineDriver driver(4);
  JobSpec spec = ArrayOf("0-1");
  spec.not_before_s = 50;
  driver.Submit("lm", 1, spec);
  Command(driver, CommandKind::kRelease, JobId(1));
  EXPECT_THAT(Queued(driver), ElementsAre(0, 1));
  driver.At(49);
  const size_t before = driver.rows.size();
  driver.At(51);
  for (size_t i = before; i < driver.rows.size(); ++i) {
    EXPECT_NE(EventName(*DecodeEvent(driver.rows[i].row)), "TimeReached");
  }
}

TEST(Arrays, NamesAndDirectoriesOfElementsAreTheirOwn) {
  EngineDriver driver(4);
  driver.Submit("lm_3");
  driver.Submit("lm", 1, ArrayOf("0-9"));
  EXPECT_THAT(driver.LastReply(),
              HasSubstr("job \"lm_3\": the name is taken by job 1"));
  EXPECT_EQ(driver.engine().jobs().size(), 1U);
  Command(driver, CommandKind::kCancel, JobId(1));
  driver.Submit("lm", 1, ArrayOf("0-9"));
  EXPECT_EQ(driver.LastReply(), "");
  driver.Submit("lm", 1, ArrayOf("9-12"));
  EXPECT_THAT(driver.LastReply(), HasSubstr("job \"lm_9\": the name is taken"));
  JobSpec other;
  other.checkpoint_directory = "/ck/x_1";
  driver.Submit("other", 1, other);
  JobSpec spec = ArrayOf("0-3");
  spec.checkpoint_directory = "/ck/x";
  driver.Submit("x", 1, spec);
  EXPECT_THAT(driver.LastReply(), HasSubstr("/ck/x_1 is that of job"));
}

// An app would begin anew, and with it its finish-time fairness.
TEST(Arrays, TheAppOfAnArrayGoesOnFromElementToElement) {
  EngineDriver driver(1, "themis");
  driver.Submit("lm", 1, ArrayOf("0-3%1"));
  driver.At(20);
  ASSERT_TRUE(driver.engine().HasApps());
  Finish(driver, 0);
  EXPECT_TRUE(driver.engine().HasApps());
  EXPECT_THAT(Queued(driver), ElementsAre(1));
  Command(driver, CommandKind::kCancel, JobId(1));
  EXPECT_FALSE(driver.engine().HasApps());
}

TEST(Arrays, TheAppOfAnArrayGoesOnWhileItsOtherElementsAreHeld) {
  EngineDriver driver(1, "themis");
  driver.Step(event::PolicyChanged{"themis"});
  driver.Submit("lm", 1, ArrayOf("0-3%1"));
  driver.At(20);
  Command(driver, CommandKind::kHold, JobId(1), "1-3");
  Finish(driver, 0);
  EXPECT_THAT(Queued(driver), IsEmpty());
  EXPECT_TRUE(driver.engine().HasApps());
  // Nothing is offered to an app that has no job in the queue.
  driver.Step(event::BidderJoined{{"", "lm", 1}});
  driver.Submit("other");
  EXPECT_EQ(driver.Count<BidRequest>(), 0);
  driver.Restart();
  Command(driver, CommandKind::kRelease, JobId(1));
  EXPECT_TRUE(driver.job(Element(driver, 1)).active());
  driver.At(driver.now + 1);
  ASSERT_EQ(driver.problem.apps.size(), 1U);
  EXPECT_GE(driver.problem.apps[0].age_s, 20);
  Command(driver, CommandKind::kCancel, JobId(1));
  EXPECT_FALSE(driver.engine().HasApps());
}

TEST(Arrays, TheValuesOfASweepReachTheProcess) {
  EngineDriver driver(4);
  JobSpec spec;
  spec.sweep = {{"lr", {"0.1", "0.01"}}};
  spec.at_once = 1;
  driver.Submit("lm", 1, spec);
  EXPECT_THAT(Queued(driver), ElementsAre(0));
  const auto launch = driver.Last<LaunchWorker>();
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->job_name, "lm_0");
  EXPECT_THAT(launch->environment, Contains(std::pair<std::string, std::string>(
                                       "GAVEL_SWEEP_LR", "0.1")));
  EXPECT_THAT(launch->environment, Contains(std::pair<std::string, std::string>(
                                       "GAVEL_ARRAY_INDEX", "0")));
}

TEST(Arrays, TenThousandElementsAreOneStepOfTheEngine) {
  EngineDriver driver(4);
  driver.Submit("lm", 1, ArrayOf("0-9999%8"));
  EXPECT_EQ(driver.LastReply(), "");
  EXPECT_EQ(driver.engine().jobs().size(), 10'000U);
  EXPECT_EQ(Queued(driver).size(), 8U);
  EXPECT_EQ(driver.problem.jobs.size(), 8U);
  EXPECT_LT(driver.rows.back().row.size(), 2000U);
  Command(driver, CommandKind::kCancel, JobId(1));
  EXPECT_EQ(InState(driver, JobState::kCancelled).size(), 10'000U);
}

// Elements that ended drive out other elements, and no other jobs.
TEST(Arrays, ALargeArrayDoesNotMakeOtherJobsForgotten) {
  EngineDriver driver(
      4, "fifo", [](EngineOptions& options) { options.ended_jobs_kept = 3; });
  driver.hold_solver = true;  // so no process has to end first
  const JobId before = driver.Submit("before");
  Command(driver, CommandKind::kCancel, before);
  driver.Submit("lm", 1, ArrayOf("0-9"));
  Command(driver, CommandKind::kCancel, JobId(2));
  EXPECT_NE(driver.engine().FindJob(before), nullptr);
  EXPECT_EQ(driver.engine().jobs().size(), 4U);
  driver.Restart();
  EXPECT_EQ(driver.engine().jobs().size(), 4U);
  const Engine restored = driver.Restored();
  EXPECT_NE(restored.FindJob(before), nullptr);
  EXPECT_EQ(restored.jobs().size(), 4U);
  for (const char* name : {"a", "b", "c"}) {
    Command(driver, CommandKind::kCancel, driver.Submit(name));
  }
  EXPECT_EQ(driver.engine().FindJob(before), nullptr);
  EXPECT_EQ(driver.engine().jobs().size(), 6U);
}

TEST(Arrays, TheLastSubmissionIsAllOfItsElements) {
  EngineDriver driver(4);
  EXPECT_THAT(LastSubmitted(driver.engine().jobs()), IsEmpty());
  driver.Submit("a");
  EXPECT_THAT(Ids(LastSubmitted(driver.engine().jobs())), ElementsAre(1));
  driver.Submit("lm", 1, ArrayOf("0-2"));
  EXPECT_THAT(Ids(LastSubmitted(driver.engine().jobs())), ElementsAre(3, 4, 5));
  driver.Submit("lm2", 1, ArrayOf("0-1"));
  EXPECT_THAT(Ids(LastSubmitted(driver.engine().jobs())), ElementsAre(7, 8));
  event::JobCommanded commanded{JobId(2), CommandKind::kCancel};
  commanded.elements = "1-2";
  EXPECT_THAT(Ids(NamedJobs(driver.engine().jobs(), commanded)),
              ElementsAre(4, 5));
  commanded.job = JobId(1);
  EXPECT_THAT(Ids(NamedJobs(driver.engine().jobs(), commanded)),
              ElementsAre(1));
}

}  // namespace
}  // namespace gavel
