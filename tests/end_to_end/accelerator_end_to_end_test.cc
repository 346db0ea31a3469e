// Runs jobs and gangs on simulated accelerators, which count the devices'
// memory, under the real coordinator and agent: in turns, kept, parked and
// evicted within that memory, and two at a time.
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

struct JobKeys {
  std::string keys = "";  // lines of the job file
  int step_ms = 150;
  std::string environment = "";  // lines of that table
  std::string devices = "devices=2";
};

class AcceleratorEndToEnd : public GavelTest {
 protected:
  void WriteDevices(int count, const std::string& of_server = "",
                    const std::string& of_each = "") {
    std::string text = StrCat(
        "[scheduling]\nround_duration_s = 2\nlease_duration_s = 2\n"
        "[[server]]\nname = \"here\"\n",
        of_server);
    for (int i = 0; i < count; ++i) {
      StrAppend(
          &text, "[[server.accelerator]]\ntype = \"sim\"\ndevice = \"hpu:", i,
          "\"\nmemory_bytes = \"64MiB\"\ncontext_bytes = \"1MiB\"\n", of_each);
    }
    Write("cluster.toml", text);
  }
  // A job of sixteen steps.
  std::string Job(const std::string& name, int scale_factor,
                  const JobKeys& more = {}) {
    return WriteCommand(
        name, {GAVEL_GANG_WORKER, Path(name + ".weights")},
        StrCat("scale_factor = ", scale_factor, "\n", more.keys,
               "[environment]\nSTEP_MS = \"", more.step_ms, "\"\n",
               more.environment, "GAVEL_SIMULATED_DEVICE = \"", more.devices,
               ",memory_mib=64,shared=", Path("devices"), "\"\n"));
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

// Host memory has room for one of the three states.
TEST_F(AcceleratorEndToEnd, StatesThatDoNotFitTogetherTakeTurns) {
  WriteDevices(1, "host_memory_bytes = \"30MiB\"\n");
  std::vector<std::string> jobs;
  for (const char* name : {"first", "second", "third"}) {
    jobs.push_back(Job(name, 1, {.environment = "BALLAST_MIB = \"22\"\n"}));
  }
  const Ended ended = RunLocal(jobs);
  ASSERT_EQ(ended.exit_code, 0) << ended.output << ended.errors << Logs();
  EXPECT_THAT(ended.output, HasSubstr("parked in host memory on here"));
  EXPECT_THAT(Logs(), HasSubstr("leaving the process after step "));
  EXPECT_THAT(Logs(), Not(HasSubstr("out of memory")));
  EXPECT_THAT(Logs(), Not(HasSubstr("other processes leave")));
  ExpectWeightsAlone({"first", "second", "third"});
  ExpectDevicesEmpty();
}

// Each rank keeps its own part, 20 MiB and the rest of the state, and not twice
// that.
TEST_F(AcceleratorEndToEnd, AParkedGangTakesTheMemoryOfOneProcess) {
  WriteDevices(2);
  std::vector<std::string> jobs;
  for (const char* name : {"first", "second"}) {
    jobs.push_back(Job(name, 2, {.environment = "BALLAST_MIB = \"20\"\n"}));
  }
  const Ended ended = RunLocal(jobs);
  ASSERT_EQ(ended.exit_code, 0) << ended.output << ended.errors << Logs();
  EXPECT_THAT(ended.output, HasSubstr("parked in host memory on here, 2"));
  EXPECT_THAT(ended.output, Not(HasSubstr("parked in host memory on here, 4")));
  EXPECT_EQ(Weights(Path("first.weights")), Weights(Path("second.weights")));
  ExpectDevicesEmpty();
}

TEST_F(AcceleratorEndToEnd, TwoShareADeviceAndItsMemory) {
  WriteDevices(1);
  const JobKeys keys{.keys = "[throughputs]\nsim = 2.4\n",
                     .step_ms = 400,
                     .environment = "BALLAST_MIB = \"8\"\n"};
  const auto local = StartLocal({Job("a", 1, keys), Job("b", 1, keys)},
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

// A parked process would keep its device, so each pause is an eviction.
TEST_F(AcceleratorEndToEnd, JobsTakeTurnsOnAnExclusiveAccelerator) {
  WriteDevices(1, "", "exclusive = true\n");
  const Ended ended =
      RunLocal({Job("first", 1, {.devices = "devices=1,exclusive=1"}),
                Job("second", 1, {.devices = "devices=1,exclusive=1"})});
  ASSERT_EQ(ended.exit_code, 0) << ended.output << ended.errors << Logs();
  EXPECT_THAT(Logs(), HasSubstr("leaving the process after step")) << Logs();
  EXPECT_THAT(Logs(), Not(HasSubstr("can't take"))) << Logs();
  ExpectWeightsAlone({"first", "second"});
}

// A program that Gavel does not know of has the device: this test.
TEST_F(AcceleratorEndToEnd, ADeviceThatAnotherProgramHasIsLostAndNotTheJob) {
  WriteDevices(2, "", "exclusive = true\n");
  simulated::SharedMemory memory(Path("devices"), kMemoryBytes);
  ASSERT_TRUE(memory.Take(0, 1));
  const Ended ended =
      RunLocal({Job("first", 1, {.devices = "devices=2,exclusive=1"})});
  ASSERT_EQ(ended.exit_code, 0) << ended.output << ended.errors << Logs();
  EXPECT_THAT(LogOf(1), HasSubstr("hpu:0 is in exclusive-process mode, and "
                                  "another process uses it"));
  EXPECT_THAT(LogOf(1), HasSubstr("(sim, hpu:1)"));
}

TEST_F(AcceleratorEndToEnd, WhereTheLeaseAloneIsVisibleEachSeesADeviceZero) {
  WriteDevices(2, "visibility = \"leased\"\n");
  const Ended ended = RunLocal(
      {Job("first", 1), Job("second", 1), Job("third", 1), Job("gang", 2)});
  ASSERT_EQ(ended.exit_code, 0) << ended.output << ended.errors << Logs();
  EXPECT_THAT(Logs(), HasSubstr("here-1 (sim, hpu:0)")) << Logs();
  EXPECT_THAT(Logs(), Not(HasSubstr("(sim, hpu:1)"))) << Logs();
  ExpectWeightsAlone({"first", "second", "third"});
}

// As with MIG, a process can use one partition, on either device.
TEST_F(AcceleratorEndToEnd, PartitionsOfADeviceAreAccelerators) {
  WriteDevices(4, "visibility = \"leased\"\n");
  std::vector<std::string> jobs;
  for (const char* name : {"first", "second", "third", "fourth"}) {
    jobs.push_back(Job(name, 1, {.devices = "devices=2,partitions=2"}));
  }
  const Ended ended = RunLocal(jobs);
  ASSERT_EQ(ended.exit_code, 0) << ended.output << ended.errors << Logs();
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(Logs(), HasSubstr(StrCat("here-", i, " (sim, hpu:0)")));
  }
}

}  // namespace
}  // namespace gavel::testing
