#include "study/simulation_spec.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "study/simulation_run.h"
#include "tests/study/fake_simulation.h"
#include "tests/support/temporary_folder.h"

namespace gavel::testing {

using namespace study;
namespace {

SimulationSpec Generated() {
  SimulationSpec spec;
  spec.throughputs = "throughputs.json";
  spec.jobs = 10;
  spec.rate_per_h = 2;
  return spec;
}

TEST(SimulationSpec, AWindowIsTwoNumbersOfJobs) {
  SimulationSpec spec;
  EXPECT_OK(ParseWindow("4000:5000", &spec));
  EXPECT_EQ(spec.window_begin, 4000);
  EXPECT_EQ(spec.window_end, 5000);
  EXPECT_OK(ParseWindow("7:", &spec));
  EXPECT_EQ(spec.window_begin, 7);
  EXPECT_EQ(spec.window_end, 0);
  for (const char* wrong : {"", "4000", "a:b", "-1:5", "1:2:3", "1.5:2"}) {
    EXPECT_THAT(ParseWindow(wrong, &spec),
                StatusIs(kInvalidArgument, "4000:5000"))
        << wrong;
  }
}

TEST(SimulationSpec, EnoughJobsAreGeneratedForAWindow) {
  SimulationSpec spec = Generated();
  EXPECT_EQ(GeneratedJobs(spec), 10);
  spec.jobs = 0;
  spec.window_end = 100;
  EXPECT_GT(GeneratedJobs(spec), 200);  // others keep arriving
  spec.rate_per_h = 0;
  EXPECT_EQ(GeneratedJobs(spec), 100);
}

TEST(SimulationSpec, EachWrongFieldIsNamedWithItsRemedy) {
  struct Case {
    void (*spoil)(SimulationSpec&);
    const char* message;
  };
  const Case cases[] = {
      {[](SimulationSpec& s) { s.throughputs = ""; }, "--throughputs"},
      {[](SimulationSpec& s) { s.policy = "max_min"; }, "max_min"},
      {[](SimulationSpec& s) { s.mechanism = "lottery"; }, "move_aware"},
      {[](SimulationSpec& s) { s.queue = "none"; }, "per_type"},
      {[](SimulationSpec& s) { s.jobs = 0; }, "--jobs"},
      {[](SimulationSpec& s) { s.jobs = 1'000'000'000; }, "exceed"},
      {[](SimulationSpec& s) { s.window_end = 11; }, "window ends at job 11"},
      {[](SimulationSpec& s) { s.window_begin = s.window_end = 5; },
       "holds no job"},
      {[](SimulationSpec& s) { s.rate_per_h = -1; }, "--rate"},
      {[](SimulationSpec& s) { s.rate_per_h = std::nan(""); }, "--rate"},
      {[](SimulationSpec& s) { s.round_duration_s = 0; }, "--round-duration"},
      {[](SimulationSpec& s) { s.round_duration_s = 0.05; }, "at least 0.1 s"},
      {[](SimulationSpec& s) { s.fixed_duration_s = -2; }, "--fixed-duration"},
      {[](SimulationSpec& s) { s.scale_factor_max = 0; }, "--scale-factor-max"},
      {[](SimulationSpec& s) { s.interactive = 1.5; }, "--interactive 1.5"},
      {[](SimulationSpec& s) { s.interactive_shortest_s = 9000; },
       "--interactive-shortest 9000 is above"},
      {[](SimulationSpec& s) {
         s.ideal = true;
         s.interactive = 0.5;
       },
       "--ideal pauses nothing for interactive jobs"},
      {[](SimulationSpec& s) { s.failures_per_hour = -1; },
       "--failures-per-hour"},
      {[](SimulationSpec& s) { s.profiling_percentage = 0; },
       "--profiling-percentage"},
      {[](SimulationSpec& s) { s.profiling_percentage = 101; }, "above 100"},
      {[](SimulationSpec& s) { s.reference_models = 0; }, "--reference-models"},
      {[](SimulationSpec& s) { s.profiling_cell_s = -1; }, "--profiling-cell"},
      {[](SimulationSpec& s) {
         s.estimator = true;
         s.policy = "fifo";
       },
       "makes no pairs"},
      {[](SimulationSpec& s) {
         s.estimator = s.ideal = true;
         s.policy = "max_min_fairness_packed";
       },
       "--ideal"},
      {[](SimulationSpec& s) { s.time_limit_s = INFINITY; }, "--time-limit"}};
  EXPECT_OK(CheckSpec(Generated()));
  for (const Case& one : cases) {
    SimulationSpec spec = Generated();
    one.spoil(spec);
    const absl::Status status = CheckSpec(spec);
    EXPECT_FALSE(status.ok()) << one.message;
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr(one.message));
    EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
  }
}

TEST(SimulationSpec, EveryFieldIsVisited) {
  // As many as there are; one more field is one more line in VisitFields.
  int fields = 0;
  const SimulationSpec spec;
  VisitFields(spec, [&](const char*, const auto&) { ++fields; });
  EXPECT_EQ(fields, 40);
}

TEST(SimulationSpec, FieldsAsTextReadBack) {
  EXPECT_EQ(FieldText(0.1), "0.1");
  EXPECT_EQ(FieldText(360.0), "360");
  EXPECT_EQ(FieldText(true), "true");
  EXPECT_EQ(FieldText(uint64_t{7}), "7");
}

class InputsTest : public ::testing::Test {
 protected:
  InputsTest() {
    spec_ = Generated();
    spec_.cluster = "v100:4";
    spec_.throughputs = WriteSampleThroughputs(folder_.path());
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  TemporaryFolder folder_;
  SimulationSpec spec_;
  SimulationInputCache cache_;
};

TEST_F(InputsTest, ATraceIsGeneratedOnceForAllThatRunOnIt) {
  ASSERT_OK_AND_ASSIGN(const SimulationInputs one, cache_.Load(spec_));
  spec_.policy = "fifo";
  ASSERT_OK_AND_ASSIGN(const SimulationInputs two, cache_.Load(spec_));
  EXPECT_EQ(one.trace, two.trace);
  EXPECT_EQ(one.trace->jobs.size(), 10);
  spec_.seed = 1;
  ASSERT_OK_AND_ASSIGN(const SimulationInputs three, cache_.Load(spec_));
  EXPECT_NE(one.trace, three.trace);
}

TEST_F(InputsTest, OptionsReachTheSimulation) {
  spec_.mechanism = "move_aware";
  spec_.queue = "per_type";
  spec_.round_duration_s = 720;
  spec_.reset_interval_s = 1920;
  spec_.window_end = 9;
  spec_.time_limit_s = 5e6;
  spec_.overheads = "pause=1,resume=2";
  spec_.prices = "v100=0.5";
  ASSERT_OK_AND_ASSIGN(const SimulationInputs inputs, cache_.Load(spec_));
  const SimulationOptions& options = inputs.options;
  EXPECT_EQ(options.engine.mechanism, MechanismKind::kMoveAware);
  EXPECT_EQ(options.engine.queue, QueueKind::kPerType);
  EXPECT_EQ(options.engine.round_duration_s, 720);
  EXPECT_EQ(options.engine.reset_interval_s, 1920);
  EXPECT_EQ(options.window_end, 9);
  EXPECT_EQ(options.time_limit_s, 5e6);
  EXPECT_EQ(options.overheads.all.resume_s, 2);
  EXPECT_EQ(options.prices.At("v100", 0), 0.5);
  ASSERT_EQ(options.cluster.size(), 1);
  EXPECT_EQ(options.cluster[0].count, 4);
}

TEST_F(InputsTest, TheKeyIsOfWhatFilesSayNotOfWhereTheyAre) {
  ASSERT_OK_AND_ASSIGN(const std::string key, cache_.KeyOf(spec_));
  std::filesystem::create_directory(folder_.path() + "/other");
  SimulationSpec moved = spec_;
  moved.throughputs = WriteSampleThroughputs(folder_.path() + "/other");
  ASSERT_OK_AND_ASSIGN(const std::string same, cache_.KeyOf(moved));
  EXPECT_EQ(key, same);
  moved.throughputs = Write("changed.json", "{}");
  ASSERT_OK_AND_ASSIGN(const std::string other, cache_.KeyOf(moved));
  EXPECT_NE(key, other);
  SimulationSpec seeded = spec_;
  seeded.seed = 3;
  ASSERT_OK_AND_ASSIGN(const std::string third, cache_.KeyOf(seeded));
  EXPECT_NE(key, third);
}

TEST_F(InputsTest, TypesWithoutThroughputsAreRefusedBeforeTheFirstRun) {
  SimulationSpec other = spec_;
  other.cluster = "v100:4,h100:2";
  EXPECT_OK(cache_.CheckRuns(std::vector{spec_}));
  EXPECT_THAT(cache_.CheckRuns(std::vector{spec_, other}),
              StatusIs(kInvalidArgument, "\"h100\" of the cluster"));
  // Known by their durations only, jobs run anywhere.
  other.trace = Write("jobs.csv", "duration_s,num_gpus,arrival_s\n100,1,0\n");
  EXPECT_OK(cache_.CheckRuns(std::vector{other}));
}

TEST_F(InputsTest, PricesAreComparedWithTheClusters) {
  spec_.policy = "max_throughput_per_cost";
  const auto unpriced = cache_.CheckRuns(std::vector{spec_});
  ASSERT_OK(unpriced);
  EXPECT_THAT(*unpriced, ::testing::ElementsAre(::testing::HasSubstr(
                             "max_throughput_per_cost goes by prices")));
  spec_.prices = "v100=2,a100x=1";
  EXPECT_THAT(cache_.CheckRuns(std::vector{spec_}),
              StatusIs(kInvalidArgument, "has no a100x; it has v100"));
  spec_.prices = "v100=2";
  spec_.trace = Write("jobs.csv", "duration_s,num_gpus,arrival_s\n100,1,0\n");
  SimulationSpec other = spec_;
  other.cluster = "k80:2";
  const auto partly = cache_.CheckRuns(std::vector{spec_, other});
  ASSERT_OK(partly);
  EXPECT_THAT(*partly,
              ::testing::ElementsAre(::testing::HasSubstr("k80 has no price")));
  spec_.prices = "gcp";  // may have more
  EXPECT_OK(cache_.CheckRuns(std::vector{spec_}));
}

TEST_F(InputsTest, BadFilesAreNamed) {
  spec_.overheads = folder_.path() + "/none.toml";
  EXPECT_THAT(cache_.Load(spec_),
              StatusIs(absl::StatusCode::kNotFound, "none.toml"));
  spec_.overheads = "none";
  spec_.trace = Write("bad.trace", "ResNet\tonly\tthree\n");
  EXPECT_THAT(cache_.Load(spec_), StatusIs(kInvalidArgument, "bad.trace:1:"));
  spec_.trace = "";
  spec_.throughputs = Write("bad.json", "{\"v100\": ");
  EXPECT_THAT(cache_.Load(spec_), StatusIs(kInvalidArgument, "bad.json"));
}

TEST_F(InputsTest, AWindowBeyondATraceIsRefused) {
  spec_.trace = Write("two.toml",
                      "[[job]]\ntype = \"A3C\"\nduration_s = 60\ncount = 2\n");
  spec_.window_end = 3;
  EXPECT_THAT(cache_.Load(spec_), StatusIs(kInvalidArgument, "the 2 jobs"));
  spec_.window_end = 2;
  EXPECT_OK(cache_.Load(spec_));
}

}  // namespace
}  // namespace gavel::testing
