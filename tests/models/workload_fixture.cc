#include "tests/models/workload_fixture.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "coordinator/cli/doctor_run.h"
#include "core/text.h"
#include "gavel_paths.h"
#include "tests/support/free_port.h"

namespace gavel::testing {
namespace {

using Json = nlohmann::json;

constexpr double kWorkloadPatience_s = 200;
constexpr int kRanksMax = 2;

std::vector<std::string> CommandOf(const Workload& workload) {
  std::vector<std::string> command = {
      StrCat(GAVEL_BINARY_DIR, "/", workload.program)};
  command.insert(command.end(), workload.flags.begin(), workload.flags.end());
  return command;
}

}  // namespace

void WorkloadTest::ExpectSameWhenDisturbed(const Workload& workload) {
  std::vector<std::string> arguments = {
      "doctor",  "--device", "cpu",     "--timeout",
      "120",     "--json",   "--steps", StrCat(workload.steps),
      "--state", folder(),   "--"};
  for (const std::string& word : CommandOf(workload)) arguments.push_back(word);
  const std::unique_ptr<Process> doctor = Start(arguments);
  const std::optional<int> code = doctor->Wait(kWorkloadPatience_s);
  const Json found = Json::parse(doctor->output(), nullptr, false);
  ASSERT_TRUE(found.is_object()) << doctor->output() << doctor->errors();
  // Where so few steps end no epoch, doctor says so, and not PASS.
  const bool unknown = found.value("unknown", false);
  EXPECT_EQ(code, unknown ? 3 : 0) << doctor->output() << doctor->errors();
  EXPECT_EQ(found["passed"], !unknown);
  if (unknown) {
    EXPECT_TRUE(found["problem"].get<std::string>().starts_with(
        "no epoch end was examined"))
        << found["problem"];
  }
  // It is paused, moved, and restored from an odd, an even and a late step.
  EXPECT_EQ(found["runs"].size(), 5);
  for (const Json& run : found["runs"]) {
    EXPECT_GT(run["values_compared"], 0) << run;
    EXPECT_TRUE(run["state_compared"]) << run;
    EXPECT_TRUE(run["differences"].empty()) << run;
    EXPECT_TRUE(run["state_differences"].empty()) << run;
  }
}

void WorkloadTest::ExpectSameWhenResized(const Workload& workload) {
  ASSERT_GT(workload.gang_tolerance, 0);
  const uint64_t steps = workload.steps;
  ASSERT_TRUE(Train(workload, "alone", 1, steps, false));
  ASSERT_TRUE(Train(workload, "resized", 1, steps / 3, false));
  EXPECT_TRUE(Train(workload, "resized", 2, steps * 2 / 3, true))
      << "too fast to be killed; give it more steps";
  ASSERT_TRUE(Train(workload, "resized", 2, steps * 2 / 3, false));
  ASSERT_TRUE(Train(workload, "resized", 1, steps, false));

  const Curve expected = CurveOf("alone");
  const Curve found = CurveOf("resized");
  ASSERT_EQ(expected.size(), steps);
  ASSERT_EQ(found.size(), steps);
  for (const auto& [step, loss] : expected) {
    EXPECT_NEAR(found.at(step), loss, workload.gang_tolerance * std::abs(loss))
        << "step " << step;
  }
}

bool WorkloadTest::Train(const Workload& workload, const std::string& name,
                         int workers, uint64_t steps, bool kill) {
  const uint64_t from_step = LastStep(name);
  const int port = FreePort();
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < workers; ++rank) {
    std::vector<std::string> argv = {
        "/usr/bin/env",
        "-u",
        "GAVEL_WORKER_COORDINATOR",
        "GAVEL_DEVICE=cpu",
        "OMP_NUM_THREADS=1",
        "OMP_WAIT_POLICY=PASSIVE",
        "MASTER_ADDR=127.0.0.1",
        StrCat("MASTER_PORT=", port),
        StrCat("WORLD_SIZE=", workers),
        StrCat("RANK=", rank),
        StrCat("GAVEL_STEPS=", steps),
        StrCat("GAVEL_CHECKPOINT_DIRECTORY=", Path(name)),
        "GAVEL_CHECKPOINT_INTERVAL_S=0",
        "GAVEL_CHECKPOINT_INTERVAL_STEPS=1",
        StrCat("GAVEL_REPORT_FILE=", Path(StrCat(name, ".report.", rank)))};
    for (const std::string& word : CommandOf(workload)) argv.push_back(word);
    ranks.push_back(std::make_unique<Process>(
        argv, Path(StrCat(name, ".", from_step, ".", workers, ".", rank))));
  }
  if (kill) {
    const auto give_up = std::chrono::steady_clock::now() +
                         std::chrono::duration<double>(kWorkloadPatience_s);
    while (LastStep(name) == from_step && IsAlive(ranks[0]->pid()) &&
           std::chrono::steady_clock::now() < give_up) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    for (const auto& rank : ranks) rank->Signal(SIGKILL);
  }
  for (const auto& rank : ranks) {
    const auto code = rank->Wait(kWorkloadPatience_s);
    if (kill) continue;
    EXPECT_EQ(code, 0) << rank->output() << rank->errors();
  }
  const uint64_t last = LastStep(name);
  if (steps == 0) return last > from_step;
  return kill ? last > from_step && last < steps : last == steps;
}

WorkloadTest::Curve WorkloadTest::CurveOf(const std::string& name,
                                          const std::string& wanted) const {
  Curve sums;
  std::map<uint64_t, int> counts;
  for (int rank = 0; rank < kRanksMax; ++rank) {
    // A step that was done twice counts once.
    Curve of_rank;
    for (const ReportedValue& value :
         ParseReport(ReadText(Path(StrCat(name, ".report.", rank))))) {
      if (value.name != wanted) continue;
      of_rank[value.step] = std::strtod(value.value.c_str(), nullptr);
    }
    for (const auto& [step, loss] : of_rank) {
      sums[step] += loss;
      ++counts[step];
    }
  }
  for (auto& [step, sum] : sums) sum /= counts[step];
  return sums;
}

uint64_t WorkloadTest::LastStep(const std::string& name) const {
  const auto last = LastCheckpoint(Path(name));
  return last ? last->generation.step : 0;
}

}  // namespace gavel::testing
