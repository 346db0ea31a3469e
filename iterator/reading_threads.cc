#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "gavel/internal/read_ahead.h"

namespace gavel::internal {

struct ReadingThreads::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> calls;
  bool ended = false;
  std::vector<std::thread> threads;

  void Run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ended || !calls.empty(); });
      if (ended) return;
      const std::function<void()> call = std::move(calls.front());
      calls.pop_front();
      lock.unlock();
      call();
      lock.lock();
    }
  }
};

ReadingThreads::ReadingThreads(int count) : state_(std::make_unique<State>()) {
  for (int i = 0; i < count; ++i) {
    state_->threads.emplace_back([state = state_.get()] { state->Run(); });
  }
}

ReadingThreads::~ReadingThreads() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
  }
  state_->changed.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

void ReadingThreads::Call(std::function<void()> call) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->calls.push_back(std::move(call));
  }
  state_->changed.notify_one();
}

void ReadingThreads::Drop() {
  std::deque<std::function<void()>> dropped;  // destroyed without the lock
  const std::lock_guard lock(state_->mutex);
  dropped.swap(state_->calls);
}

}  // namespace gavel::internal
