// Jobs and a gang that take turns on two simulated accelerators under the real
// coordinator and agent, which count the devices' memory.
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
  void WriteDevices(int count) {
    std::string text =
        "[scheduling]\nround_duration_s = 2\nlease_duration_s = 2\n"
        "[[server]]\nname = \"here\"\n";
    for (int i = 0; i < count; ++i) {
      StrAppend(&text,
                "[[server.accelerator]]\ntype = \"sim\"\ndevice = \"hpu:", i,
                "\"\nmemory_bytes = \"64MiB\"\ncontext_bytes = \"1MiB\"\n");
    }
    Write("cluster.toml", text);
  }
  // Sixteen steps.
  std::string Job(const std::string& name, int scale_factor) {
    return WriteCommand(
        name, {GAVEL_GANG_WORKER, Path(name + ".weights")},
        StrCat("scale_factor = ", scale_factor,
               "\n[environment]\nSTEP_MS = \"150\"\n"
               "GAVEL_SIMULATED_DEVICE = \"devices=2,memory_mib=64,shared=",
               Path("devices"), "\"\n"));
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
  const std::vector<double> alone = Weights(WeightsAlone());
  ASSERT_FALSE(alone.empty());
  for (const char* name : {"first", "second", "third"}) {
    EXPECT_EQ(Weights(Path(StrCat(name, ".weights"))), alone) << name;
  }
  const std::vector<double> gang = Weights(Path("gang.weights"));
  ASSERT_EQ(gang.size(), alone.size());
  for (size_t i = 0; i < gang.size(); ++i) {
    EXPECT_NEAR(gang[i], alone[i], 1e-4) << i;
  }
  const simulated::SharedMemory memory(Path("devices"), kMemoryBytes);
  EXPECT_THAT(memory.Holders(0), IsEmpty());
  EXPECT_THAT(memory.Holders(1), IsEmpty());
}

}  // namespace
}  // namespace gavel::testing
