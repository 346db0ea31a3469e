// The part in the worker's process that holds its lease: decisions only.
// iterator/session/coordinator_link.h drives it, and tests/simulation with
// virtual time. Not thread-safe.
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
// Optional, before Started: the process is there, and has yet to load its data
// and to restore. It says hello, and asks for nothing.
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
// Rank 0 of a gang, between Resume and the end of its lease: its store for
// `epoch` listens at `address` ("ADDRESS:PORT"). Told to the coordinator at
// once and with every request of that lease; the other ranks are granted only
// then, so Resumed may come long after.
struct GangOpened {
  uint64_t epoch = 0;
  std::string address;
};
// It could not, for a `cause` other than kPaused, and holds nothing of it: the
// lease goes back.
struct ResumeFailed {
  uint64_t epoch = 0;
  std::string why;
  ReleaseCause cause = ReleaseCause::kResumeFailed;
};
// The training thread stopped at a boundary; device synchronised, tensors
// moved away, locks released.
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
// Time for a report.
struct Progressed {
  Progress progress;
};
// Bytes that the process has read and written so far, counted each few seconds.
// Told while it starts, while it stops and while its loop waits for a
// checkpoint, if they rose: a process that is at work is not ended.
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
// Take this accelerator and train until `deadline`, which moves by Extend.
// Answered by Resumed or ResumeFailed; if a Pause comes first, by Parked.
struct Resume {
  uint64_t epoch = 0;
  AcceleratorInfo accelerator;
  int slots = 2;
  int world_size = 1;
  Time deadline = 0;
  std::string gang_address = {};  // of rank 0's store; empty for rank 0 itself
  uint64_t memory_limit_bytes = 0;  // of a packed worker; 0: no limit
  double extension_lead_s = 0;      // as of LeaseGrant
};
struct Extend {
  uint64_t epoch = 0;
  Time deadline = 0;
  int threads = 1;  // of a CPU slot, from the next boundary on
  double extension_lead_s = 0;
};
// Stop at the next boundary and answer with Parked. A later Pause of the same
// lease only raises the tier. One that comes while parked or kept (kEvict,
// kStop) is answered by Finished alone.
struct Pause {
  PauseTier tier = PauseTier::kPark;
  std::string why;  // for the log: "round over", "lease ended", …
  // The coordinator does not know this worker any more, so nobody waits for
  // what it saves. One that is only evicted writes its checkpoint.
  bool rejected = false;
};
// Write a checkpoint at the next boundary, and go on.
struct Checkpoint {};
}  // namespace lease_action

using LeaseAction =
    std::variant<lease_action::Send, lease_action::Resume, lease_action::Extend,
                 lease_action::Pause, lease_action::Checkpoint>;
using LeaseActions = std::vector<LeaseAction>;

struct LeaseOptions {
  WorkerKey worker;
  // Hello and requests are repeated this often until answered; requests slow
  // down to a fifth of it while no answer comes.
  double request_interval_s = 1;
  // A lease is renewed when a third of it is over at the latest, each time at
  // another moment, but not more often than this.
  double renew_interval_s_min = 0.05;
};

// A gang asks for its stop at the first boundary of a rank that is no more than
// so many seconds before the end of its lease: there must be time for two steps
// when it does, as the ranks agree on a step that none of them has begun, and
// for the agreement, as one of them may be late. But not before the lease would
// have been extended if the gang goes on, so that one with very long steps may
// still not stop in time.
struct GangLease {
  double lease_s = 0;           // when the gang began
  double extension_lead_s = 0;  // as of LeaseGrant
  double step_s = 0;            // 0: not known
};
double GangStopAhead(const GangLease& lease);

// What a process moves in a few seconds that does nothing but speak with the
// coordinator and its threads with each other: a smaller rise is no work.
inline constexpr uint64_t kBytesRiseMin = uint64_t{64} << 10;

class LeaseMachine {
 public:
  explicit LeaseMachine(LeaseOptions options);

  // `now` never falls. Actions are to be carried out in order. Messages and
  // events of another worker, incarnation, epoch or lower term do nothing.
  LeaseActions Step(Time now, const LeaseEvent& event);
  // When Step(Tick) is due: then it does something, and the next deadline is
  // later. A Tick before it is harmless.
  Time NextDeadline() const;

  // kWaiting: no lease. kResuming: granted, the training thread has not yet
  // taken it. kRunning. kPausing: must stop at the next boundary. kEnded: asks
  // for nothing more; finished, or told to end and holding no lease.
  enum class State : uint8_t {
    kWaiting,
    kResuming,
    kRunning,
    kPausing,
    kEnded
  };
  State state() const { return state_; }
  bool started() const { return started_; }  // Started came
  // Of the lease that is held, else of the last one; 0: none yet.
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

  // `message` has passed Listens.
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
  // Of the step under way.
  Time now_ = 0;
  LeaseActions actions_;
  State state_ = State::kWaiting;
  bool began_ = false;        // says hello
  bool began_early_ = false;  // before it was started
  bool started_ = false;
  bool finished_ = false;
  JournalPosition highest_seen_;
  int64_t pid_ = 0;
  Progress progress_;               // the last that was told to this machine
  Generation reported_generation_;  // the last that the coordinator was told
  uint64_t bytes_known_ = 0;        // told, or moved under a lease

  // The lease: held in kResuming, kRunning and kPausing, else the last one.
  uint64_t epoch_ = 0;
  Time deadline_ = 0;
  double duration_s_ = 0;        // as last granted
  double lease_duration_s_ = 0;  // as granted when the deadline last moved
  int threads_ = 1;              // as last granted
  GangLease gang_lease_;
  bool of_gang_ = false;
  // Of the last pause. Beyond kPark nothing is asked for again.
  PauseTier pause_tier_ = PauseTier::kPark;
  std::string gang_address_;     // of this lease's store, if rank 0 has one
  uint64_t known_epoch_ = 0;     // highest that any message named; >= epoch_
  uint64_t released_epoch_ = 0;  // highest that was given up

  bool hello_answered_ = false;
  Time next_hello_ = 0;
  // The latest request: only its answer counts.
  uint64_t nonce_ = 0;
  Time request_sent_at_ = -kNever;
  int unanswered_ = 0;          // requests in a row
  bool awaits_answer_ = false;  // to the latest request
  Time next_request_ = 0;
  Time no_request_before_ = -kNever;  // after a ResumeFailed
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_LEASE_LEASE_MACHINE_H_
