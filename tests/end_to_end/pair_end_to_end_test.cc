// Space sharing with nothing faked: under a policy that packs jobs, two jobs
// train on one CPU slot at the same time. Their speed together is measured and
// reported, each has its part of the slot's threads, and each ends with the
// weights that it has when it trains alone.
#include <cstdlib>

#include "core/text.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

using Json = nlohmann::json;

constexpr double kPatience_s = 100;

class PairEndToEnd : public GavelTest {
 protected:
  void WriteSlot(int threads, double round_duration_s) {
    Write("cluster.toml",
          StrCat("[scheduling]\nround_duration_s = ", round_duration_s,
                 "\nlease_duration_s = ", round_duration_s,
                 "\n[[server]]\nname = \"here\"\n"
                 "[[server.accelerator]]\ntype = \"cpu\"\nthreads = ",
                 threads, "\n"));
  }
  // A training that sleeps for most of each step, so that two of them together
  // are about as fast as each alone. An epoch has four steps.
  std::string WriteTraining(const std::string& name, int epochs) {
    return WriteCommand(
        name, {GAVEL_GANG_WORKER, Path("weights." + name)},
        StrCat("[throughputs]\ncpu = 80\n[environment]\nEPOCHS = \"", epochs,
               "\"\nSTEP_MS = \"10\"\nGAVEL_DEVICE = \"cpu\"\n"));
  }
  // Trains alone on one thread, started as an agent would start it.
  std::string WeightsAlone(int epochs) {
    setenv("EPOCHS", std::to_string(epochs).c_str(), 1);
    setenv("GAVEL_DEVICE", "cpu", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    Process alone({GAVEL_GANG_WORKER, Path("weights.alone")}, Path("alone"));
    EXPECT_EQ(alone.Wait(kPatience_s), 0) << alone.errors();
    for (const char* name : {"EPOCHS", "GAVEL_DEVICE", "OMP_NUM_THREADS"}) {
      unsetenv(name);
    }
    return ReadText(Path("weights.alone"));
  }
  bool BothRun(const std::string& endpoint, uint64_t* steps_a,
               uint64_t* steps_b) {
    const Json a = QueueRow(endpoint, "a");
    const Json b = QueueRow(endpoint, "b");
    if (!a.is_object() || !b.is_object()) return false;
    *steps_a = a["steps_done"];
    *steps_b = b["steps_done"];
    return a["state"] == "R" && b["state"] == "R" &&
           a["accelerators"] == b["accelerators"];
  }
  std::string Why(const std::string& endpoint, const std::string& name) {
    return Run({"why", name, "--coordinator", endpoint}).output;
  }
};

TEST_F(PairEndToEnd, TwoTrainAtTheSameTimeAndToTheSameBits) {
  constexpr int kEpochs = 500;
  WriteSlot(/*threads=*/1, /*round_duration_s=*/4);
  const auto local =
      StartLocal({WriteTraining("a", kEpochs), WriteTraining("b", kEpochs)},
                 {"--policy", "max_min_fairness_packed"});
  const std::string endpoint = EndpointOf(*local);
  ASSERT_THAT(endpoint, Not(IsEmpty())) << local->errors();
  // Both jobs progress while they have the same accelerator.
  uint64_t from_a = 0, from_b = 0;
  ASSERT_TRUE(Eventually([&] { return BothRun(endpoint, &from_a, &from_b); },
                         kPatience_s))
      << local->output();
  EXPECT_TRUE(Eventually([&] {
    uint64_t now_a = 0, now_b = 0;
    return BothRun(endpoint, &now_a, &now_b) && now_a > from_a &&
           now_b > from_b;
  })) << local->output();
  // Its speed beside the other job is measured, and `gavel why` shows it.
  EXPECT_TRUE(Eventually([&] {
    const std::string why = Why(endpoint, "a");
    return why.find("cpu beside job 2 at ") != std::string::npos &&
           why.find(" % of its speed alone") != std::string::npos;
  })) << Why(endpoint, "a");
  EXPECT_EQ(local->Wait(kPatience_s), 0) << local->errors();
  for (const Json& job : Summary()["jobs"]) {
    EXPECT_EQ(job["state"], "finished");
  }
  const std::string alone = WeightsAlone(kEpochs);
  ASSERT_THAT(alone, Not(IsEmpty()));
  EXPECT_EQ(ReadText(Path("weights.a")), alone);
  EXPECT_EQ(ReadText(Path("weights.b")), alone);
}

TEST_F(PairEndToEnd, EachHasItsPartOfTheThreadsAndWhoIsLeftHasAllOfThem) {
  WriteSlot(/*threads=*/2, /*round_duration_s=*/4);
  const auto local =
      StartLocal({WriteTraining("a", 700), WriteTraining("b", 350)},
                 {"--policy", "max_min_fairness_packed"});
  EXPECT_EQ(local->Wait(kPatience_s), 0) << local->errors();
  const std::string a = LogOf(1);
  const std::string b = LogOf(2);
  for (const std::string& log : {a, b}) {
    EXPECT_THAT(log, HasSubstr(" on here-0 (cpu, 1 thread)"));
  }
  // It takes both threads at a boundary, without a pause.
  EXPECT_THAT(a, HasSubstr("gavel: 2 threads from step ")) << b;
}

TEST_F(PairEndToEnd, APairThatLosesIsNotMadeAgain) {
  WriteSlot(/*threads=*/1, /*round_duration_s=*/2);
  std::vector<std::string> jobs;
  for (const char* name : {"a", "b"}) {
    jobs.push_back(WriteJob(
        name, {"--steps", "600", "--step-ms", "10", "--beside-step-ms", "60"},
        "[throughputs]\ncpu = 90\n"));
  }
  const auto local = StartLocal(jobs, {"--policy", "gandiva"});
  EXPECT_EQ(local->Wait(kPatience_s), 0) << local->errors();
  for (const auto& [job, name] : {std::pair(1, "a"), std::pair(2, "b")}) {
    const std::string log = LogOf(job);
    // They are packed twice when one of them was late for the first round.
    EXPECT_GE(Count(log, "runs beside a job"), 1) << log;
    EXPECT_LE(Count(log, "runs beside a job"), 2) << log;
    EXPECT_GE(Count(log, "runs alone"), 2) << log;
    ExpectEachStepOnce(name, 600);
  }
}

}  // namespace
}  // namespace gavel::testing
