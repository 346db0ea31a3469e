// A thread that runs tasks in order, for an event loop that must not wait for a
// disk or a directory service. Thread-safe. The caller bounds the number of
// waiting tasks.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_TASK_THREAD_H_
#define GAVEL_COORDINATOR_AGENT_HOST_TASK_THREAD_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace gavel {

class TaskThread {
 public:
  TaskThread();
  // Does all that was posted, then ends.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  void Post(std::function<void()> task);

 private:
  void Work();

  std::mutex mutex_;  // guards all below but the thread
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_TASK_THREAD_H_
