// Threads of ours: one with a queue, and the signals that they leave to the
// threads of the host.
#ifndef GAVEL_RUNTIME_FILES_WORKER_THREAD_H_
#define GAVEL_RUNTIME_FILES_WORKER_THREAD_H_

#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "core/units.h"

namespace gavel::internal {

// Blocks all signals in the calling thread for its own lifetime, and so in the
// threads that are started meanwhile: signals are for the threads of the host.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace gavel::internal

namespace gavel {

// Whether items that still wait are worked on or dropped when the thread is
// stopped. The call that is under way always comes to its end.
enum class AtEnd { kFinish, kDrop };

// A thread with a queue. It does the slow work of an owner that must not wait:
// commits, solves, lines of logs, checkpoints. Hands the items that are posted
// to `work`.
//
// Thread-safe, except for Stop and the destructor: one thread calls them, once
// no other thread calls anything. `work` may post, but must not wait for its
// own thread. An exception that leaves `work` ends the process. The thread
// inherits the signal mask of its creator.
template <class Item>
class WorkerThread {
 public:
  // Called with all items that wait, in the order in which they were posted.
  // Items that are posted meanwhile go to the next call together. Returns after
  // how many seconds it is called again, with no items, unless some are posted
  // before: 0 at once, kNever only then. Once `stop` is requested, only items
  // cause calls.
  using Work =
      std::function<Time(std::vector<Item> items, const std::stop_token& stop)>;
  static constexpr size_t kAnyNumber = std::numeric_limits<size_t>::max();

  // Throws std::system_error if the thread can't be started.
  WorkerThread(AtEnd at_end, Work work)
      : at_end_(at_end), shared_(std::make_shared<Shared>(std::move(work))) {
    thread_ = std::thread([shared = shared_] { shared->Run(); });
  }
  ~WorkerThread() {
    if (thread_.joinable()) Stop();
  }
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  // Waits while `waiting_max` items wait already. After a stop it does nothing.
  void Post(Item item, size_t waiting_max = kAnyNumber) {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait(lock, [&] {
      return shared_->items.size() < waiting_max || shared_->stopping();
    });
    if (shared_->stopping()) return;
    shared_->items.push_back(std::move(item));
    lock.unlock();
    shared_->changed.notify_all();
  }
  // Takes the place of all items that wait.
  void Replace(Item item) {
    std::vector<Item> dropped;  // in the end the old ones, without the lock
    dropped.push_back(std::move(item));
    const std::lock_guard lock(shared_->mutex);
    if (shared_->stopping()) return;
    dropped.swap(shared_->items);
    shared_->changed.notify_all();
  }
  // Forgets all items that wait.
  void Drop() {
    std::vector<Item> dropped;  // destroyed without the lock
    const std::lock_guard lock(shared_->mutex);
    dropped.swap(shared_->items);
    shared_->changed.notify_all();
  }

  // Whether items wait, or `work` has not returned.
  bool IsBusy() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->busy();
  }
  // False: it was still busy after `limit_s`.
  bool WaitUntilIdle(Time limit_s = kNever) {
    std::unique_lock lock(shared_->mutex);
    return shared_->Wait(lock, limit_s, [this] { return !shared_->busy(); });
  }

  // Ends the thread; to be called once. False: it has not ended within
  // `limit_s`, and is detached. It keeps `work`, and what that owns, until
  // then.
  bool Stop(Time limit_s = kNever) {
    std::vector<Item> dropped;
    std::unique_lock lock(shared_->mutex);
    if (at_end_ == AtEnd::kDrop) dropped.swap(shared_->items);
    shared_->stop.request_stop();
    shared_->changed.notify_all();
    const bool ended =
        shared_->Wait(lock, limit_s, [this] { return shared_->ended; });
    lock.unlock();
    ended ? thread_.join() : thread_.detach();
    return ended;
  }

 private:
  struct Shared {
    explicit Shared(Work given) : work(std::move(given)) {}

    bool stopping() const { return stop.stop_requested(); }
    bool busy() const { return working || !items.empty(); }
    template <class Condition>
    bool Wait(std::unique_lock<std::mutex>& lock, Time limit_s,
              Condition condition) {
      if (limit_s < kNever) {
        return changed.wait_for(lock, std::chrono::duration<double>(limit_s),
                                condition);
      }
      changed.wait(lock, condition);
      return true;
    }
    void Run() {
      std::unique_lock lock(mutex);
      Time wait_s = kNever;
      while (true) {
        Wait(lock, wait_s, [this] { return !items.empty() || stopping(); });
        if (items.empty() && stopping()) break;
        std::vector<Item> taken = std::exchange(items, {});
        working = true;
        changed.notify_all();  // there is room
        lock.unlock();
        wait_s = work(std::move(taken), stop.get_token());
        lock.lock();
        working = false;
        changed.notify_all();
      }
      ended = true;
      changed.notify_all();
    }

    const Work work;
    // A std::mutex, since the thread sanitizer does not see into Debian's
    // absl::Mutex.
    std::mutex mutex;  // guards all below
    std::condition_variable changed;
    std::vector<Item> items;
    bool working = false;
    bool ended = false;
    std::stop_source stop;
  };

  const AtEnd at_end_;
  // The thread's too, for it may outlive this object.
  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

// Runs functions in the order in which they are posted; its end runs all of
// them first. The callers of Post bound their number.
class TaskThread : public WorkerThread<std::function<void()>> {
 public:
  TaskThread()
      : WorkerThread(AtEnd::kFinish, [](auto tasks, const std::stop_token&) {
          for (const auto& task : tasks) task();
          return kNever;
        }) {}
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_FILES_WORKER_THREAD_H_
