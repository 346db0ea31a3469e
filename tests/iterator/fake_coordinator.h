// A coordinator of a few lines, on a thread of its own: it grants the lease it
// is told to, and keeps what it hears. It follows docs/protocol.md in what a
// worker can see of it.
#ifndef GAVEL_TESTS_ITERATOR_FAKE_COORDINATOR_H_
#define GAVEL_TESTS_ITERATOR_FAKE_COORDINATOR_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "core/messages.h"
#include "runtime/transport/router.h"

namespace gavel::testing {

class FakeCoordinator {
 public:
  // `endpoint` as of Router::Bind.
  explicit FakeCoordinator(const std::string& endpoint = "tcp://127.0.0.1:0");
  ~FakeCoordinator();

  std::string endpoint() const { return endpoint_; }

  // Grants `accelerator` from now on, at a new epoch.
  void Grant(const AcceleratorInfo& accelerator, double duration_s = 60);
  // From now on grants are of one of a packed pair.
  void Share(uint64_t memory_limit_bytes);
  // The present lease is of so many threads from its next renewal on.
  void SetThreads(int threads);
  // Asks for the present lease back; no grants until the next Grant.
  void Pause(PauseTier tier = PauseTier::kPark);
  // As soon as the present lease was given back, grants this one.
  void PauseThenGrant(const AcceleratorInfo& accelerator,
                      PauseTier tier = PauseTier::kPark);
  // Wants a checkpoint at the next boundary.
  void WantCheckpoint();
  void Reject(const std::string& reason);
  // Ends the worker's connection, which connects again.
  void Cut();

  // Of this type, in the order of arrival.
  template <class T>
  std::vector<T> Heard() const {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<T> messages;
    for (const Message& message : heard_) {
      if (const T* one = std::get_if<T>(&message)) messages.push_back(*one);
    }
    return messages;
  }
  // False when `happened` is still false after ten seconds.
  bool Wait(const std::function<bool()>& happened) const;

 private:
  void Run();
  void Answer(const Incoming& incoming);
  Message AnswerTo(const LeaseRequest& request) const;

  std::unique_ptr<Router> router_;
  std::string endpoint_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;  // all below
  mutable std::condition_variable changed_;
  std::vector<Message> heard_;
  std::vector<Message> to_send_;
  std::string peer_;
  std::optional<Incoming> last_;
  bool cut_ = false;
  WorkerKey worker_;
  uint64_t epoch_ = 0;
  bool granting_ = false;
  AcceleratorInfo accelerator_;
  double duration_s_ = 60;
  int slots_ = 2;
  uint64_t memory_limit_bytes_ = 0;
  std::optional<AcceleratorInfo> next_;
  std::thread thread_;
};

// A CPU slot with one thread; all of them compute alike.
AcceleratorInfo CpuSlot(const std::string& uuid);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_ITERATOR_FAKE_COORDINATOR_H_
