#include "tests/iterator/fake_coordinator.h"

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <utility>

namespace gavel::testing {
namespace {

constexpr std::chrono::seconds kWaitMax(10);

// Every message of a worker names it.
std::optional<WorkerKey> WorkerOf(const Message& message) {
  return std::visit(
      [](const auto& one) -> std::optional<WorkerKey> {
        if constexpr (requires { one.worker.incarnation; }) return one.worker;
        return std::nullopt;
      },
      message);
}

}  // namespace

AcceleratorInfo CpuSlot(const std::string& uuid) {
  AcceleratorInfo slot;
  slot.type = "cpu_slot";
  slot.uuid = uuid;
  return slot;
}

FakeCoordinator::FakeCoordinator(const std::string& endpoint) {
  auto router = Router::Bind(endpoint);
  if (!router.ok()) {
    std::cerr << router.status().message() << "\n";
    std::abort();
  }
  router_ = *std::move(router);
  endpoint_ = router_->endpoint();
  thread_ = std::thread([this] { Run(); });
}

FakeCoordinator::~FakeCoordinator() {
  stopping_ = true;
  router_->waker().Wake();
  thread_.join();
}

void FakeCoordinator::Grant(const AcceleratorInfo& accelerator,
                            double duration_s) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++epoch_;
  granting_ = true;
  accelerator_ = accelerator;
  duration_s_ = duration_s;
  to_send_.push_back(LeaseNotice{worker_, {1, epoch_}, epoch_});
  router_->waker().Wake();
}

void FakeCoordinator::Share(uint64_t memory_limit_bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  slots_ = 1;
  memory_limit_bytes_ = memory_limit_bytes;
}

void FakeCoordinator::SetThreads(int threads) {
  std::lock_guard<std::mutex> lock(mutex_);
  accelerator_.threads = threads;
}

void FakeCoordinator::Pause(PauseTier tier) {
  std::lock_guard<std::mutex> lock(mutex_);
  granting_ = false;
  to_send_.push_back(PauseRequest{worker_, {1, epoch_}, epoch_, tier});
  router_->waker().Wake();
}

void FakeCoordinator::PauseThenGrant(const AcceleratorInfo& accelerator,
                                     PauseTier tier) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    next_ = accelerator;
  }
  Pause(tier);
}

void FakeCoordinator::WantCheckpoint() {
  std::lock_guard<std::mutex> lock(mutex_);
  to_send_.push_back(CheckpointRequest{worker_, {1, epoch_}});
  router_->waker().Wake();
}

void FakeCoordinator::Reject(const std::string& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  granting_ = false;
  to_send_.push_back(WorkerRejected{worker_, {1, epoch_}, reason});
  router_->waker().Wake();
}

void FakeCoordinator::Cut() {
  std::lock_guard<std::mutex> lock(mutex_);
  cut_ = true;
  router_->waker().Wake();
}

bool FakeCoordinator::Wait(const std::function<bool()>& happened) const {
  const auto give_up = std::chrono::steady_clock::now() + kWaitMax;
  while (true) {
    std::unique_lock<std::mutex> lock(mutex_);
    const size_t heard = heard_.size();
    lock.unlock();
    if (happened()) return true;
    lock.lock();
    // What it looks at need not be what was heard.
    changed_.wait_for(lock, std::chrono::milliseconds(10),
                      [&] { return heard_.size() != heard; });
    if (std::chrono::steady_clock::now() > give_up) return false;
  }
}

void FakeCoordinator::Run() {
  while (!stopping_) {
    if (auto incoming = router_->Receive(1)) Answer(*incoming);
    std::vector<Message> to_send;
    std::string peer;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      // Before the first word of a worker there is nobody to send to.
      if (!peer_.empty()) to_send.swap(to_send_);
      peer = peer_;
      if (std::exchange(cut_, false)) router_->Cut(last_.value());
    }
    for (const Message& message : to_send) {
      router_->Send(peer, message).IgnoreError();
    }
  }
}

void FakeCoordinator::Answer(const Incoming& incoming) {
  std::lock_guard<std::mutex> lock(mutex_);
  heard_.push_back(incoming.message);
  peer_ = incoming.peer;
  last_ = incoming;
  if (auto worker = WorkerOf(incoming.message)) worker_ = *worker;
  if (const auto* request = std::get_if<LeaseRequest>(&incoming.message)) {
    router_->Send(peer_, AnswerTo(*request)).IgnoreError();
  }
  if (std::holds_alternative<LeaseReleased>(incoming.message) && next_) {
    accelerator_ = *std::exchange(next_, std::nullopt);
    ++epoch_;
    granting_ = true;
    to_send_.push_back(LeaseNotice{worker_, {1, epoch_}, epoch_});
  }
  changed_.notify_all();
}

Message FakeCoordinator::AnswerTo(const LeaseRequest& request) const {
  const bool grant =
      granting_ && (request.holding ? request.epoch == epoch_
                                    : request.released_epoch < epoch_);
  if (!grant) {
    return LeaseDenied{request.worker, {1, epoch_}, epoch_, request.nonce, 0.1};
  }
  return LeaseGrant{request.worker,
                    {1, epoch_},
                    epoch_,
                    request.nonce,
                    duration_s_,
                    accelerator_,
                    slots_,
                    1,
                    "",
                    memory_limit_bytes_};
}

}  // namespace gavel::testing
