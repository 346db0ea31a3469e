// The parts of an agent: the environment of its workers, its list of
// accelerators, its records on disk, and the processes that it starts.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/agent_host/agent_environment.h"
#include "coordinator/agent_host/agent_process.h"
#include "coordinator/agent_host/agent_record.h"
#include "coordinator/server/incoming.h"
#include "core/text.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

LaunchWorker Launch() {
  LaunchWorker launch;
  launch.server = "here";
  launch.worker = {JobId(7), 1, 3};
  launch.job_name = "lm";
  launch.checkpoint_directory = "/checkpoints/lm";
  launch.world_size = 2;
  launch.accelerator.threads = 4;
  launch.environment = {{"DATA", "/data"},
                        {"PATH", "/mine"},
                        {"GAVEL_JOB", "99"},
                        {"GAVEL_PROCESS", "another's"},
                        {"GAVEL_STEPS", "500"}};
  return launch;
}

TEST(AgentEnvironment, IsCleanedAndTellsTheWorkerWhoItIs) {
  const std::vector<std::string> environment = WorkerEnvironment(
      Launch(), {"tcp://127.0.0.1:1", "/run/g", /*has_gpus=*/false},
      {{"PATH", "/bin"}, {"HOME", "/home/me"}, {"SECRET", "1"}});
  EXPECT_THAT(
      environment,
      ElementsAre(
          "CUDA_VISIBLE_DEVICES=", "DATA=/data", "GAVEL_ADDRESS=127.0.0.1",
          "GAVEL_CHECKPOINT_DIRECTORY=/checkpoints/lm",
          "GAVEL_COORDINATOR=tcp://127.0.0.1:1", "GAVEL_INCARNATION=3",
          "GAVEL_JOB=7", "GAVEL_JOB_NAME=lm", "GAVEL_RANK=1",
          "GAVEL_RUN_DIRECTORY=/run/g", "GAVEL_SERVER=here", "GAVEL_STEPS=500",
          "GAVEL_WORKER_COORDINATOR=tcp://127.0.0.1:1", "GAVEL_WORLD_SIZE=2",
          "HOME=/home/me", "NO_COLOR=1", "OMP_NUM_THREADS=4",
          "OMP_WAIT_POLICY=PASSIVE", "PATH=/mine", "RANK=1", "TERM=dumb",
          "WORLD_SIZE=2"));
}

TEST(AgentEnvironment, NamesTheClusterOfTheJob) {
  WorkerPlace place{"tcp://127.0.0.1:1", "/run/g", /*has_gpus=*/false};
  place.cluster = "5eed";
  EXPECT_THAT(WorkerEnvironment(Launch(), place, {}),
              Contains("GAVEL_CLUSTER=5eed"));
}

TEST(AgentEnvironment, WithGpusTheWorkerSeesThoseOfTheAgent) {
  const WorkerPlace place{"tcp://127.0.0.1:1", "/run/g", /*has_gpus=*/true};
  const std::vector<std::string> environment =
      WorkerEnvironment(Launch(), place,
                        {{"CUDA_VISIBLE_DEVICES", "2,3"},
                         {"CUDA_MPS_PIPE_DIRECTORY", "/run/mps"}});
  EXPECT_THAT(environment, Contains("CUDA_VISIBLE_DEVICES=2,3"));
  EXPECT_THAT(environment, Contains("CUDA_MPS_PIPE_DIRECTORY=/run/mps"));
  EXPECT_THAT(environment, Contains("CUDA_DEVICE_ORDER=PCI_BUS_ID"));
  EXPECT_THAT(WorkerEnvironment(Launch(), place, {}),
              Not(Contains(StartsWith("CUDA_VISIBLE_DEVICES"))));
}

TEST(AgentEnvironment, AnAcceleratorThatIsAloneVisibleHidesAllOthers) {
  const WorkerPlace place{"tcp://127.0.0.1:1", "/run/g", /*has_gpus=*/true};
  const auto environment = [&](const std::string& device) {
    LaunchWorker launch = Launch();
    launch.environment = {{"CUDA_VISIBLE_DEVICES", "0,1"}};
    launch.accelerator.device = device;
    launch.accelerator.uuid = "GPU-cc";
    launch.accelerator.alone_visible = true;
    return WorkerEnvironment(launch, place, {{"CUDA_VISIBLE_DEVICES", "2,3"}});
  };
  EXPECT_THAT(environment("cuda:1"), Contains("CUDA_VISIBLE_DEVICES=GPU-cc"));
  EXPECT_THAT(environment("xpu:1"), Contains("ZE_AFFINITY_MASK=1"));
  EXPECT_THAT(environment("hpu:2"), Contains("HABANA_VISIBLE_MODULES=2"));
  EXPECT_THAT(environment("cpu"), Contains("CUDA_VISIBLE_DEVICES=0,1"));
}

TEST(WorkerEnvironment, KeepsWhatTheClusterFileNames) {
  WorkerPlace place;
  place.keep_environment = {"LD_LIBRARY_PATH", "NCCL_*"};
  const std::vector<std::string> environment =
      WorkerEnvironment(Launch(), place,
                        {{"LD_LIBRARY_PATH", "/opt/cuda/lib"},
                         {"LD_LIBRARY_PATH_OF_OTHERS", "x"},
                         {"NCCL_DEBUG", "INFO"},
                         {"NCCL_SOCKET_IFNAME", "eth1"},
                         {"SECRET", "x"}});
  EXPECT_THAT(environment,
              IsSupersetOf({"LD_LIBRARY_PATH=/opt/cuda/lib", "NCCL_DEBUG=INFO",
                            "NCCL_SOCKET_IFNAME=eth1"}));
  EXPECT_THAT(environment, Not(Contains(HasSubstr("=x"))));
}

// Two lists have to agree: the variables that agents set and those that a job
// may not set.
TEST(WorkerEnvironment, NoJobMaySetWhatTheAgentSets) {
  LaunchWorker launch = Launch();
  launch.environment.clear();
  WorkerPlace place;
  place.key_file = "/keys/7";
  place.coordinator_key = "KEY";
  int names = 0;
  for (const std::string& entry : WorkerEnvironment(launch, place, {})) {
    if (!entry.starts_with("GAVEL_")) continue;
    ++names;
    SubmitRequest request;
    request.source = "job.toml";
    request.directory = "/home";
    request.toml =
        StrCat("name = \"a\"\ncommand = [\"train\"]\n[environment]\n",
               entry.substr(0, entry.find('=')), " = \"1\"\n");
    EXPECT_THAT(ReadSubmission(request, "/state", "5eed", JobId(7)),
                IsInvalid("which the agent sets"))
        << entry;
  }
  EXPECT_GE(names, 10);
}

TEST(AgentAccelerators, DifferentProductsAreDifferentTypes) {
  EXPECT_EQ(GpuTypeName("NVIDIA A100-SXM4-40GB"), "a100-40gb");
  EXPECT_EQ(GpuTypeName("NVIDIA A100-SXM4-80GB"), "a100-80gb");
  EXPECT_EQ(GpuTypeName("NVIDIA A100 80GB PCIe"), "a100-pcie-80gb");
  EXPECT_EQ(GpuTypeName("NVIDIA H100 PCIe"), "h100-pcie");
  EXPECT_EQ(GpuTypeName("NVIDIA H100 80GB HBM3"), "h100-80gb");
  EXPECT_EQ(GpuTypeName("NVIDIA H100 NVL"), "h100-nvl");
  EXPECT_EQ(GpuTypeName("NVIDIA GeForce RTX 3080"), "rtx_3080");
  EXPECT_EQ(GpuTypeName("NVIDIA GeForce RTX 3080 Ti"), "rtx_3080_ti");
  EXPECT_EQ(GpuTypeName("NVIDIA GeForce RTX 3080 Laptop GPU"),
            "rtx_3080_laptop");
  EXPECT_EQ(GpuTypeName("Quadro RTX 6000"), "rtx_6000");
  EXPECT_EQ(GpuTypeName("NVIDIA RTX 6000 Ada Generation"), "rtx_6000_ada");
  EXPECT_EQ(GpuTypeName("NVIDIA RTX PRO 6000 Blackwell Server Edition"),
            "rtx_pro_6000_blackwell_server");
  EXPECT_EQ(GpuTypeName("NVIDIA TITAN V"), "titan_v");
  EXPECT_EQ(GpuTypeName("NVIDIA A100-SXM4-40GB MIG 1g.5gb"),
            "a100-40gb-mig-1g-5gb");
}

TEST(AgentAccelerators, TypesAreTheProductsInShort) {
  EXPECT_EQ(GpuTypeName("NVIDIA H200"), "h200");
  EXPECT_EQ(GpuTypeName("Tesla T4"), "t4");
  EXPECT_EQ(GpuTypeName("Tesla V100-SXM2-16GB"), "v100-16gb");
  EXPECT_EQ(GpuTypeName("NVIDIA GeForce RTX 4090"), "rtx_4090");
  EXPECT_EQ(GpuTypeName("NVIDIA RTX A6000"), "rtx_a6000");
  EXPECT_EQ(GpuTypeName(""), "gpu");
}

TEST(AgentAccelerators, VisibleDevicesChooseAndOrderTheGpus) {
  const std::vector<Gpu> gpus = {
      {"A", "GPU-aa"}, {"B", "GPU-bb"}, {"C", "GPU-cc"}};
  const auto uuids = [&](const std::optional<std::string>& visible) {
    std::vector<std::string> found;
    for (const Gpu& gpu : VisibleGpus(gpus, visible)) found.push_back(gpu.uuid);
    return found;
  };
  EXPECT_THAT(uuids(std::nullopt), ElementsAre("GPU-aa", "GPU-bb", "GPU-cc"));
  EXPECT_THAT(uuids("2,0"), ElementsAre("GPU-cc", "GPU-aa"));
  EXPECT_THAT(uuids("GPU-b"), ElementsAre("GPU-bb"));
  EXPECT_THAT(uuids("1,9,0"), ElementsAre("GPU-bb"));
  EXPECT_THAT(uuids(""), IsEmpty());
}

TEST(AgentAccelerators, GpusShareTheCoresThatSlotsLeave) {
  std::vector<AcceleratorInfo> accelerators(4);
  accelerators[0].device = "cpu";
  accelerators[0].threads = 2;
  accelerators[1].device = "cuda:0";
  accelerators[2].device = "cuda:1";
  accelerators[3].device = "cuda:2";
  accelerators[3].threads = 4;  // declared
  const auto threads = [&](int cores) {
    std::vector<AcceleratorInfo> shared = accelerators;
    ShareCores(cores, &shared);
    return std::vector<int>{shared[0].threads, shared[1].threads,
                            shared[2].threads, shared[3].threads};
  };
  EXPECT_THAT(threads(16), ElementsAre(2, 5, 5, 4));
  EXPECT_THAT(threads(4), ElementsAre(2, 1, 1, 4));
}

TEST(AgentAccelerators, DeclaredGpusGetTheirUuidsOrAnError) {
  std::vector<AcceleratorInfo> declared(2);
  declared[0].uuid = "here-0";
  declared[1].device = "cuda:1";
  ASSERT_OK(FillFromGpus({{"A", "GPU-aa"}, {"B", "GPU-bb"}}, &declared));
  EXPECT_EQ(declared[0].uuid, "here-0");
  EXPECT_EQ(declared[1].uuid, "GPU-bb");
  EXPECT_THAT(FillFromGpus({{"A", "GPU-aa"}}, &declared),
              StatusIs(kNotFound, "cuda:1, but this machine shows 1 GPUs"));
  const auto detected = AcceleratorsOf({{"NVIDIA H200", "GPU-aa"}});
  EXPECT_EQ(detected.at(0).device, "cuda:0");
  EXPECT_EQ(detected.at(0).type, "h200");
  EXPECT_EQ(detected.at(0).memory_bytes, 0u);
  EXPECT_EQ(detected.at(0).context_bytes, 0u);
}

TEST(AgentAccelerators, TheMemoryOfGpusIsKnownUnlessDeclared) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  const std::vector<Gpu> gpus = {{"NVIDIA A100", "GPU-aa", 80 * kGiB}};
  const auto detected = AcceleratorsOf(gpus);
  EXPECT_EQ(detected.at(0).memory_bytes, 80 * kGiB);
  EXPECT_EQ(detected.at(0).context_bytes, kContextBytesDefault);

  std::vector<AcceleratorInfo> declared(3);
  declared[0].device = "cpu";
  declared[1].device = declared[2].device = "cuda:0";
  declared[2].memory_bytes = 40 * kGiB;
  declared[2].context_bytes = kGiB;
  ASSERT_OK(FillFromGpus(gpus, &declared));
  EXPECT_EQ(declared[0].memory_bytes, 0u);
  EXPECT_EQ(declared[1].memory_bytes, 80 * kGiB);
  EXPECT_EQ(declared[1].context_bytes, kContextBytesDefault);
  EXPECT_EQ(declared[2].memory_bytes, 40 * kGiB);
  EXPECT_EQ(declared[2].context_bytes, kGiB);
}

TEST(AgentAccelerators, AnExclusiveGpuIsSoHoweverItIsDeclared) {
  const std::vector<Gpu> gpus = {{"A", "GPU-aa", 0, /*exclusive=*/true},
                                 {"B", "GPU-bb"}};
  EXPECT_TRUE(AcceleratorsOf(gpus).at(0).exclusive);
  EXPECT_FALSE(AcceleratorsOf(gpus).at(1).exclusive);
  std::vector<AcceleratorInfo> declared(2);
  declared[0].device = "cuda:0";
  declared[1].device = "cuda:1";
  declared[1].exclusive = true;
  ASSERT_OK(FillFromGpus(gpus, &declared));
  EXPECT_TRUE(declared[0].exclusive);
  EXPECT_TRUE(declared[1].exclusive);
}

TEST(AgentAccelerators, ThisMachinesGpusAreFoundOrTheirAbsenceIsExplained) {
  const auto found = DetectAccelerators();
  if (found.ok()) {
    for (const AcceleratorInfo& info : *found) {
      EXPECT_THAT(info.uuid, StartsWith("GPU-"));
      EXPECT_FALSE(info.type.empty());
    }
  } else {
    EXPECT_THAT(found, StatusIs(kNotFound, "--cluster FILE --server NAME"));
  }
}

TEST(AgentProcessInfo, ANameWithParenthesesAndBlanksIsNoTrap) {
  const auto info = ParseProcessInfo(
      "12 (a) b (c) Z 1 77 77 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 998877 0 0");
  ASSERT_TRUE(info.has_value());
  EXPECT_TRUE(info->gone());
  EXPECT_EQ(info->group, 77);
  EXPECT_EQ(info->start_time, 998877);
  EXPECT_FALSE(ParseProcessInfo("").has_value());
  EXPECT_FALSE(ParseProcessInfo("12 (sh) S 1").has_value());
  EXPECT_GT(ReadProcessInfo(getpid())->start_time, 0);
  EXPECT_FALSE(BootId().empty());
}

RecordedWorker Recorded(pid_t pid, uint64_t start_time) {
  return {{{JobId(7), 0, 2}, pid}, start_time, geteuid()};
}

TEST(AgentRecord, IsReadBackUnlessTheMachineWasStartedAgain) {
  const std::vector<RecordedWorker> workers = {Recorded(11, 5),
                                               Recorded(12, 6)};
  const std::string text = FormatRecord(workers, "boot-1");
  EXPECT_EQ(ParseRecord(text, "boot-1"), workers);
  // An older record does not name the user.
  EXPECT_EQ(ParseRecord("boot boot-1\n7 0 2 11 5\n7 0 2 12 6\n", "boot-1"),
            workers);
  EXPECT_THAT(ParseRecord(text, "boot-2"), IsEmpty());
  EXPECT_THAT(ParseRecord("", "boot-1"), IsEmpty());
  EXPECT_THAT(ParseRecord("boot b\n7 0 2 -1 5\n7 0 2 0 5\n", "b"), IsEmpty());
}

TEST(AgentRecord, TheIncarnationRisesAndASecondAgentIsRefused) {
  const TemporaryFolder folder;
  std::pair<uint64_t, std::string> before;
  {
    ASSERT_OK_AND_ASSIGN(const AgentRecord first,
                         AgentRecord::Open(folder.path(), "here"));
    EXPECT_EQ(first.incarnation() >> 32, 1);
    before = {first.incarnation(), first.state_id()};
    EXPECT_THAT(
        AgentRecord::Open(folder.path(), "here"),
        StatusIs(kAlreadyExists, "an agent of server \"here\" already runs"));
    EXPECT_OK(AgentRecord::Open(folder.path(), "there"));
  }
  ASSERT_OK_AND_ASSIGN(const AgentRecord second,
                       AgentRecord::Open(folder.path(), "here"));
  EXPECT_EQ(second.incarnation() >> 32, 2);
  EXPECT_GT(second.incarnation(), before.first);
  EXPECT_EQ(second.state_id(), before.second);
}

TEST(AgentRecord, TwoStateDirectoriesAreToldApart) {
  const TemporaryFolder one;
  const TemporaryFolder other;
  ASSERT_OK_AND_ASSIGN(const AgentRecord first,
                       AgentRecord::Open(one.path(), "here"));
  ASSERT_OK_AND_ASSIGN(const AgentRecord second,
                       AgentRecord::Open(other.path(), "here"));
  EXPECT_NE(first.state_id(), second.state_id());
  EXPECT_NE(first.incarnation(), second.incarnation());
}

TEST(ChildExit, IsToldInWords) {
  EXPECT_EQ(ExitText({WorkerKey(), 1, 0}), "exit code 1");
  EXPECT_EQ(ExitText({WorkerKey(), 0, 9}), "killed by signal 9");
  EXPECT_EQ(ExitText({WorkerKey(), 75, 0}), "left with its state saved (75)");
}

// The processes that these tests start stand for those of an agent that is
// gone. They are reaped here, as init would.
class SweepTest : public Test {
 protected:
  pid_t StartSleep(const std::vector<std::string>& environment = {}) {
    ProcessSpec spec;
    spec.argv = {"/bin/sleep", "1000"};
    spec.environment = environment;
    spec.output_path = folder_.path() + "/output";
    return *SpawnProcess(spec);
  }
  void Record(const std::vector<RecordedWorker>& workers) {
    std::ofstream(folder_.path() + "/agent-here.running")
        << FormatRecord(workers, BootId());
  }
  TemporaryFolder folder_;
};

TEST_F(SweepTest, WhatWasRecordedIsKilledAndSeenGone) {
  const pid_t pid = StartSleep();
  Record({Recorded(pid, ReadProcessInfo(pid)->start_time)});
  ASSERT_OK_AND_ASSIGN(AgentRecord record,
                       AgentRecord::Open(folder_.path(), "here"));
  ASSERT_OK_AND_ASSIGN(const auto swept, record.Sweep());
  ASSERT_EQ(swept.workers.size(), 1);
  EXPECT_EQ(swept.workers[0].pid, pid);
  EXPECT_EQ(swept.ended, swept.workers);
  EXPECT_TRUE(ReadProcessInfo(pid)->gone());
  waitpid(pid, nullptr, 0);
}

TEST_F(SweepTest, ALaterProcessWithTheSamePidIsLeftInPeace) {
  const pid_t pid = StartSleep();
  Record({Recorded(pid, ReadProcessInfo(pid)->start_time - 1)});
  ASSERT_OK_AND_ASSIGN(AgentRecord record,
                       AgentRecord::Open(folder_.path(), "here"));
  ASSERT_OK_AND_ASSIGN(const auto swept, record.Sweep());
  EXPECT_EQ(swept.workers.size(), 1);  // the one that was recorded is gone
  EXPECT_TRUE(swept.ended.empty());    // and was so before
  EXPECT_FALSE(ReadProcessInfo(pid)->gone());
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

TEST_F(SweepTest, AProcessThatHadEndedIsNotEndedAgain) {
  const pid_t pid = StartSleep();
  const auto start_time = ReadProcessInfo(pid)->start_time;
  kill(pid, SIGKILL);
  siginfo_t ended{};
  waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT);
  Record({Recorded(pid, start_time)});
  ASSERT_OK_AND_ASSIGN(AgentRecord record,
                       AgentRecord::Open(folder_.path(), "here"));
  ASSERT_OK_AND_ASSIGN(const auto swept, record.Sweep());
  EXPECT_EQ(swept.workers.size(), 1);
  EXPECT_TRUE(swept.ended.empty());
  waitpid(pid, nullptr, 0);
}

// The child has left the group and the session of the recorded process.
TEST_F(SweepTest, WhatARecordedProcessStartedIsFoundByItsMark) {
  const RecordedWorker worker = Recorded(1, 1);
  std::string mark;
  {
    ASSERT_OK_AND_ASSIGN(const AgentRecord last,
                         AgentRecord::Open(folder_.path(), "here"));
    mark = last.MarkOf(worker.running.worker);
  }
  const pid_t pid = StartSleep({mark});
  const pid_t others = StartSleep({mark + "0"});
  Record({Recorded(pid, ReadProcessInfo(pid)->start_time - 1)});
  ASSERT_OK_AND_ASSIGN(AgentRecord record,
                       AgentRecord::Open(folder_.path(), "here"));
  ASSERT_OK(record.Sweep().status());
  EXPECT_TRUE(ReadProcessInfo(pid)->gone());
  EXPECT_FALSE(ReadProcessInfo(others)->gone());
  kill(others, SIGKILL);
  waitpid(others, nullptr, 0);
  waitpid(pid, nullptr, 0);
}

// Waits until `count` events have come. Only the test's own time limit ends a
// longer wait.
std::vector<ChildEvent> WaitForEvents(Children& children, size_t count) {
  std::vector<ChildEvent> events;
  while (events.size() < count) {
    for (ChildEvent& event : children.TakeEvents()) {
      events.push_back(std::move(event));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return events;
}

ProcessSpec ShellSpec(const std::string& script, const std::string& output) {
  ProcessSpec spec;
  spec.argv = {"/bin/sh", "-c", script};
  spec.output_path = output;
  spec.mark = StrCat("GAVEL_PROCESS=test-", getpid());
  spec.environment = {"OUTPUT=" + output, spec.mark};
  return spec;
}

constexpr double kExecLimit_s = 10;

// Runs `script`, which prints the pid of a process that it leaves behind and
// exits with 4. That process is gone by the time the exit is reported.
void ExpectNothingIsLeftOf(const std::string& script) {
  const TemporaryFolder folder;
  std::atomic<int> notified = 0;
  Children children([&] { ++notified; }, kExecLimit_s);
  const std::string output = folder.path() + "/output";
  children.Start({JobId(1), 0, 1}, ShellSpec(script, output), Descriptor(-1));
  const std::vector<ChildEvent> events = WaitForEvents(children, 2);
  EXPECT_TRUE(std::holds_alternative<ChildStarted>(events[0]));
  const auto& exit = std::get<ChildExit>(events[1]);
  EXPECT_EQ(exit.exit_code, 4);
  EXPECT_EQ(exit.signal, 0);
  EXPECT_EQ(notified, 2);
  pid_t child = 0;
  std::ifstream(output) >> child;
  ASSERT_GT(child, 1);
  const auto info = ReadProcessInfo(child);
  EXPECT_TRUE(!info || info->gone());
}

TEST(AgentChildren, EndsAreToldOnceTheWholeGroupIsGone) {
  ExpectNothingIsLeftOf("/bin/sleep 1000 & echo $!; exit 4");
}

TEST(AgentChildren, EndsAreToldOnceWhatLeftTheGroupIsGone) {
  ExpectNothingIsLeftOf(
      "setsid /bin/sh -c 'echo $$; exec /bin/sleep 1000' & "
      "while [ ! -s $OUTPUT ]; do :; done; exit 4");
}

// Any user's process can have a copy of the mark and can start again when it is
// killed. If it counted, the accelerator would never be free.
TEST(AgentChildren, AMarkInAnotherUsersProcessesKeepsNothingWaiting) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const TemporaryFolder folder;
  ProcessSpec worker = ShellSpec("exit 4", folder.path() + "/worker");
  ProcessSpec copy = ShellSpec("exec sleep 1000", folder.path() + "/copy");
  ASSERT_OK_AND_ASSIGN(copy.account, AccountOfJob("nobody"));
  Children children([] {}, kExecLimit_s);
  // The copy has to be younger than the worker, because only such processes are
  // examined.
  worker.argv.back() =
      "while [ ! -e " + folder.path() + "/go ]; do sleep .01; done; exit 4";
  children.Start({JobId(1), 0, 1}, worker, Descriptor(-1));
  WaitForEvents(children, 1);
  ASSERT_OK_AND_ASSIGN(const pid_t pid, SpawnProcess(copy));
  std::ofstream(folder.path() + "/go") << "";
  const auto before = std::chrono::steady_clock::now();
  WaitForEvents(children, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - before,
            std::chrono::duration<double>(kMarkedWait_s / 2));
  EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), 0);  // nor is it killed
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace gavel
