#include "tests/support/coordinator_thread.h"

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "runtime/device/device_backend.h"
#include "tests/support/test_device.h"

namespace gavel::testing {
namespace {

constexpr std::chrono::seconds kCoordinatorWaitMax(10);
constexpr double kCoordinatorTurn_s = 0.1;
constexpr size_t kOnlyJob = 0;

Time CoordinatorNow() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

AcceleratorInfo TestSlot(const std::string& uuid) {
  AcceleratorInfo slot;
  slot.type = "cpu_slot";
  slot.uuid = uuid;
  const bool other =
      uuid.back() == 'b' && CountDevices(c10::Device(TestDevice()).type()) > 1;
  slot.device = TestDevice(other ? 1 : 0);
  return slot;
}

CoordinatorThread::CoordinatorThread(const std::string& endpoint) {
  auto granter = LeaseGranter::Open(endpoint, [this](const Incoming& incoming) {
    std::lock_guard<std::mutex> lock(mutex_);
    heard_.push_back(incoming);
  });
  if (!granter.ok()) {
    std::cerr << granter.status().message() << "\n";
    std::abort();
  }
  granter_ = *std::move(granter);
  endpoint_ = granter_->endpoint();
  LeasedJob job;
  job.terms.places.resize(1);
  job.epoch = 0;
  granter_->Begin({job});
  thread_ = std::thread([this] { Run(); });
}

CoordinatorThread::~CoordinatorThread() {
  Do([this] { stopping_ = true; });
  thread_.join();
}

void CoordinatorThread::Do(std::function<void()> command) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !command_; });
  bool done = false;
  command_ = [&] {
    command();
    done = true;
  };
  granter_->waker().Wake();
  changed_.wait(lock, [&] { return done; });
}

void CoordinatorThread::Run() {
  bool stopping = false;
  while (!stopping) {
    granter_->Turn(CoordinatorNow(), kCoordinatorTurn_s);
    if (next_ && granter_->jobs()[kOnlyJob].released_at >= 0) {
      granter_->terms(kOnlyJob).places = {*std::exchange(next_, std::nullopt)};
      granter_->GrantNext(kOnlyJob);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (command_) std::exchange(command_, nullptr)();
    stopping = stopping_;
    changed_.notify_all();
  }
}

void CoordinatorThread::Grant(const AcceleratorInfo& accelerator,
                              double duration_s) {
  Do([&] {
    granter_->terms(kOnlyJob).places = {accelerator};
    granter_->terms(kOnlyJob).duration_s = duration_s;
    granter_->GrantNext(kOnlyJob);
  });
}

void CoordinatorThread::Share(uint64_t memory_limit_bytes) {
  Do([&] {
    granter_->terms(kOnlyJob).slots = 1;
    granter_->terms(kOnlyJob).memory_limit_bytes = memory_limit_bytes;
  });
}

void CoordinatorThread::SetThreads(int threads) {
  Do([&] { granter_->terms(kOnlyJob).places[0].threads = threads; });
}

void CoordinatorThread::Pause(PauseTier tier) {
  Do([&] { granter_->TakeBack(CoordinatorNow(), kOnlyJob, tier); });
}

void CoordinatorThread::PauseThenGrant(const AcceleratorInfo& accelerator,
                                       PauseTier tier) {
  Do([&] {
    next_ = accelerator;
    granter_->TakeBack(CoordinatorNow(), kOnlyJob, tier);
  });
}

void CoordinatorThread::WantCheckpoint() {
  Do([&] { granter_->Tell(kOnlyJob, CheckpointRequest()); });
}

void CoordinatorThread::Reject(const std::string& reason) {
  Do([&] {
    WorkerRejected rejected;
    rejected.reason = reason;
    granter_->Tell(kOnlyJob, rejected);
  });
}

void CoordinatorThread::Cut() {
  Do([&] { granter_->Cut(heard_.back()); });
}

bool CoordinatorThread::Wait(const std::function<bool()>& happened) const {
  const auto give_up = std::chrono::steady_clock::now() + kCoordinatorWaitMax;
  while (true) {
    std::unique_lock<std::mutex> lock(mutex_);
    const size_t heard = heard_.size();
    lock.unlock();
    if (happened()) return true;
    lock.lock();
    // `happened` may look at something else than messages.
    changed_.wait_for(lock, std::chrono::milliseconds(10),
                      [&] { return heard_.size() != heard; });
    if (std::chrono::steady_clock::now() > give_up) return false;
  }
}

}  // namespace gavel::testing
