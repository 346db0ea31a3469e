// What an event loop and a thread that waits for descriptors tell each other:
// requests to the thread, events back. Children and WorkerOutputs each own one,
// and the thread. The thread alone calls Watch, Unwatch, Wait and IsOver; the
// rest is thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_MAILBOX_H_
#define GAVEL_COORDINATOR_AGENT_HOST_MAILBOX_H_

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/descriptor.h"
#include "runtime/transport/waker.h"

namespace gavel {

template <class Request, class Event>
class Mailbox {
 public:
  // `notify` is called by Tell; it must not block, nor call back.
  explicit Mailbox(std::function<void()> notify) : notify_(std::move(notify)) {
    Watch(waker_.descriptor(), EPOLLIN);
  }

  void Post(Request request) {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(std::move(request));
    }
    waker_.Wake();
  }
  // The thread ends when it has done what was posted.
  void Stop() {
    stopping_ = true;
    waker_.Wake();
  }

  void Tell(Event event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    notify_();
  }
  // In the order in which they were told.
  std::vector<Event> TakeEvents() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

  // `events`: of epoll_ctl(2). False: the descriptor can't be watched.
  bool Watch(int descriptor, uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.fd = descriptor;
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
  }
  void Unwatch(int descriptor) const {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
  }

  // Waits for a request, a descriptor or the time, and takes the requests.
  std::vector<Request> Wait(double wait_s) {
    epoll_event event{};
    epoll_wait(epoll_.get(), &event, 1, Milliseconds(wait_s));
    waker_.Clear();
    const std::lock_guard lock(mutex_);
    return std::exchange(requests_, {});
  }
  // It was stopped, and nothing waits.
  bool IsOver() {
    const std::lock_guard lock(mutex_);
    return stopping_ && requests_.empty();
  }

 private:
  static int Milliseconds(double wait_s) {
    const double wait_ms = std::ceil(wait_s * 1000);
    return wait_ms > std::numeric_limits<int>::max()
               ? -1
               : static_cast<int>(wait_ms);
  }

  const std::function<void()> notify_;
  const Descriptor epoll_{epoll_create1(EPOLL_CLOEXEC)};
  Waker waker_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  // guards the two below
  std::vector<Request> requests_;
  std::vector<Event> events_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_MAILBOX_H_
