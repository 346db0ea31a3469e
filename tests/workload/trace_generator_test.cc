#include "coordinator/workload/trace_generator.h"

#include <tuple>

#include "core/units.h"
#include "tests/support/test.h"
#include "tests/workload/sample_throughputs.h"

namespace gavel {
namespace {

const ThroughputTable& Throughputs() {
  static const ThroughputTable table =
      ThroughputTable::Parse(testing::SampleThroughputs(), "sample").value();
  return table;
}

Trace TakeTrace(const GeneratorOptions& options, size_t count) {
  return TraceGenerator::Create(options, Throughputs())->Take(count);
}

std::vector<std::string> TypesOf(const Trace& trace) {
  std::vector<std::string> types;
  for (const TraceJob& job : trace.jobs) {
    types.push_back(trace.templates[job.job_template].type);
  }
  return types;
}

// One field of every job.
template <class T>
std::vector<T> Each(const Trace& trace, T TraceJob::*field) {
  std::vector<T> values;
  for (const TraceJob& job : trace.jobs) values.push_back(job.*field);
  return values;
}

// The first jobs that the original draws at seed 0 and 0.3 jobs per hour.
TEST(TraceGenerator, DrawsTheJobsOfTheOriginal) {
  const Trace trace =
      TakeTrace({.interarrival_s = 12000, .multi_gpu = true}, 6);
  EXPECT_THAT(
      TypesOf(trace),
      ElementsAre("ResNet-18 (batch size 64)", "Transformer (batch size 16)",
                  "Recommendation (batch size 2048)",
                  "Recommendation (batch size 8192)", "LM (batch size 5)",
                  "Transformer (batch size 64)"));
  EXPECT_THAT(Each(trace, &TraceJob::scale_factor),
              ElementsAre(8, 1, 1, 1, 4, 1));
  EXPECT_THAT(
      Each(trace, &TraceJob::duration_s),
      ElementsAre(68344.35010595087, 31016.60914593223, 2146.6088374387864,
                  7386.674819745945, 6858.69820697011, 445845.32667457394));
  EXPECT_THAT(
      Each(trace, &TraceJob::arrival_s),
      ElementsAre(0, 3261.14763880402, 12690.331033721279, 18233.902608751836,
                  29347.572593244946, 41140.595526320074));
  EXPECT_EQ(trace.jobs[0].steps_total, 68344.35010595087 * 80);
  EXPECT_EQ(trace.jobs[1].steps_total, 31016.60914593223 * 10);
}

TEST(TraceGenerator, PrioritiesShiftTheDrawsThatFollow) {
  const Trace trace =
      TakeTrace({.interarrival_s = 9000, .multi_priority = true}, 6);
  EXPECT_THAT(
      TypesOf(trace),
      ElementsAre("ResNet-18 (batch size 64)", "ResNet-50 (batch size 128)",
                  "Transformer (batch size 256)", "Transformer (batch size 64)",
                  "ResNet-18 (batch size 16)", "LM (batch size 20)"));
  EXPECT_THAT(Each(trace, &TraceJob::weight), ElementsAre(1, 1, 1, 1, 1, 5));
}

TEST(TraceGenerator, SlosAreDrawnApart) {
  const Trace trace = TakeTrace({.interarrival_s = 9000, .slos = true}, 6);
  EXPECT_THAT(Each(trace, &TraceJob::slo), ElementsAre(10, 10, 2, 1.2, 1.2, 2));
  Trace without = TakeTrace({.interarrival_s = 9000}, 6);
  EXPECT_THAT(Each(without, &TraceJob::slo), ElementsAre(0, 0, 0, 0, 0, 0));
  for (TraceJob& job : without.jobs) job.slo = 0;
  EXPECT_EQ(TypesOf(without), TypesOf(trace));
  EXPECT_EQ(Each(without, &TraceJob::arrival_s),
            Each(trace, &TraceJob::arrival_s));
}

TEST(TraceGenerator, SeedsGiveTracesOfTheirOwn) {
  const Trace zero = TakeTrace({.interarrival_s = 60}, 50);
  const Trace one = TakeTrace({.seed = 1, .interarrival_s = 60}, 50);
  EXPECT_EQ(zero.jobs, TakeTrace({.interarrival_s = 60}, 50).jobs);
  EXPECT_NE(TypesOf(zero), TypesOf(one));
  EXPECT_NE(zero.jobs[1].arrival_s, one.jobs[1].arrival_s);
}

TEST(TraceGenerator, AStaticTraceArrivesAtOnce) {
  const Trace trace = TakeTrace({}, 20);
  for (const TraceJob& job : trace.jobs) EXPECT_EQ(job.arrival_s, 0);
  EXPECT_EQ(TypesOf(trace), TypesOf(TakeTrace({.interarrival_s = 60}, 20)));
}

TEST(TraceGenerator, FixedDurationsAreNotDrawn) {
  const Trace trace =
      TakeTrace({.multi_gpu = true, .fixed_duration_s = 7200}, 500);
  for (const TraceJob& job : trace.jobs) {
    EXPECT_EQ(job.duration_s, 7200);
    EXPECT_EQ(job.steps_total, 72000.0 * job.scale_factor);
  }
}

TEST(TraceGenerator, LargeScaleFactorsAreDroppedAndArrivalsKept) {
  const Trace all = TakeTrace({.interarrival_s = 60, .multi_gpu = true}, 300);
  const Trace some = TakeTrace(
      {.interarrival_s = 60, .multi_gpu = true, .scale_factor_max = 2}, 100);
  std::vector<TraceJob> kept;
  for (const TraceJob& job : all.jobs) {
    if (job.scale_factor <= 2 && kept.size() < 100) kept.push_back(job);
  }
  EXPECT_EQ(some.jobs, kept);
}

TEST(TraceGenerator, TakeGoesOnWhereItStopped) {
  auto generator = TraceGenerator::Create({.interarrival_s = 60, .slos = true},
                                          Throughputs());
  Trace first = generator->Take(7);
  first.jobs.push_back(generator->Next());
  const Trace rest = generator->Take(5);
  first.jobs.insert(first.jobs.end(), rest.jobs.begin(), rest.jobs.end());
  EXPECT_EQ(first.jobs,
            TakeTrace({.interarrival_s = 60, .slos = true}, 13).jobs);
}

TEST(TraceGenerator, DrawsInTheProportionsOfThePaper) {
  const Trace trace = TakeTrace({.interarrival_s = 100,
                                 .multi_gpu = true,
                                 .multi_priority = true,
                                 .slos = true},
                                20000);
  const auto share = [&trace](auto is) {
    return static_cast<double>(
               std::count_if(trace.jobs.begin(), trace.jobs.end(), is)) /
           20000;
  };
  for (const auto& [scale_factor, expected] :
       {std::pair(1, 0.7), std::pair(2, 0.1), std::pair(4, 0.15),
        std::pair(8, 0.05)}) {
    EXPECT_NEAR(share([&](const TraceJob& job) {
                  return job.scale_factor == scale_factor;
                }),
                expected, 0.02);
  }
  EXPECT_NEAR(share([](const TraceJob& job) { return job.weight == 5; }), 0.2,
              0.02);
  EXPECT_NEAR(share([](const TraceJob& job) { return job.slo == 10; }), 0.33,
              0.02);
  EXPECT_NEAR(
      share([](const TraceJob& job) { return job.duration_s >= 60000; }), 0.2,
      0.02);
  EXPECT_NEAR(trace.jobs.back().arrival_s / 20000, 100, 3);
  for (const TraceJob& job : trace.jobs) {
    EXPECT_GE(job.duration_s, 60 * 31.6);
    EXPECT_LE(job.duration_s, 600000);
    EXPECT_TRUE(job.scale_factor == 1 ||
                trace.templates[job.job_template].distributed);
  }
}

TEST(TraceGenerator, AShareOfTheArrivalsIsInteractive) {
  const Trace trace = TakeTrace({.interarrival_s = 60,
                                 .multi_gpu = true,
                                 .interactive = 0.25,
                                 .interactive_shortest_s = 300,
                                 .interactive_longest_s = 3000},
                                4000);
  std::vector<TraceJob> training;
  size_t short_ones = 0;
  for (const TraceJob& job : trace.jobs) {
    if (!job.interactive) {
      training.push_back(job);
      continue;
    }
    EXPECT_EQ(trace.templates[job.job_template].type, "interactive");
    EXPECT_EQ(job.scale_factor, 1);
    EXPECT_EQ(job.steps_total, job.duration_s);
    EXPECT_GE(job.duration_s, 300);
    EXPECT_LE(job.duration_s, 3000);
    short_ones += job.duration_s < 949 ? 1 : 0;  // half, by the logarithm
  }
  const size_t interactive = trace.jobs.size() - training.size();
  EXPECT_NEAR(static_cast<double>(interactive), 1000, 90);
  EXPECT_NEAR(static_cast<double>(short_ones), 500, 70);
  // The training jobs are those of the original, at other times.
  const Trace original =
      TakeTrace({.interarrival_s = 60, .multi_gpu = true}, training.size());
  for (size_t i = 0; i < training.size(); ++i) {
    training[i].arrival_s = original.jobs[i].arrival_s;
  }
  EXPECT_EQ(training, original.jobs);
  EXPECT_NEAR(trace.jobs.back().arrival_s / 4000, 60, 4);
}

TEST(TraceGenerator, OptionsOutOfRangeAreRefused) {
  const std::pair<GeneratorOptions, const char*> cases[] = {
      {{.interarrival_s = -1}, "the mean time between arrivals is -1 s; give"},
      {{.interarrival_s = kNever}, "the mean time between arrivals is inf s"},
      {{.fixed_duration_s = -1}, "the fixed duration is -1 s; give"},
      {{.scale_factor_max = 0}, "the largest scale factor is 0; give 1 or"},
      {{.interactive = 1.5}, "the share of interactive jobs is 1.5; give"},
      {{.interactive_shortest_s = 0}, "take from 0 to 7200 s; give a shortest"},
      {{.interactive_longest_s = 60}, "take from 600 to 60 s; give a shortest"},
  };
  for (const auto& [options, error] : cases) {
    EXPECT_THAT(TraceGenerator::Create(options, Throughputs()),
                IsInvalid(error));
  }
}

std::string Without(std::string text, const std::string& part,
                    const std::string& by) {
  return text.replace(text.find(part), part.size(), by);
}

TEST(TraceGenerator, WhatTheThroughputsLackIsNamed) {
  const std::string sample = testing::SampleThroughputs();
  const std::tuple<std::string, bool, const char*> cases[] = {
      {Without(sample, "v100", "p100"), false, "no accelerator type v100"},
      {Without(sample, "'A3C', 1", "'A3C', 2"), false,
       "the throughputs have none of \"A3C\" at scale factor 1 on the v100"},
      {Without(sample, "\"('A3C', 1)\": {\"null\": 10}",
               "\"('A3C', 1)\": {\"null\": 0}"),
       false, "none of \"A3C\" at scale factor 1"},
      {Without(sample, "'LM (batch size 5)', 8", "'LM (batch size 5)', 9"),
       true, "none of \"LM (batch size 5)\" at scale factor 8"},
  };
  for (const auto& [json, multi_gpu, error] : cases) {
    ASSERT_OK_AND_ASSIGN(const ThroughputTable table,
                         ThroughputTable::Parse(json, "t"));
    EXPECT_THAT(TraceGenerator::Create({.multi_gpu = multi_gpu}, table),
                IsInvalid(error));
  }
  // Throughputs of jobs that can't be drawn may be missing.
  ASSERT_OK_AND_ASSIGN(
      const ThroughputTable table,
      ThroughputTable::Parse(
          Without(sample, "'LM (batch size 5)', 8", "'LM (batch size 5)', 9"),
          "t"));
  EXPECT_OK(TraceGenerator::Create({}, table));
  EXPECT_OK(TraceGenerator::Create({.multi_gpu = true, .scale_factor_max = 4},
                                   table));
}

TEST(GavelJobTable, HasTwentySixTypesOfWhichNineteenAreDistributed) {
  const auto table = GavelJobTable();
  EXPECT_EQ(table.size(), 26U);
  EXPECT_EQ(std::count_if(table.begin(), table.end(),
                          [](const JobTemplate& of) { return of.distributed; }),
            19);
  EXPECT_EQ(table[0].type, "ResNet-18 (batch size 16)");
  EXPECT_EQ(table[8].command,
            "python3 main.py -j 8 -a resnet50 -b 128 %s/imagenet/");
  EXPECT_EQ(table[25].type, "CycleGAN");
}

}  // namespace
}  // namespace gavel
