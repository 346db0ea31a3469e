// Jobs that are submitted from the command line itself, and commands that wait
// for jobs, with real processes.
#include <csignal>

#include "core/text.h"
#include "tests/support/gavel_fixture.h"
#include "tests/support/typed_run.h"

namespace gavel::testing {
namespace {

using nlohmann::json;

class SubmitTest : public GavelClusterTest {
 protected:
  // The command `words -- program`, whose options come before the program.
  std::vector<std::string> Line(std::vector<std::string> words,
                                const std::vector<std::string>& program) {
    words.insert(words.end(), {"--coordinator", endpoint_, "--"});
    Append(program, &words);
    return words;
  }
  Ended DoWith(const std::vector<std::string>& words,
               const std::vector<std::string>& program) {
    return Run(Line(words, program));
  }
  std::vector<std::string> Trainer(const std::string& steps) {
    return {FakeWorker(), "--steps", steps, "--step-ms", "5"};
  }
  std::string State(const std::string& name) {
    const json row = QueueRow(endpoint_, name);
    return row.is_object() ? row.value("state", "") : "";
  }
};

TEST_F(SubmitTest, AProgramIsAJobWithoutAFile) {
  StartCluster(1);
  const Ended submitted = DoWith(
      {"submit", "--name", "lm", "--types", "cpu", "--gpus", "1", "--set",
       "weight=2.5", "--set", "environment.GREETING=hello there", "--wait"},
      {"sh", "-c", "echo $GREETING [a,b] $0", "last"});
  EXPECT_EQ(submitted.exit_code, 0) << submitted.errors;
  EXPECT_THAT(submitted.output, HasSubstr("Submitted job 1 (lm)"));
  EXPECT_THAT(submitted.output, HasSubstr("Job 1 (lm) finished"));
  EXPECT_EQ(Do({"logs", "lm"}).output, "hello there [a,b] last\n");
  EXPECT_EQ(QueueRow(endpoint_, "lm")["weight"], 2.5);
}

TEST_F(SubmitTest, AnArrayIsOneSubmissionAndItsElementsAreJobs) {
  StartCluster(1);
  const Ended submitted =
      DoWith({"submit", "--name", "lm", "--array", "0-3%2", "--wait"},
             {"sh", "-c", "echo $GAVEL_ARRAY_INDEX $0", "of {index}"});
  EXPECT_EQ(submitted.exit_code, 0) << submitted.errors;
  EXPECT_THAT(submitted.output, HasSubstr("Submitted array 1 of 4 jobs (lm)"));
  EXPECT_THAT(submitted.output, HasSubstr("Job 1_3 (lm_3) finished"));
  EXPECT_EQ(Do({"logs", "1_2"}).output, "2 of 2\n");
  EXPECT_EQ(Do({"logs", "lm_3"}).output, "3 of 3\n");
  EXPECT_THAT(Do({"why", "1_2"}).output, HasSubstr("job 4 (1_2) lm_2:"));
  EXPECT_THAT(Do({"why", "1"}).errors,
              HasSubstr("1 is an array of 4 jobs; name one of them, as 1_0"));
  EXPECT_THAT(Do({"history", "--job", "lm"}).errors,
              HasSubstr("1 is an array"));
  EXPECT_THAT(Do({"history", "--job", "1_2"}).output, HasSubstr("lm_2"));
  EXPECT_THAT(Do({"why", "1_9"}).errors, HasSubstr("there is no job 1_9"));
  EXPECT_THAT(Do({"cancel", "1"}).errors, HasSubstr("has already ended"));
}

TEST_F(SubmitTest, ElementsOfAnArrayAreHeldReleasedAndCancelled) {
  StartCluster(1);
  ASSERT_EQ(
      DoWith({"submit", "--name", "lm", "--array", "0-9%1"}, Trainer("100000"))
          .exit_code,
      0);
  EXPECT_THAT(Do({"queue"}).output, HasSubstr("1_["));
  EXPECT_EQ(Do({"hold", "lm_[3-5]"}).output, "Held job 1_[3-5]\n");
  EXPECT_EQ(State("lm_4"), "F");
  EXPECT_EQ(Do({"release", "1_[3-4]"}).output, "Released job 1_[3-4]\n");
  EXPECT_EQ(State("lm_4"), "PD");
  EXPECT_EQ(Do({"cancel", "1_7"}).output, "Cancelled job 1_7\n");
  EXPECT_EQ(State("lm_7"), "CA");
  EXPECT_THAT(Do({"cancel", "1_[8-12]"}).errors,
              HasSubstr("array 1 has no element 10-12; it has 0-9"));
  EXPECT_THAT(Do({"update", "1_[0-3]", "--weight", "2"}).errors,
              HasSubstr("takes one at a time"));
  EXPECT_THAT(Do({"cancel", "1_[8"}).errors,
              HasSubstr("\"1_[8\" has no ] at its end; write 1_[7-20]"));
  const json forecast = Json({"queue", "--start"});
  EXPECT_EQ(forecast["jobs"][0]["array"], 1);
  EXPECT_THAT(Do({"queue", "--start"}).output, HasSubstr("1_["));
  EXPECT_EQ(Do({"cancel", "lm"}).output, "Cancelled job 1\n");
  EXPECT_EQ(State("lm_9"), "CA");
}

TEST_F(SubmitTest, FlagsOverrideTheFileAndItsPathsStayWhereItLies) {
  StartCluster(1);
  std::filesystem::create_directories(Path("jobs"));
  Write("jobs/job.toml",
        "name = \"a\"\ncommand = [\"pwd\"]\nweight = 3\napp = \"search\"\n");
  const Ended submitted = Do({"submit", Path("jobs/job.toml"), "--name", "b",
                              "--set", "weight=4", "--json", "--wait"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
  const json outcome = json::parse(submitted.output);
  EXPECT_EQ(outcome[0]["name"], "b");
  EXPECT_EQ(outcome[0]["state"], "CD");
  EXPECT_EQ(outcome[0]["exit_code"], 0);
  const json row = QueueRow(endpoint_, "b");
  EXPECT_EQ(row["weight"], 4);
  EXPECT_EQ(row["app"], "search");
  EXPECT_EQ(Do({"logs", "b"}).output, Path("jobs") + "\n");
}

TEST_F(SubmitTest, WithoutANameTheJobIsCalledLikeItsProgram) {
  StartCluster(1);
  for (int i = 0; i < 2; ++i) {
    const Ended ended = DoWith({"submit"}, Trainer("100000"));
    EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  }
  EXPECT_EQ(QueueRow(endpoint_, "fake_worker")["id"], 1);
  EXPECT_EQ(QueueRow(endpoint_, "fake_worker-2")["id"], 2);
}

TEST_F(SubmitTest, RefusesWrongFlagsByNameAndSubmitsNothing) {
  StartCluster(1);
  struct Case {
    std::vector<std::string> words;
    std::string error;
    int exit_code = 1;
  };
  const std::vector<Case> cases = {
      {{"--gpus", "0"}, "--gpus: scale_factor is 0; write an integer from 1"},
      {{"--gpus", "two"}, "--gpus", 2},
      {{"--name", "a b"}, "--name: name is \"a b\"; write 1 to 64"},
      {{"--types", "v 100"}, "--types: \"v 100\" is not the name"},
      {{"--set", "weight=0"}, "--set weight: weight is 0"},
      {{"--set", "weigth=1"}, "did you mean \"weight\"?"},
      {{"--set", "weight"}, "names no key and value"},
      {{"--set", "class=opaque", "--set", "scale_factor_max=2"},
       "a job of class \"opaque\" can't grow"}};
  for (const Case& one : cases) {
    std::vector<std::string> words = {"submit"};
    Append(one.words, &words);
    const Ended ended = DoWith(words, {"true"});
    EXPECT_EQ(ended.exit_code, one.exit_code) << one.error;
    EXPECT_THAT(ended.errors, HasSubstr(one.error));
  }
  const Ended nothing = Do({"submit", "--name", "lm"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.errors, HasSubstr("a program behind \"--\""));
  EXPECT_THAT(DoWith({"run"}, {""}).errors, HasSubstr("names no program"));
  EXPECT_TRUE(Json({"queue"}).empty());
}

TEST_F(SubmitTest, ADryRunShowsTheJobAndItsForecastAndSubmitsNothing) {
  StartCluster(1);
  const std::vector<std::string> job = {
      "submit", "--dry-run",       "--name", "lm",
      "--set",  "steps_total=100", "--set",  "throughputs.cpu=10"};
  const Ended text = DoWith(job, {"./train"});
  EXPECT_EQ(text.exit_code, 0) << text.errors;
  EXPECT_THAT(text.output,
              AllOf(HasSubstr("name = \"lm\"\ncommand = [\"./train\"]"),
                    HasSubstr("fits      1 cpu of here, 1 idle now"),
                    HasSubstr("finishes  in ")));
  std::vector<std::string> as_json = job;
  as_json.push_back("--json");
  const json answer = json::parse(DoWith(as_json, {"./train"}).output);
  EXPECT_EQ(answer[0]["fits"][0]["accelerators"], 1);
  EXPECT_NEAR(answer[0]["forecast"]["job"]["finish_in_s"].get<double>(), 10, 1);

  const Ended endless = DoWith({"submit", "--dry-run"}, {"./train"});
  EXPECT_EQ(endless.exit_code, 0) << endless.errors;
  EXPECT_THAT(endless.output, HasSubstr("no forecast: "));
  const Ended array =
      DoWith({"submit", "--dry-run", "--array", "0"}, {"./train"});
  EXPECT_EQ(array.exit_code, 0) << array.errors;
  EXPECT_THAT(array.output,
              HasSubstr("no forecast: none is made of an array of 1 job;"));
  const Ended never =
      DoWith({"submit", "--dry-run", "--gpus", "2"}, {"./train"});
  EXPECT_EQ(never.exit_code, 1);
  EXPECT_THAT(never.errors, HasSubstr("can never run: it needs 2"));
  EXPECT_TRUE(Json({"queue"}).empty());
}

TEST_F(SubmitTest, QueueTellsWhenJobsThatWaitAreExpected) {
  StartCluster(1);
  for (const char* name : {"a", "b"}) {
    DoWith({"submit", "--name", name, "--set", "steps_total=100000", "--set",
            "throughputs.cpu=100"},
           Trainer("100000"));
  }
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 20));
  const json forecast = Json({"queue", "--start"});
  ASSERT_EQ(forecast["jobs"].size(), 1u);
  const json& start = forecast["jobs"][0]["start"];
  EXPECT_EQ(forecast["jobs"][0]["name"], "b");
  EXPECT_LT(start["earliest_in_s"], start["latest_in_s"]);
  EXPECT_THAT(Do({"queue", "--start"}).output, HasSubstr("STARTS IN"));
}

TEST_F(SubmitTest, TheForecastOfAQueueTakesColumnsAndAnOrder) {
  StartCluster(1);
  for (const char* name : {"a", "b", "c"}) {
    DoWith({"submit", "--name", name, "--set", "steps_total=100000", "--set",
            "throughputs.cpu=100"},
           Trainer("100000"));
  }
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 20));
  const std::string text =
      Do({"queue", "--start", "--format", "name,start", "--sort=-name"}).output;
  EXPECT_THAT(text, AllOf(HasSubstr("NAME START\nc    "), HasSubstr("\nb    "),
                          Not(HasSubstr("\na "))));
  const json rows =
      Json({"queue", "--start", "--sort=start", "--format", "start,finish"});
  ASSERT_EQ(rows["jobs"].size(), 2u);
  EXPECT_EQ(rows["jobs"][0].size(), 2u);
  EXPECT_LE(rows["jobs"][0]["start"]["median_in_s"],
            rows["jobs"][1]["start"]["median_in_s"]);
  EXPECT_TRUE(rows.contains("simulations"));
  EXPECT_EQ(Do({"queue", "--start", "--state", "held"}).output,
            "none of the jobs that were asked for waits\n");
  EXPECT_THAT(Do({"queue", "--start", "--sort", "colour"}).errors,
              HasSubstr("app_to_come_s, after_parents, start, finish"));
  EXPECT_THAT(Do({"queue", "--sort", "start"}).errors,
              HasSubstr("with --start also after_parents, start, finish"));
}

TEST_F(SubmitTest, SecretsOfAFileAreSeenByTheJobAlone) {
  StartCluster(1);
  Write("secrets.env", "TOKEN=hunter2-is-secret\n");
  Write("job.toml",
        "name = \"a\"\nenv_file = \"secrets.env\"\n"
        "command = [\"sh\", \"-c\", \"test ${#TOKEN} = 17\"]\n");
  EXPECT_EQ(Do({"run", Path("job.toml")}).exit_code, 0);
  const std::string grep = StrCat("grep -rl hunter2 ", state());
  const Process found({"sh", "-c", grep}, Path("found"));
  EXPECT_TRUE(Eventually([&] { return !IsAlive(found.pid()); }));
  EXPECT_EQ(found.output(), "") << "in the journal, a log or a record";
  EXPECT_THAT(Do({"queue", "--json", "--all"}).output,
              Not(HasSubstr("hunter2")));

  const Ended missing =
      DoWith({"run", "--name", "b", "--set", "env_file=nothing.env"}, {"true"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.errors, HasSubstr("nothing.env: No such file"));
}

TEST_F(SubmitTest, ATimeLimitEndsTheJobWithACheckpointAndIsExtended) {
  StartCluster(1);
  DoWith({"submit", "--name", "a", "--set", "time_limit=1"}, Trainer("100000"));
  EXPECT_EQ(Do({"wait", "a"}).exit_code, 75);
  const uint64_t step = CheckpointOf("a").steps;
  EXPECT_GE(step, 1u);
  EXPECT_EQ(QueueRow(endpoint_, "a")["code"], "held_time_limit");
  EXPECT_EQ(Do({"update", "a", "--time-limit", "1000"}).exit_code, 0);
  EXPECT_EQ(Do({"release", "a"}).exit_code, 0);
  EXPECT_TRUE(ReachesStep(endpoint_, "a", step + 20));
  EXPECT_EQ(Do({"update", "a", "--time-limit", "1h30m"}).exit_code, 0);
  EXPECT_EQ(Do({"update", "a", "--time-limit", "-1"}).exit_code, 1);
  EXPECT_THAT(Do({"update", "a", "--time-limit", "1:30:00"}).errors,
              HasSubstr("\"1:30:00\" is no duration"));
}

TEST_F(SubmitTest, AJobStartsNotBeforeItsTime) {
  StartCluster(1);
  const Ended submitted =
      DoWith({"submit", "--name", "a", "--not-before", "2h"}, {"true"});
  EXPECT_EQ(submitted.exit_code, 0) << submitted.errors;
  const json row = QueueRow(endpoint_, "a");
  EXPECT_EQ(row["state"], "PD");
  EXPECT_EQ(row["code"], "not_before");
  EXPECT_EQ(Do({"release", "a"}).exit_code, 0);
  EXPECT_EQ(Do({"wait", "a"}).exit_code, 0);

  DoWith({"submit", "--name", "b", "--set", "not_before_s=1"}, {"true"});
  EXPECT_EQ(Do({"wait", "b"}).exit_code, 0);
  EXPECT_THAT(DoWith({"submit", "--not-before", "yesterday"}, {"true"}).errors,
              HasSubstr("yesterday"));
  EXPECT_THAT(
      DoWith({"submit", "--not-before", "2020-01-01 00:00"}, {"true"}).errors,
      HasSubstr("has passed; without it the job may start now"));
}

TEST_F(SubmitTest, AJobStartsAfterOthers) {
  StartCluster(1);
  DoWith({"submit", "--name", "first"}, Trainer("100000"));
  const Ended submitted =
      DoWith({"submit", "--name", "second", "--after", "first,1"}, {"true"});
  EXPECT_EQ(submitted.exit_code, 0) << submitted.errors;
  const json row = QueueRow(endpoint_, "second");
  EXPECT_EQ(row["state"], "PD");
  EXPECT_EQ(row["code"], "awaits_jobs");
  EXPECT_EQ(row["awaits"], json({1}));
  DoWith({"submit", "--name", "third", "--set", "after_any=first,second"},
         {"true"});
  EXPECT_THAT(Do({"why", "third"}).output,
              HasSubstr(", job 2 second (waiting)"));
  EXPECT_THAT(DoWith({"submit", "--after", "nobody"}, {"true"}).errors,
              HasSubstr("its owner has no such job"));
  EXPECT_EQ(Do({"cancel", "first"}).exit_code, 0);
  EXPECT_EQ(Do({"wait", "second"}).exit_code, 75);
  EXPECT_THAT(Do({"why", "second"}).output,
              HasSubstr("its parent 1 first was cancelled"));
  EXPECT_EQ(Do({"wait", "third"}).exit_code, 0);
  EXPECT_THAT(Do({"why", "third"}).output,
              HasSubstr("parent: 1 first (cancelled)\n"
                        "parent: 2 second (cancelled)\n"));
  // Its parent has failed already.
  const Ended late =
      DoWith({"submit", "--name", "late", "--after", "second"}, {"true"});
  EXPECT_EQ(late.exit_code, 75) << late.errors;
  EXPECT_THAT(late.output,
              HasSubstr("Job 4 (late) is cancelled: its parent 2 second was"));
  EXPECT_THAT(
      DoWith({"submit", "--json", "--name", "later", "--after", "second"},
             {"true"})
          .output,
      HasSubstr("\"cancelled\": \"cancelled: its parent 2 second was"));
}

TEST_F(SubmitTest, ArraysAreParentsAsAWholeAndByIndex) {
  StartCluster(1);
  DoWith({"submit", "--name", "prep", "--array", "0-1%1"}, Trainer("100000"));
  const std::vector<std::string> by_index = {
      "submit", "--name", "train", "--set", "after_by_index=prep", "--array"};
  const auto submit = [&](const std::string& array, const char* more) {
    std::vector<std::string> words = by_index;
    words.push_back(array);
    if (*more != '\0') words.emplace_back(more);
    return DoWith(words, {"true"});
  };
  for (const char* more : {"", "--dry-run"}) {
    const Ended refused = submit("0-2", more);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.errors, HasSubstr("which has no element 2"));
  }
  EXPECT_EQ(submit("0-1", "--dry-run").exit_code, 0);
  EXPECT_EQ(submit("0-1", "").exit_code, 0);
  EXPECT_EQ(QueueRow(endpoint_, "train_1")["awaits"], json({3}));
  EXPECT_EQ(DoWith({"submit", "--name", "last", "--after", "prep"}, {"true"})
                .exit_code,
            0);
  EXPECT_EQ(QueueRow(endpoint_, "last")["awaits"], json({1}));
  EXPECT_THAT(Do({"why", "last"}).output,
              HasSubstr("an array, 2 jobs of which have not ended"));
  EXPECT_EQ(Do({"cancel", "1_1"}).exit_code, 0);
  EXPECT_EQ(Do({"wait", "train_1"}).exit_code, 75);
  EXPECT_EQ(Do({"wait", "last"}).exit_code, 75);
  EXPECT_EQ(State("train_0"), "PD");
}

TEST_F(SubmitTest, ADryRunRefusesParentsThatTheSubmissionWould) {
  StartCluster(1);
  DoWith({"submit", "--name", "array", "--array", "0-1%1"}, Trainer("100000"));
  const auto expect_refused = [&](std::vector<std::string> words,
                                  const char* error) {
    words.insert(words.begin(), {"submit", "--name", "a"});
    const Ended real = DoWith(words, {"true"});
    words.emplace_back("--dry-run");
    const Ended dry = DoWith(words, {"true"});
    EXPECT_EQ(dry.exit_code, 1) << error;
    EXPECT_THAT(dry.errors, HasSubstr(error));
    EXPECT_EQ(dry.errors, real.errors);
  };
  for (const char* nobody : {"nosuch", "77", "77_1"}) {
    expect_refused({"--after", nobody}, "its owner has no such job");
  }
  expect_refused({"--array", "0-1", "--set", "after_by_index=array_0"},
                 "which is no array; write after_success");
  // Parents among the files are there once these are submitted in order.
  Write("first.toml", "name = \"first\"\ncommand = [\"true\"]\n");
  Write("second.toml",
        "name = \"second\"\ncommand = [\"true\"]\nafter = [\"first\"]\n");
  const Ended both =
      Do({"submit", "--dry-run", Path("first.toml"), Path("second.toml")});
  EXPECT_EQ(both.exit_code, 0) << both.errors;
  EXPECT_THAT(both.output, HasSubstr("it waits for a job of the files before"));
  EXPECT_EQ(Do({"submit", "--dry-run", Path("second.toml"), Path("first.toml")})
                .exit_code,
            1);
}

TEST_F(SubmitTest, AnUpdateNamesOtherParentsOrNone) {
  StartCluster(1);
  DoWith({"submit", "--name", "first"}, Trainer("100000"));
  DoWith({"submit", "--name", "second", "--after", "first"}, {"true"});
  EXPECT_THAT(Do({"update", "second", "--after", "second"}).errors,
              HasSubstr("it can't wait for itself"));
  EXPECT_EQ(Do({"update", "second", "--after-any", "first"}).exit_code, 0);
  EXPECT_EQ(Do({"update", "second", "--after", "0"}).exit_code, 0);
  EXPECT_EQ(Do({"cancel", "first"}).exit_code, 0);
  EXPECT_EQ(Do({"wait", "second"}).exit_code, 0);
}

TEST_F(SubmitTest, RunShowsTheOutputAndEndsWithTheCodeOfTheJob) {
  StartCluster(1);
  const Ended good =
      DoWith({"run", "--name", "good"}, {"sh", "-c", "echo one; echo two"});
  EXPECT_EQ(good.exit_code, 0) << good.errors;
  EXPECT_EQ(good.output, "one\ntwo\n");
  const Ended bad = DoWith({"run", "--name", "bad", "--set", "retries_max=0"},
                           {"sh", "-c", "echo out; exit 7"});
  EXPECT_EQ(bad.exit_code, 7);
  EXPECT_EQ(bad.output, "out\n");
  EXPECT_THAT(bad.errors, HasSubstr("(bad) is held: failed"));
  const Ended again = DoWith({"run", "--name", "again", "--set",
                              "retries_max=2", "--set", "class=opaque"},
                             {"sh", "-c", "sleep 1; exit 9"});
  EXPECT_EQ(again.exit_code, 9);
  EXPECT_THAT(again.errors,
              HasSubstr("failed (exit code 9) and is started again"));
  const Ended killed =
      DoWith({"run", "--json", "--set", "retries_max=0", "--name", "killed"},
             {"sh", "-c", "kill -9 $$"});
  EXPECT_EQ(killed.exit_code, 137);
  EXPECT_THAT(killed.output, HasSubstr("\"exit_code\":137"));
}

TEST_F(SubmitTest, RunThatIsInterruptedWithoutATerminalCancelsTheJob) {
  StartCluster(1);
  const auto run = Start(Line({"run", "--name", "long"}, Trainer("100000")));
  ASSERT_TRUE(ReachesStep(endpoint_, "long", 20));
  run->Signal(SIGINT);
  EXPECT_EQ(run->Wait(), 75);
  EXPECT_EQ(State("long"), "CA");
}

TEST_F(SubmitTest, CtrlCAsksWhetherToCancel) {
  StartCluster(1);
  TypedRun run(Line({"run", "--name", "long"}, Trainer("100000")));
  ASSERT_TRUE(ReachesStep(endpoint_, "long", 20));
  run.Type(kCtrlC);
  ASSERT_TRUE(run.Shows("Cancel job 1 (long)?"));
  run.Type("n\n");
  const uint64_t step = QueueRow(endpoint_, "long").value("steps_done", 0);
  EXPECT_TRUE(ReachesStep(endpoint_, "long", step + 20)) << "it was cancelled";
  run.Type(kCtrlC);
  ASSERT_TRUE(run.Shows("Cancel job 1 (long)?"));
  run.Type("y\n");
  EXPECT_EQ(run.ExitCode(), 75);
  EXPECT_EQ(State("long"), "CA");
}

TEST_F(SubmitTest, ASecondCtrlCLeavesTheJobRunning) {
  StartCluster(1);
  TypedRun run(Line({"run", "--name", "long"}, Trainer("100000")));
  ASSERT_TRUE(ReachesStep(endpoint_, "long", 20));
  run.Type(kCtrlC);
  ASSERT_TRUE(run.Shows("Cancel job 1 (long)?"));
  run.Type(kCtrlC);
  EXPECT_EQ(run.ExitCode(), 130);
  const uint64_t step = QueueRow(endpoint_, "long").value("steps_done", 0);
  EXPECT_TRUE(ReachesStep(endpoint_, "long", step + 20));
}

TEST_F(SubmitTest, WaitEndsWithTheCodeOfTheFirstThatHasNotFinished) {
  StartCluster(2);
  DoWith({"submit", "--name", "a"}, {"true"});
  DoWith({"submit", "--name", "b", "--set", "retries_max=0"},
         {"sh", "-c", "exit 9"});
  DoWith({"submit", "--name", "c"}, Trainer("100000"));
  EXPECT_EQ(Do({"wait", "a"}).exit_code, 0);
  const auto all =
      Start({"wait", "a", "c", "b", "--json", "--coordinator", endpoint_});
  ASSERT_TRUE(ReachesStep(endpoint_, "c", 20));
  EXPECT_FALSE(all->Wait(0.5)) << "one still runs";
  Do({"cancel", "c"});
  EXPECT_EQ(all->Wait(), 75);
  const json outcomes = json::parse(all->output());
  ASSERT_EQ(outcomes.size(), 3u);
  EXPECT_EQ(outcomes[1]["code"], "cancelled");
  EXPECT_EQ(outcomes[2]["exit_code"], 9);
  EXPECT_THAT(Do({"wait", "nobody"}).errors,
              HasSubstr("there is no job named"));
  EXPECT_THAT(Do({"wait", "77"}).errors, HasSubstr("there is no job 77"));
}

TEST_F(SubmitTest, WaitingLastsOverARestartOfTheCoordinator) {
  StartCluster(1);
  DoWith({"submit", "--name", "a"}, Trainer("100000"));
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 20));
  const auto wait = Start({"wait", "a", "--coordinator", endpoint_});
  EXPECT_FALSE(wait->Wait(1)) << "it has to find the job first";
  KillCoordinator();
  EXPECT_TRUE(Eventually([&] {
    return wait->errors().find("waiting for it") != std::string::npos;
  }));
  StartCoordinator();
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 40));
  Do({"cancel", "a"});
  EXPECT_EQ(wait->Wait(), 75) << wait->errors();
}

}  // namespace
}  // namespace gavel::testing
