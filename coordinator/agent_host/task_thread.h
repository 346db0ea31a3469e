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

namespace gavel {

class TaskThread {
 public:
  // Its end does all that was posted first.
  TaskThread();

  void Post(std::function<void()> task);

 private:
  void Work(const std::stop_token& stop);

  std::mutex mutex_;  // guards all below but the thread
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> tasks_;
  std::jthread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_TASK_THREAD_H_
