// How a pause releases a device: callbacks, the batch of the step, memory that
// stays behind, and a device that other processes fill.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <chrono>
#include <thread>

#include "gavel/iterator.h"
#include "gavel/session.h"
#include "tests/iterator/training.h"
#include "tests/support/accelerator_test.h"
#include "tests/support/coordinator_thread.h"

namespace gavel::testing {
namespace {

class SessionRelease : public AcceleratorTest {
 protected:
  void SetUp() override {
    AcceleratorTest::SetUp();
    options_.coordinator = coordinator_.endpoint();
    options_.job = 1;
    options_.incarnation = 1;
    options_.run_directory = folder_.path() + "/run";
    options_.checkpoint_directory = folder_.path() + "/checkpoints";
    options_.log = log_.Sink();
  }
  // Trains with one pause after step 8. The next grant comes when `meanwhile`
  // is done.
  Outcome TrainWithPause(const std::function<void()>& meanwhile,
                         const std::string& next = "slot-a") {
    coordinator_.Grant(TestSlot("slot-a"));
    std::thread resume;
    training_.after_step = [&](Session& session) {
      if (session.steps_done() == 8) {
        coordinator_.Pause();
        resume = std::thread([&] {
          EXPECT_TRUE(coordinator_.Wait(
              [&] { return !coordinator_.Heard<LeaseReleased>().empty(); }));
          meanwhile();
          coordinator_.Grant(TestSlot(next));
        });
      }
      if (coordinator_.Heard<LeaseReleased>().empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    };
    const Outcome outcome = Train(options_, training_);
    resume.join();
    return outcome;
  }

  TemporaryFolder folder_;
  Lines log_;
  CoordinatorThread coordinator_;
  SessionOptions options_;
  TrainingOptions training_;
};

TEST_F(SessionRelease, NothingOfTheJobStaysAllocated) {
  int64_t reserved_bytes = -1;
  const Outcome outcome =
      TrainWithPause([&] { reserved_bytes = ReservedBytes(); });
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(reserved_bytes, 0);
  EXPECT_EQ(coordinator_.Heard<LeaseReleased>()[0].progress.device_bytes, 0u);
  EXPECT_FALSE(log_.Contain("in the way of the next job"));
}

// Batches have 4 MiB, and the pause comes in the middle of a step.
TEST_F(SessionRelease, TheBatchOfAStepLeavesTheDeviceToo) {
  coordinator_.Grant(TestSlot("slot-a"));
  const auto session = Session::Create(options_);
  at::Tensor sum = at::zeros({1});
  session->Track("sum", sum);
  const std::vector<at::Tensor> batches(4, at::ones({1 << 20}));
  int64_t reserved_bytes = -1;
  std::thread resume;
  for (auto& batch : Iterator(*session, batches)) {
    sum += batch[0];
    if (session->steps_done() != 1) continue;
    coordinator_.Pause();
    resume = std::thread([&] {
      EXPECT_TRUE(coordinator_.Wait(
          [&] { return !coordinator_.Heard<LeaseReleased>().empty(); }));
      reserved_bytes = ReservedBytes();
      coordinator_.Grant(TestSlot("slot-b"));
    });
    while (coordinator_.Heard<LeaseReleased>().empty()) {
      ASSERT_TRUE(session->Boundary());
    }
    EXPECT_EQ(batch.device(), session->device());
  }
  resume.join();
  EXPECT_EQ(session->Finish(), 0) << log_.Text();
  EXPECT_EQ(sum.item<float>(), 4);
  EXPECT_EQ(reserved_bytes, 0);
}

TEST_F(SessionRelease, WhatIsLeftBehindIsToldAndSaid) {
  at::Tensor forgotten;
  training_.before_loop = [&](Session&) {
    forgotten = at::empty({16 << 20}, at::device(device_).dtype(at::kByte));
  };
  TrainWithPause([] {});
  EXPECT_TRUE(log_.Contain("16.0 MiB stay on " + device_.str())) << log_.Text();
  EXPECT_GE(coordinator_.Heard<LeaseReleased>()[0].progress.device_bytes,
            uint64_t{16} << 20);
}

TEST_F(SessionRelease, CallbacksFreeAndMakeWhatIsNotTracked) {
  std::vector<std::string> calls;
  at::Tensor graph;
  training_.before_loop = [&](Session& session) {
    session.OnAcquire([&](at::Device device) {
      calls.push_back("acquire " + device.str());
      graph = at::empty({16 << 20}, at::device(device).dtype(at::kByte));
    });
    session.OnRelease([&] {
      calls.push_back("release");
      graph.reset();
    });
  };
  int64_t reserved_bytes = -1;
  const Outcome outcome = TrainWithPause(
      [&] { reserved_bytes = ReservedBytes(); }, /*next=*/"slot-b");
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_THAT(calls, ElementsAre("acquire " + device_.str(), "release",
                                 "acquire " + TestSlot("slot-b").device));
  EXPECT_EQ(reserved_bytes, 0);
}

TEST_F(SessionRelease, WhatACallbackThrowsEndsTheLoop) {
  training_.before_loop = [](Session& session) {
    session.OnRelease([] { throw std::runtime_error("no graph"); });
  };
  coordinator_.Grant(TestSlot("slot-a"));
  training_.after_step = [&](Session& session) {
    if (session.steps_done() == 8) coordinator_.Pause();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  const Outcome outcome = Train(options_, training_);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.status.message(),
              AllOf(HasSubstr("OnRelease()"), HasSubstr("no graph")));
}

// Allocates as much of `device` as possible, in pieces, because one allocation
// can't get all free memory.
std::vector<at::Tensor> Fill(c10::Device device) {
  constexpr int64_t kBlockBytes = 2 << 20;  // the allocator's unit
  std::vector<at::Tensor> pieces;
  const auto [free, total] =
      c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  for (int64_t blocks = static_cast<int64_t>(free) / kBlockBytes; blocks > 0;) {
    try {
      pieces.push_back(at::empty({blocks * kBlockBytes},
                                 at::device(device).dtype(at::kByte)));
    } catch (const c10::OutOfMemoryError&) {
      blocks /= 2;
    }
  }
  return pieces;
}

// Another process holds the memory for a while, and the session waits for it.
TEST_F(SessionRelease, WaitsForMemoryThatIsAboutToComeBack) {
  std::thread other;
  const Outcome outcome = TrainWithPause([&] {
    other = std::thread([all = Fill(device_)]() mutable {
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      all.clear();
      ReleaseMemory(c10::Device(TestDevice())).IgnoreError();
    });
  });
  other.join();
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
  EXPECT_THAT(coordinator_.Heard<LeaseReleased>(),
              Each(Field(&LeaseReleased::cause, ReleaseCause::kPaused)));
}

// Another process holds the memory for longer. The session gives its lease
// back, but not with the cause of a job that does not fit.
TEST_F(SessionRelease, ADeviceThatOthersFillIsNoReasonToLeaveItsType) {
  std::vector<at::Tensor> all;
  const Outcome outcome = TrainWithPause([&] {
    all = Fill(device_);
    coordinator_.Grant(TestSlot("slot-a"));
    EXPECT_TRUE(coordinator_.Wait(
        [&] { return coordinator_.Heard<LeaseReleased>().size() > 1; }));
    all.clear();
    ReleaseMemory(device_).IgnoreError();
  });
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(coordinator_.Heard<LeaseReleased>()[1].cause,
            ReleaseCause::kNoRoom);
  EXPECT_TRUE(log_.Contain("other processes leave")) << log_.Text();
}

TEST_F(SessionRelease, ItsDeviceIsTheCurrentOne) {
  NeedDevices(2);
  if (IsSkipped()) return;
  training_.before_loop = [&](Session& session) {
    session.OnAcquire([](at::Device device) {
      const at::Device current(device.type());
      EXPECT_EQ(at::ones({1}, current).device(), device);
    });
  };
  const Outcome outcome = TrainWithPause([] {}, /*next=*/"slot-b");
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.device, second_);
}

}  // namespace
}  // namespace gavel::testing
