// Tests how a worker's process ends, with real processes under a fake
// coordinator.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "runtime/checkpoint/generation_store.h"
#include "tests/iterator/training.h"
#include "tests/iterator/worker_process.h"
#include "tests/support/coordinator_thread.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;

class SessionProcess : public Test {
 protected:
  WorkerProcess Start(const std::string& coordinator, int incarnation,
                      const std::string& evaluate_after = "0",
                      const WorkerProcess::Variables& more = {}) {
    const std::string folder =
        folder_.path() + "/" + std::to_string(incarnation);
    fs::create_directory(folder);
    WorkerProcess::Variables variables = {
        {"EVALUATE_AFTER", evaluate_after},
        {"GAVEL_WORKER_COORDINATOR", coordinator},
        {"GAVEL_JOB", "1"},
        {"GAVEL_INCARNATION", std::to_string(incarnation)},
        {"GAVEL_RUN_DIRECTORY", folder_.path() + "/run"},
        {"GAVEL_CHECKPOINT_DIRECTORY", checkpoints_},
        {"GAVEL_CHECKPOINT_INTERVAL_STEPS", "4"}};
    variables.insert(variables.end(), more.begin(), more.end());
    return WorkerProcess(folder, variables);
  }
  // Waits until the worker has reported this many steps.
  bool WaitForSteps(uint64_t steps) {
    return coordinator_.Wait([&] {
      const auto reports = coordinator_.Heard<StepReport>();
      return !reports.empty() && reports.back().progress.steps_done >= steps;
    });
  }
  // Expects that a second incarnation ends as if there had never been a first.
  void ExpectTheRestIsTrained() {
    coordinator_.Grant(TestSlot("slot-b"));
    WorkerProcess second = Start(coordinator_.endpoint(), 2);
    EXPECT_EQ(second.Wait(), 0) << second.Output();
    EXPECT_THAT(second.Output(), HasSubstr("going on from generation-"));
    EXPECT_EQ(second.Weights(), Uninterrupted().weights);
  }

  Generation Latest() const {
    auto store = GenerationStore::Open(checkpoints_);
    if (!store.ok()) return {};
    return store->LatestGeneration().value_or(Generation());
  }
  // Parks `worker`, and stops it while it writes the state with which it was
  // parked. Tries again when that write was already over.
  bool StopInTheParkedWrite(const WorkerProcess& worker) {
    for (int i = 0; i < 5; ++i) {
      const auto released = [&] { return coordinator_.Heard<LeaseReleased>(); };
      const size_t before = released().size();
      coordinator_.Pause(PauseTier::kPark);
      if (!coordinator_.Wait([&] { return released().size() > before; })) break;
      worker.Signal(SIGSTOP);
      const uint64_t step = released().back().progress.steps_done;
      if (Latest().step < step) return true;
      worker.Signal(SIGCONT);
      coordinator_.Grant(TestSlot("slot-a"), kShortLease_s);
      if (!WaitForSteps(step + 1)) break;
    }
    return false;
  }
  // The first incarnation wakes after its lease has ended and a second one has
  // finished the training. Expects that it changes nothing.
  void ExpectTheFirstComesTooLate(WorkerProcess& first) {
    std::this_thread::sleep_for(
        std::chrono::duration<double>(kShortLease_s + 0.2));
    ExpectTheRestIsTrained();
    const Generation result = Latest();
    const size_t requests = coordinator_.Heard<LeaseRequest>().size();
    first.Signal(SIGCONT);
    // The rejection comes only after the first incarnation has asked for a
    // lease, when all its pending writes have been done or refused. A process
    // that was stopped in the midst of a commit ends by itself, because its
    // training is not kept any more.
    EXPECT_TRUE(coordinator_.Wait([&] {
      return coordinator_.Heard<LeaseRequest>().size() > requests ||
             first.Output().find("atexit") != std::string::npos;
    }));
    coordinator_.Reject("another incarnation runs");
    EXPECT_NE(first.Wait(), 0);
    EXPECT_EQ(Latest(), result);
    auto restored = GenerationStore::Open(checkpoints_)->Restore();
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(restored->generation, result);
    EXPECT_TRUE(restored->notes.empty());
  }

  static constexpr double kShortLease_s = 1;

  TemporaryFolder folder_;
  std::string checkpoints_ = folder_.path() + "/checkpoints";
  CoordinatorThread coordinator_;
};

TEST_F(SessionProcess, AStepWithoutMemoryIsToldBeforeTheProcessEnds) {
  coordinator_.Grant(TestSlot("slot-a"));
  WorkerProcess worker =
      Start(coordinator_.endpoint(), 1, "0", {{"OUT_OF_MEMORY_IN", "6"}});
  EXPECT_EQ(worker.Wait(), 1) << worker.Output();
  ASSERT_TRUE(coordinator_.Wait(
      [&] { return !coordinator_.Heard<WorkerFinished>().empty(); }));
  const WorkerFinished finished = coordinator_.Heard<WorkerFinished>().back();
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.detail,
              HasSubstr("out of memory after step 5: a step: CUDA out of "
                        "memory. Tried to allocate 2 GiB"));
  EXPECT_EQ(finished.progress.last_generation.step, 4u);
  ExpectTheRestIsTrained();
}

// The worker leaves its exit code in a file, from which the agent learns it
// even when the coordinator does not.
TEST_F(SessionProcess, LeavesItsLastWordForTheAgent) {
  const std::string word = folder_.path() + "/end";
  const auto written = [&] {
    std::ifstream file(word);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  std::ofstream(word) << "of another";
  coordinator_.Grant(TestSlot("slot-a"));
  WorkerProcess first =
      Start(coordinator_.endpoint(), 1, "0", {{"GAVEL_END_FILE", word}});
  ASSERT_TRUE(WaitForSteps(1)) << first.Output();
  EXPECT_EQ(written(), "-1");  // it has begun
  coordinator_.Pause(PauseTier::kEvict);
  EXPECT_EQ(first.Wait(), 75);
  EXPECT_EQ(written(), "75");
  coordinator_.Grant(TestSlot("slot-b"));
  WorkerProcess second =
      Start(coordinator_.endpoint(), 2, "0", {{"GAVEL_END_FILE", word}});
  EXPECT_EQ(second.Wait(), 0) << second.Output();
  EXPECT_EQ(written(), "0");
}

// The process aborts as it would without the runtime.
TEST_F(SessionProcess, WhateverElseAStepThrowsAbortsTheProcess) {
  coordinator_.Grant(TestSlot("slot-a"));
  WorkerProcess worker =
      Start(coordinator_.endpoint(), 1, "0", {{"THROWS_IN", "6"}});
  EXPECT_EQ(worker.Wait(), 128 + SIGABRT) << worker.Output();
  EXPECT_THAT(worker.Output(), HasSubstr("no such operator"));
  EXPECT_TRUE(coordinator_.Heard<WorkerFinished>().empty());
}

TEST_F(SessionProcess, AnEvictedWorkerLeavesInsideTheBoundary) {
  coordinator_.Grant(TestSlot("slot-a"));
  WorkerProcess worker = Start(coordinator_.endpoint(), 1);
  ASSERT_TRUE(WaitForSteps(1)) << worker.Output();
  coordinator_.Pause(PauseTier::kEvict);
  EXPECT_EQ(worker.Wait(), 75);
  EXPECT_THAT(worker.Output(), HasSubstr("a line that is not flushed;"));
  EXPECT_THAT(worker.Output(), Not(HasSubstr("after the loop")));
  EXPECT_THAT(worker.Output(), Not(HasSubstr("atexit")));
  ASSERT_EQ(coordinator_.Heard<LeaseReleased>().size(), 1u);
  const auto finished = coordinator_.Heard<WorkerFinished>();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].exit_code, 75);
  EXPECT_EQ(finished[0].progress.last_generation.step,
            finished[0].progress.steps_done);
  ExpectTheRestIsTrained();
}

TEST_F(SessionProcess, AWorkerIsEvictedInAnEvaluationAndLosesNoStep) {
  coordinator_.Grant(TestSlot("slot-a"));
  WorkerProcess worker = Start(coordinator_.endpoint(), 1, "6");
  ASSERT_TRUE(WaitForSteps(6)) << worker.Output();
  coordinator_.Pause(PauseTier::kEvict);
  EXPECT_EQ(worker.Wait(), 75);
  const auto finished = coordinator_.Heard<WorkerFinished>();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].progress.last_generation.step, 6u);
  ExpectTheRestIsTrained();
}

TEST_F(SessionProcess, SigtermEvicts) {
  coordinator_.Grant(TestSlot("slot-a"));
  WorkerProcess worker = Start(coordinator_.endpoint(), 1);
  ASSERT_TRUE(WaitForSteps(1)) << worker.Output();
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.Wait(), 75);
  EXPECT_THAT(worker.Output(), Not(HasSubstr("after the loop")));
  ExpectTheRestIsTrained();
}

TEST_F(SessionProcess, SigtermEvictsAWorkerThatWaits) {
  WorkerProcess worker = Start(coordinator_.endpoint(), 1);
  ASSERT_TRUE(coordinator_.Wait(
      [&] { return !coordinator_.Heard<LeaseRequest>().empty(); }));
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.Wait(), 75) << worker.Output();
}

TEST_F(SessionProcess, AParkedWriteIsOvertakenAfterItsLeaseEnded) {
  coordinator_.Grant(TestSlot("slot-a"), kShortLease_s);
  WorkerProcess first = Start(coordinator_.endpoint(), 1);
  ASSERT_TRUE(WaitForSteps(5)) << first.Output();
  ASSERT_TRUE(StopInTheParkedWrite(first)) << first.Output();
  ExpectTheFirstComesTooLate(first);
}

TEST_F(SessionProcess, AStepIsOvertakenAfterItsLeaseEnded) {
  coordinator_.Grant(TestSlot("slot-a"), kShortLease_s);
  WorkerProcess first = Start(coordinator_.endpoint(), 1);
  ASSERT_TRUE(WaitForSteps(5)) << first.Output();
  first.Signal(SIGSTOP);
  ExpectTheFirstComesTooLate(first);
  EXPECT_THAT(first.Output(),
              AnyOf(HasSubstr("lease ended"), HasSubstr("is not committed")));
}

TEST_F(SessionProcess, ACancelledJobEndsAtOnce) {
  coordinator_.Grant(TestSlot("slot-a"));
  WorkerProcess worker = Start(coordinator_.endpoint(), 1);
  ASSERT_TRUE(WaitForSteps(1)) << worker.Output();
  coordinator_.Pause(PauseTier::kStop);
  EXPECT_EQ(worker.Wait(), 75);
  const auto finished = coordinator_.Heard<WorkerFinished>();
  ASSERT_EQ(finished.size(), 1u);
  // The worker writes no checkpoint on the way out, so the last one is a
  // periodic one.
  EXPECT_EQ(finished[0].progress.last_generation.step % 4, 0u);
}

TEST_F(SessionProcess, ARejectedWorkerLeavesItsCheckpointsAsTheyAre) {
  coordinator_.Grant(TestSlot("slot-a"));
  WorkerProcess worker = Start(coordinator_.endpoint(), 1);
  ASSERT_TRUE(WaitForSteps(1)) << worker.Output();
  coordinator_.Reject("another incarnation runs");
  EXPECT_EQ(worker.Wait(), 75);
  EXPECT_THAT(worker.Output(), HasSubstr("another incarnation runs"));
  const auto finished = coordinator_.Heard<WorkerFinished>();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].progress.last_generation.step % 4, 0u);
}

TEST_F(SessionProcess, SaysThatNobodyListensAtTheCoordinatorsAddress) {
  WorkerProcess worker = Start("127.0.0.1:1", 1);
  EXPECT_TRUE(coordinator_.Wait([&] {
    return worker.Output().find("coordinator 127.0.0.1:1 does not answer") !=
           std::string::npos;
  })) << worker.Output();
  EXPECT_THAT(worker.Output(), HasSubstr("GAVEL_WORKER_COORDINATOR"));
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.Wait(), 75);
}

}  // namespace
}  // namespace gavel::testing
