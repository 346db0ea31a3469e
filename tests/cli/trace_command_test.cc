// `gavel trace`, as a process.

#include "coordinator/workload/trace.h"
#include "tests/support/gavel_fixture.h"
#include "tests/workload/sample_throughputs.h"

namespace gavel::testing {
namespace {

class TraceCommandTest : public GavelTest {
 protected:
  TraceCommandTest() { Write("throughputs.json", SampleThroughputs()); }

  Ended Generate(std::vector<std::string> options) {
    options.insert(options.begin(), {"trace", "generate", "--throughputs",
                                     Path("throughputs.json")});
    return Run(options);
  }
};

TEST_F(TraceCommandTest, GeneratesTheJobsOfTheOriginal) {
  const Ended ended = Generate({"--jobs", "3", "--rate", "0.3", "--multi-gpu"});
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_EQ(
      ended.output,
      "ResNet-18 (batch size 64)\tpython3 main.py --data_dir=%s/cifar10 "
      "--batch_size 64\timage_classification/cifar10\t--num_steps\t1\t5467548"
      "\t8\t1\t-1.000000\t0.000000\n"
      "Transformer (batch size 16)\tpython3 train.py -data "
      "%s/translation/multi30k.atok.low.pt -batch_size 16 -proj_share_weight\t"
      "translation\t-step\t1\t310166\t1\t1\t-1.000000\t3261.147639\n"
      "Recommendation (batch size 2048)\tpython3 train.py --data_dir "
      "%s/ml-20m/pro_sg/ --batch_size 2048\trecommendation\t-n\t1\t21466\t1\t1"
      "\t-1.000000\t12690.331034\n");
}

TEST_F(TraceCommandTest, AllOptionsTellAndTheFileIsShown) {
  const Ended generated =
      Generate({"--jobs", "200", "--static", "--seed", "7", "--multi-gpu",
                "--scale-factor-max", "4", "--multi-priority", "--slos",
                "--fixed-duration", "3600", "--output", Path("made.trace")});
  EXPECT_EQ(generated.exit_code, 0) << generated.errors;
  EXPECT_THAT(generated.output,
              HasSubstr("made.trace: 200 jobs, all there at once"));
  ASSERT_OK_AND_ASSIGN(const Trace trace,
                       ParseTrace(ReadText(Path("made.trace")), "made.trace"));
  ASSERT_EQ(trace.jobs.size(), 200U);
  for (const TraceJob& job : trace.jobs) {
    EXPECT_EQ(job.arrival_s, 0);
    EXPECT_GT(job.slo, 0);
    EXPECT_LE(job.scale_factor, 4);
    EXPECT_EQ(job.steps_total, 36000.0 * job.scale_factor);
  }
  const Ended shown = Run({"trace", "show", Path("made.trace"), "--rows", "4"});
  EXPECT_EQ(shown.exit_code, 0) << shown.errors;
  EXPECT_THAT(shown.output, AllOf(HasSubstr("200 jobs, all there at once"),
                                  HasSubstr("deadlines:     200 jobs"),
                                  HasSubstr("... and 196 more jobs")));
}

TEST_F(TraceCommandTest, AShareOfTheJobsIsInteractive) {
  const Ended generated =
      Generate({"--jobs", "200", "--rate", "6", "--interactive", "0.5",
                "--interactive-shortest", "60", "--interactive-longest", "120",
                "--output", Path("team.trace")});
  EXPECT_EQ(generated.exit_code, 0) << generated.errors;
  ASSERT_OK_AND_ASSIGN(const Trace trace,
                       ParseTrace(ReadText(Path("team.trace")), "team.trace"));
  int interactive = 0;
  for (const TraceJob& job : trace.jobs) {
    if (!job.interactive) continue;
    ++interactive;
    EXPECT_GE(job.duration_s, 60);
    EXPECT_LE(job.duration_s, 120);
  }
  EXPECT_GT(interactive, 70);
  EXPECT_LT(interactive, 130);
  EXPECT_THAT(Run({"trace", "show", Path("team.trace")}).output,
              HasSubstr("interactive:   " + std::to_string(interactive)));
}

TEST_F(TraceCommandTest, WhatOfATraceIsLeftOutIsTold) {
  const std::string path =
      Write("odd.csv", "duration_s,num_gpus,user\n60,0,ada\n60,2,bob\n");
  EXPECT_THAT(Run({"trace", "show", path}).errors,
              HasSubstr("odd.csv:1:21: unknown column \"user\""));
  const Ended shown = Run({"trace", "show", path, "--ignore-columns"});
  EXPECT_EQ(shown.exit_code, 0) << shown.errors;
  EXPECT_THAT(shown.output, HasSubstr("1 job, all there at once"));
  EXPECT_THAT(shown.errors,
              AllOf(HasSubstr("gavel: note: 1 column left out: user\n"),
                    HasSubstr("gavel: note: 1 row of 0 accelerators is left")));
}

TEST_F(TraceCommandTest, WrongOptionsAreToldWithTheRemedy) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--jobs", "3"}, "no arrivals; give --rate JOBS/H, or --static"},
      {{"--jobs", "3", "--rate", "2", "--static"}, "exclude each other"},
      {{"--jobs", "3", "--rate", "0"}, "--rate is 0; give jobs per hour above"},
      {{"--jobs", "3", "--rate", "-1"}, "--rate is -1; give"},
      {{"--jobs", "3", "--static", "--fixed-duration", "-1"},
       "the fixed duration is -1 s"},
      {{"--jobs", "3", "--static", "--scale-factor-max", "0"},
       "the largest scale factor is 0"},
      {{"--jobs", "3", "--static", "--interactive-longest", "60"},
       "interactive jobs take from 600 to 60 s; give a shortest duration"},
      {{"--jobs", "3", "--static", "--output", Path("none/made.trace")},
       "none/made.trace can't be written"},
  };
  for (const auto& [options, error] : cases) {
    const Ended ended = Generate(options);
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.errors, HasSubstr(error));
    EXPECT_EQ(ended.output, "");
  }
  EXPECT_EQ(Generate({"--static"}).exit_code, 2);
  EXPECT_EQ(Generate({"--jobs", "0", "--static"}).exit_code, 2);
  EXPECT_EQ(
      Generate({"--jobs", "3", "--static", "--interactive", "2"}).exit_code, 2);
  EXPECT_EQ(Run({"trace"}).exit_code, 2);
}

TEST_F(TraceCommandTest, BadFilesArePointedAt) {
  Write("throughputs.json", "{\"v100\": {\"('A3C', 1)\": {\"null\": -3}}}");
  EXPECT_THAT(Generate({"--jobs", "3", "--static"}).errors,
              HasSubstr("throughputs.json: in v100, row ('A3C', 1): throughput "
                        "is -3"));
  const Ended missing = Run({"trace", "show", Path("none.trace")});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.errors, HasSubstr("none.trace: no such file"));
  Write("bad.csv", "duration_s,num_gpus\n60,1\n60,many\n");
  const Ended bad = Run({"trace", "show", Path("bad.csv")});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.errors, HasSubstr("bad.csv:3:4: num_gpus is \"many\""));
}

}  // namespace
}  // namespace gavel::testing
