// A thread that runs tasks in order, for an event loop that must not wait for a
// disk or a directory service. Thread-safe. The caller bounds the number of
// waiting tasks.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_TASK_THREAD_H_
#define GAVEL_COORDINATOR_AGENT_HOST_TASK_THREAD_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace gavel {

class TaskThread {
 public:
  // Its end does all that was posted first.
  TaskThread() : thread_([this](const std::stop_token& stop) { Work(stop); }) {}

  void Post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

 private:
  void Work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return !tasks_.empty(); })) {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;  // guards all below but the thread
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> tasks_;
  std::jthread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_TASK_THREAD_H_
