// Processes of a hostile job, and messages of a process with a worker's key,
// harm no other job.
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/codec.h"
#include "core/text.h"
#include "tests/reliability/hostile_tenant_fixture.h"
#include "tests/support/eventually.h"

namespace gavel::testing {
namespace {

class HostileJobsTest : public HostileTenantTest {
 protected:
  // Starts a process of Mallory's that only sleeps, and a client that sends
  // messages in its name.
  void StartWorker() {
    worker_ = {SubmitCommand("mallory-1", {"/bin/sleep", "300"}), 0, 1};
    voice_ = VoiceOf("here", worker_);
    ASSERT_NE(voice_, nullptr);
    ASSERT_TRUE(voice_->Hello());
  }
  // Whether its agent takes the job's first process as running.
  bool Runs(JobId job) const {
    return std::filesystem::exists(WorkersKeyFile("here", {job, 0, 1}));
  }
  // Numbers that no worker can have measured, and invalid names.
  static Progress ExtremeProgress(uint64_t number) {
    Progress progress;
    progress.steps_done = number % 2 == 0 ? kMost : number;
    progress.last_generation = {kMost, kMost};
    for (double* figure : {&progress.throughput_steps_per_s, &progress.window_s,
                           &progress.pausing_s}) {
      *figure = number % 3 == 0 ? std::numeric_limits<double>::infinity()
                                : (number % 3 == 1 ? std::nan("") : 1e308);
    }
    progress.pauses = progress.moves = progress.state_bytes = kMost;
    progress.device_bytes = progress.host_bytes = progress.boundaries = kMost;
    for (int i = 0; i < 200; ++i) {
      progress.scalars.emplace_back("\x1b[2J" + std::string(100, '\xff'),
                                    std::nan(""));
    }
    return progress;
  }

  WorkerKey worker_;
  std::unique_ptr<WorkerVoice> voice_;
};

TEST_F(HostileJobsTest, AWorkerThatSaysAnythingHarmsNobody) {
  StartCluster();
  StartWorker();
  const auto grant = voice_->AskForLease(0, false);
  ASSERT_TRUE(grant.has_value());
  const WorkerKey victim{
      JobId(QueueRow(endpoint(), "victim")["id"].get<uint64_t>()), 0, 1};
  for (uint64_t i = 0; i < 500; ++i) {
    voice_->Send(StepReport{worker_, i % 2 == 0 ? grant->epoch : kMost,
                            ExtremeProgress(i)});
    voice_->Send(BytesMoved{worker_, {}, kMost - 500 + i});
    voice_->Send(LeaseReleased{worker_, grant->epoch + 1 + i,
                               ExtremeProgress(i),
                               static_cast<ReleaseCause>(i % 4)});
  }
  // Messages in the name of another worker, and messages that only an agent may
  // send. These are few, because the connection is cut after some.
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    voice_->Send(WorkerHello{victim, {}, 1, {}, true});
    voice_->Send(LeaseReleased{victim, epoch, {}});
    voice_->Send(WorkerFinished{victim, epoch, 0, {}, "done"});
    WorkerExited exited;
    exited.server = "here";
    exited.worker = victim;
    voice_->Send(exited);
    AgentHello hello;
    hello.server = "here";
    hello.incarnation = kMost;
    voice_->Send(hello);
  }
  // A journal position that does not exist.
  voice_->Send(WorkerHello{worker_, {kMost, kMost}, 1, {}, true});
  voice_->Send(
      WorkerFinished{worker_, grant->epoch, -1, ExtremeProgress(1),
                     "out of memory\x1b[2J" + std::string(20'000, 'x')});
  EXPECT_THAT(RunAsMallory({"why", "mallory-1"}).output,
              Not(HasSubstr("\x1b[2J")));
  ExpectOthersUnharmed();
}

TEST_F(HostileJobsTest, RenewalsAndLeasesWithoutAPauseHarmNobody) {
  StartCluster();
  StartWorker();
  auto grant = voice_->AskForLease(0, false);
  ASSERT_TRUE(grant.has_value());
  const uint64_t nonce = 1000;
  Flood(endpoint(), keys().Keys(WorkersKeyFile("here", worker_)), 1, true)
      .Run(2, [&](size_t number) {
        LeaseRequest request;
        request.worker = worker_;
        request.epoch = grant->epoch;
        request.nonce = nonce + number;
        request.holding = true;
        return std::vector<std::string>{EncodeMessage(request).value()};
      });
  voice_->set_nonce(10'000'000);
  const uint64_t before = BytesUnder(state());
  int begun = 0;
  const double end = Seconds() + 5;
  while (Seconds() < end) {
    const auto next = voice_->AskForLease(kMost - 1, false);
    if (!next.has_value()) continue;
    ++begun;
    voice_->Send(LeaseReleased{worker_, next->epoch, {}});
  }
  std::printf("%d leases began\n", begun);
  EXPECT_GT(begun, 1);
  EXPECT_LE(begun, 110);  // docs/security.md: 100 within ten seconds
  EXPECT_LT(BytesUnder(state()) - before, 4U << 20);
  ExpectOthersUnharmed();
}

TEST_F(HostileJobsTest, OutputWithoutEndFillsNoDisk) {
  StartCluster({}, {"--log-mib", "8", "--logs-mib", "16"});
  // Each job writes as much output as is kept of one worker.
  std::vector<JobId> jobs;
  for (int i = 0; i < 12; ++i) {
    jobs.push_back(SubmitCommand(StrCat("yes-", i),
                                 {"/bin/sh", "-c", "yes | head -c 8000000"}));
  }
  const auto follow = Start({"logs", "-f", "yes-0", "--coordinator", endpoint(),
                             "--key", keys().KeyFile(kMallory)});
  // The limit of all logs (16 MiB), the output that was not pruned yet (8 MiB),
  // and the logs of the two running jobs (8 MiB each).
  constexpr uint64_t kLogsMax = (16 + 8 + 2 * 8) << 20;
  uint64_t most = 0;
  const bool all_ended = Eventually([&] {
    most = std::max(most, BytesUnder(agent_state() + "/logs"));
    return QueueRow(endpoint(), "yes-11")["state"] == "CD";
  });
  EXPECT_TRUE(all_ended);
  std::printf("logs took %.1f MiB at most\n",
              static_cast<double>(most) / (1 << 20));
  EXPECT_LT(most, kLogsMax);
  EXPECT_GT(most, uint64_t{8} << 20);
  follow->Signal(SIGKILL);
  CancelAll(jobs);
  ExpectOthersUnharmed();
}

// Starts children in sessions of their own that ignore signals. Three of them
// replace themselves again and again, for as long as the file "go" exists.
constexpr char kRabbit[] = R"(trap '' TERM INT HUP QUIT PIPE
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  setsid sh -c "trap '' TERM; exec sleep 30" &
done
cat > again.sh <<'END'
trap '' TERM
[ -e go ] || exit 0
sleep 0.02
setsid sh again.sh </dev/null >/dev/null 2>&1 &
END
for i in 1 2 3; do setsid sh again.sh & done
while :; do sleep 1; done
)";

TEST_F(HostileJobsTest, ProcessesThatDoNotGoKeepNoAccelerator) {
  StartCluster({"--stop-grace", "1"});
  const std::string hers = keys().JobsOf(kMallory);
  std::ofstream(hers + "/go") << "on";
  const JobId job = SubmitCommand("rabbit", {"/bin/sh", "-c", kRabbit},
                                  "pause_grace_s = 1\n");
  ASSERT_TRUE(
      Eventually([&] { return std::filesystem::exists(hers + "/again.sh"); }));
  EXPECT_TRUE(Runs(job));
  const double asked = Seconds();
  CancelAll({job});
  EXPECT_TRUE(Eventually([&] { return !Runs(job); })) << coordinator().errors();
  std::printf("the accelerator was free after %.1f s\n", Seconds() - asked);
  std::filesystem::remove(hers + "/go");
  ExpectOthersUnharmed();
}

// An agent knows the processes that a worker started by a mark in their
// environment, which the user can read and others may guess.
TEST_F(HostileJobsTest, ACopiedMarkKeepsNoAcceleratorAndKillsNobody) {
  StartCluster();
  ClusterTest::Submit("short", {"--steps", "150", "--step-ms", "20"});
  ASSERT_TRUE(Logs("short", " take "));
  const std::string environment =
      ReadText(StrCat("/proc/", LastPid("short", "take"), "/environ"));
  const std::string name = "GAVEL_PROCESS=";
  const size_t at = environment.find(name) + name.size();
  const std::string mark =
      environment.substr(at, environment.find('\0', at) - at);
  ASSERT_FALSE(mark.empty());
  const JobId job =
      SubmitCommand("copy", {"/usr/bin/env", StrCat(name, mark), "/bin/sh",
                             "-c", "env; exec sleep 300"});
  EXPECT_TRUE(Eventually([&] { return Runs(job); }));
  // "short" is complete only after its agent has reported its accelerator free.
  EXPECT_TRUE(ReachesState(endpoint(), "short", "CD"));
  if (geteuid() == 0) {
    EXPECT_TRUE(Runs(job));
  }
  CancelAll({job});
  ExpectOthersUnharmed();
}

}  // namespace
}  // namespace gavel::testing
