// examples/workloads.toml: job types, each of which trains.
#include <csignal>
#include <filesystem>

#include "coordinator/cli/profile_run.h"
#include "core/text.h"
#include "gavel_paths.h"
#include "tests/support/gavel_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// For the first step, on a machine that does other things, too.
constexpr double kStepPatience_s = 120;

class JobTable : public GavelTest {
 protected:
  JobTable() {
    auto parsed =
        ParseWorkloads(ReadText(GAVEL_SOURCE_DIR "/examples/workloads.toml"),
                       "workloads.toml");
    EXPECT_OK(parsed);
    if (parsed.ok()) workloads_ = *std::move(parsed);
  }
  std::vector<ProfileWorkload> workloads_;
};

// The names of the published throughput file, where other models have one
// worker, and VGG-16, which cares most about placement.
TEST_F(JobTable, HasThePublishedTypesWithTheirNumbersOfWorkers) {
  std::set<std::string> gangs;
  std::set<std::string> others = {"A3C", "CycleGAN"};
  const auto add = [](std::set<std::string>* types, const std::string& model,
                      const std::vector<int>& batch_sizes) {
    for (const int size : batch_sizes) {
      types->insert(StrCat(model, " (batch size ", size, ")"));
    }
  };
  add(&gangs, "ResNet-18", {16, 32, 64, 128, 256});
  add(&gangs, "ResNet-50", {16, 32, 64, 128});
  add(&gangs, "VGG-16", {32, 64});
  add(&gangs, "Transformer", {16, 32, 64, 128, 256});
  add(&gangs, "LM", {5, 10, 20, 40, 80});
  add(&others, "Recommendation", {512, 1024, 2048, 4096, 8192});
  EXPECT_EQ(workloads_.size(), gangs.size() + others.size());
  for (const ProfileWorkload& workload : workloads_) {
    SCOPED_TRACE(workload.type);
    if (gangs.erase(workload.type) > 0) {
      EXPECT_THAT(workload.scale_factors, ElementsAre(1, 2, 4, 8));
    } else {
      EXPECT_EQ(others.erase(workload.type), 1u);
      EXPECT_THAT(workload.scale_factors, ElementsAre(1));
    }
    const size_t at = workload.type.find("batch size ");
    if (at == std::string::npos) continue;
    const auto flag = std::ranges::find(workload.argv, "--batch-size");
    ASSERT_NE(flag, workload.argv.end());
    EXPECT_EQ(*(flag + 1) + ")", workload.type.substr(at + 11));
  }
}

// Ended after a step or some: at its end each would look at all of its
// validation data.
TEST_F(JobTable, EachTrains) {
  for (const ProfileWorkload& workload : workloads_) {
    SCOPED_TRACE(workload.type);
    const std::string report = Path("report");
    std::filesystem::remove(report);
    std::vector<std::string> argv = {
        "/usr/bin/env",
        "-u",
        "GAVEL_WORKER_COORDINATOR",
        "GAVEL_DEVICE=cpu",
        "OMP_NUM_THREADS=2",
        "OMP_WAIT_POLICY=PASSIVE",
        "GAVEL_CHECKPOINT_DIRECTORY=",
        StrCat("GAVEL_REPORT_FILE=", report),
        StrCat(GAVEL_BINARY_DIR, "/", workload.argv.front())};
    argv.insert(argv.end(), workload.argv.begin() + 1, workload.argv.end());
    if (workload.type != "A3C") argv.push_back("--synthetic");
    Process process(argv, Path("output"));
    EXPECT_TRUE(Eventually(
        [&] {
          return ReadText(report).find("loss") != std::string::npos ||
                 !IsAlive(process.pid());
        },
        kStepPatience_s));
    EXPECT_TRUE(IsAlive(process.pid())) << process.errors();
    process.Signal(SIGKILL);
    process.Wait();
  }
}

}  // namespace
}  // namespace gavel::testing
