// Decides how a worker's process holds its lease; it does no input or output.
// iterator/coordinator_link.h drives it, and so does tests/simulation,
// with virtual time. Not thread-safe.
#ifndef GAVEL_RUNTIME_LEASE_LEASE_MACHINE_H_
#define GAVEL_RUNTIME_LEASE_LEASE_MACHINE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

namespace lease_event {
// Optional, before Started: the process exists, but has yet to load its data
// and to restore. The machine says hello, and does not ask for a lease.
struct Began {
  int64_t pid = 0;
};
// The session is set up and restored, and wants to run.
struct Started {
  Progress progress;
  int64_t pid = 0;
};
struct MessageReceived {
  Message message;  // LeaseGrant, LeaseDenied, LeaseNotice, PauseRequest,
                    // CheckpointRequest, WorkerRejected; others are ignored
};
// The training thread took the accelerator that Resume named.
struct Resumed {
  uint64_t epoch = 0;
};
// On rank 0 of a gang, between Resume and the end of its lease: its store for
// `epoch` listens at `address` ("ADDRESS:PORT"). The coordinator is informed at
// once and in every request of that lease. The other ranks are granted leases
// only then, so Resumed may come long after.
struct GangOpened {
  uint64_t epoch = 0;
  std::string address;
};
// The training thread could not take the accelerator, and holds nothing of it.
// `cause` is not kPaused. The lease is given back.
struct ResumeFailed {
  uint64_t epoch = 0;
  std::string why;
  ReleaseCause cause = ReleaseCause::kResumeFailed;
};
// The training thread stopped at a boundary: the device is synchronised, the
// tensors have moved away, and the locks are released.
struct Parked {
  uint64_t epoch = 0;
  Progress progress;
};
// The loop ended (or the process is about to).
struct Finished {
  int exit_code = 0;
  std::string detail;
  Progress progress;
};
// It is time for a report.
struct Progressed {
  Progress progress;
};
// The bytes that the process has read and written so far, counted every few
// seconds. If they rose, the coordinator is informed while the process starts,
// while it stops and while its loop waits for a checkpoint, so that it does not
// end a process that is working.
struct BytesCounted {
  uint64_t bytes = 0;
  bool saving = false;  // the loop waits for a checkpoint
};
struct Tick {};
}  // namespace lease_event

using LeaseEvent = std::variant<
    lease_event::Started, lease_event::MessageReceived, lease_event::Resumed,
    lease_event::ResumeFailed, lease_event::Parked, lease_event::Finished,
    lease_event::Progressed, lease_event::Tick, lease_event::GangOpened,
    lease_event::Began, lease_event::BytesCounted>;

namespace lease_action {
struct Send {
  Message message;
};
// Take this accelerator and train until `deadline`, which Extend moves. The
// answer is Resumed or ResumeFailed or, if a Pause comes first, Parked.
struct Resume {
  uint64_t epoch = 0;
  AcceleratorInfo accelerator;
  int slots = 2;
  int world_size = 1;
  Time deadline = 0;
  std::string gang_address = {};  // of rank 0's store; empty for rank 0 itself
  uint64_t memory_limit_bytes = 0;  // of a packed worker; 0: no limit
  double extension_lead_s = 0;      // as in LeaseGrant
};
struct Extend {
  uint64_t epoch = 0;
  Time deadline = 0;
  int threads = 1;  // of a CPU slot, from the next boundary on
  double extension_lead_s = 0;
};
// Stop at the next boundary and answer with Parked. A later Pause of the same
// lease only raises the tier. A Pause that comes while the tensors are parked
// or kept (kEvict, kStop) is answered by Finished alone.
struct Pause {
  PauseTier tier = PauseTier::kPark;
  std::string why;  // for the log: "round over", "lease ended", …
  // The coordinator does not know this worker any more, so nobody waits for a
  // checkpoint of it. A worker that is only evicted writes one.
  bool rejected = false;
};
// Write a checkpoint at the next boundary, and continue training.
struct Checkpoint {};
}  // namespace lease_action

using LeaseAction =
    std::variant<lease_action::Send, lease_action::Resume, lease_action::Extend,
                 lease_action::Pause, lease_action::Checkpoint>;
using LeaseActions = std::vector<LeaseAction>;

struct LeaseOptions {
  WorkerKey worker;
  // Hellos and requests are repeated at this interval until they are answered.
  // While no answer comes, requests slow down to a fifth of this rate.
  double request_interval_s = 1;
  // A lease is renewed at the latest when a third of it is over, at a moment
  // that varies, but not more often than this.
  double renew_interval_s_min = 0.05;
};

// Returns how many seconds before the end of its lease a gang may ask for its
// stop, at the first boundary of a rank from then on. The ranks agree on a step
// that none of them has begun, and one of them may be late, so there must be
// time for two steps and for the agreement. The gang does not ask before the
// time at which its lease would have been extended if it continues. A gang with
// very long steps may therefore still not stop in time.
struct GangLease {
  double lease_s = 0;           // when the gang began
  double extension_lead_s = 0;  // as in LeaseGrant
  double step_s = 0;            // 0: not known
};
double GangStopAhead(const GangLease& lease);

// A smaller rise of the bytes moved does not count as work. It is what a
// process moves in a few seconds by its messages to the coordinator and between
// its threads.
inline constexpr uint64_t kBytesRiseMin = uint64_t{64} << 10;

class LeaseMachine {
 public:
  explicit LeaseMachine(LeaseOptions options);

  // `now` never falls. Carry out the actions in order. Messages and events of
  // another worker, another incarnation, another epoch or a lower term have no
  // effect.
  LeaseActions Step(Time now, const LeaseEvent& event);
  // Returns when the next Step(Tick) is due. That step does something, and the
  // next deadline after it is later. An earlier Tick is harmless.
  Time NextDeadline() const;

  // kWaiting: there is no lease. kResuming: a lease is granted, but the
  // training thread has not taken the accelerator yet. kRunning: it has.
  // kPausing: it must stop at the next boundary. kEnded: the worker asks for
  // nothing more, because it has finished, or was ordered to end and holds no
  // lease.
  enum class State : uint8_t {
    kWaiting,
    kResuming,
    kRunning,
    kPausing,
    kEnded
  };
  State state() const { return state_; }
  bool started() const { return started_; }  // Started has come
  // These belong to the lease that is held, else to the last one. epoch() is 0
  // before the first lease.
  uint64_t epoch() const { return epoch_; }
  Time deadline() const { return deadline_; }

 private:
  void On(const lease_event::Began& e);
  void On(const lease_event::Started& e);
  void On(const lease_event::MessageReceived& e);
  void On(const lease_event::Resumed& e);
  void On(const lease_event::GangOpened& e);
  void On(const lease_event::ResumeFailed& e);
  void On(const lease_event::Parked& e);
  void On(const lease_event::Finished& e);
  void On(const lease_event::Progressed& e);
  void On(const lease_event::BytesCounted& e);
  void On(const lease_event::Tick& e);

  // The argument has passed Listens.
  void Take(const LeaseGrant& grant);
  void Take(const LeaseDenied& denied);
  void Take(const LeaseNotice& notice);
  void Take(const PauseRequest& request);
  void Take(const CheckpointRequest& request);
  void Take(const WorkerRejected& rejected);

  bool Listens(const WorkerKey& worker, const JournalPosition& position);
  bool HoldsLease() const;
  bool Asks() const;
  void Pause(PauseTier tier, std::string why, bool rejected = false);
  void GiveBack(const Progress& progress, ReleaseCause cause);
  void Send(Message message);
  void SendHello();
  void SendRequest();
  void SendReport();
  void AskNow(double delay_s = 0);
  double RequestInterval() const;
  double PaceFor(double duration_s) const;
  Time NextRenewal(double duration_s, bool renewal);

  LeaseOptions options_;
  // The arguments and results of the Step() in progress.
  Time now_ = 0;
  LeaseActions actions_;
  State state_ = State::kWaiting;
  bool began_ = false;        // says hello
  bool began_early_ = false;  // before it was started
  bool started_ = false;
  bool finished_ = false;
  JournalPosition highest_seen_;
  int64_t pid_ = 0;
  Progress progress_;               // the newest that an event had
  Generation reported_generation_;  // the last that was reported
  uint64_t bytes_known_ = 0;        // reported, or moved under a lease

  // The lease: held in kResuming, kRunning and kPausing, else the last one.
  uint64_t epoch_ = 0;
  Time deadline_ = 0;
  double duration_s_ = 0;        // as last granted
  double lease_duration_s_ = 0;  // as granted when the deadline last moved
  int threads_ = 1;              // as last granted
  GangLease gang_lease_;
  bool of_gang_ = false;
  // The tier of the last pause. After one that is stronger than kPark, the
  // worker asks for no lease any more.
  PauseTier pause_tier_ = PauseTier::kPark;
  std::string gang_address_;     // of this lease's store, if rank 0 has one
  uint64_t known_epoch_ = 0;     // highest that any message named; >= epoch_
  uint64_t released_epoch_ = 0;  // the highest that was given up

  bool hello_answered_ = false;
  Time next_hello_ = 0;
  // The latest request. Only its answer counts.
  uint64_t nonce_ = 0;
  Time request_sent_at_ = -kNever;
  int unanswered_ = 0;          // requests in a row
  bool awaits_answer_ = false;  // to the latest request
  Time next_request_ = 0;
  Time no_request_before_ = -kNever;  // after a ResumeFailed
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_LEASE_LEASE_MACHINE_H_
