// A simulation of rounds as bytes, and back.
#include <sstream>
#include <string>
#include <tuple>

#include "core/fields.h"
#include "core/packer.h"
#include "core/status.h"
#include "core/text.h"
#include "simulator/round_simulation.h"

namespace gavel {

constexpr RoundSimulation::Kind LastOf(RoundSimulation::Kind) {
  return RoundSimulation::Kind::kReport;
}

auto Fields(As<SimulatedJob> auto& j) {
  return std::tie(j.job, j.type, j.scale_factor, j.weight, j.arrival_s,
                  j.completion_s, j.jct_s, j.rho, j.cost, j.run_s, j.lost_s,
                  j.preemptions, j.moves, j.deadline_s, j.share_target,
                  j.share_received, j.rho_static, j.rho_mean, j.present_s);
}
auto Fields(As<UnfitJob> auto& j) { return std::tie(j.job, j.reason); }
auto Fields(As<RecordedLease> auto& l) {
  return std::tie(l.job, l.accelerator, l.from_s, l.to_s);
}
auto Fields(As<UsageSample> auto& s) {
  return std::tie(s.time_s, s.busy, s.waiting_jobs);
}
auto Fields(As<RoundSimulation::Task> auto& t) {
  return std::tie(t.kind, t.id, t.number);
}
auto Fields(As<RoundSimulation::Worker> auto& w) {
  return std::tie(w.incarnation, w.nonce, w.epoch, w.pausing, w.leaves, w.held,
                  w.from);
}
auto Fields(As<RoundSimulation::Running> auto& r) {
  return std::tie(r.index, r.id, r.workers, r.last, r.type, r.consolidated,
                  r.trains_from, r.steps, r.counted_at, r.steps_per_s, r.shared,
                  r.plan, r.pauses, r.pausing_s, r.told, r.profiling_s,
                  r.charged_at);
}
auto Fields(As<RoundSimulation::Counters> auto& c) {
  return std::tie(c.preemptions, c.moves, c.solves, c.failures, c.lost_s,
                  c.cost, c.profiling_s);
}
auto Fields(As<TimedQueue<RoundSimulation::Task>> auto& q) {
  return TimedQueue<RoundSimulation::Task>::State(q);
}

// Everything but what it was made with, and the engine.
template <class S>
auto RoundSimulation::State(S& s) {
  return std::tie(s.queue_, s.journaled_, s.persisted_, s.armed_, s.over_,
                  s.stopped_, s.next_, s.ended_in_window_, s.told_, s.unfit_,
                  s.last_end_, s.running_, s.occupants_, s.busy_, s.busy_s_,
                  s.busy_at_, s.counters_, s.idle_since_, s.usage_, s.leases_,
                  s.present_s_, s.present_at_);
}

absl::StatusOr<std::string> RoundSimulation::Checkpoint() const {
  GAVEL_ASSIGN_OR_RETURN(const std::string engine, engine_.Snapshot());
  std::ostringstream random;
  random << random_;
  Packer packer(kJournalLimits);
  packer.Array(4);
  packer.Put(static_cast<uint64_t>(work_.size()));
  packer.Put(engine);
  packer.Put(random.str());
  const auto state = State(*this);
  packer.Array(std::tuple_size_v<decltype(state)>);
  std::apply([&](const auto&... field) { (PutField(packer, field), ...); },
             state);
  GAVEL_RETURN_IF_ERROR(packer.status());
  return packer.Take();
}

absl::Status RoundSimulation::Resume(std::string_view checkpoint) {
  Unpacker unpacker(checkpoint, kJournalLimits);
  uint64_t jobs = 0;
  std::string engine;
  std::string random;
  unpacker.Get(jobs);
  unpacker.Get(engine);
  unpacker.Get(random);
  unpacker.Enter();
  std::apply([&](auto&... field) { (GetField(unpacker, field), ...); },
             State(*this));
  unpacker.Leave();
  if (!unpacker.ok()) {
    return absl::DataLossError(StrCat("the checkpoint is damaged: ",
                                      ToStd(unpacker.status().message())));
  }
  if (jobs != work_.size() || busy_.size() != work_.types().size()) {
    return absl::DataLossError(StrCat(
        "the checkpoint is of a simulation of ", jobs, " jobs, this one has ",
        work_.size(), "; resume it with the options that it was made with"));
  }
  GAVEL_RETURN_IF_ERROR(engine_.Restore(engine));
  std::istringstream(random) >> random_;
  inbox_.clear();
  queue_.Restored();
  by_id_.clear();
  for (auto job = running_.begin(); job != running_.end(); ++job) {
    by_id_[job->first] = job;
  }
  return absl::OkStatus();
}

}  // namespace gavel
