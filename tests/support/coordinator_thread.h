// Runs a LeaseGranter on a thread of its own, for tests and benches of one
// worker, JobId 1. Keeps all messages that it receives.
//
// Thread-safety: all functions may be called from any thread but its own. They
// return when they have taken effect.
#ifndef GAVEL_TESTS_SUPPORT_COORDINATOR_THREAD_H_
#define GAVEL_TESTS_SUPPORT_COORDINATOR_THREAD_H_

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
#include "runtime/transport/lease_granter.h"

namespace gavel::testing {

class CoordinatorThread {
 public:
  // `endpoint`: see Router::Bind.
  explicit CoordinatorThread(const std::string& endpoint = "tcp://127.0.0.1:0");
  ~CoordinatorThread();

  const std::string& endpoint() const { return endpoint_; }

  // Grants `accelerator` from now on, at a new epoch.
  void Grant(const AcceleratorInfo& accelerator, double duration_s = 60);
  // From now on each grant is for one job of a packed pair, with this limit.
  void Share(uint64_t memory_limit_bytes);
  // Sets the threads of the present lease from its next renewal on.
  void SetThreads(int threads);
  // Asks for the present lease back, and grants none until the next Grant.
  void Pause(PauseTier tier = PauseTier::kPark);
  // Grants this one as soon as the present lease is given back.
  void PauseThenGrant(const AcceleratorInfo& accelerator,
                      PauseTier tier = PauseTier::kPark);
  // Asks for a checkpoint at the next boundary.
  void WantCheckpoint();
  void Reject(const std::string& reason);
  // Ends the worker's connection; the worker connects again.
  void Cut();

  // The received messages of type T, in the order of arrival.
  template <class T>
  std::vector<T> Heard() const {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<T> messages;
    for (const Incoming& incoming : heard_) {
      const T* const one = std::get_if<T>(&incoming.message);
      if (one != nullptr) messages.push_back(*one);
    }
    return messages;
  }
  // False when `happened` is still false after ten seconds.
  bool Wait(const std::function<bool()>& happened) const;

 private:
  void Run();
  // Runs `command` on the thread, which owns the granter.
  void Do(std::function<void()> command);

  std::unique_ptr<LeaseGranter> granter_;
  std::string endpoint_;
  std::optional<AcceleratorInfo> next_;  // granted after a release
  mutable std::mutex mutex_;             // all below
  mutable std::condition_variable changed_;
  std::vector<Incoming> heard_;
  std::function<void()> command_;  // empty: none is waiting
  bool stopping_ = false;
  std::thread thread_;
};

// A CPU slot with one thread; or an accelerator, see test_device.h: "slot-a" is
// the first, "slot-b" the second. All of them compute alike.
AcceleratorInfo TestSlot(const std::string& uuid);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_COORDINATOR_THREAD_H_
