#include "coordinator/server/history_projector.h"

#include <algorithm>
#include <tuple>
#include <variant>

#include "absl/strings/str_format.h"
#include "coordinator/engine/arrays.h"
#include "coordinator/server/query.h"
#include "coordinator/workload/job_spec.h"
#include "core/fields.h"
#include "core/packer.h"
#include "core/text.h"

namespace gavel {
namespace {

std::string_view CauseName(const event::LeaseEnded& e) {
  switch (e.cause) {
    case ReleaseCause::kOutOfMemory:
      return "out of memory";
    case ReleaseCause::kResumeFailed:
      return "could not start";
    case ReleaseCause::kDeviceFailed:
      return "device failed";
    case ReleaseCause::kNoRoom:
      return "no room";
    case ReleaseCause::kPaused:
      break;
  }
  return e.finished ? "finished" : "paused";
}

}  // namespace

// For Packer; in the namespace that lookup needs.
constexpr JobState LastOf(JobState) { return JobState::kHeld; }
auto Fields(As<HistoryJob> auto& j) {
  return std::tie(j.job, j.last_seq, j.over, j.name, j.user, j.entity, j.app,
                  j.state, j.reason, j.scale_factor, j.weight, j.submitted_s,
                  j.started_s, j.ended_s, j.run_s, j.pausing_s, j.steps_done,
                  j.steps_total, j.pauses, j.moves, j.evictions, j.failures,
                  j.exit_code, j.signal, j.accelerator_s, j.steps_per_s,
                  j.given_steps_per_s);
}
auto Fields(As<HistoryLease> auto& l) {
  return std::tie(l.seq, l.job, l.rank, l.epoch, l.server, l.type, l.uuid,
                  l.from_s, l.to_s, l.steps_from, l.steps_to, l.ended);
}
auto Fields(As<HistoryProjector::OpenLease> auto& l) {
  return std::tie(l.row, l.since, l.incarnation);
}
auto Fields(As<HistoryProjector::Rate> auto& r) {
  return std::tie(r.steps, r.seconds);
}
auto Fields(As<HistoryProjector::OpenJob> auto& j) {
  return std::tie(j.row, j.leases, j.rates, j.reports, j.reports_kept, j.stride,
                  j.told, j.at_risk);
}

struct HistoryProjector::Observation {
  HistoryProjector& own;
  uint64_t seq;
  Time now;
  const Engine& engine;
  std::vector<HistoryRow> rows = {};
  uint64_t notices = 0;  // among them

  OpenJob* Find(JobId job) {
    const auto found = own.jobs_.find(job);
    return found == own.jobs_.end() ? nullptr : &found->second;
  }

  void On(const event::CoordinatorStarted& e) {
    if (e.wall_s > 0) own.wall_offset_s_ = e.wall_s - now;
    if (!e.policy.empty()) own.policy_ = e.policy;
    own.round_duration_s_ = e.round_duration_s;
  }

  void On(const event::JobSubmitted&) {
    for (const JobId id : LastSubmitted(engine.jobs())) {
      own.jobs_[id].row.submitted_s = own.WallTime(now);
      Tell(id);
    }
  }

  // A job that was held and may try again is open again.
  void On(const event::JobCommanded& e) {
    for (const JobId id : NamedJobs(engine.jobs(), e)) Tell(id);
  }

  void On(const event::JobUpdated& e) {
    OpenJob* const job = Find(e.job);
    if (job != nullptr && e.update.deadline_s) job->at_risk = false;
    Tell(e.job);
  }

  void On(const event::TimeReached& e) { Tell(e.job); }

  void On(const event::PolicyChanged& e) { own.policy_ = e.policy; }

  void On(const event::LeaseStarted& e) {
    OpenJob* job = Find(e.worker.job);
    if (job == nullptr) return;
    const int rank = e.worker.rank;
    CloseLease(*job, rank, "replaced", Progress());
    const Accelerator& accelerator =
        engine.cluster().accelerator(e.accelerator);
    OpenLease lease;
    lease.row.seq = seq;
    lease.row.job = e.worker.job.value();
    lease.row.rank = rank;
    lease.row.epoch = e.epoch;
    lease.row.server = accelerator.server;
    lease.row.type = accelerator.info.type;
    lease.row.uuid = accelerator.info.uuid;
    lease.row.from_s = own.WallTime(now);
    const Job* const held_by = engine.FindJob(e.worker.job);
    const auto index = static_cast<size_t>(rank);
    if (held_by != nullptr && index < held_by->workers.size()) {
      lease.row.steps_from = held_by->workers[index].progress.steps_done;
    }
    lease.since = now;
    lease.incarnation = e.worker.incarnation;
    if (job->row.started_s == 0) {
      job->row.started_s = lease.row.from_s;
      if (held_by != nullptr) {
        NoteJob(*held_by, "started",
                StrCat("has started on ", lease.row.type, " of server ",
                       lease.row.server));
      }
    }
    rows.emplace_back(lease.row);
    job->leases[rank] = std::move(lease);
    Tell(e.worker.job);
  }

  void CloseLease(OpenJob& job, int rank, std::string_view why,
                  const Progress& progress) {
    const auto it = job.leases.find(rank);
    if (it == job.leases.end()) return;
    OpenLease& lease = it->second;
    const double held_s = now - lease.since;
    lease.row.to_s = own.WallTime(now);
    lease.row.steps_to = std::max(lease.row.steps_from, progress.steps_done);
    lease.row.ended = why;
    job.row.accelerator_s[lease.row.type] += held_s;
    if (rank == 0) job.row.run_s += held_s;
    rows.emplace_back(std::move(lease.row));
    job.leases.erase(it);
  }

  void On(const event::LeaseEnded& e) {
    if (OpenJob* job = Find(e.worker.job)) {
      CloseLease(*job, e.worker.rank, CauseName(e), e.progress);
      Tell(e.worker.job);
    }
  }

  void On(const event::WorkerGone& e) {
    OpenJob* job = Find(e.exit.worker.job);
    if (job == nullptr) return;
    if (!e.exit.no_failure) {
      job->row.exit_code = e.exit.exit_code == kExitEvicted &&
                                   e.end != event::ProcessEnd::kFailed
                               ? 0
                               : e.exit.exit_code;
      job->row.signal = e.exit.signal;
      const bool by_code = (job->row.exit_code != 0 || e.exit.signal != 0 ||
                            !e.exit.launch_error.empty()) &&
                           !e.exit.stopped;
      const bool failed = e.end == event::ProcessEnd::kUntold
                              ? by_code
                              : e.end == event::ProcessEnd::kFailed;
      job->row.failures += failed ? 1 : 0;
    }
    if (e.launched_on.valid()) AddSilent(*job, e);
    // Writes the job's row, which may be the last one: then it is forgotten.
    CloseVanished(e.exit.worker.job, "process ended");
  }

  // It had the accelerator without a lease, and is paid for as if with one.
  void AddSilent(OpenJob& job, const event::WorkerGone& e) {
    const Accelerator& accelerator =
        engine.cluster().accelerator(e.launched_on);
    HistoryLease row;
    row.seq = seq;
    row.job = e.exit.worker.job.value();
    row.rank = e.exit.worker.rank;
    row.server = accelerator.server;
    row.type = accelerator.info.type;
    row.uuid = accelerator.info.uuid;
    row.from_s = own.WallTime(e.launched_at);
    row.to_s = own.WallTime(now);
    row.ended = "never spoke";
    const double held_s = now - e.launched_at;
    job.row.accelerator_s[row.type] += held_s;
    if (row.rank == 0) job.row.run_s += held_s;
    if (job.row.started_s == 0) job.row.started_s = row.from_s;
    rows.emplace_back(std::move(row));
  }

  void On(const event::WorkerAbandoned& e) {
    CloseVanished(e.worker.job, "server lost");
  }

  // Its hello tells which processes are gone.
  void On(const event::ServerJoined& e) {
    std::vector<JobId> there;
    for (const auto& [id, job] : own.jobs_) {
      for (const auto& [rank, lease] : job.leases) {
        if (lease.row.server == e.hello.server) there.push_back(id);
      }
    }
    for (const JobId id : there) CloseVanished(id, "agent started anew");
    TellChanged();
  }

  void On(const event::ServerLost& e) {
    if (!e.left) {
      Note("node_lost",
           StrCat("Server ", e.server,
                  " is lost: its agent is silent, and its accelerators can't "
                  "be reached."));
    }
    TellChanged();
  }

  void On(const event::AcceleratorLost& e) {
    const AcceleratorId id = engine.cluster().Find(e.server, e.uuid);
    if (id.valid() &&
        engine.cluster().accelerator(id).state == AcceleratorState::kLost) {
      Note("node_lost",
           StrCat("Accelerator ", e.uuid, " of server ", e.server,
                  " has failed; no job gets it until its agent is started "
                  "anew."));
    }
    TellChanged();
  }

  void On(const event::AcceleratorsDrained& e) {
    if (e.drained && !e.why.empty()) {
      Note("node_lost",
           StrCat("Accelerator ", e.uuid, " of server ", e.server,
                  " is drained by the coordinator."),
           e.why);
    }
    TellChanged();
  }

  // Leases that the engine no longer counts as held.
  void CloseVanished(JobId id, std::string_view why) {
    OpenJob* job = Find(id);
    const Job* const known = engine.FindJob(id);
    if (job == nullptr || known == nullptr) return;
    const std::vector<Worker>& workers = known->workers;
    std::vector<int> gone;
    for (const auto& [rank, lease] : job->leases) {
      const auto index = static_cast<size_t>(rank);
      const bool held = index < workers.size() &&
                        workers[index].held_epoch == lease.row.epoch &&
                        workers[index].incarnation == lease.incarnation;
      if (!held) gone.push_back(rank);
    }
    for (const int rank : gone) {
      const auto index = static_cast<size_t>(rank);
      CloseLease(*job, rank, why,
                 index < workers.size() ? workers[index].progress : Progress());
    }
    Tell(id);
  }

  void On(const event::StepsReported& e) {
    OpenJob* job = Find(e.worker.job);
    if (job == nullptr || e.worker.rank != 0) return;
    const auto lease = job->leases.find(0);
    HistorySteps steps;
    if (lease != job->leases.end()) steps.type = lease->second.row.type;
    const Job* const known = engine.FindJob(e.worker.job);
    const bool alone = known != nullptr && !known->partner.valid();
    if (alone && !steps.type.empty() && e.progress.window_s > 0) {
      Rate& rate = job->rates[steps.type];
      rate.steps += e.progress.throughput_steps_per_s * e.progress.window_s;
      rate.seconds += e.progress.window_s;
    }
    const uint64_t number = job->reports++;
    if (number % job->stride != 0) return;
    steps.seq = seq;
    steps.job = e.worker.job.value();
    steps.number = number;
    steps.at_s = own.WallTime(now);
    steps.steps_done = e.progress.steps_done;
    steps.steps_per_s = e.progress.throughput_steps_per_s;
    rows.emplace_back(std::move(steps));
    if (++job->reports_kept < kHistoryStepsMax) return;
    job->stride *= 2;
    job->reports_kept = (job->reports_kept + 1) / 2;
    rows.emplace_back(HistoryThinned{e.worker.job.value(), job->stride});
  }

  void On(const event::RoundStarted&) {
    HistoryRound round;
    round.seq = seq;
    round.round = engine.rounds();
    round.from_s = own.WallTime(now);
    for (const auto& [id, open] : own.jobs_) {
      const Job* const job = engine.FindJob(id);
      if (job == nullptr || !job->active()) continue;
      ++(job->assigned.empty() ? round.waiting : round.running);
      // Each job of a packed pair counts half.
      const double part = job->partner.valid() ? 0.5 : 1;
      for (const AcceleratorId where : job->assigned) {
        round.busy[engine.cluster().accelerator(where).info.type] += part;
      }
    }
    rows.emplace_back(std::move(round));
    TellShares();
    for (auto& [id, open] : own.jobs_) LookAtDeadline(id, open);
  }

  // Tells once of a deadline that the job will miss at its present rate: the
  // steps/s measured where it ran last, for the share of time that the policy
  // gives it. A job without a share counts as if it ran from now on.
  void LookAtDeadline(JobId id, OpenJob& open) {
    const Job* const job = engine.FindJob(id);
    if (open.at_risk || job == nullptr || !job->active() ||
        !job->spec.deadline_s) {
      return;
    }
    const double left_s = job->submitted_at + *job->spec.deadline_s - now;
    const double needed_s = SecondsNeeded(*job, open);
    if (left_s > 0 && needed_s <= left_s) return;
    open.at_risk = true;
    const std::string what =
        left_s <= 0 ? std::string("has missed its deadline")
                    : absl::StrFormat(
                          "will miss its deadline: it needs about %.0f s more "
                          "at its present rate, and has %.0f s",
                          needed_s, left_s);
    NoteJob(*job, "at_risk", what);
  }

  // 0: not known. Only by what the journal has, so that a replay tells the
  // same.
  double SecondsNeeded(const Job& job, const OpenJob& open) const {
    if (job.spec.steps_total == 0 || job.workers.empty()) return 0;
    const AcceleratorId last = job.stays.last();
    const auto total = static_cast<double>(job.spec.steps_total);
    const auto done = static_cast<double>(job.workers[0].known.steps_done);
    const auto here =
        last.valid()
            ? open.rates.find(engine.cluster().accelerator(last).info.type)
            : open.rates.end();
    double steps_per_s = 0;
    if (here != open.rates.end() && here->second.seconds > 0) {
      steps_per_s = here->second.steps / here->second.seconds;
    } else {
      for (const auto& [type, given] : job.spec.throughputs) {
        steps_per_s = std::max(steps_per_s, given);
      }
    }
    if (!(steps_per_s > 0)) return 0;
    const double share = job.target_share > 0 ? job.target_share : 1;
    return std::max(0.0, total - done) / (steps_per_s * share);
  }

  void Note(std::string_view event, std::string text, std::string reason = "",
            const Job* job = nullptr) {
    HistoryNotice notice;
    if (notices >= HistoryNotice::kPerRowMax) return;
    if (job != nullptr) {
      notice.chosen = !job->spec.notify.empty();
      if (notice.chosen && !WantsNotice(job->spec.notify, event)) return;
      notice.job = job->id.value();
      notice.name = job->spec.name;
      notice.user = job->spec.owner;
      notice.app = job->spec.app;
    }
    notice.id = seq * HistoryNotice::kPerRowMax + notices++;
    notice.event = event;
    notice.at_s = own.WallTime(now);
    notice.text = std::move(text);
    notice.reason = std::move(reason);
    rows.emplace_back(std::move(notice));
  }

  // `what`: of the sentence about the job.
  void NoteJob(const Job& job, std::string_view event, const std::string& what,
               std::string reason = "") {
    Note(event,
         StrCat("Job ", job.id.value(), " \"", job.spec.name, "\"",
                job.spec.owner.empty() ? "" : StrCat(" of ", job.spec.owner),
                " ", what, "."),
         std::move(reason), &job);
  }

  // The rows of all jobs whose state has changed.
  void TellChanged() {
    std::vector<JobId> changed;
    for (const auto& [id, open] : own.jobs_) {
      const Job* const job = engine.FindJob(id);
      if (job != nullptr && job->state != open.told) changed.push_back(id);
    }
    for (const JobId id : changed) Tell(id);
  }

  void NoteState(const Job& job, OpenJob& open) {
    if (job.state == open.told) return;
    open.told = job.state;
    switch (job.state) {
      case JobState::kActive:
        return;
      case JobState::kFinished:
        return NoteJob(job, "finished", "has finished");
      case JobState::kCancelled:
        return NoteJob(job, "cancelled", "was cancelled",
                       RenderReason(job.reason));
      case JobState::kHeld:
        break;
    }
    const bool waits = std::holds_alternative<reason::NotBefore>(job.reason) ||
                       std::holds_alternative<reason::AwaitsJobs>(job.reason) ||
                       std::holds_alternative<reason::ArrayLimit>(job.reason);
    if (waits) return;
    const bool asked =
        std::holds_alternative<reason::HeldByUser>(job.reason) ||
        std::holds_alternative<reason::HeldTimeLimit>(job.reason);
    NoteJob(job, asked ? "held" : "failed",
            asked ? "is held" : "has failed and is held",
            RenderReason(job.reason));
  }

  void TellShares() {
    HistoryShares shares;
    shares.seq = seq;
    shares.from_s = own.WallTime(now);
    shares.to_s = shares.from_s + own.round_duration_s_;
    for (const auto& [id, open] : own.jobs_) {
      const Job* const job = engine.FindJob(id);
      if (job == nullptr || !job->active() || !(job->target_share > 0))
        continue;
      shares.entitled[job->spec.owner] += job->target_share * job->scale_factor;
    }
    if (!shares.entitled.empty()) rows.emplace_back(std::move(shares));
  }

  void On(const event::WorkersEvicted& e) {
    for (const WorkerKey& worker : e.workers) {
      if (OpenJob* job = Find(worker.job)) {
        ++job->row.evictions;
        Tell(worker.job);
      }
    }
  }

  void On(const event::JobsResized& e) {
    for (const Resize& resize : e.resizes) Tell(resize.job);
  }

  // Writes the job's row as the engine has it; forgets a job that is over.
  void Tell(JobId id) {
    const Job* const known = engine.FindJob(id);
    OpenJob* open = Find(id);
    if (known == nullptr || open == nullptr) return;
    const Job& job = *known;
    const bool ended =
        job.state == JobState::kFinished || job.state == JobState::kCancelled;
    HistoryJob& row = open->row;
    row.job = id.value();
    row.last_seq = seq;
    row.over = ended && !job.AnyLive() && open->leases.empty();
    row.name = job.spec.name;
    row.user = job.spec.owner;
    row.entity = job.spec.entity;
    row.app = job.spec.app;
    row.state = StateLetters(job);
    row.reason = job.active() ? "" : RenderReason(job.reason);
    row.scale_factor = job.scale_factor;
    row.weight = job.spec.weight;
    if (!ended) row.ended_s = 0;
    if (ended && row.ended_s == 0) row.ended_s = own.WallTime(job.ended_at);
    row.steps_total = job.spec.steps_total;
    row.given_steps_per_s = job.spec.throughputs;
    for (const Worker& worker : job.workers) {
      row.steps_done = std::max(row.steps_done, worker.progress.steps_done);
    }
    row.pauses = job.stays.pauses();
    row.moves = job.stays.moves();
    row.pausing_s = job.stays.pausing_s();
    for (const auto& [type, rate] : open->rates) {
      row.steps_per_s[type] = rate.steps / rate.seconds;
    }
    rows.emplace_back(row);
    NoteState(job, *open);
    if (row.over) own.jobs_.erase(id);
  }

  template <class E>
  void On(const E&) {}
};

std::vector<HistoryRow> HistoryProjector::Observe(uint64_t seq, Time now,
                                                  const Event& event,
                                                  const Engine& engine) {
  Observation seen{*this, seq, now, engine};
  std::visit([&](const auto& e) { seen.On(e); }, event);
  return std::move(seen.rows);
}

std::string HistoryProjector::Save() const {
  Packer packer(kJournalLimits);
  packer.Array(4);
  PutField(packer, wall_offset_s_);
  PutField(packer, jobs_);
  PutField(packer, policy_);
  PutField(packer, round_duration_s_);
  return packer.Take();
}

absl::Status HistoryProjector::Load(std::string_view saved) {
  Unpacker unpacker(saved, kJournalLimits);
  GetField(unpacker, wall_offset_s_);
  GetField(unpacker, jobs_);
  GetField(unpacker, policy_);
  GetField(unpacker, round_duration_s_);
  if (unpacker.ok() && unpacker.passed_over()) {
    return absl::FailedPreconditionError(
        "the snapshot's history has fields that this version of gavel does not "
        "know; use the version that wrote it, or a newer one");
  }
  if (unpacker.ok()) return absl::OkStatus();
  return absl::DataLossError(StrCat("the snapshot's history is damaged: ",
                                    ToStd(unpacker.status().message())));
}

}  // namespace gavel
