// Replays runs of the original Gavel with the same trace, cluster and policy.
// In those runs its quirk that makes jobs wait for the next allocation is
// switched off ("minreset0"). Average JCT and makespan have to be the same or
// better.
#include <cstdio>
#include <filesystem>

#include "nlohmann/json.hpp"
#include "simulator/trace_simulation.h"
#include "tests/simulator/reference_data.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// The largest difference in either direction, for policies that determine every
// decision.
constexpr double kDeterministicMax = 0.02;
// The largest increase for the other policies, which depend on the vertex that
// the solver finds.
constexpr double kOtherMax = 0.04;

struct ReferenceRun {
  std::string name;  // "c1_60_r0.4_s0@4:4:4.minreset0.fifo_perf"
  std::string trace;
  std::string cluster;
  std::string policy;
};

// "TRACE@CLUSTER[.VARIANT].POLICY"; the traces' own names have dots.
ReferenceRun ParseName(const std::string& name) {
  ReferenceRun run;
  run.name = name;
  const size_t at = name.find('@');
  run.trace = name.substr(0, at);
  run.cluster = name.substr(at + 1, name.find('.', at) - at - 1);
  run.policy = name.substr(name.rfind('.') + 1);
  return run;
}

std::vector<ReferenceRun> Runs() {
  std::vector<ReferenceRun> runs;
  const std::filesystem::path folder = ReferenceDir() / "sim";
  if (!std::filesystem::exists(folder)) return runs;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    const bool fresh = name.find(".minreset0.") != std::string::npos;
    if (fresh || name == "c1_60_r0.4_s0@4:4:4.isolated") {
      runs.push_back(ParseName(name));
    }
  }
  std::sort(runs.begin(), runs.end(),
            [](const ReferenceRun& a, const ReferenceRun& b) {
              return a.name < b.name;
            });
  return runs;
}

TEST(ReferenceRuns, AreMatchedOrBeaten) {
  const std::vector<ReferenceRun> runs = Runs();
  if (runs.empty()) GTEST_SKIP() << "the reference runs are not here";
  const std::filesystem::path folder = ReferenceDir() / "sim";
  for (const ReferenceRun& run : runs) {
    SCOPED_TRACE(run.name);
    const auto expected =
        nlohmann::json::parse(ReadAll(folder / (run.name + ".json")));
    if (expected["status"] != "ok") continue;
    const SimulationResult result = SimulateReference(
        folder / "traces" / (run.trace + ".trace"), run.cluster, run.policy);
    ASSERT_TRUE(result.complete) << result.stopped;
    const double jct = result.avg_jct_s / expected["avg_jct_s"].get<double>();
    const double makespan =
        result.makespan_s / expected["makespan_s"].get<double>();
    std::printf("%-55s jct %.4f makespan %.4f\n", run.name.c_str(), jct,
                makespan);
    const bool deterministic =
        run.policy == "fifo_perf" || run.policy == "isolated";
    if (deterministic) {
      EXPECT_NEAR(jct, 1, kDeterministicMax);
      EXPECT_NEAR(makespan, 1, kDeterministicMax);
    } else {
      EXPECT_LE(jct, 1 + kOtherMax);
      EXPECT_LE(makespan, 1 + kOtherMax);
    }
  }
}

}  // namespace
}  // namespace gavel::testing
