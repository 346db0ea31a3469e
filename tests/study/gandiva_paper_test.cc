// The experiments of Gandiva (Xiao et al., OSDI'18), small, each with the
// section that it reads. Section 4.2 is in introspection_test.cc.
#include "coordinator/workload/trace.h"
#include "core/text.h"
#include "runtime/files/files.h"
#include "study/reproduce_gandiva.h"
#include "study/simulation_run.h"
#include "tests/study/fake_simulation.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace study;
namespace {

Experiment GandivaExperiment(const std::string& name, bool quick = false) {
  for (Experiment& experiment : GandivaExperiments(quick)) {
    if (experiment.name == name) return experiment;
  }
  ADD_FAILURE() << name;
  return {};
}

class GandivaPaper : public ::testing::Test {
 protected:
  // All of Gavel's job types on the v100.
  std::string throughputs() { return WriteSampleThroughputs(folder_.path()); }
  std::shared_ptr<const ThroughputTable> Table() {
    auto table = inputs_.LoadThroughputs(throughputs());
    EXPECT_OK(table);
    return table.value_or(nullptr);
  }
  SimulationResult Run(SimulationSpec spec) {
    spec.throughputs = throughputs();
    const auto inputs = inputs_.Load(spec);
    EXPECT_OK(inputs);
    if (!inputs.ok()) return {};
    const Watched watched =
        RunSimulation(*inputs, TraceSimulation::Create, RunControl());
    EXPECT_EQ(watched.run.status, RunStatus::kOk) << watched.run.detail;
    return watched.run.result;
  }

  TemporaryFolder folder_;
  SimulationInputCache inputs_;
};

// Section 6.1: six jobs on four GPUs get equal shares of them.
TEST_F(GandivaPaper, Section61TimeSlicesGiveEqualShares) {
  for (PaperCase one : GandivaExperiment("gandiva-slicing").cases) {
    one.spec.fixed_duration_s = 3600;
    const double rho = Run(one.spec).max_rho;
    if (one.spec.policy == "fifo") {
      EXPECT_GT(rho, 1.3) << one.label;  // two of them wait for the others
    } else if (one.spec.round_duration_s == 60) {
      EXPECT_LT(rho, 1.1) << one.label;
    }
  }
}

// Section 6.2: early feedback finds a good trial sooner than training one trial
// after the other. The good trial of this seed is among the last of the first
// 36, so it ends in the ninth turn of 4 accelerators.
TEST_F(GandivaPaper, Section62EarlyFeedbackFindsAGoodTrialSooner) {
  const std::shared_ptr<const ThroughputTable> table = Table();
  ASSERT_NE(table, nullptr);
  SearchCase search{"random", "fifo", 4, /*seed=*/1, /*trial_s=*/3840};
  ASSERT_OK_AND_ASSIGN(const double in_turn_s, TimeToGoodTrial(search, *table));
  EXPECT_NEAR(in_turn_s / search.trial_s, 9, 0.3);
  search.method = "successive_halving";
  search.policy = "gandiva_reactive";
  ASSERT_OK_AND_ASSIGN(const double early_s, TimeToGoodTrial(search, *table));
  EXPECT_LT(early_s, in_turn_s / 4);
  // The trial itself takes that long.
  EXPECT_GT(early_s, search.trial_s);
}

// A method may stop all good trials before their accuracy shows.
TEST_F(GandivaPaper, Section62ASearchMayFindNoGoodTrial) {
  const std::shared_ptr<const ThroughputTable> table = Table();
  ASSERT_NE(table, nullptr);
  ASSERT_OK_AND_ASSIGN(
      const double time_s,
      TimeToGoodTrial({"successive_halving", "gandiva_reactive", 16,
                       /*seed=*/0, /*trial_s=*/3840},
                      *table));
  EXPECT_EQ(time_s, kNever);
}

TEST(GandivaSearch, ThroughputsWithoutV100AreRefused) {
  ASSERT_OK_AND_ASSIGN(
      const ThroughputTable table,
      ThroughputTable::Parse("{\"k80\": {\"('A3C', 1)\": {\"null\": 1}}}",
                             "t.json"));
  EXPECT_THAT(TimeToGoodTrial({"random", "fifo"}, table), IsInvalid("v100"));
}

TEST(GandivaSearch, AnUnknownMethodIsRefused) {
  ASSERT_OK_AND_ASSIGN(
      const ThroughputTable table,
      ThroughputTable::Parse("{\"v100\": {\"('A3C', 1)\": {\"null\": 1}}}",
                             "t.json"));
  EXPECT_THAT(TimeToGoodTrial({"rondom", "fifo"}, table), IsInvalid("method"));
}

// Section 6.3: utilisation beside a scheduler whose jobs keep their GPUs.
TEST_F(GandivaPaper, Section63UtilisationIsBesideFifo) {
  const Experiment cluster = GandivaExperiment("gandiva-cluster");
  ASSERT_FALSE(cluster.cases.empty());
  EXPECT_EQ(cluster.cases[0].spec.policy, "fifo");
  EXPECT_FALSE(cluster.cases[0].spec.introspection);
  int published = 0;
  for (const PaperCase& one : cluster.cases) {
    EXPECT_EQ(one.measure, Measure::kUtilizationRatio);
    EXPECT_EQ(one.spec.jobs, cluster.cases[0].spec.jobs);
    if (!one.published) continue;
    ++published;
    EXPECT_EQ(*one.published, 1.26);
    EXPECT_EQ(one.spec.policy, "gandiva_reactive");
    EXPECT_TRUE(one.spec.introspection);
  }
  EXPECT_EQ(published, 1);
}

// The jobs of a quick run ask for more than its cluster, or nothing is packed.
TEST_F(GandivaPaper, Section63TheClusterIsOverSubscribed) {
  for (const bool quick : {false, true}) {
    const SimulationSpec spec =
        GandivaExperiment("gandiva-cluster", quick).cases[0].spec;
    ASSERT_OK_AND_ASSIGN(const std::vector<ClusterPart> parts,
                         ParseCluster(spec.cluster));
    const double at_a_time = spec.rate_per_h * spec.fixed_duration_s / 3600;
    EXPECT_GE(at_a_time, parts[0].count) << spec.cluster;
  }
}

// Section 6.4: jobs move, and nothing is packed, as no two fit on one GPU.
TEST_F(GandivaPaper, Section64TheJobsOfMigrationAreOfOneType) {
  for (const bool quick : {false, true}) {
    const std::string text = MigrationTrace(quick);
    EXPECT_EQ(text, MigrationTrace(quick));
    ASSERT_OK_AND_ASSIGN(const Trace trace, ParseTrace(text, "m.toml"));
    EXPECT_EQ(trace.jobs.size(), quick ? 75 : 300);
    EXPECT_EQ(trace.apps.size(), trace.jobs.size());
    std::set<int> scale_factors;
    for (const TraceJob& job : trace.jobs) {
      EXPECT_EQ(trace.templates[job.job_template].type,
                "ResNet-50 (batch size 128)");
      scale_factors.insert(job.scale_factor);
      EXPECT_GE(job.duration_s, 1800);
      EXPECT_LE(job.duration_s, 8 * 3600);
    }
    EXPECT_THAT(scale_factors, ElementsAre(1, 2, 4));
  }
}

}  // namespace
}  // namespace gavel::testing
