#include "coordinator/engine/engine.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "coordinator/engine/event_codec.h"
#include "core/rules.h"
#include "core/text.h"

namespace gavel {
namespace {

// The engine never goes back in time; a caller whose clock does is held at the
// latest time seen.
constexpr double kPlanLeadRoundFraction = 0.25;

// Calls `check` with what shows the journal position that an event's sender
// knows: the message itself, or the event that was made of it.
template <class Check>
void WithSender(const Event& event, const Check& check) {
  std::visit(
      [&](const auto& e) {
        if constexpr (requires { e.highest_seen; }) check(e);
        if constexpr (requires { e.hello; }) check(e.hello);
        if constexpr (requires { e.request; }) check(e.request);
        if constexpr (requires { e.heartbeat; }) check(e.heartbeat);
        if constexpr (requires { e.exit; }) check(e.exit);
        if constexpr (requires { e.message; }) check(e.message);
        if constexpr (requires { e.progress.highest_seen; }) check(e.progress);
      },
      event);
}

template <class T>
std::string SenderOf(const T& message) {
  if constexpr (requires { message.server; }) {
    return StrCat("agent ", message.server);
  } else {
    return StrCat("job ", message.worker.job.value());
  }
}

// What only a launch needs, of a job that has ended: up to 48 KiB, of each of
// thousands.
void ForgetProgram(JobSpec& spec) {
  spec.argv = {};
  spec.environment = {};
  spec.working_directory = {};
}

}  // namespace

Engine::Engine(EngineOptions options)
    : options_(std::move(options)),
      given_(SettingsNow()),
      round_duration_s_(options_.round_duration_s),
      lease_duration_s_(options_.lease_duration_s),
      mechanism_(options_.mechanism),
      queue_(options_.queue),
      memory_rounds_(options_.memory_rounds) {
  FindTableRows();
}

Actions Engine::Step(Time now, Event event) {
  if (halted_) return {};
  const bool unsolved = unsolved_;
  const uint64_t seq = seq_;
  Fence(event);
  if (halted_) return Close();
  std::visit([&](auto& e) { Admit(now, std::move(e)); }, event);
  if (fill_due_) Fill(now);
  if (memory_due_) MakeRoom(now);
  if (unsolved_ && !unsolved) unsolved_seq_ = seq_;
  MaybeSolve(now);
  if (seq_ != seq) Prune();
  return Close();
}

Actions Engine::Close() {
  Actions out = std::move(actions_);
  actions_.clear();
  if (!halted_) return out;
  // Nothing leaves a halted engine but the reason.
  std::erase_if(out, [](const Action& action) {
    return !std::holds_alternative<action::Halt>(action);
  });
  return out;
}

void Engine::Reuse(Actions done) {
  if (!actions_.empty()) return;
  done.clear();
  actions_ = std::move(done);
}

Time Engine::NextDeadline() const {
  if (halted_) return kNever;
  Time next = std::min(next_sweep_, solve_retry_at_);
  if (unsolved_ && !solving_ && persisted_ >= unsolved_seq_) {
    next = std::min(next, SolveDue());
  }
  if (round_ends_at_ != kNever) {
    next =
        std::min(next, planned_ ? round_ends_at_ : round_ends_at_ - PlanLead());
  }
  return next;
}

void Engine::Replay(uint64_t seq, uint64_t term, Time time,
                    const Event& event) {
  replaying_ = true;
  seq_ = seq;
  term_ = term;
  persisted_ = seq;
  Apply(time, event);
  Prune();
  replaying_ = false;
  fill_due_ = false;
  memory_due_ = false;
  actions_.clear();
  unpersisted_.clear();
}

// The journal row comes before anything that applying the event brings about,
// and everything but solving waits until the row is on disk: a coordinator that
// dies in between has promised nothing that its successor does not know.
void Engine::Record(Time now, Event event) {
  ++seq_;
  if (auto* start = std::get_if<event::CoordinatorStarted>(&event)) {
    term_ = start->term;
    term_seq_ = seq_;
    start->round_duration_s = options_.round_duration_s;
    start->lease_duration_s = options_.lease_duration_s;
    start->mechanism = options_.mechanism;
    start->queue = options_.queue;
    start->memory_rounds = options_.memory_rounds;
    start->settings = given_;
    if (start->after_loss) start->numbers_from = start->term;
  }
  if (!options_.journal) return Apply(now, event);
  const auto kept = std::make_shared<const Event>(std::move(event));
  actions_.push_back(
      action::Persist{seq_, term_, now, EncodeEvent(*kept), kept});
  Apply(now, *kept);
}

void Engine::Apply(Time now, const Event& event) {
  std::visit([&](const auto& e) { On(now, e); }, event);
}

event::Settings Engine::SettingsNow() const {
  event::Settings now;
  now.told = true;
  now.reset_interval_s = options_.reset_interval_s;
  now.packing = options_.packing;
  now.pair_trials = options_.pair_trials;
  now.placement_sensitive = options_.placement_sensitive;
  now.keep_absence_s_max = options_.keep_absence_s_max;
  now.park_absence_s_max = options_.park_absence_s_max;
  now.plan_lead_s = options_.plan_lead_s;
  now.resize_rounds = options_.resize_rounds;
  now.entities = options_.entities;
  now.throughputs = options_.throughputs;
  now.reference_models = options_.reference_models;
  now.profiling_percentage = options_.profiling_percentage;
  now.solve_gap_s_per_job = options_.solve_gap_s_per_job;
  now.progress = options_.progress;
  now.user_shares = options_.user_shares;
  return now;
}

// Of the term that rows belong to, whatever this engine was made with.
void Engine::Apply(const event::Settings& settings) {
  if (!settings.told) return;
  options_.reset_interval_s = settings.reset_interval_s;
  options_.packing = settings.packing;
  options_.pair_trials = settings.pair_trials;
  options_.placement_sensitive = settings.placement_sensitive;
  options_.keep_absence_s_max = settings.keep_absence_s_max;
  options_.park_absence_s_max = settings.park_absence_s_max;
  options_.plan_lead_s = settings.plan_lead_s;
  options_.resize_rounds = settings.resize_rounds;
  options_.entities = settings.entities;
  options_.throughputs = settings.throughputs;
  options_.reference_models = settings.reference_models;
  options_.profiling_percentage = settings.profiling_percentage;
  options_.solve_gap_s_per_job = settings.solve_gap_s_per_job;
  options_.progress = settings.progress;
  options_.user_shares = settings.user_shares;
  FindTableRows();
}

// Their throughput file may be another one by now.
void Engine::FindTableRows() {
  references_.reset();
  if (options_.reference_models > 0 && options_.throughputs != nullptr) {
    references_.emplace(options_.throughputs, options_.reference_models);
  }
  for (auto& [id, job] : jobs_) FindTableRow(job);
}

void Engine::Emit(Action&& action) {
  if (replaying_) return;
  // Without a journal there is no disk to wait for.
  if (!options_.journal || !Rules::Hold(Rule::kActsAfterPersist)) {
    actions_.push_back(std::move(action));
  } else {
    unpersisted_.Push(seq_, std::move(action));
  }
}

void Engine::EmitNow(Action&& action) {
  if (replaying_) return;
  // Nobody hears of a term before it is on disk.
  if (persisted_ < term_seq_ && options_.journal &&
      Rules::Hold(Rule::kTermIsOnDiskFirst)) {
    unpersisted_.Push(term_seq_, std::move(action));
  } else {
    actions_.push_back(std::move(action));
  }
}

void Engine::Flush() {
  while (!unpersisted_.empty() && unpersisted_.front().first <= persisted_) {
    actions_.push_back(unpersisted_.Pop().second);
  }
}

void Engine::Admit(Time, const event::Persisted& e) {
  persisted_ = std::max(persisted_, e.seq);
  Flush();
}

// A term ends where the next one begins: who saw more of it, saw rows that are
// not there any more.
bool Engine::Knows(const JournalPosition& seen) const {
  if (!Rules::Hold(Rule::kUnknownPositionHalts)) return true;
  if (seen.term >= term_) return seen <= position();
  const auto next = term_starts_.upper_bound(seen.term);
  return next == term_starts_.end() || seen.seq < next->second ||
         !Rules::Hold(Rule::kEarlierTermsAreWhole);
}

// Before anything else is done with it.
void Engine::Fence(const Event& event) {
  WithSender(event, [this](const auto& sender) {
    const JournalPosition& seen = sender.highest_seen;
    if (Knows(seen)) return;
    const auto next = term_starts_.upper_bound(seen.term);
    halted_ = true;
    actions_.push_back(action::Halt{StrCat(
        SenderOf(sender), " has seen term ", seen.term, " seq ", seen.seq,
        " of the journal, this coordinator is at term ", term_, " seq ", seq_,
        next == term_starts_.end() ? ""
                                   : StrCat(" and term ", next->first,
                                            " begins at seq ", next->second),
        ": another coordinator has taken over, or the end of this journal was "
        "lost. Find the newer journal and start the coordinator on it, or, "
        "where there is none, start it with --accept-loss; nothing more is "
        "granted from here")});
  });
}

double Engine::PlanLead() const {
  return std::min(options_.plan_lead_s,
                  kPlanLeadRoundFraction * round_duration_s_);
}

// Jobs that are over leave what is walked at every round, and at last the
// table itself.
void Engine::Prune() {
  for (const JobId id : over_) {
    Job* job = FindLive(id);
    if (job == nullptr || job->active() || job->AnyLive()) continue;
    job->live = false;
    waiting_.erase(id);
    live_.erase(id);
    if (job->state != JobState::kHeld) ForgetProgram(job->spec);
  }
  over_.clear();
  while (ended_.size() > options_.ended_jobs_kept &&
         FindLive(ended_.front()) == nullptr) {
    if (const auto ended = by_id_.find(ended_.front()); ended != by_id_.end()) {
      jobs_.erase(ended->second);
      by_id_.erase(ended);
    }
    ended_.pop_front();
  }
}

}  // namespace gavel
