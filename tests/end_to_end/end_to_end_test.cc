// Runs the whole system with nothing faked: coordinator, agent and LibTorch
// training are processes. One of them is killed in the middle, and the job must
// end with the same bits as when it runs alone.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "coordinator/workload/job_spec.h"
#include "core/generation.h"
#include "core/status.h"
#include "core/text.h"
#include "examples/demo/run_alone.h"
#include "gavel_paths.h"
#include "runtime/checkpoint/generation_store.h"
#include "runtime/generation/manifest.h"
#include "tests/support/checkpoint_directory.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

constexpr char kJob[] = "digits";
constexpr uint64_t kSteps = 400;
constexpr double kLease_s = 1.5;
constexpr double kJobPatience_s = 90;
// The job writes several checkpoints, the first of them soon.
constexpr char kMoreKeys[] =
    "[environment]\nGAVEL_CHECKPOINT_INTERVAL_S = \"0.5\"\n"
    "GAVEL_DEVICE = \"cpu\"\n";

absl::StatusOr<Manifest> LastManifest(const std::string& directory) {
  GAVEL_ASSIGN_OR_RETURN(const GenerationStore store,
                         GenerationStore::Open(directory));
  GAVEL_ASSIGN_OR_RETURN(const Generation last, store.LatestGeneration());
  return store.ReadManifest(last);
}

absl::StatusOr<Manifest> TrainAlone(const std::string& job_path) {
  const TemporaryFolder folder;
  GAVEL_ASSIGN_OR_RETURN(const JobSpec job,
                         ParseJobSpec(ReadText(job_path), job_path));
  const demo::AloneOptions options = {
      .checkpoint_directory = folder.path() + "/checkpoints",
      .output = folder.path() + "/output"};
  GAVEL_RETURN_IF_ERROR(demo::RunAlone(job, options));
  return LastManifest(options.checkpoint_directory);
}

// The last manifest of the job when nothing disturbs it. The job runs once for
// all tests of this process.
const absl::StatusOr<Manifest>& Alone(const std::string& job_path) {
  static const absl::StatusOr<Manifest> manifest = TrainAlone(job_path);
  return manifest;
}

// Processes with `text` in their environment.
std::vector<pid_t> ProcessesWith(const std::string& text) {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment =
        ReadText(StrCat("/proc/", name, "/environ"));
    if (environment.find(text) != std::string::npos) {
      pids.push_back(std::stoi(name));
    }
  }
  return pids;
}

// The number that follows the first `mark` in `text`; 0 without a mark.
uint64_t NumberAfter(const std::string& text, const std::string& mark) {
  const size_t at = text.find(mark);
  if (at == std::string::npos) return 0;
  return std::strtoull(text.c_str() + at + mark.size(), nullptr, 10);
}

class EndToEndTest : public GavelClusterTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(GAVEL_DIGITS_DIR)) {
      GTEST_SKIP() << GAVEL_DIGITS_DIR
                   << " is missing; ./gavel-dev setup exports the digits";
    }
    WriteCluster(1, 4, kLease_s);
    job_path_ = WriteCommand(kJob,
                             {GAVEL_BINARY_DIR "/train_image", "--epochs",
                              "1000", "--steps", std::to_string(kSteps)},
                             kMoreKeys);
    ASSERT_OK(Alone(job_path_));
  }

  void StartAllAndSubmit() {
    ASSERT_NO_FATAL_FAILURE(StartCoordinator());
    agent_ = StartAgent();
    Submit(job_path_);
  }

  std::string checkpoints() const {
    return CheckpointDirectory(state(), StrCat("1-", kJob));
  }
  std::string Log() const { return LogOf(1); }
  bool LogSays(const std::string& text) const {
    return Eventually([&] { return Log().find(text) != std::string::npos; });
  }

  // Waits for a checkpoint in the middle of the job.
  void WaitForGeneration(Generation* generation) {
    ASSERT_TRUE(Eventually([&] {
      // Opening a store would make the folder, which the worker has to do.
      if (!std::filesystem::exists(checkpoints())) return false;
      const auto manifest = LastManifest(checkpoints());
      if (manifest.ok()) *generation = manifest->generation;
      return manifest.ok() && generation->step > 0;
    })) << Log();
    ASSERT_LT(generation->step, kSteps) << "too fast to be disturbed";
    ASSERT_EQ(WorkerPids().size(), 1);
    ASSERT_THAT(ProcessesWith(checkpoints()), ElementsAreArray(WorkerPids()));
  }

  void ExpectFinished() {
    const bool finished = Eventually(
        [&] {
          const nlohmann::json row = QueueRow(endpoint_, kJob);
          return row.is_object() && row["state"] == "CD";
        },
        kJobPatience_s);
    ASSERT_TRUE(finished) << Log();
    EXPECT_EQ(QueueRow(endpoint_, kJob)["steps_done"], kSteps);
  }

  // Expects that the second process began at the last checkpoint, no earlier
  // than at `known`, and that no process restored a checkpoint after it.
  void ExpectOneRestartFrom(Generation known) {
    constexpr std::string_view kMark = "going on from ";
    const std::string log = Log();
    ASSERT_EQ(Count(log, std::string(kMark)), 1) << log;
    const size_t at = log.find(kMark) + kMark.size();
    const auto restored =
        ParseGenerationName(log.substr(at, GenerationName(known).size()));
    ASSERT_TRUE(restored) << log;
    EXPECT_GE(*restored, known);
    EXPECT_THAT(log.substr(at), HasSubstr(StrCat("running from step ",
                                                 restored->step, " on ")));
  }

  void ExpectBitIdenticalToAlone() {
    ASSERT_OK_AND_ASSIGN(const Manifest last, LastManifest(checkpoints()));
    const Manifest& alone = *Alone(job_path_);
    EXPECT_EQ(alone.generation.step, kSteps);
    EXPECT_EQ(last.generation.step, kSteps);
    EXPECT_THAT(DifferingTensors(last, alone), IsEmpty());
  }

  std::string job_path_;
  std::unique_ptr<Process> agent_;
};

TEST_F(EndToEndTest, AKilledTrainingProcessGoesOnFromItsLastGeneration) {
  const auto local = StartLocal({job_path_});
  Generation before;
  ASSERT_NO_FATAL_FAILURE(WaitForGeneration(&before));
  const pid_t worker = WorkerPids().front();
  kill(worker, SIGKILL);
  EXPECT_EQ(local->Wait(kJobPatience_s), 0) << local->errors() << Log();
  EXPECT_FALSE(IsAlive(worker));
  const nlohmann::json job = Summary()["jobs"][0];
  EXPECT_EQ(job["state"], "finished");
  EXPECT_EQ(job["steps"], kSteps);
  EXPECT_EQ(job["final_generation"]["step"], kSteps);
  ExpectOneRestartFrom(before);
  ExpectBitIdenticalToAlone();
}

TEST_F(EndToEndTest, AKilledCoordinatorLeavesTheWorkerItsLeaseAndGoesOn) {
  ASSERT_NO_FATAL_FAILURE(StartAllAndSubmit());
  Generation before;
  ASSERT_NO_FATAL_FAILURE(WaitForGeneration(&before));
  const std::vector<pid_t> workers = WorkerPids();
  ASSERT_THAT(Log(), Not(HasSubstr("paused after step")));
  KillCoordinator();

  ASSERT_TRUE(LogSays(": lease ended")) << Log();
  const uint64_t paused_at = NumberAfter(Log(), "paused after step ");
  EXPECT_GT(paused_at, before.step);
  ASSERT_LT(paused_at, kSteps) << "too fast to be paused";
  EXPECT_TRUE(
      LogSays(StrCat("coordinator ", endpoint_, " does not answer; start it")))
      << Log();
  EXPECT_THAT(ProcessesWith(checkpoints()), ElementsAreArray(workers));

  ASSERT_NO_FATAL_FAILURE(StartCoordinator());
  ExpectFinished();
  // The same process went on.
  EXPECT_EQ(Count(Log(), "going on from "), 0) << Log();
  EXPECT_THAT(Log(), HasSubstr(StrCat("running from step ", paused_at)));
  ExpectBitIdenticalToAlone();
}

TEST_F(EndToEndTest, AKilledAgentLeavesNoOrphanAndTheNextOneGoesOn) {
  ASSERT_NO_FATAL_FAILURE(StartAllAndSubmit());
  Generation before;
  ASSERT_NO_FATAL_FAILURE(WaitForGeneration(&before));
  const std::vector<pid_t> workers = WorkerPids();
  agent_->Signal(SIGKILL);
  EXPECT_EQ(agent_->Wait(), -SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !IsAlive(workers.front()); }, 5));
  EXPECT_THAT(ProcessesWith(checkpoints()), IsEmpty());

  agent_ = StartAgent();
  ExpectFinished();
  ExpectOneRestartFrom(before);
  ExpectBitIdenticalToAlone();
  EXPECT_TRUE(Eventually([&] { return ProcessesWith(checkpoints()).empty(); }));
}

// The driver lists the first of the two accelerators as a GPU, but no program
// can use it.
TEST_F(EndToEndTest, AJobThatCantUseAnAcceleratorGoesOnElsewhere) {
  Write("cluster.toml",
        StrCat(
            "[scheduling]\nround_duration_s = 4\nlease_duration_s = ", kLease_s,
            "\n[[server]]\nname = \"here\"\n"
            "[[server.accelerator]]\ntype = \"fast\"\ndevice = "
            "\"cuda:0\"\n[[server.accelerator]]\ntype = \"fast\"\n"));
  setenv("LD_LIBRARY_PATH", GAVEL_NVML_STUB_DIR, 1);
  StartAllAndSubmit();
  unsetenv("LD_LIBRARY_PATH");
  ExpectFinished();
  EXPECT_THAT(Log(), HasSubstr("can't take the leased accelerator"));
  const auto accelerators = Json({"nodes"})[0]["accelerators"];
  ASSERT_EQ(accelerators.size(), 2);
  // The accelerator is lost only after two jobs could not use it, so other jobs
  // may try it.
  EXPECT_EQ(accelerators[0]["state"], "idle");
  EXPECT_EQ(accelerators[0]["memory_bytes"], 16ULL << 30);
  EXPECT_EQ(accelerators[1]["state"], "idle");
  ExpectBitIdenticalToAlone();
}

}  // namespace
}  // namespace gavel::testing
