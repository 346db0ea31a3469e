// Sessions under a coordinator, which is a fake one in this process. The tests
// that end the process are in session_process_test.cc.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "gavel/session.h"
#include "runtime/device/accelerator_lock.h"
#include "tests/iterator/session_fixture.h"
#include "tests/iterator/training.h"
#include "tests/support/coordinator_thread.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

class SessionLease : public SessionTest {
 protected:
  bool IsLocked(const std::string& uuid) {
    return !AcceleratorLock::Acquire(folder_.path() + "/run", uuid,
                                     LockSlots::kOne, 0)
                .ok();
  }
};

TEST_F(SessionLease, TrainsUnderALeaseAndReports) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  TrainingOptions training;
  training.after_step = [&](Session&) {
    EXPECT_TRUE(IsLocked("slot-a"));
    Sleep(100);  // long enough for reports
  };
  const Outcome outcome = Train(Under(coordinator.endpoint()), training);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
  EXPECT_FALSE(IsLocked("slot-a"));

  const auto hellos = coordinator.Heard<WorkerHello>();
  ASSERT_FALSE(hellos.empty());
  EXPECT_EQ(hellos[0].pid, getpid());
  EXPECT_EQ(hellos[0].worker.job, JobId(1));
  EXPECT_TRUE(hellos.back().ready);
  const auto reports = coordinator.Heard<StepReport>();
  ASSERT_FALSE(reports.empty());
  const Progress& last = reports.back().progress;
  EXPECT_GT(last.throughput_steps_per_s, 1);
  EXPECT_LT(last.throughput_steps_per_s, 10);
  // The learning rate is reported without being asked for.
  std::vector<std::string> names;
  for (const auto& [name, value] : last.scalars) names.push_back(name);
  EXPECT_THAT(names, UnorderedElementsAre("loss", "lr"));
  ASSERT_TRUE(coordinator.Wait(
      [&] { return !coordinator.Heard<WorkerFinished>().empty(); }));
  const auto finished = coordinator.Heard<WorkerFinished>().back();
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_EQ(finished.progress.steps_done, 24u);
  EXPECT_EQ(finished.progress.last_generation, (Generation{1, 24}));
}

TEST_F(SessionLease, HelloGoesOutBeforeTheProgramLoadsItsData) {
  CoordinatorThread coordinator;
  const auto session = Session::Create(Under(coordinator.endpoint()));
  ASSERT_TRUE(coordinator.Wait(
      [&] { return !coordinator.Heard<WorkerHello>().empty(); }));
  const WorkerHello first = coordinator.Heard<WorkerHello>().front();
  EXPECT_FALSE(first.ready);
  EXPECT_EQ(first.pid, getpid());
  EXPECT_TRUE(coordinator.Heard<LeaseRequest>().empty());
  EXPECT_EQ(session->Finish(), 0);
  ASSERT_TRUE(coordinator.Wait(
      [&] { return !coordinator.Heard<WorkerFinished>().empty(); }));
}

TEST_F(SessionLease, TheLastWordWaitsForAConnectionThatIsRenewed) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  TrainingOptions training;
  int steps = 0;
  training.after_step = [&](Session&) {
    if (++steps < 24) return;
    coordinator.Cut();
    Sleep(20);
  };
  const Outcome outcome = Train(Under(coordinator.endpoint()), training);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(steps, 24);
  ASSERT_TRUE(coordinator.Wait(
      [&] { return !coordinator.Heard<WorkerFinished>().empty(); }));
  EXPECT_EQ(coordinator.Heard<WorkerFinished>().back().progress.steps_done,
            24u);
}

TEST_F(SessionLease, PausesInPlaceAndGoesOnOnAnotherSlot) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  TrainingOptions training;
  bool asked = false;
  training.after_step = [&](Session& session) {
    if (session.steps_done() == 7) {
      coordinator.PauseThenGrant(TestSlot("slot-b"));
      asked = true;
    }
    const bool moved = !coordinator.Heard<LeaseReleased>().empty();
    EXPECT_EQ(IsLocked("slot-a"), !moved);
    EXPECT_EQ(IsLocked("slot-b"), moved);
    if (asked && !moved) Sleep(50);
  };
  const Outcome outcome = Train(Under(coordinator.endpoint()), training);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.losses, Uninterrupted().losses);
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
  ASSERT_TRUE(coordinator.Wait(
      [&] { return !coordinator.Heard<WorkerFinished>().empty(); }));
  const Progress end = coordinator.Heard<WorkerFinished>().back().progress;
  EXPECT_EQ(end.pauses, 1u);
  EXPECT_EQ(end.moves, 1u);
  EXPECT_GT(end.pausing_s, 0);
  const auto released = coordinator.Heard<LeaseReleased>();
  EXPECT_EQ(released[0].epoch, 1u);
  // The checkpoint is committed in the background, when the accelerator is
  // free.
  const uint64_t paused_at = released[0].progress.steps_done;
  EXPECT_TRUE(log_.Contain("paused after step " + std::to_string(paused_at)));
}

TEST_F(SessionLease, AJobDoesNotTakeTheCheckpointsOfAnother) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  SessionOptions options = Under(coordinator.endpoint());
  options.cluster = "5eed";
  options.job_name = "lm";
  options.steps_total = 10;
  ASSERT_EQ(Train(options).exit_code, 0) << log_.Text();
  options.steps_total = 0;
  options.job = 2;
  options.job_name = "digits";
  const Outcome other = Train(options);
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_TRUE(other.losses.empty());
  EXPECT_TRUE(
      log_.Contain("they are of job 'lm' (1 of cluster 5eed)"
                   ", not of job 'digits' (2 of cluster 5eed)"))
      << log_.Text();
}

// The release reports the memory in which the state is during the pause.
TEST_F(SessionLease, TellsTheMemoryOfAKeptAndOfAParkedJob) {
  for (const PauseTier tier : {PauseTier::kKeep, PauseTier::kPark}) {
    SCOPED_TRACE(static_cast<int>(tier));
    const TemporaryFolder folder;
    CoordinatorThread coordinator;
    coordinator.Grant(TestSlot("slot-a"));
    TrainingOptions training;
    bool asked = false;
    training.after_step = [&](Session& session) {
      if (session.steps_done() == 7) {
        coordinator.PauseThenGrant(TestSlot("slot-a"), tier);
        asked = true;
      }
      if (asked && coordinator.Heard<LeaseReleased>().empty()) Sleep(50);
    };
    SessionOptions options = Under(coordinator.endpoint());
    options.checkpoint_directory = folder.path();
    const Outcome outcome = Train(options, training);
    EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
    EXPECT_EQ(outcome.losses, Uninterrupted().losses);
    EXPECT_EQ(outcome.weights, Uninterrupted().weights);
    const auto released = coordinator.Heard<LeaseReleased>();
    ASSERT_FALSE(released.empty());
    const Progress& paused = released[0].progress;
    EXPECT_GT(paused.state_bytes, 0u);
    const bool kept = tier == PauseTier::kKeep;
    // An accelerator gives out its memory in larger pieces.
    const uint64_t kept_bytes = kept ? paused.state_bytes : 0u;
    EXPECT_GE(paused.device_bytes, kept_bytes);
    EXPECT_LE(paused.device_bytes,
              OnAccelerator() && kept ? uint64_t{8} << 20 : kept_bytes);
    EXPECT_GE(paused.host_bytes, kept ? 0u : paused.state_bytes);
    EXPECT_FALSE(IsLocked("slot-a"));
  }
}

TEST_F(SessionLease, ALeaseEndsWithoutItsCoordinatorAndTrainingGoesOnLater) {
  auto coordinator = std::make_unique<CoordinatorThread>();
  const std::string endpoint = coordinator->endpoint();
  coordinator->Grant(TestSlot("slot-a"), /*duration_s=*/1.5);
  std::thread restart;
  TrainingOptions training;
  bool seen_unavailable = false;
  training.after_step = [&](Session& session) {
    if (session.steps_done() == 3) {
      coordinator.reset();
      restart = std::thread([&] {
        while (!log_.Contain("lease ended") ||
               !log_.Contain("does not answer")) {
          Sleep(20);
        }
        seen_unavailable = session.status().code() == StatusCode::kUnavailable;
        EXPECT_FALSE(IsLocked("slot-a"));
        coordinator = std::make_unique<CoordinatorThread>(endpoint);
        coordinator->Grant(TestSlot("slot-a"));
        coordinator->Grant(TestSlot("slot-a"));  // at a higher epoch
      });
    }
    Sleep(log_.Contain("lease ended") ? 0 : 150);
  };
  const Outcome outcome = Train(Under(endpoint), training);
  restart.join();
  EXPECT_TRUE(seen_unavailable);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
  EXPECT_EQ(log_.Count(endpoint + " does not answer"), 1) << log_.Text();
  EXPECT_TRUE(log_.Contain("answers again"));
}

TEST_F(SessionLease, ALockHeldByAnotherIsReportedAndTheLeaseGivenBack) {
  auto other = AcceleratorLock::Acquire(folder_.path() + "/run", "slot-a",
                                        LockSlots::kOne, 0);
  ASSERT_TRUE(other.ok()) << other.status();
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  std::thread release([&] {
    EXPECT_TRUE(coordinator.Wait(
        [&] { return !coordinator.Heard<LeaseReleased>().empty(); }));
    other->Release();
    coordinator.Grant(TestSlot("slot-a"));
  });
  const Outcome outcome = Train(Under(coordinator.endpoint()));
  release.join();
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_TRUE(log_.Contain("can't take the leased accelerator"));
  EXPECT_TRUE(log_.Contain("slot-a"));
  EXPECT_TRUE(log_.Contain(std::to_string(getpid()))) << log_.Text();
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
}

// The partner on its slot has ended, and a renewal says so.
TEST_F(SessionLease, TakesTheThreadsThatARenewalTells) {
  if (OnAccelerator()) GTEST_SKIP() << "of CPU slots";
  CoordinatorThread coordinator;
  coordinator.Share(0);
  coordinator.Grant(TestSlot("slot-a"), 0.6);
  TrainingOptions training;
  training.epochs = 40;
  int64_t changed_after = 0;
  training.after_step = [&](Session& session) {
    if (session.steps_done() == 0) {
      EXPECT_EQ(at::get_num_threads(), 1);
    }
    coordinator.SetThreads(3);
    if (at::get_num_threads() == 3) return;
    changed_after = session.steps_done();
    Sleep(20);
  };
  const Outcome outcome = Train(Under(coordinator.endpoint()), training);
  at::set_num_threads(1);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_GT(changed_after, 0);
  EXPECT_LT(changed_after, 200);
  EXPECT_TRUE(log_.Contain("(cpu_slot, 1 thread)")) << log_.Text();
  EXPECT_EQ(log_.Count("3 threads from step "), 1) << log_.Text();
  EXPECT_FALSE(log_.Contain("paused after step")) << log_.Text();
}

TEST_F(SessionLease, WritesACheckpointWhenItIsAskedAndGoesOn) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  TrainingOptions training;
  const auto written = [&] {
    for (const StepReport& report : coordinator.Heard<StepReport>()) {
      const uint64_t step = report.progress.last_generation.step;
      if (step > 0 && step < 24) return true;
    }
    return false;
  };
  training.after_step = [&](Session& session) {
    if (session.steps_done() == 5) coordinator.WantCheckpoint();
    if (session.steps_done() >= 5 && !written()) Sleep(100);
  };
  const Outcome outcome = Train(Under(coordinator.endpoint()), training);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_TRUE(written()) << log_.Text();
  EXPECT_FALSE(log_.Contain("paused after step")) << log_.Text();
}

// Each job of a pair has a part of the slot's memory, as declared.
TEST_F(SessionLease, AStateThatExceedsItsPartOfASlotGivesTheLeaseBack) {
  if (OnAccelerator()) GTEST_SKIP() << "of CPU slots";
  CoordinatorThread coordinator;
  coordinator.Share(/*memory_limit_bytes=*/100);
  coordinator.Grant(TestSlot("slot-a"));
  std::thread alone([&] {
    EXPECT_TRUE(coordinator.Wait(
        [&] { return !coordinator.Heard<LeaseReleased>().empty(); }));
    coordinator.Share(0);
    coordinator.Grant(TestSlot("slot-a"));
  });
  const Outcome outcome = Train(Under(coordinator.endpoint()));
  alone.join();
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
  const auto released = coordinator.Heard<LeaseReleased>();
  ASSERT_FALSE(released.empty());
  EXPECT_EQ(released[0].cause, ReleaseCause::kOutOfMemory);
  EXPECT_TRUE(log_.Contain("of this slot it has 0.1 KiB beside another job"))
      << log_.Text();
}

TEST_F(SessionLease, ASlowDownFactorIsLabelled) {
  CoordinatorThread coordinator;
  AcceleratorInfo slot = TestSlot("slot-a");
  slot.slow_down_factor = 3;
  coordinator.Grant(slot);
  TrainingOptions training;
  training.after_step = [](Session&) { Sleep(10); };
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = Train(Under(coordinator.endpoint()), training);
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(24 * 30));
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
  EXPECT_EQ(log_.Count("DEMONSTRATION"), 1);
}

TEST_F(SessionLease, ADeviceThatIsNotThereGivesTheLeaseBack) {
  CoordinatorThread coordinator;
  AcceleratorInfo none = TestSlot("gpu-63");
  none.device = "cuda:63";
  coordinator.Grant(none);
  std::thread replace([&] {
    EXPECT_TRUE(coordinator.Wait(
        [&] { return !coordinator.Heard<LeaseReleased>().empty(); }));
    EXPECT_EQ(coordinator.Heard<LeaseReleased>().front().cause,
              ReleaseCause::kDeviceFailed);
    coordinator.Grant(TestSlot("slot-a"));
  });
  const Outcome outcome = Train(Under(coordinator.endpoint()));
  replace.join();
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_TRUE(log_.Contain("cuda:63"));
}

TEST_F(SessionLease, AJobWhoseStepsAreDoneNeedsNoLease) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  SessionOptions options = Under(coordinator.endpoint());
  options.steps_total = 5;
  EXPECT_EQ(Train(options).exit_code, 0);
  options.coordinator = "127.0.0.1:1";  // nobody
  const Outcome again = Train(options);
  EXPECT_EQ(again.exit_code, 0) << log_.Text();
  EXPECT_TRUE(again.finished);
  EXPECT_EQ(again.steps_done, 5);
}

TEST_F(SessionLease, AnAddressThatIsNoneEndsTheLoopAtOnce) {
  const Outcome outcome = Train(Under("nonsense"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.steps_done, 0);
  EXPECT_THAT(outcome.status.message(), HasSubstr("nonsense"));
}

TEST_F(SessionLease, AWorkerWithoutAnIdentityDoesNotTrain) {
  SessionOptions options = Under("127.0.0.1:1");
  options.job = 0;
  const Outcome outcome = Train(options);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.status.message(), HasSubstr("GAVEL_JOB"));
}

}  // namespace
}  // namespace gavel::testing
