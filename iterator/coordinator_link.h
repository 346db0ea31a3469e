// The session's connection to the coordinator, and the thread that serves it.
#ifndef GAVEL_ITERATOR_COORDINATOR_LINK_H_
#define GAVEL_ITERATOR_COORDINATOR_LINK_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "iterator/environment.h"
#include "iterator/session_context.h"
#include "iterator/step_profile.h"
#include "runtime/lease/lease_machine.h"
#include "runtime/transport/dealer_router.h"

namespace gavel::internal {

// Notices that the coordinator has not answered requests for a long time.
// No I/O; lease thread only.
class CoordinatorWatch {
 public:
  static constexpr double kSilenceMax_s = 5;

  void Sent(Time now) { unanswered_since_ = std::min(unanswered_since_, now); }
  // True when IsSilent() had said so before.
  bool Heard();
  // True once for each silence.
  bool IsSilent(Time now);
  Time NextDeadline() const {
    return silent_ ? kNever : unanswered_since_ + kSilenceMax_s;
  }

 private:
  Time unanswered_since_ = kNever;
  bool silent_ = false;
};

// The thread that speaks with the coordinator. It owns the connection and the
// lease machine, carries out the machine's actions (a grant or a pause goes to
// the gate), and reports steps about once a second and moved bytes every five.
// Under an agent it starts with the session, so that the coordinator hears of
// the process before that restores and loads its data.
//
// Thread-safety: all functions may be called by the training thread.
// Ownership: gate, stats, board and log are borrowed and must live longer.
class LeaseThread {
 public:
  struct Shared {
    BoundaryGate& gate;
    StepStats& stats;
    StatusBoard& board;
    Log& log;
  };

  // INVALID_ARGUMENT: `coordinator` is no address. Does not wait for a
  // connection.
  static absl::StatusOr<std::unique_ptr<LeaseThread>> Start(
      const std::string& coordinator, const LeaseOptions& options,
      Shared shared);
  // Sends nothing more; call Finish() before to tell the coordinator.
  ~LeaseThread();

  void Post(LeaseEvent event);
  // Sends all posted events and `finished`, then ends the thread. Takes about
  // 0.1 s for the message to leave, and a second more without a connection.
  void Finish(const lease_event::Finished& finished);
  // The training thread waits for a checkpoint to be written.
  void SetSaving(bool saving) {
    saving_.store(saving, std::memory_order_relaxed);
  }
  // The coordinator wants another incarnation of this worker, or none.
  bool rejected() const { return rejected_.load(std::memory_order_acquire); }
  Waker& waker() { return dealer_->waker(); }

 private:
  LeaseThread(std::unique_ptr<Dealer> dealer, std::string coordinator,
              const LeaseOptions& options, Shared shared);

  void Run();
  // For a second at most, or until `stop` after a Wake.
  void WaitUntilConnected(const std::function<bool()>& stop);
  void Turn();
  Time NextDeadline() const;
  void Step(const LeaseEvent& event);
  void Do(const lease_action::Send& send);
  void Do(const lease_action::Resume& resume);
  void Do(const lease_action::Extend& extend);
  void Do(const lease_action::Pause& pause);
  void Do(const lease_action::Checkpoint& checkpoint);
  void ReportProgress();
  void ReportBytes();
  void ReportSilence();
  // Once for each refusal of our key.
  void ReportRefusal();
  void Stop();

  std::unique_ptr<Dealer> dealer_;
  const std::string coordinator_;
  std::string public_key_;  // empty: no keys
  LeaseMachine machine_;
  Shared shared_;
  CoordinatorWatch watch_;
  bool refused_ = false;
  ThroughputWindow window_;
  Time next_report_ = 0;
  Time next_bytes_ = 0;
  bool dealer_failed_ = false;

  std::atomic<bool> rejected_{false};
  std::atomic<bool> saving_{false};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<LeaseEvent> posted_;
  std::thread thread_;
};

// The session's connection to the coordinator. Without one (the session runs
// alone) there is no thread, and every call does nothing.
//
// Thread-safety: Start() and Close() by the training thread, while no save is
// under way; the rest from any thread.
class CoordinatorLink {
 public:
  // Borrows `context`, which must live longer.
  explicit CoordinatorLink(SessionContext& context) : context_(context) {}

  // Says that the process is there; asks for nothing yet. Returns the errors of
  // LeaseThread::Start.
  absl::Status Start();
  // The functions of LeaseThread.
  void Post(LeaseEvent event);
  void Finish(const lease_event::Finished& finished);
  void SetSaving(bool saving);
  // The coordinator wants another incarnation of this worker, or none.
  bool rejected() const { return thread_ != nullptr && thread_->rejected(); }
  // Null when alone.
  Waker* waker() { return thread_ ? &thread_->waker() : nullptr; }
  void Close() { thread_.reset(); }

 private:
  SessionContext& context_;
  std::unique_ptr<LeaseThread> thread_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_COORDINATOR_LINK_H_
