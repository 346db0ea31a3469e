#include "coordinator/workload/trace.h"

#include "tests/support/test.h"

namespace gavel {
namespace {

absl::StatusOr<Trace> ParsedTrace(std::string_view text) {
  return ParseTrace(text, "a.trace");
}

// One line of Gavel's form.
std::string Line(std::string_view steps, std::string_view scale_factor,
                 std::string_view weight, std::string_view slo,
                 std::string_view arrival) {
  std::string line = "A (b)\t./a %s\tdir\t-n\t1";
  for (const auto field : {steps, scale_factor, weight, slo, arrival}) {
    line += "\t" + std::string(field);
  }
  return line + "\n";
}

TEST(ParseTrace, ReadsTheTenColumnsOfGavel) {
  ASSERT_OK_AND_ASSIGN(
      const Trace trace,
      ParsedTrace(
          "ResNet (64)\tpython3 a.py %s\timages\t--num_steps\t1\t100387\t1\t1"
          "\t-1.000000\t0\n"
          "A3C\tpython3 b.py\trl\t--max-steps\t0\t500.5\t8\t5\t1.2\t12.25\n"
          "ResNet (64)\tpython3 a.py %s\timages\t--num_steps\t1\t7\t2\t2.5\t0"
          "\t12.25"));
  EXPECT_THAT(trace.templates,
              ElementsAre(JobTemplate{"ResNet (64)", "python3 a.py %s",
                                      "images", "--num_steps", true, true},
                          JobTemplate{"A3C", "python3 b.py", "rl",
                                      "--max-steps", false, true}));
  EXPECT_THAT(trace.jobs,
              ElementsAre(TraceJob{.job_template = 0, .steps_total = 100387},
                          TraceJob{.job_template = 1,
                                   .scale_factor = 8,
                                   .weight = 5,
                                   .steps_total = 500.5,
                                   .arrival_s = 12.25,
                                   .slo = 1.2},
                          TraceJob{.job_template = 0,
                                   .scale_factor = 2,
                                   .weight = 2.5,
                                   .steps_total = 7,
                                   .arrival_s = 12.25}));
  EXPECT_TRUE(trace.entities.empty());
}

TEST(ParseTrace, ReadsTheSevenOldColumnsOfGavel) {
  ASSERT_OK_AND_ASSIGN(
      const Trace trace,
      ParsedTrace(
          "LM\tcd %s/lm && python3 lm.py\t--steps\t1\t95121\t6.000000\t4\n"));
  EXPECT_THAT(trace.templates,
              ElementsAre(JobTemplate{"LM", "cd %s/lm && python3 lm.py", "",
                                      "--steps", true, true}));
  EXPECT_THAT(trace.jobs,
              ElementsAre(TraceJob{
                  .scale_factor = 4, .steps_total = 95121, .arrival_s = 6}));
}

TEST(ParseTrace, LineEndsAndBlankLinesAreOfNoAccount) {
  const std::string one = Line("5", "1", "1", "-1", "0");
  const std::string two = Line("6", "2", "1", "-1", "3");
  ASSERT_OK_AND_ASSIGN(const Trace expected, ParsedTrace(one + two));
  const auto without_end = [](std::string line) {
    line.pop_back();
    return line;
  };
  for (const std::string& text :
       {one + without_end(two), without_end(one) + "\r\n" + without_end(two),
        without_end(one) + "\r\n" + without_end(two) + "\r\n",
        "\n\n" + one + "  \n\t\n" + two + "\n", "\xef\xbb\xbf" + one + two}) {
    ASSERT_OK_AND_ASSIGN(const Trace trace, ParsedTrace(text));
    EXPECT_EQ(trace.jobs, expected.jobs) << text;
    EXPECT_EQ(trace.templates, expected.templates) << text;
  }
}

TEST(ParseTrace, AnEmptyTraceIsToldSo) {
  for (const char* text : {"", "\n", " \r\n\t\n", "\xef\xbb\xbf", "# none\n",
                           "duration_s,num_gpus\n", "[[entity]]\nname=\"a\""}) {
    EXPECT_THAT(ParsedTrace(text),
                IsInvalid("a.trace:1:1: the trace has no jobs"))
        << text;
  }
}

TEST(ParseTrace, WhatHasNoFormIsToldTheForms) {
  EXPECT_THAT(ParsedTrace("\nA (b) ./a dir\n"),
              IsInvalid("a.trace:2:1: a line of no form of a trace; write "));
}

TEST(ParseTrace, BadLinesOfGavelArePointedAt) {
  const std::pair<std::string, const char*> cases[] = {
      {Line("-0.5", "1", "1", "-1", "0"),
       "a.trace:1:23: steps is \"-0.5\"; write a number from 0 to 9.0072e+15"},
      {Line("-5", "1", "1", "-1", "0"), "1:23: steps is \"-5\"; write"},
      {Line("nan", "1", "1", "-1", "0"), "1:23: steps is \"nan\"; write"},
      {Line("1e300", "1", "1", "-1", "0"), "1:23: steps is \"1e300\"; write"},
      {Line("1e999", "1", "1", "-1", "0"), "1:23: steps is \"1e999\"; write"},
      {Line("5x", "1", "1", "-1", "0"), "1:23: steps is \"5x\"; write"},
      {Line("", "1", "1", "-1", "0"), "1:23: steps is \"\"; write"},
      {Line("5", "0", "1", "-1", "0"),
       "1:25: scale factor is \"0\"; write an integer from 1 to 4096"},
      {Line("5", "-1", "1", "-1", "0"), "1:25: scale factor is \"-1\"; write"},
      {Line("5", "1.5", "1", "-1", "0"), "1:25: scale factor is \"1.5\""},
      {Line("5", "99999999999999999999", "1", "-1", "0"), "1:25: scale factor"},
      {Line("5", "1", "0", "-1", "0"),
       "1:27: weight is \"0\"; write a number above 0"},
      {Line("5", "1", "-1", "-1", "0"), "1:27: weight is \"-1\"; write"},
      {Line("5", "1", "inf", "-1", "0"), "1:27: weight is \"inf\"; write"},
      {Line("5", "1", "1", "-2", "0"), "1:29: SLO is \"-2\"; write"},
      {Line("5", "1", "1", "-0.5", "0"), "1:29: SLO is \"-0.5\"; write a mul"},
      {Line("5", "1", "1", "nan", "0"), "1:29: SLO is \"nan\"; write"},
      {Line("5", "1", "1", "-1", "-3"),
       "1:32: arrival is \"-3\"; write a number from 0 to 1e+11"},
      {Line("5", "1", "1", "-1", "nan"), "1:32: arrival is \"nan\"; write"},
      {Line("5", "1", "1", "-1", "1e12"), "1:32: arrival is \"1e12\"; write"},
      {Line("5", "1", "1", "-1", "7") + "\n" + Line("5", "1", "1", "-1", "6.5"),
       "3:32: arrival 6.5 is before that of the job ahead; sort the jobs"},
      {Line("5", "1", "1", "-1", "0") + "A\tb\n",
       "2:4: the line has 2 columns; write ten between tabs"},
      {Line("5", "1", "1", "-1", "0\t9\t8\t7\t6"),
       "1:41: the line has 14 columns"},
      {Line("5,000", "1", "1", "-1", "0"), "1:23: steps is \"5,000\"; write"},
      {"A\tb\tc\td\t2\t5\t1\t1\t-1\t0\n",
       "1:9: needs data directory is \"2\"; write an integer from 0 to 1"},
      {"\tb\tc\td\t1\t5\t1\t1\t-1\t0\n", "1:1: the job type is empty; write"},
      {"\xc3\xa4\tb\tc\td\t1\t-\t1\t1\t-1\t0\n", "1:11: steps is \"-\""},
      {"A\tb\t-n\t1\t5\t0\t0\n", "1:14: scale factor is \"0\""},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_THAT(ParsedTrace(text), IsInvalid(error)) << text;
  }
}

TEST(ParseTrace, ReadsTheTwelveColumnsOfShockwave) {
  ASSERT_OK_AND_ASSIGN(
      const Trace trace,
      ParsedTrace("LM (10)\tpython3 lm.py\tlm\t--steps\t1\t134583\t1\tgns\t1"
                  "\t-1.000000\t1418\t0\n"
                  "LM (10)\tpython3 lm.py\tlm\t--steps\t1\t500\t2\tstatic\t5"
                  "\t1.2\t7\t55\n"));
  ASSERT_EQ(trace.templates.size(), 1U);
  EXPECT_EQ(trace.templates[0].working_directory, "lm");
  EXPECT_THAT(trace.jobs,
              ElementsAre(TraceJob{.steps_total = 134583, .duration_s = 1418},
                          TraceJob{.scale_factor = 2,
                                   .weight = 5,
                                   .steps_total = 500,
                                   .arrival_s = 55,
                                   .slo = 1.2,
                                   .duration_s = 7}));
  // Changes of the batch size are not simulated, and a notice says so.
  EXPECT_THAT(trace.notices,
              ElementsAre(HasSubstr("1 job changes the batch size by a mode")));
}

TEST(ParseTrace, TabsBehindTheLastColumnAreOfNoAccount) {
  std::string line = Line("5", "1", "1", "-1", "3");
  line.insert(line.size() - 1, "\t");
  ASSERT_OK_AND_ASSIGN(const Trace ten, ParsedTrace(line + "\n"));
  EXPECT_EQ(ten.jobs[0].arrival_s, 3);
  // Three of them are not the three columns that ten have more.
  ASSERT_OK_AND_ASSIGN(const Trace seven,
                       ParsedTrace("LM\tlm.py\t--steps\t1\t9\t6\t4\t\t\t\n"));
  EXPECT_EQ(seven.jobs[0].scale_factor, 4);
}

TEST(ParseTrace, CommentsAndALineOfNamesAreNoJobs) {
  const std::string names =
      "job_type\tcommand\tworking_directory\tnum_steps_arg\tneeds_data_dir\t"
      "total_steps\tscale_factor\tpriority_weight\tSLO\tarrival_time\n";
  const std::string job = Line("5", "1", "1", "-1", "0");
  for (const std::string& text :
       {"# two jobs\n" + job + job, names + job + "# between\n" + job,
        "#" + names + job + job, "#\t#\n\n" + names + job + job}) {
    ASSERT_OK_AND_ASSIGN(const Trace trace, ParsedTrace(text));
    EXPECT_EQ(trace.jobs.size(), 2U) << text;
  }
  ASSERT_OK_AND_ASSIGN(
      const Trace toml,
      ParsedTrace("# one, two\t\n[[job]]\ntype = \"A\"\nsteps_total = 5\n"));
  EXPECT_EQ(toml.jobs.size(), 1U);
  std::string swapped = names;
  swapped.replace(swapped.find("total_steps\tscale_factor"), 24,
                  "scale_factor\ttotal_steps");
  EXPECT_THAT(ParsedTrace(swapped + job),
              IsInvalid("a.trace:1:65: column 6 is named scale_factor, and "
                        "total_steps belongs there; reorder the columns"));
  EXPECT_THAT(ParsedTrace(job + names), IsInvalid("a.trace:2:65: steps is"))
      << "only the first line names columns";
}

TEST(ParseTrace, JobsOfNoStepsAreLeftOutAndCounted) {
  ASSERT_OK_AND_ASSIGN(const Trace trace,
                       ParsedTrace(Line("0", "1", "1", "-1", "0") +
                                   Line("5", "1", "1", "-1", "1") +
                                   Line("0", "2", "1", "-1", "2")));
  EXPECT_THAT(trace.jobs,
              ElementsAre(TraceJob{.steps_total = 5, .arrival_s = 1}));
  EXPECT_THAT(trace.notices, ElementsAre("2 rows of 0 steps are left out: "
                                         "there is nothing to run"));
  EXPECT_THAT(ParsedTrace(Line("0", "1", "1", "-1", "0")),
              IsInvalid("a.trace:1:1: the trace has no jobs, for 1 row of 0 "
                        "steps is left out"));
}

TEST(ParseTrace, WholeNumbersMayBeWrittenWithAPoint) {
  ASSERT_OK_AND_ASSIGN(const Trace trace,
                       ParsedTrace(Line("5e3", "8.0", "0.5", "-1", "0")));
  EXPECT_THAT(trace.jobs,
              ElementsAre(TraceJob{
                  .scale_factor = 8, .weight = 0.5, .steps_total = 5000}));
}

TEST(ParseTrace, OtherEncodingsAreToldSo) {
  EXPECT_THAT(ParsedTrace(std::string_view("\xff\xfe"
                                           "A\0\t\0",
                                           6)),
              IsInvalid("a.trace:1:1: the text is UTF-16; save it as UTF-8"));
}

TEST(ParseTrace, LongFieldsAreCutInErrors) {
  EXPECT_THAT(ParsedTrace(Line(std::string(100'000, '9'), "1", "1", "-1", "0")),
              IsInvalid("999...\"; write a number from 0"));
}

TEST(ParseTrace, ReadsACsv) {
  ASSERT_OK_AND_ASSIGN(
      const Trace trace,
      ParsedTrace("duration_s , num_gpus,type,weight,submit_time"
                  "\r\n860662.5,1,\"LM (5, 2)\",2.5,7\r\n"
                  " 7944 ,8,,1,8"));
  ASSERT_EQ(trace.templates.size(), 2U);
  EXPECT_EQ(trace.templates[0].type, "LM (5, 2)");
  EXPECT_EQ(trace.templates[1].type, "philly");
  EXPECT_THAT(trace.jobs, ElementsAre(TraceJob{.job_template = 0,
                                               .weight = 2.5,
                                               .steps_total = 0,
                                               .arrival_s = 7,
                                               .duration_s = 860662.5},
                                      TraceJob{.job_template = 1,
                                               .scale_factor = 8,
                                               .steps_total = 7944,
                                               .arrival_s = 8,
                                               .duration_s = 7944}));
}

TEST(ParseTrace, ACsvNeedsDurationsAndAcceleratorsOnly) {
  ASSERT_OK_AND_ASSIGN(const Trace trace,
                       ParsedTrace("num_gpus,duration_s\n2,3600\n1,60\n"));
  EXPECT_THAT(
      trace.jobs,
      ElementsAre(
          TraceJob{.scale_factor = 2, .steps_total = 3600, .duration_s = 3600},
          TraceJob{.steps_total = 60, .duration_s = 60}));
}

TEST(ParseTrace, JobsWithOneAppShareIt) {
  const std::string of_gavel = Line("5", "1", "1", "-1", "0\tsearch") +
                               Line("5", "1", "1", "-1", "1") +
                               Line("5", "1", "1", "-1", "2\tsearch");
  ASSERT_OK_AND_ASSIGN(const Trace trace, ParsedTrace(of_gavel));
  EXPECT_THAT(trace.apps, ElementsAre("search"));
  EXPECT_EQ(trace.jobs[0].app, 0u);
  EXPECT_EQ(trace.jobs[1].app, TraceJob::kNoApp);
  EXPECT_EQ(trace.jobs[2].app, 0u);
  EXPECT_EQ(ParsedTrace(FormatTrace(trace))->apps, trace.apps);
  ASSERT_OK_AND_ASSIGN(
      const Trace csv,
      ParsedTrace("duration_s,num_gpus,app\n60,1,a\n60,1,\n60,1,b\n60,1,a\n"));
  EXPECT_THAT(csv.apps, ElementsAre("a", "b"));
  EXPECT_EQ(csv.jobs[1].app, TraceJob::kNoApp);
  EXPECT_EQ(csv.jobs[3].app, 0u);
}

TEST(ParseTrace, InteractiveJobsHaveADurationAndNoRow) {
  const char* const forms[] = {
      "A3C\t./a\t\t-n\t0\t5\t1\t1\t-1\t0\n"
      "interactive\t\t\t\t0\t600\t2\t1\t-1\t60\t\tinteractive\t600.5\n",
      "duration_s,num_gpus,arrival_s,class,type\n5,1,0,training,\n"
      "600.5,2,60,interactive,\n",
      "[[job]]\ntype = \"A3C\"\nsteps_total = 5\nclass = \"training\"\n"
      "[[job]]\ntype = \"interactive\"\nclass = \"interactive\"\n"
      "duration_s = 600.5\nscale_factor = 2\narrival_s = 60\n"};
  for (const char* const text : forms) {
    ASSERT_OK_AND_ASSIGN(const Trace trace, ParsedTrace(text));
    ASSERT_EQ(trace.jobs.size(), 2U) << text;
    EXPECT_FALSE(trace.jobs[0].interactive) << text;
    const TraceJob& job = trace.jobs[1];
    EXPECT_TRUE(job.interactive) << text;
    EXPECT_EQ(trace.templates[job.job_template].type, "interactive") << text;
    EXPECT_EQ(job.duration_s, 600.5) << text;
    EXPECT_EQ(job.steps_total, 600.5) << text;
    EXPECT_EQ(job.scale_factor, 2) << text;
    EXPECT_EQ(job.app, TraceJob::kNoApp) << text;
    ASSERT_OK_AND_ASSIGN(const Trace again, ParsedTrace(FormatTrace(trace)));
    EXPECT_EQ(again.jobs[1], job) << text;
  }
}

TEST(ParseTrace, BadClassesArePointedAt) {
  const std::string csv = "duration_s,num_gpus,class\n";
  const std::string toml = "[[job]]\ntype = \"A3C\"\nclass = \"interactive\"\n";
  const std::string line = "A\t\t\t\t0\t6\t1\t1\t-1\t0\t\t";
  const std::pair<std::string, const char*> cases[] = {
      {csv + "60,1,opaque\n",
       "class \"opaque\" is not simulated; write \"training\" or "
       "\"interactive\""},
      {line + "inference\t60\n", "class \"inference\" is not simulated"},
      {line + "interactive\t0\n", "an interactive job has a duration of 0"},
      {toml + "steps_total = 5\n", "a duration and no steps; write duration_s"},
      {toml + "duration_s = 5\nscale_factor_max = 2\n", "can't be elastic"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_THAT(ParsedTrace(text), IsInvalid(error)) << text;
  }
}

TEST(ParseTrace, UnknownColumnsOfACsvAreErrors) {
  EXPECT_THAT(
      ParsedTrace("duration_s,num_gpus,colour\n60,1,A3C\n"),
      IsInvalid(
          "a.trace:1:21: unknown column \"colour\"; the columns are "
          "duration_s, num_gpus, arrival_s, type, weight, "
          "entity, app, class, deadline_s, job_id; rename it, remove it, or "
          "leave it out by --ignore-columns"));
  EXPECT_THAT(ParsedTrace("duration_s,num_gpus,wieght\n60,1,2\n"),
              IsInvalid("unknown column \"wieght\"; did you mean \"weight\"?"));
  EXPECT_THAT(
      ParsedTrace("duration_s,num_gpus,submit_time,arrival_s\n60,1,2,3\n"),
      IsInvalid("1:21: column \"submit_time\" says what another one"));
}

TEST(ParseTrace, ColumnsOfACsvAreLeftOutWhereTheUserSaysSo) {
  const std::string text = "user,Duration,GPU num,vc,wieght\nada,60,1,a,5\n";
  ASSERT_OK_AND_ASSIGN(const Trace trace,
                       ParseTrace(text, "a.csv", kAllOtherColumns));
  EXPECT_THAT(trace.jobs,
              ElementsAre(TraceJob{.steps_total = 60, .duration_s = 60}));
  EXPECT_THAT(trace.notices,
              ElementsAre("3 columns left out: user, vc, wieght"));
  EXPECT_OK(ParseTrace(text, "a.csv", "user,vc,wieght"));
  EXPECT_THAT(ParseTrace(text, "a.csv", "user,vc"),
              IsInvalid("a.csv:1:26: unknown column \"wieght\"; did you mean"));
}

TEST(ParseTrace, DatesOfACsvCountFromTheFirstArrival) {
  ASSERT_OK_AND_ASSIGN(
      const Trace trace,
      ParsedTrace(
          "duration_s,num_gpus,submit_time\n60,1,2020-02-28 23:59:30\n"
          "60,1,2020-02-29 00:00:00.5\n60,1,2020/03/01T00:00\n"
          "60,1,2020-03-01T08:00:00+08:00\n60,1,2020-03-01 00:01:00 UTC\n"
          "60,1,2020-03-02\n60,1,2020-03-01T20:00:01-0400\n"));
  std::vector<double> arrivals;
  for (const TraceJob& job : trace.jobs) arrivals.push_back(job.arrival_s);
  EXPECT_THAT(arrivals,
              ElementsAre(0, 30.5, 86430, 86430, 86490, 172830, 172831));
  const std::string header = "duration_s,num_gpus,submit_time\n";
  const std::pair<const char*, const char*> cases[] = {
      {"60,1,2020-02-30",
       "2:6: submit_time is \"2020-02-30\"; write seconds, "
       "or a date such as 2017-10-09 07:09:30"},
      {"60,1,10/9/2017 7:09", "2:6: submit_time is \"10/9/2017 7:09\"; write"},
      {"60,1,2020-02-03 24:00:00", "2:6: submit_time is"},
      {"60,1,2020-02-03 00:00:00 CST", "2:6: submit_time is"},
      {"60,1,", "2:6: submit_time is \"\"; write seconds"},
      {"60,1,2020-02-03\n60,1,2020-02-02", "3:6: arrival 2020-02-02 is before"},
      {"60,1,2020-02-03\n60,1,7", "3:6: submit_time 7 is no date, and others"},
      {"60,1,7\n60,1,2020-02-03", "3:6: submit_time 2020-02-03 is a date, and"},
  };
  for (const auto& [rows, error] : cases) {
    EXPECT_THAT(ParsedTrace(header + rows), IsInvalid(error)) << rows;
  }
}

TEST(ParseTrace, ACsvMayTellEntitiesDeadlinesAndIds) {
  ASSERT_OK_AND_ASSIGN(
      const Trace trace,
      ParsedTrace("job_id,duration_s,num_gpus,entity,deadline,arrival_s\n"
                  "app_1,100,1,vision,150,0\n\"a,\"\"2\"\"\",100,1,,,5\n"
                  "7,100,2,text,300,5\n8,100,1,vision,,6\n"));
  EXPECT_THAT(trace.names, ElementsAre("app_1", "a,\"2\"", "7", "8"));
  EXPECT_THAT(trace.entities, ElementsAre(TraceEntity{"vision", 1, "fairness"},
                                          TraceEntity{"text", 1, "fairness"}));
  ASSERT_EQ(trace.jobs.size(), 4U);
  EXPECT_EQ(trace.jobs[0].slo, 1.5);
  EXPECT_EQ(trace.jobs[1].slo, 0);
  EXPECT_EQ(trace.jobs[1].entity, TraceJob::kNoEntity);
  EXPECT_EQ(trace.jobs[2].entity, 1U);
  EXPECT_EQ(trace.jobs[3].entity, 0U);
  ASSERT_OK_AND_ASSIGN(
      const Trace dated,
      ParsedTrace("duration_s,num_gpus,arrival_s,deadline\n"
                  "100,1,2020-01-01 00:00:00,2020-01-01 00:05:00\n"));
  EXPECT_EQ(dated.jobs[0].slo, 3);
  EXPECT_THAT(ParsedTrace("duration_s,num_gpus,arrival_s,deadline\n"
                          "100,1,2020-01-01,2019-12-31\n"),
              IsInvalid("2:18: the deadline 2019-12-31 is not after the arr"));
  EXPECT_THAT(ParsedTrace("duration_s,num_gpus,deadline\n100,1,2019-12-31\n"),
              IsInvalid("2:7: the deadline is a date, and arrivals are none"));
  EXPECT_THAT(ParsedTrace("duration_s,num_gpus,entity\n100,1,a b\n"),
              IsInvalid("2:7: entity \"a b\" is no name; write 1 to 64"));
}

TEST(ParseTrace, RowsOfACsvWithNothingToRunAreLeftOutAndCounted) {
  ASSERT_OK_AND_ASSIGN(
      const Trace trace,
      ParsedTrace("job_id,duration_s,num_gpus\n1,60,0\n2,60,1.0\n"
                  "3,60,0\n4,0,1\n"));
  EXPECT_EQ(trace.jobs.size(), 1U);
  EXPECT_THAT(trace.names, ElementsAre("2"));
  EXPECT_THAT(trace.notices,
              ElementsAre(HasSubstr("2 rows of 0 accelerators are left out"),
                          HasSubstr("1 row of 0 seconds is left out")));
}

TEST(ParseTrace, CsvsOfSpreadsheetsAndProgramsAreRead) {
  const TraceJob job = {
      .scale_factor = 2, .steps_total = 60, .arrival_s = 9, .duration_s = 60};
  for (const char* text :
       {"# made by hand\nduration_s,num_gpus,arrival_s\n60,2,9\n",
        "#duration_s,num_gpus,arrival_s\n60,2,9\n",
        "# duration_s, num_gpus, arrival_s\n# and more\n"
        "duration_s,num_gpus,arrival_s\n60,2,9\n",
        "duration_s;num_gpus;arrival_s\n60;2;9\n",
        "duration_s\tnum_gpus\tarrival_s\n60\t2\t9\n",
        "\"Duration\",\"Num GPUs\",\"Submit-Time\"\n\"60\",\"2\",\"9\"\n",
        ",duration,gpu_num,submit_time\n0,60,2,9\n",
        "start_time,end_time,gpus,arrival_s\n5,65,2,9\n",
        "start_time,end_time,gpus,arrival_s\n"
        "2020-01-01 00:00:30,2020-01-01 00:01:30,2,9\n"}) {
    ASSERT_OK_AND_ASSIGN(const Trace trace, ParsedTrace(text));
    EXPECT_THAT(trace.jobs, ElementsAre(job)) << text;
  }
  EXPECT_THAT(
      ParsedTrace("start_time,end_time,gpus\n65,5,2\n"),
      IsInvalid("a.trace:2:4: end_time 5 is not after start_time 65; correct"));
}

TEST(ParseTrace, BadLinesOfACsvArePointedAt) {
  const std::string header = "duration_s,num_gpus,arrival_s,weight\n";
  const std::pair<std::string, const char*> cases[] = {
      {"durations,num_gpus\n3,1",
       "a.trace:1:1: there is no column \"duration_s\"; rename \"durations\"?"},
      {"duration_s,jobs\n3,1",
       "1:1: there is no column \"num_gpus\"; name the columns in the first "
       "line; it may also be called num_gpu, gpu_num, gpus"},
      {"duration_s,num_gpus,duration_s\n",
       "1:21: column \"duration_s\" is the"},
      {header + "-5,1,0,1", "2:1: duration_s is \"-5\"; write a number from 0"},
      {header + "nan,1,0,1", "2:1: duration_s is \"nan\"; write"},
      {header + "1e12,1,0,1", "2:1: duration_s is \"1e12\"; write"},
      {header + "5,-1,0,1", "2:3: num_gpus is \"-1\"; write an integer from 0"},
      {header + "5,2.5,0,1", "2:3: num_gpus is \"2.5\"; write an integer"},
      {header + "5,1,-1,1", "2:5: arrival_s is \"-1\"; write a number from 0"},
      {header + "5,1,0,0", "2:7: weight is \"0\"; write a number above 0"},
      {header + "5,1,9,1\n5,1,8,1", "3:5: arrival 8 is before that of the job"},
      {header + "5,1,0", "2:6: the line has 3 fields; write 4"},
      {header + "5,1,0,1,1", "2:10: the line has 5 fields; write 4"},
      {header + "5,1,0,\"1", "2:7: the quotes do not end with the field"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_THAT(ParsedTrace(text), IsInvalid(error)) << text;
  }
}

TEST(ParseTrace, ReadsToml) {
  ASSERT_OK_AND_ASSIGN(const Trace trace,
                       ParsedTrace(R"toml(# two entities, three jobs
[[entity]]
name = "vision"
weight = 2
policy = "fifo"
[[entity]]
name = "text"

[[job]]
type = "LM (batch size 5)"
command = "python3 lm.py"
steps_total = 1000
count = 2
scale_factor = 4
weight = 0.5
entity = "text"
[[job]]
type = "LM (batch size 5)"
duration_s = 3600.5
arrival_s = 10
slo = 1.5
loss_b0 = 7
loss_b2 = 0.5
)toml"));
  EXPECT_THAT(trace.entities, ElementsAre(TraceEntity{"vision", 2, "fifo"},
                                          TraceEntity{"text", 1, "fairness"}));
  ASSERT_EQ(trace.templates.size(), 2U);
  EXPECT_EQ(trace.templates[0].type, "LM (batch size 5)");
  EXPECT_EQ(trace.templates[0].command, "python3 lm.py");
  EXPECT_EQ(trace.templates[1].command, "");
  const TraceJob twice = {.job_template = 0,
                          .scale_factor = 4,
                          .weight = 0.5,
                          .steps_total = 1000,
                          .entity = 1};
  EXPECT_THAT(trace.jobs, ElementsAre(twice, twice,
                                      TraceJob{.job_template = 1,
                                               .arrival_s = 10,
                                               .slo = 1.5,
                                               .duration_s = 3600.5,
                                               .loss = {7, 1, 0.5}}));
}

TEST(ParseTrace, BadTomlIsPointedAt) {
  const std::string job = "[[job]]\ntype = \"A\"\nsteps_total = 5\n";
  const std::pair<std::string, const char*> cases[] = {
      {"[[job]\n", "a.trace:1:7: not TOML"},
      {"[[jobs]]\n", "unknown key \"jobs\"; did you mean \"job\"?"},
      {"job = 3\n", "a.trace:1:7: job is an integer; write tables, each as"},
      {"[[job]]\nsteps_total = 5", "there is no \"type\"; add e.g. type"},
      {"[[job]]\ntype = \"A\"",
       "there is no \"steps_total\"; add e.g. "
       "steps_total = 10000, or duration_s = 3600"},
      {"[[job]]\ntype = \"\"\nsteps_total = 5", "2:8: type is empty; write"},
      {job + "step = 5", "4:1: unknown key \"step\""},
      {job + "duration_s = 0", "4:14: duration_s is 0; write a number above"},
      {job + "scale_factor = 0", "4:16: scale_factor is 0; write an integer"},
      {job + "scale_factor_min = 2",
       "4:20: scale_factor_min 2 exceeds scale_factor 1"},
      {job + "scale_factor_max = 2\nscale_factor = 3",
       "4:20: scale_factor_max 2 is below scale_factor 3"},
      {job + "count = 0", "4:9: count is 0; write an integer from 1"},
      {job + "count = 1000001", "4:9: count is 1000001; write an integer"},
      {job + "count = 600000\n" + job + "count = 400001",
       "8:9: the trace has more than 1000000 jobs; lower count"},
      {job + "weight = nan", "4:10: weight is nan; write a number above 0"},
      {job + "loss_b1 = 0", "4:11: loss_b1 is 0; write a number above 0"},
      {job + "loss_b0 = -1", "4:11: loss_b0 is -1; write a number from 0"},
      {job + "slo = 0", "4:7: slo is 0; write a number above 0"},
      {job + "arrival_s = -1", "4:13: arrival_s is -1; write a number from 0"},
      {job + "arrival_s = 5\n" + job, "arrival_s 0 is before that of the job"},
      {job + "entity = \"a\"",
       "4:10: there is no entity \"a\"; add [[entity]]"},
      {"[[entity]]\nweight = 1", "there is no \"name\"; add e.g. name"},
      {"[[entity]]\nname = \"a\"\n[[entity]]\nname = \"a\"",
       "4:8: entity \"a\" is named twice; give each its own name"},
      {"[[entity]]\nname = \"a\"\nweight = 0", "3:10: weight is 0; write"},
      {"[[entity]]\nname = \"a\"\npolicy = \"a b\"", "3:10: policy is \"a b\""},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_THAT(ParsedTrace(text), IsInvalid(error)) << text;
  }
}

TEST(FormatTrace, IsWhatTheOriginalDumps) {
  Trace trace;
  trace.templates = {{"A (b)", "./a %s", "dir", "-n", true, true},
                     {"C", "./c", "", "--steps", false, false}};
  trace.jobs = {{.job_template = 0,
                 .scale_factor = 8,
                 .weight = 5.9,
                 .steps_total = 1646636.9758419,
                 .arrival_s = 2445.8607291,
                 .slo = 1.2},
                {.job_template = 1, .steps_total = 7, .arrival_s = 1e10}};
  EXPECT_EQ(FormatTrace(trace),
            "A (b)\t./a %s\tdir\t-n\t1\t1646636\t8\t5\t1.200000\t2445.860729\n"
            "C\t./c\t\t--steps\t0\t7\t1\t1\t-1.000000\t10000000000.000000\n");
  EXPECT_EQ(FormatTrace(Trace()), "");
}

TEST(FormatTrace, IsReadBack) {
  const std::string text = Line("5", "1", "1", "-1.000000", "0.000000") +
                           Line("6", "2", "5", "10.000000", "3.500000");
  ASSERT_OK_AND_ASSIGN(const Trace trace, ParsedTrace(text));
  EXPECT_EQ(FormatTrace(trace), text);
}

}  // namespace
}  // namespace gavel
