#include "runtime/lease/lease_machine.h"

#include <algorithm>
#include <cassert>
#include <type_traits>
#include <utility>

namespace gavel {

namespace {

// A lease lasts at most a day; a longer grant is an error of the sender.
constexpr double kLeaseDurationMax_s = 24 * 3600;
// A worker waits at most this long after a LeaseDenied, whatever delay it asks
// for.
constexpr double kRetryAfterMax_s = 60;
// The shortest wait before a worker asks again after it could not take an
// accelerator: the holder of the accelerator's lock needs time to exit.
constexpr double kRetryAfterFailure_s = 5;
// The interval between unanswered requests grows up to this many request
// intervals. Only an answer to the latest request counts, so a coordinator that
// takes longer than one interval to answer is heard once the interval has grown
// enough.
constexpr int kRequestSlowDownMax = 5;
// Thousands of workers are notified of a round at once, and their leases end
// with it together. Each asks at a moment of its own, so that the coordinator
// does not get all requests at once. A request for an extension is delayed by
// at most this time and at most this part of the remaining lease time. A
// renewal is sent earlier than necessary by at most this part of its delay.
constexpr double kExtensionSpread_s_max = 5;
constexpr double kExtensionSpreadPart = 0.5;
constexpr double kRenewalSpreadPart = 0.4;
// If the last grant did not extend the lease, a worker asks again after this
// part of the granted duration.
constexpr double kVainRenewalPart = 0.6;

// After so many requests without an answer, each request follows a new hello.
constexpr int kUnansweredUntilHello = 2;

// Returns a value in [0, 1) that differs between workers and between the
// requests of one worker (the finalizer of SplitMix64).
double MomentOf(const WorkerKey& worker, uint64_t nonce) {
  uint64_t mixed = worker.job.value() * 0x9e3779b97f4a7c15 +
                   static_cast<uint64_t>(worker.rank) * 0xd1342543de82ef95 +
                   worker.incarnation + nonce * 0xda942042e4dd58b5;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((mixed ^ (mixed >> 31)) >> 11) * 0x1p-53;
}

}  // namespace

double GangStopAhead(const GangLease& lease) {
  constexpr double kLeaseParts = 5;
  constexpr double kMin_s = 0.2;
  constexpr double kMax_s = 3;
  // Two steps must fit after the boundary at which the rank asks. That boundary
  // may come up to one step after the time to ask has begun.
  constexpr double kSteps = 3;
  // An extension takes a notice and a request, for which the rest of the lead
  // is left.
  constexpr double kLeadPart = 0.75;
  const double least_s =
      std::clamp(lease.lease_s / kLeaseParts, kMin_s, kMax_s);
  const double most_s = std::max(least_s, kLeadPart * lease.extension_lead_s);
  return std::clamp(kSteps * lease.step_s + kMin_s, least_s, most_s);
}

LeaseMachine::LeaseMachine(LeaseOptions options)
    : options_(std::move(options)) {
  assert(options_.request_interval_s > 0);
  assert(options_.renew_interval_s_min > 0);
  assert(options_.renew_interval_s_min <= options_.request_interval_s);
}

LeaseActions LeaseMachine::Step(Time now, const LeaseEvent& event) {
  now_ = now;
  // This comes first, so that no late event can revive a lease that has ended.
  if (HoldsLease() && now_ >= deadline_) {
    Pause(PauseTier::kPark, "lease ended");
  }
  std::visit([this](const auto& e) { On(e); }, event);
  if (began_ && Asks()) {
    if (!hello_answered_ && now_ >= next_hello_) SendHello();
    if (started_ && now_ >= next_request_) SendRequest();
  }
  return std::exchange(actions_, {});
}

Time LeaseMachine::NextDeadline() const {
  if (!began_ || !Asks()) return kNever;
  Time next = started_ ? next_request_ : kNever;
  if (!hello_answered_) next = std::min(next, next_hello_);
  if (HoldsLease()) next = std::min(next, deadline_);
  return next;
}

void LeaseMachine::On(const lease_event::Began& e) {
  if (began_) return;
  began_ = began_early_ = true;
  pid_ = e.pid;
  next_hello_ = now_;
}

void LeaseMachine::On(const lease_event::Started& e) {
  if (started_) return;
  began_ = started_ = true;
  hello_answered_ = false;
  pid_ = e.pid;
  progress_ = e.progress;
  reported_generation_ = e.progress.last_generation;
  next_hello_ = now_;
  next_request_ = now_;
}

void LeaseMachine::On(const lease_event::MessageReceived& e) {
  const auto take = [&]<class T>(const T* message) {
    if (message == nullptr || !Listens(message->worker, message->position)) {
      return;
    }
    // A LeaseNotice answers a hello. If the worker sent two, one after Began
    // and one after Started, the notice may answer the first.
    const bool may_be_old =
        std::is_same_v<T, LeaseNotice> && began_early_ && started_;
    if (!may_be_old) hello_answered_ = true;
    Take(*message);
  };
  take(std::get_if<LeaseGrant>(&e.message));
  take(std::get_if<LeaseDenied>(&e.message));
  take(std::get_if<LeaseNotice>(&e.message));
  take(std::get_if<PauseRequest>(&e.message));
  take(std::get_if<CheckpointRequest>(&e.message));
  take(std::get_if<WorkerRejected>(&e.message));
}

void LeaseMachine::On(const lease_event::Resumed& e) {
  if (state_ == State::kResuming && e.epoch == epoch_) state_ = State::kRunning;
}

void LeaseMachine::On(const lease_event::GangOpened& e) {
  if (!HoldsLease() || e.epoch != epoch_) return;
  gang_address_ = e.address;
  AskNow();  // the other ranks wait for it
}

void LeaseMachine::On(const lease_event::ResumeFailed& e) {
  if (state_ != State::kResuming && state_ != State::kPausing) return;
  if (e.epoch != epoch_) return;
  GiveBack(progress_, e.cause);
  no_request_before_ = now_ + kRetryAfterFailure_s;
  next_request_ = no_request_before_;
}

void LeaseMachine::On(const lease_event::Parked& e) {
  if (!HoldsLease() && state_ != State::kPausing) return;
  if (e.epoch != epoch_) return;
  GiveBack(e.progress, ReleaseCause::kPaused);
  next_request_ = now_;
}

void LeaseMachine::On(const lease_event::Finished& e) {
  if (finished_) return;
  finished_ = true;
  state_ = State::kEnded;
  progress_ = e.progress;
  Send(WorkerFinished{options_.worker, epoch_, e.exit_code, e.progress,
                      e.detail, highest_seen_});
}

void LeaseMachine::On(const lease_event::Progressed& e) {
  if (!started_ || finished_) return;
  progress_ = e.progress;
  const bool training = state_ == State::kRunning || state_ == State::kPausing;
  // The checkpoint of a pause is committed after the lease was given back. It
  // is still reported, once.
  const bool just_parked = epoch_ != 0 && released_epoch_ == epoch_ &&
                           e.progress.last_generation != reported_generation_;
  if (training || just_parked) SendReport();
}

void LeaseMachine::On(const lease_event::BytesCounted& e) {
  // Bytes that the process moves while it trains do not show work on its start
  // or its stop.
  if (state_ == State::kRunning && !e.saving) {
    bytes_known_ = std::max(bytes_known_, e.bytes);
  }
  if (!began_ || finished_ || e.bytes < bytes_known_ + kBytesRiseMin) return;
  bytes_known_ = e.bytes;
  Send(BytesMoved{options_.worker, highest_seen_, e.bytes});
}

void LeaseMachine::On(const lease_event::Tick&) {}

// Only the answer to the latest request gives a lease, and the lease counts
// from the moment when that request was sent.
void LeaseMachine::Take(const LeaseGrant& grant) {
  if (grant.nonce != nonce_) return;
  if (grant.epoch < known_epoch_) return;
  if (grant.epoch <= released_epoch_) return;
  if (!(grant.duration_s > 0 && grant.duration_s <= kLeaseDurationMax_s)) {
    return;
  }
  const bool renewal = HoldsLease();
  if (renewal ? grant.epoch != epoch_ : state_ != State::kWaiting) return;

  unanswered_ = 0;
  awaits_answer_ = false;
  known_epoch_ = grant.epoch;
  const Time deadline = request_sent_at_ + grant.duration_s;
  const bool changed =
      deadline != deadline_ || grant.accelerator.threads != threads_;
  next_request_ = NextRenewal(grant.duration_s, renewal);
  if (deadline <= now_) return;  // over before it arrived
  deadline_ = deadline;
  duration_s_ = grant.duration_s;
  gang_lease_.extension_lead_s = grant.extension_lead_s;
  threads_ = grant.accelerator.threads;
  if (!renewal) {
    epoch_ = grant.epoch;
    of_gang_ = grant.world_size > 1;
    gang_lease_.lease_s = deadline - now_;
    state_ = State::kResuming;
    actions_.emplace_back(lease_action::Resume{
        grant.epoch, grant.accelerator, grant.slots, grant.world_size, deadline,
        grant.gang_address, grant.memory_limit_bytes, grant.extension_lead_s});
  } else if (changed) {
    actions_.emplace_back(lease_action::Extend{epoch_, deadline, threads_,
                                               grant.extension_lead_s});
  }
}

// Returns when to ask again after a grant of `duration_s`. If the grant is a
// new lease or extends the one held, that is when a third of it is over, at the
// latest. Otherwise the lease ends with the round, and a LeaseNotice tells when
// it can be extended, so asking earlier is in vain. In case that notice is
// lost, the worker asks when most of the rest is over and once more shortly
// before the end.
Time LeaseMachine::NextRenewal(double duration_s, bool renewal) {
  const double sooner =
      1 - kRenewalSpreadPart * MomentOf(options_.worker, nonce_);
  const Time deadline = request_sent_at_ + duration_s;
  const double margin_s = PaceFor(lease_duration_s_) / 4;
  if (!renewal || deadline > deadline_ + margin_s) {
    lease_duration_s_ = duration_s;
    return std::max(request_sent_at_ + sooner * duration_s / 3,
                    now_ + options_.renew_interval_s_min);
  }
  const Time next =
      std::max(request_sent_at_ + sooner * kVainRenewalPart * duration_s,
               now_ + PaceFor(lease_duration_s_));
  if (next < deadline) return next;
  return std::max(now_ + margin_s, deadline - margin_s);
}

void LeaseMachine::Take(const LeaseDenied& denied) {
  known_epoch_ = std::max(known_epoch_, denied.epoch);
  if (denied.nonce != nonce_) return;
  unanswered_ = 0;
  awaits_answer_ = false;
  double retry_after_s = options_.request_interval_s;
  if (denied.retry_after_s == denied.retry_after_s) {  // not NaN
    retry_after_s = std::clamp(denied.retry_after_s,
                               options_.renew_interval_s_min, kRetryAfterMax_s);
  }
  next_request_ = std::max(now_ + retry_after_s, no_request_before_);
}

void LeaseMachine::Take(const LeaseNotice& notice) {
  if (notice.epoch < known_epoch_) return;
  known_epoch_ = notice.epoch;
  if (!HoldsLease()) return AskNow();
  if (notice.epoch != epoch_) return;
  const double steps_per_s = progress_.throughput_steps_per_s;
  if (steps_per_s > 0) gang_lease_.step_s = 1 / steps_per_s;
  const double stop_ahead_s = of_gang_ ? GangStopAhead(gang_lease_) : 0;
  const double left_s = std::max(0.0, deadline_ - stop_ahead_s - now_);
  const double spread_s =
      std::min(kExtensionSpread_s_max, kExtensionSpreadPart * left_s);
  AskNow(spread_s * MomentOf(options_.worker, nonce_));
}

void LeaseMachine::Take(const PauseRequest& request) {
  // Only a request with the epoch of the held lease ends it: a late request
  // must not end the next lease. Without a lease, only a request with an epoch
  // older than the newest known one is ignored.
  if (HoldsLease() || state_ == State::kPausing) {
    if (request.epoch != epoch_) return;
  } else {
    if (request.epoch < known_epoch_) return;
    known_epoch_ = request.epoch;
  }
  const bool ends = StrongerThan(request.tier, PauseTier::kPark);
  Pause(request.tier, ends ? "ended by the coordinator" : "round over");
}

// A worker that is about to stop saves anyway.
void LeaseMachine::Take(const CheckpointRequest&) {
  if (state_ == State::kRunning || state_ == State::kResuming) {
    actions_.emplace_back(lease_action::Checkpoint{});
  }
}

void LeaseMachine::Take(const WorkerRejected& rejected) {
  Pause(PauseTier::kEvict, "rejected: " + rejected.reason, /*rejected=*/true);
}

// Ignores messages for another incarnation of this worker and messages of a
// coordinator that has been replaced.
bool LeaseMachine::Listens(const WorkerKey& worker,
                           const JournalPosition& position) {
  if (!began_ || finished_) return false;
  if (worker != options_.worker) return false;
  if (position.term < highest_seen_.term) return false;
  highest_seen_ = std::max(highest_seen_, position);
  return true;
}

bool LeaseMachine::HoldsLease() const {
  return state_ == State::kResuming || state_ == State::kRunning;
}

bool LeaseMachine::Asks() const {
  return state_ == State::kWaiting || HoldsLease();
}

void LeaseMachine::Pause(PauseTier tier, std::string why, bool rejected) {
  if (HoldsLease()) {
    state_ = State::kPausing;
  } else if (!StrongerThan(tier, pause_tier_)) {
    return;  // parked, pausing or ending already, and as far as this
  } else if (state_ == State::kWaiting) {
    if (!StrongerThan(tier, PauseTier::kPark)) return;  // holds no lease
    state_ = State::kEnded;
  }
  pause_tier_ = tier;
  actions_.emplace_back(lease_action::Pause{tier, std::move(why), rejected});
}

void LeaseMachine::GiveBack(const Progress& progress, ReleaseCause cause) {
  const bool ends =
      state_ == State::kPausing && StrongerThan(pause_tier_, PauseTier::kPark);
  state_ = ends ? State::kEnded : State::kWaiting;
  released_epoch_ = epoch_;
  deadline_ = 0;
  unanswered_ = 0;
  gang_address_.clear();
  progress_ = progress;
  reported_generation_ = progress.last_generation;
  Send(LeaseReleased{options_.worker, epoch_, progress, cause, highest_seen_});
}

void LeaseMachine::Send(Message message) {
  actions_.emplace_back(lease_action::Send{std::move(message)});
}

void LeaseMachine::SendHello() {
  next_hello_ = now_ + options_.request_interval_s;
  Send(WorkerHello{options_.worker, highest_seen_, pid_, progress_, started_});
}

void LeaseMachine::SendRequest() {
  // A coordinator whose journal was restored may not know that this worker
  // joined, and answers no request before it does.
  if (unanswered_ >= kUnansweredUntilHello) SendHello();
  const bool holding = HoldsLease();
  ++nonce_;
  request_sent_at_ = now_;
  next_request_ = now_ + RequestInterval();
  ++unanswered_;
  awaits_answer_ = true;
  Send(LeaseRequest{options_.worker, highest_seen_,
                    holding ? epoch_ : known_epoch_, nonce_, holding,
                    released_epoch_, holding ? gang_address_ : ""});
}

void LeaseMachine::SendReport() {
  reported_generation_ = progress_.last_generation;
  Send(StepReport{options_.worker, epoch_, progress_, highest_seen_});
}

void LeaseMachine::AskNow(double delay_s) {
  unanswered_ = 0;
  // Notices may come twice. Each request voids the answer to the one before, so
  // a request keeps a minimum distance from one that is not yet answered.
  const double distance_s = awaits_answer_ ? options_.renew_interval_s_min : 0;
  const Time soonest = std::max(
      {now_ + delay_s, request_sent_at_ + distance_s, no_request_before_});
  next_request_ = std::min(next_request_, soonest);
}

// While the worker holds a lease, it repeats its request at full pace and once
// more shortly before the lease ends, so that a coordinator that recovers in
// time finds its workers running. The shorter the lease, the faster the pace.
// Without a lease the interval grows while no answer comes.
double LeaseMachine::RequestInterval() const {
  if (HoldsLease()) {
    const double pace_s = PaceFor(duration_s_);
    const double last_s = deadline_ - now_ - pace_s / 4;
    return last_s < options_.renew_interval_s_min ? pace_s
                                                  : std::min(pace_s, last_s);
  }
  return options_.request_interval_s *
         std::min(unanswered_ + 1, kRequestSlowDownMax);
}

double LeaseMachine::PaceFor(double duration_s) const {
  return std::clamp(duration_s / 3, options_.renew_interval_s_min,
                    options_.request_interval_s);
}

}  // namespace gavel
