// The agent's view of GPUs, of the parts that MIG makes, and of their health
// through NVML, for which nvml_fake.cc stands in.
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <semaphore>

#include "coordinator/agent_host/agent_accelerators.h"
#include "runtime/files/stopwatch.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

class NvmlTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kGiB = uint64_t{1} << 30;

  ~NvmlTest() override {
    for (const char* name :
         {"FAKE_LINKED", "FAKE_EXCLUSIVE", "FAKE_MIG", "FAKE_ERRORS",
          "FAKE_GONE", "FAKE_HANG", "CUDA_MPS_PIPE_DIRECTORY"}) {
      unsetenv(name);
    }
  }
  void Set(const char* name, const char* value) { setenv(name, value, 1); }
};

TEST_F(NvmlTest, GpusAreListedWithTheirMemory) {
  ASSERT_OK_AND_ASSIGN(const std::vector<Gpu> gpus, ListGpus());
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[1].uuid, "GPU-bbbbbbbb");
  EXPECT_EQ(gpus[1].memory_bytes, 40 * kGiB);
  EXPECT_FALSE(gpus[0].exclusive);
  EXPECT_FALSE(AcceleratorsOf(gpus).at(0).alone_visible);
}

TEST_F(NvmlTest, GpusThatNvLinkJoinsAreOneGroupUnlessOneIsDeclared) {
  EXPECT_EQ(ListGpus()->at(0).group, "");
  Set("FAKE_LINKED", "1");
  ASSERT_OK_AND_ASSIGN(const std::vector<Gpu> gpus, ListGpus());
  std::vector<AcceleratorInfo> found = AcceleratorsOf(gpus);
  EXPECT_EQ(found.at(0).group, "nvlink-0");
  EXPECT_EQ(found.at(1).group, "nvlink-0");
  found[1].group = "mine";
  ASSERT_OK(FillFromGpus(gpus, &found));
  EXPECT_EQ(found[1].group, "mine");
  Set("FAKE_MIG", "1");
  EXPECT_EQ(ListGpus()->at(0).group, "") << "parts are not linked";
}

// Two boards of two GPUs each on two NUMA nodes, and a single GPU.
TEST(NameGroups, NvLinkComesBeforeNumaNodes) {
  const Joined board = [](size_t a, size_t b) {
    return a < 4 && b < 4 && a / 2 == b / 2;
  };
  const Joined node = [](size_t a, size_t b) { return a / 3 == b / 3; };
  const Joined none = [](size_t, size_t) { return false; };
  const Joined all = [](size_t, size_t) { return true; };
  const auto groups = [](const Joined& linked, const Joined& near) {
    std::vector<Gpu> gpus(5);
    NameGroups(linked, near, &gpus);
    std::vector<std::string> names;
    for (const Gpu& gpu : gpus) names.push_back(gpu.group);
    return names;
  };
  EXPECT_THAT(groups(board, node),
              ElementsAre("nvlink-0", "nvlink-0", "nvlink-1", "nvlink-1", ""));
  EXPECT_THAT(groups(none, node),
              ElementsAre("numa-0", "numa-0", "numa-0", "numa-1", "numa-1"));
  EXPECT_THAT(groups(none, all), Each("")) << "the whole server";
  EXPECT_THAT(groups(none, none), Each(""));
}

TEST_F(NvmlTest, AGpuInExclusiveProcessModeIsExclusiveUnlessMpsIsThere) {
  Set("FAKE_EXCLUSIVE", "1");
  const TemporaryFolder folder;
  Set("CUDA_MPS_PIPE_DIRECTORY", folder.path().c_str());
  EXPECT_TRUE(ListGpus()->at(0).exclusive);
  EXPECT_FALSE(ListGpus()->at(1).exclusive);
  std::ofstream(folder.path() + "/control") << "";
  EXPECT_FALSE(ListGpus()->at(0).exclusive) << "its daemon is the one process";
}

TEST_F(NvmlTest, PartsStandForTheGpuThatMigDivides) {
  Set("FAKE_MIG", "1");
  ASSERT_OK_AND_ASSIGN(const std::vector<Gpu> gpus, ListGpus());
  ASSERT_EQ(gpus.size(), 3u);
  EXPECT_EQ(gpus[1].uuid, "MIG-cccccccc");
  EXPECT_EQ(gpus[2].uuid, "MIG-dddddddd");
  EXPECT_EQ(gpus[2].part_of, "GPU-bbbbbbbb");
  const std::vector<AcceleratorInfo> accelerators = AcceleratorsOf(gpus);
  EXPECT_EQ(accelerators[1].type, "a100-40gb-mig-1g-5gb");
  EXPECT_EQ(accelerators[1].memory_bytes, 5 * kGiB);
  for (const AcceleratorInfo& info : accelerators) {
    EXPECT_TRUE(info.alone_visible) << info.uuid;
  }
}

TEST_F(NvmlTest, PartsAreVisibleByTheirUuidOrTheirGpu) {
  Set("FAKE_MIG", "1");
  ASSERT_OK_AND_ASSIGN(const std::vector<Gpu> gpus, ListGpus());
  const auto uuids = [&](const std::string& visible) {
    std::vector<std::string> found;
    for (const Gpu& gpu : VisibleGpus(gpus, visible)) found.push_back(gpu.uuid);
    return found;
  };
  EXPECT_THAT(uuids("MIG-dd,MIG-cc"),
              ElementsAre("MIG-dddddddd", "MIG-cccccccc"));
  EXPECT_THAT(uuids("GPU-b"), ElementsAre("MIG-cccccccc")) << "the first of it";
  EXPECT_THAT(uuids("1,0"), ElementsAre("MIG-cccccccc", "GPU-aaaaaaaa"));
  EXPECT_THAT(uuids("2"), IsEmpty()) << "there are two GPUs";
}

TEST_F(NvmlTest, DeclaredUuidsAreFoundOrAnErrorListsWhatIsThere) {
  Set("FAKE_MIG", "1");
  std::vector<AcceleratorInfo> declared(1);
  declared[0].type = "small";
  declared[0].device = "cuda:0";
  declared[0].uuid = "MIG-dddd-of";
  EXPECT_THAT(FillFromGpus(*ListGpus(), &declared),
              StatusIs(kNotFound,
                       "accelerator small is declared as MIG-dddd-of, but this "
                       "machine shows 3 GPUs: GPU-aaaaaaaa, MIG-cccccccc, "
                       "MIG-dddddddd; correct its device or uuid"));
  declared[0].uuid = "MIG-ddddd";
  ASSERT_OK(FillFromGpus(*ListGpus(), &declared));
  EXPECT_EQ(declared[0].uuid, "MIG-dddddddd");
  EXPECT_EQ(declared[0].memory_bytes, 5 * kGiB);
  EXPECT_TRUE(declared[0].alone_visible);
}

TEST_F(NvmlTest, HealthIsWhatTheSensorsTell) {
  Set("FAKE_MIG", "1");
  Set("FAKE_ERRORS", "3");
  Set("FAKE_XID", "79");
  ASSERT_OK_AND_ASSIGN(Nvml nvml, Nvml::Open());
  const auto health = nvml.ReadHealth({"GPU-aaaaaaaa", "MIG-cccccccc"});
  ASSERT_EQ(health.size(), 2u);
  EXPECT_EQ(health[0].uuid, "GPU-aaaaaaaa");
  EXPECT_EQ(health[0].utilisation_percent, 87);
  EXPECT_EQ(health[0].temperature_c, 51);
  EXPECT_EQ(health[0].uncorrectable_errors, 3u);
  EXPECT_EQ(health[0].last_xid, 79u);
  EXPECT_EQ(health[0].failure, "");
  EXPECT_EQ(health[1].utilisation_percent, -1) << "not told of a part";
  EXPECT_EQ(health[1].temperature_c, 52) << "of its GPU";
  EXPECT_EQ(nvml.ReadHealth({"GPU-aaaaaaaa"})[0].last_xid, 79u);
}

TEST_F(NvmlTest, TheWatchReadsTheHealthOfGpusAgainAndAgain) {
  std::vector<AcceleratorInfo> accelerators(2);
  accelerators[0].device = "cpu";
  accelerators[0].uuid = "here-0";
  accelerators[1].device = "cuda:0";
  accelerators[1].uuid = "GPU-aaaaaaaa";
  std::counting_semaphore<> readings(0);
  HealthWatch watch(
      accelerators, [&] { readings.release(); },
      /*interval_s=*/0.01);
  readings.acquire();
  readings.acquire();
  const std::vector<AcceleratorHealth> health = watch.Take();
  ASSERT_EQ(health.size(), 1u);
  EXPECT_EQ(health[0].temperature_c, 51);
}

// The thread stays where it is until the test program ends.
TEST_F(NvmlTest, TheEndOfAWatchDoesNotWaitForADriverThatHangs) {
  std::array<int, 2> pipe_ends;
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  Set("FAKE_HANG", std::to_string(pipe_ends[1]).c_str());
  AcceleratorInfo gpu;
  gpu.device = "cuda:0";
  gpu.uuid = "GPU-aaaaaaaa";
  std::optional<HealthWatch> watch(std::in_place, std::vector{gpu},
                                   [] { ADD_FAILURE() << "nothing was read"; });
  char byte = 0;
  ASSERT_EQ(read(pipe_ends[0], &byte, 1), 1);
  EXPECT_THAT(watch->Take(), IsEmpty());
  const Stopwatch clock;
  watch.reset();
  EXPECT_LT(clock.elapsed_s(), HealthWatch::kEnd_s + 10);
  for (const int end : pipe_ends) close(end);
}

TEST_F(NvmlTest, WhatIsGoneFailsWithARemedy) {
  Set("FAKE_GONE", "MIG-cccccccc");
  ASSERT_OK_AND_ASSIGN(Nvml nvml, Nvml::Open());
  const auto health = nvml.ReadHealth({"MIG-cccccccc", "MIG-dddddddd"});
  EXPECT_THAT(health[0].failure, HasSubstr("it is not there any more; restore "
                                           "the MIG layout, or restart"));
  EXPECT_EQ(health[1].failure, "");
}

}  // namespace
}  // namespace gavel
