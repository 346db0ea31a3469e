// Jobs and gangs on simulated accelerators under the real coordinator and
// agent, which count the devices' memory: in turns, kept, parked and evicted
// within it, and two at a time.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/text.h"
#include "tests/support/gavel_fixture.h"
#include "tests/support/simulated_device/shared_memory.h"

namespace gavel::testing {
namespace {

constexpr double kPatience_s = 120;
constexpr uint64_t kMemoryBytes = uint64_t{64} << 20;

std::vector<double> Weights(const std::string& path) {
  std::vector<double> weights;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    weights.push_back(std::strtod(line.c_str(), nullptr));
  }
  return weights;
}

class AcceleratorEndToEnd : public GavelTest {
 protected:
  void WriteDevices(int count, const std::string& server_keys = "") {
    std::string text =
        "[scheduling]\nround_duration_s = 2\nlease_duration_s = 2\n"
        "[[server]]\nname = \"here\"\n" +
        server_keys;
    for (int i = 0; i < count; ++i) {
      StrAppend(&text,
                "[[server.accelerator]]\ntype = \"sim\"\ndevice = \"hpu:", i,
                "\"\nmemory_bytes = \"64MiB\"\ncontext_bytes = \"1MiB\"\n");
    }
    Write("cluster.toml", text);
  }
  // Sixteen steps.
  std::string Job(const std::string& name, int scale_factor,
                  const std::string& keys = "", int step_ms = 150,
                  const std::string& environment = "") {
    return WriteCommand(
        name, {GAVEL_GANG_WORKER, Path(name + ".weights")},
        StrCat("scale_factor = ", scale_factor, "\n", keys,
               "[environment]\nSTEP_MS = \"", step_ms, "\"\n", environment,
               "GAVEL_SIMULATED_DEVICE = \"devices=2,memory_mib=64,shared=",
               Path("devices"), "\"\n"));
  }
  void ExpectWeightsAlone(const std::vector<std::string>& names) {
    const std::vector<double> alone = Weights(WeightsAlone());
    EXPECT_THAT(alone, Not(IsEmpty()));
    for (const std::string& name : names) {
      EXPECT_EQ(Weights(Path(name + ".weights")), alone) << name;
    }
  }
  void ExpectDevicesEmpty() const {
    const simulated::SharedMemory memory(Path("devices"), kMemoryBytes);
    EXPECT_THAT(memory.Holders(0), IsEmpty());
    EXPECT_THAT(memory.Holders(1), IsEmpty());
  }
  std::string WeightsAlone() {
    setenv("GAVEL_DEVICE", "cpu", 1);
    Process alone({GAVEL_GANG_WORKER, Path("alone.weights")}, Path("alone"));
    EXPECT_EQ(alone.Wait(kPatience_s), 0) << alone.errors();
    return Path("alone.weights");
  }
  std::string Logs() const {
    std::string all;
    for (int job = 1; job <= 4; ++job) all += LogOf(job) + "\n----\n";
    return all;
  }
};

TEST_F(AcceleratorEndToEnd, JobsAndAGangTakeTurnsAndTrainWhatACpuTrains) {
  WriteDevices(2);
  const Ended ended = RunLocal(
      {Job("first", 1), Job("second", 1), Job("third", 1), Job("gang", 2)});
  ASSERT_EQ(ended.exit_code, 0) << ended.output << ended.errors << Logs();
  EXPECT_THAT(LogOf(1), HasSubstr("(sim, hpu:")) << Logs();
  EXPECT_THAT(Logs(), HasSubstr("paused after step"));
  EXPECT_THAT(Logs(), Not(HasSubstr("in the way of the next job")));
  ExpectWeightsAlone({"first", "second", "third"});
  const std::vector<double> alone = Weights(Path("alone.weights"));
  const std::vector<double> gang = Weights(Path("gang.weights"));
  ASSERT_EQ(gang.size(), alone.size());
  for (size_t i = 0; i < gang.size(); ++i) {
    EXPECT_NEAR(gang[i], alone[i], 1e-4) << i;
  }
  ExpectDevicesEmpty();
}

// One of the three states fits in host memory.
TEST_F(AcceleratorEndToEnd, StatesThatDoNotFitTogetherTakeTurns) {
  WriteDevices(1, "host_memory_bytes = \"30MiB\"\n");
  std::vector<std::string> jobs;
  for (const char* name : {"first", "second", "third"}) {
    jobs.push_back(Job(name, 1, "", 150, "BALLAST_MIB = \"22\"\n"));
  }
  const Ended ended = RunLocal(jobs);
  ASSERT_EQ(ended.exit_code, 0) << ended.output << ended.errors << Logs();
  EXPECT_THAT(ended.output, HasSubstr("parked in host memory on here"));
  EXPECT_THAT(ended.output, HasSubstr("evicted to disk"));
  EXPECT_THAT(Logs(), Not(HasSubstr("out of memory")));
  EXPECT_THAT(Logs(), Not(HasSubstr("other processes leave")));
  ExpectWeightsAlone({"first", "second", "third"});
  ExpectDevicesEmpty();
}

TEST_F(AcceleratorEndToEnd, TwoShareADeviceAndItsMemory) {
  constexpr int kStep_ms = 400;
  WriteDevices(1);
  const std::string keys = "[throughputs]\nsim = 2.4\n";
  const auto local =
      StartLocal({Job("a", 1, keys, kStep_ms, "BALLAST_MIB = \"8\"\n"),
                  Job("b", 1, keys, kStep_ms, "BALLAST_MIB = \"8\"\n")},
                 {"--policy", "max_min_fairness_packed"});
  const std::string endpoint = EndpointOf(*local);
  EXPECT_TRUE(Eventually(
      [&] {
        const nlohmann::json a = QueueRow(endpoint, "a");
        const nlohmann::json b = QueueRow(endpoint, "b");
        return a.is_object() && b.is_object() && a["state"] == "R" &&
               b["state"] == "R" && a["accelerators"] == b["accelerators"];
      },
      kPatience_s))
      << local->output();
  EXPECT_EQ(local->Wait(kPatience_s), 0) << local->errors() << Logs();
  ExpectWeightsAlone({"a", "b"});
  ExpectDevicesEmpty();
}

}  // namespace
}  // namespace gavel::testing
