// Sessions whose state is parked in the copy that their checkpoint is written
// from: whatever comes between, the result is that of a run without pauses.

#include <chrono>
#include <filesystem>
#include <thread>

#include "gavel/session.h"
#include "tests/iterator/session_fixture.h"
#include "tests/iterator/training.h"
#include "tests/support/coordinator_thread.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;

class SessionPark : public SessionTest {
 protected:
  SessionPark() {
    coordinator_.Grant(TestSlot("slot-a"));
    options_ = Under(coordinator_.endpoint());
  }

  // Asks for a pause and a lease right after it, and waits for the word to
  // arrive: it is heard at the next boundary.
  void PauseAtTheNextBoundary() {
    coordinator_.PauseThenGrant(TestSlot("slot-a"));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }

  void ExpectTheResultOfAnUninterruptedRun(const Outcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
    EXPECT_EQ(outcome.losses, Uninterrupted().losses);
    EXPECT_EQ(outcome.weights, Uninterrupted().weights);
    EXPECT_FALSE(log_.Contain("parking")) << log_.Text();
  }

  std::string checkpoints_ = folder_.path() + "/checkpoints";
  CoordinatorThread coordinator_;
  SessionOptions options_;
};

TEST_F(SessionPark, PausesAfterEveryStepWhileTheLastCopyIsWritten) {
  TrainingOptions training;
  training.after_step = [&](Session&) { PauseAtTheNextBoundary(); };
  ExpectTheResultOfAnUninterruptedRun(Train(options_, training));
  EXPECT_GE(log_.Count("paused after step"), 20);
}

TEST_F(SessionPark, AWriteFailsWhileTheJobIsParked) {
  TrainingOptions training;
  const std::string away = folder_.path() + "/away";
  const auto generations = [](const std::string& folder) {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
      count += fs::exists(entry.path() / "manifest.json");
    }
    return count;
  };
  training.after_step = [&](Session& session) {
    if (session.steps_done() == 5 || session.steps_done() == 9) {
      PauseAtTheNextBoundary();
    }
    if (session.steps_done() == 9) {
      // The first pause's is written by then.
      ASSERT_TRUE(
          coordinator_.Wait([&] { return generations(checkpoints_) == 1; }));
      fs::rename(checkpoints_, away);
    }
    if (session.steps_done() == 11) {
      ASSERT_TRUE(coordinator_.Wait(
          [&] { return log_.Contain("no checkpoint this time"); }));
      // The generation of the first pause is as it was.
      EXPECT_EQ(generations(away), 1);
      fs::remove_all(checkpoints_);
      fs::rename(away, checkpoints_);
    }
  };
  ExpectTheResultOfAnUninterruptedRun(Train(options_, training));
  EXPECT_EQ(log_.Count("no checkpoint this time"), 1) << log_.Text();
}

TEST_F(SessionPark, ALeaseEndsWhileACheckpointIsWritten) {
  coordinator_.Grant(TestSlot("slot-a"), /*duration_s=*/1);
  options_.checkpoint_interval_steps = 1;
  TrainingOptions training;
  training.after_step = [&](Session& session) {
    if (session.steps_done() != 6) return;
    // Nobody renews it from here on.
    coordinator_.Pause(PauseTier::kPark);
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    coordinator_.Grant(TestSlot("slot-a"));
  };
  ExpectTheResultOfAnUninterruptedRun(Train(options_, training));
  EXPECT_GE(log_.Count("paused after step"), 1) << log_.Text();
}

}  // namespace
}  // namespace gavel::testing
