// The input path of a device: reading threads stack batches in pinned memory,
// and each batch is copied one step ahead, beside the steps.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <thread>

#include "gavel/data_loader.h"
#include "gavel/iterator.h"
#include "gavel/profile.h"
#include "gavel/session.h"
#include "tests/iterator/training.h"
#include "tests/support/accelerator_test.h"
#include "tests/support/coordinator_thread.h"

namespace gavel::testing {
namespace {

constexpr size_t kSamples = 60;
constexpr int64_t kSampleElements = 1 << 14;

// Every element of sample i is i.
struct Counting {
  size_t size() const { return kSamples; }
  at::Tensor get(size_t index) const {
    return at::full({kSampleElements}, static_cast<float>(index));
  }
};

DataLoaderOptions Prefetching() {
  return {.batch_size = 4, .shuffle = false, .reading_threads = 2};
}

class Prefetch : public AcceleratorTest {
 protected:
  std::unique_ptr<Session> OpenAlone() {
    SessionOptions options;
    options.device = TestDevice();
    options.log = log_.Sink();
    return Session::Create(options);
  }
  bool IsIdle() const {
    const c10::impl::VirtualGuardImpl guard(device_.type());
    return guard.queryStream(guard.getStream(device_));
  }

  Lines log_;
};

// Each step keeps the device busy for longer than a copy takes, and reads the
// batch at its end.
TEST_F(Prefetch, StepsSeeWhatWasCopiedAndNotWhatFollows) {
  const auto session = OpenAlone();
  DataLoader loader(Counting(), Prefetching());
  const at::Tensor sum = at::zeros({kSampleElements}, device_);
  const at::Tensor busy = at::zeros({1 << 16}, device_);
  std::vector<at::Tensor> sums;
  for (auto& batch : Iterator(*session, loader)) {
    ASSERT_EQ(batch.device(), device_);
    for (int i = 0; i < 5; ++i) busy.add_(1);
    sums.push_back(at::zeros({kSampleElements}, device_));
    for (int64_t i = 0; i < 4; ++i) sums.back().add_(batch[i]);
  }
  ASSERT_EQ(sums.size(), kSamples / 4) << log_.Text();
  for (size_t step = 0; step < sums.size(); ++step) {
    const auto expected = static_cast<float>(16 * step + 6);
    EXPECT_TRUE(sums[step].cpu().eq(expected).all().item<bool>())
        << "step " << step;
  }
}

TEST_F(Prefetch, ABatchIsTakenWhileTheDeviceWorks) {
  DataLoader loader(Counting(), Prefetching());
  loader.SetDevice(device_);
  auto cursor = loader.begin();
  at::Tensor batch = *cursor;
  const at::Tensor busy = at::zeros({1 << 22}, device_);
  ASSERT_OK(Synchronize(device_));
  for (int i = 0; i < 100; ++i) busy.add_(1);
  ++cursor;
  batch = *cursor;
  EXPECT_FALSE(IsIdle());
  EXPECT_EQ(batch.device(), device_);
  EXPECT_EQ(batch.sum().item<int64_t>(), (4 + 5 + 6 + 7) * kSampleElements);
}

// A copy that queued behind the steps would end after them, however many there
// are. It is therefore enough if the copy ends first for one number of steps,
// on a device of any speed.
TEST_F(Prefetch, ACopyDoesNotQueueBehindTheSteps) {
  const c10::impl::VirtualGuardImpl guard(device_.type());
  internal::CopyStream copies(device_);
  const at::Tensor busy = at::zeros({1 << 22}, device_);
  bool ended_before_the_steps = false;
  for (int steps = 100; !ended_before_the_steps && steps <= 1600; steps *= 2) {
    at::Tensor batch = at::full({1000}, 2);
    ASSERT_OK(Synchronize(device_));
    for (int i = 0; i < steps; ++i) busy.add_(1);
    copies.Copy(batch);
    {
      const c10::StreamGuard another(guard.getStreamFromGlobalPool(device_));
      copies.Use(batch);
      EXPECT_EQ(batch.sum().item<int64_t>(), 2000);
    }
    ended_before_the_steps = !IsIdle();
  }
  EXPECT_TRUE(ended_before_the_steps);
}

TEST_F(Prefetch, SamplesOfAnyShapeArePinned) {
  using Pairs = std::vector<std::pair<at::Tensor, int>>;
  const std::vector<at::Tensor> tensors = {at::zeros({2}), at::zeros({2})};
  EXPECT_TRUE(internal::Collate(tensors, /*pinned=*/true).is_pinned());
  EXPECT_FALSE(internal::Collate(tensors).is_pinned());
  const Pairs pairs =
      internal::Collate(Pairs{{at::zeros({2}), 1}}, /*pinned=*/true);
  EXPECT_TRUE(pairs[0].first.is_pinned());
}

// A pause comes at a boundary, or between two loops, when several batches of
// 256 KiB were read ahead and one of them was copied.
class PrefetchAtPause : public Prefetch {
 protected:
  // Pauses at the next boundaries of the session, and notes the memory that
  // stays on the device.
  void PauseAndResume() {
    coordinator_.Pause();
    resume_ = std::thread([this] {
      EXPECT_TRUE(coordinator_.Wait(
          [&] { return !coordinator_.Heard<LeaseReleased>().empty(); }));
      reserved_bytes_ = ReservedBytes();
      coordinator_.Grant(TestSlot("slot-b"));
    });
  }
  bool released() const { return !coordinator_.Heard<LeaseReleased>().empty(); }
  std::unique_ptr<Session> Open() {
    coordinator_.Grant(TestSlot("slot-a"));
    SessionOptions options;
    options.coordinator = coordinator_.endpoint();
    options.job = 1;
    options.incarnation = 1;
    options.run_directory = folder_.path() + "/run";
    options.checkpoint_directory = folder_.path() + "/checkpoints";
    options.log = log_.Sink();
    return Session::Create(options);
  }

  TemporaryFolder folder_;
  mutable CoordinatorThread coordinator_;
  std::thread resume_;
  int64_t reserved_bytes_ = -1;
};

TEST_F(PrefetchAtPause, NothingReadAheadStaysAndNothingIsLost) {
  const auto session = Open();
  DataLoader loader(Counting(), Prefetching());
  at::Tensor sum = at::zeros({1});
  session->Track("sum", sum);
  for (auto& batch : Iterator(*session, loader)) {
    sum += batch.select(1, 0).sum();
    if (session->steps_done() == 2) PauseAndResume();
    if (!released()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  resume_.join();
  EXPECT_EQ(session->Finish(), 0) << log_.Text();
  EXPECT_EQ(sum.item<int64_t>(), kSamples * (kSamples - 1) / 2);
  EXPECT_EQ(reserved_bytes_, 0);
}

TEST_F(PrefetchAtPause, NothingOfTheNextEpochStaysBehindALoop) {
  const auto session = Open();
  DataLoader loader(Counting(), Prefetching());
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : Iterator(*session, loader)) {
      EXPECT_EQ(batch.device(), session->device());
    }
    if (epoch > 0) continue;
    PauseAndResume();
    while (!released()) ASSERT_TRUE(session->Boundary());
  }
  resume_.join();
  EXPECT_EQ(session->Finish(), 0) << log_.Text();
  EXPECT_EQ(session->steps_done(), 2 * kSamples / 4);
  // This is the device's memory, not that of the process, which has hundreds of
  // MiB.
  EXPECT_LT(session->profile().memory_high_bytes, 64 << 20);
  EXPECT_EQ(reserved_bytes_, 0);
}

}  // namespace
}  // namespace gavel::testing
