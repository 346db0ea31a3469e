#include "gavel/internal/reading_threads.h"

#include <pthread.h>
#include <sched.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace gavel::internal {

struct ReadingThreads::State {
  struct Calls {
    std::shared_ptr<const std::function<void(size_t)>> call;
    size_t times = 0;
    size_t begun = 0;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Calls> calls;
  bool ended = false;
  std::vector<std::thread> threads;

  ~State() { End(); }
  void End() {
    {
      const std::lock_guard lock(mutex);
      ended = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }
  void Run() {
    // Who wakes these threads goes on: it trains.
    const sched_param none = {};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ended || !calls.empty(); });
      if (ended) return;
      const auto call = calls.front().call;
      const size_t i = calls.front().begun++;
      if (i + 1 == calls.front().times) calls.pop_front();
      lock.unlock();
      (*call)(i);
      lock.lock();
    }
  }
};

ReadingThreads::ReadingThreads(int count) : state_(std::make_unique<State>()) {
  state_->threads.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    try {
      state_->threads.emplace_back([state = state_.get()] { state->Run(); });
    } catch (const std::system_error& error) {
      if (i > 0) return;  // fewer will do
      throw std::runtime_error(
          std::string("can't make a thread that reads ahead: ") + error.what() +
          "; raise the limit of threads, or set reading_threads "
          "to 0");
    }
  }
}

ReadingThreads::~ReadingThreads() = default;

void ReadingThreads::Call(size_t times, std::function<void(size_t)> call) {
  if (times == 0) return;
  auto shared =
      std::make_shared<const std::function<void(size_t)>>(std::move(call));
  {
    const std::lock_guard lock(state_->mutex);
    state_->calls.push_back({std::move(shared), times});
  }
  state_->changed.notify_all();
}

void ReadingThreads::Drop() {
  std::deque<State::Calls> dropped;  // destroyed without the lock
  const std::lock_guard lock(state_->mutex);
  dropped.swap(state_->calls);
}

}  // namespace gavel::internal
