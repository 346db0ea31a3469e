#include "coordinator/server/query/job_view.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>
#include <variant>

#include "coordinator/server/query/query.h"
#include "core/text.h"

namespace gavel {
namespace {

bool IsOver(const Job& job) {
  return job.state == JobState::kFinished || job.state == JobState::kCancelled;
}

JobProgress Summarise(const Job& job) {
  JobProgress sum;
  for (const Worker& worker : job.workers) {
    const Progress& progress = worker.progress;
    const bool first = &worker == &job.workers.front();
    const double steps_per_s =
        worker.held_epoch != 0 ? progress.throughput_steps_per_s : 0;
    sum.steps_done = first ? progress.steps_done
                           : std::min(sum.steps_done, progress.steps_done);
    sum.steps_per_s =
        first ? steps_per_s : std::min(sum.steps_per_s, steps_per_s);
    sum.incarnations = std::max(sum.incarnations, worker.incarnation);
    sum.last_generation =
        std::max(sum.last_generation, progress.last_generation);
  }
  sum.pauses = job.stays.pauses();
  sum.moves = job.stays.moves();
  sum.pausing_s = job.stays.pausing_s();
  return sum;
}

// What is booked, and what its workers have run since.
double ReceivedSeconds(const Job& job, Time now) {
  double seconds = job.received_s;
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch == 0) continue;
    seconds += std::max(0.0, now - worker.accrued_at) / worker.world_size;
  }
  return seconds;
}

// Where its tensors are, and what else there is to say of why it is there.
std::string NotesOf(const Job& job, const JobView& view, const Engine& engine) {
  std::string notes;
  const auto add = [&notes](const std::string& part) {
    if (!part.empty()) StrAppend(&notes, "; ", part);
  };
  if (job.active()) add(RenderResize(job));
  add(view.memory);
  // Of one that has never run nothing was measured.
  const bool ran = view.progress.incarnations > 0;
  if (job.active() && ran) add(engine.ThroughputNotes(job));
  return notes;
}

JobFacts FactsOf(const Job& job) {
  const JobSpec& spec = job.spec;
  return {spec.name,
          spec.app,
          spec.entity,
          spec.owner,
          spec.checkpoint_directory,
          spec.weight,
          spec.scale_factor,
          spec.LeastWorkers(),
          spec.MostWorkers(),
          spec.steps_total};
}

// What an operator can change of a job.
bool Hold(const JobFacts& facts, const Job& job) {
  const JobSpec& spec = job.spec;
  return facts.weight == spec.weight && facts.entity == spec.entity &&
         facts.scale_factor_asked == spec.scale_factor &&
         facts.scale_factor_min == spec.LeastWorkers() &&
         facts.scale_factor_max == spec.MostWorkers() &&
         facts.steps_total == spec.steps_total;
}

// By its lease, or as its process was launched there and has yet to speak.
AcceleratorId Kept(const Worker& worker) {
  return worker.held_epoch != 0 ? worker.held : worker.launched_on;
}

std::vector<HeldAcceleratorRow> HeldBy(const Job& job, const Cluster& cluster) {
  std::vector<HeldAcceleratorRow> held;
  for (const Worker& worker : job.workers) {
    const AcceleratorId place = Kept(worker);
    if (!place.valid()) continue;
    if (held.size() == kAcceleratorsPerRowMax) break;
    const Accelerator& accelerator = cluster.accelerator(place);
    held.push_back(
        {accelerator.server, accelerator.info.type, accelerator.info.uuid});
  }
  return held;
}

std::string TextOf(const JobView& job, const Reason& reason) {
  return StrCat(RenderReason(reason), job.notes);
}

Reason ReasonFor(const JobView& job, const WaitingLine& line, bool may_read) {
  Reason reason = may_read ? job.reason : ForOthers(job.reason);
  line.Tell(job.id, &reason);
  return reason;
}

std::optional<ExitRow> ExitOf(const JobView& job) {
  const bool failed = job.last_end != 0 || job.failures_in_a_row > 0;
  const bool unstarted = std::holds_alternative<reason::HeldLaunch>(job.reason);
  if (!failed || unstarted || job.state == "CD") return std::nullopt;
  ExitRow exit;
  exit.failures = job.failures_in_a_row;
  (job.last_end >= 0 ? exit.exit_code : exit.signal) = std::abs(job.last_end);
  return exit;
}

}  // namespace

JobView ViewOf(const Job& job, const Engine& engine, Time now,
               std::shared_ptr<const JobFacts> before) {
  JobView view;
  view.id = job.id;
  view.facts = before != nullptr && Hold(*before, job)
                   ? std::move(before)
                   : std::make_shared<const JobFacts>(FactsOf(job));
  view.state = StateLetters(job);
  view.reason = engine.WhyUnranked(job.id, now);
  view.memory = engine.MemoryText(job);
  view.scale_factor = job.scale_factor;
  view.progress = Summarise(job);
  view.notes = NotesOf(job, view, engine);
  view.held = HeldBy(job, engine.cluster());
  if (!job.workers.empty()) {
    const auto& scalars = job.workers.front().progress.scalars;
    view.scalars.assign(scalars.begin(), scalars.end());
  }
  view.shares = engine.SharesOf(job.id, now);
  view.received_s = ReceivedSeconds(job, now);
  view.submitted_at = job.submitted_at;
  view.ended_at = job.ended_at;
  // Jobs of an earlier version have none.
  const double offset_s = engine.options().wall_offset_s;
  view.submitted_wall_s = job.submitted_wall_s > 0
                              ? job.submitted_wall_s
                              : job.submitted_at + offset_s;
  view.ended_wall_s =
      job.ended_wall_s > 0 ? job.ended_wall_s : job.ended_at + offset_s;
  view.over = IsOver(job);
  view.settled = view.over && !job.live;
  view.epoch = job.epoch;
  view.failures_in_a_row = job.failures_in_a_row;
  view.last_end = job.last_end;
  return view;
}

void FillQueueRow(const JobView& job, const WaitingLine& line, Time now,
                  const Identity& reader, QueueRow* row) {
  const JobFacts& facts = *job.facts;
  const bool may_read = MayTouch(reader, facts.owner);
  const Reason reason = ReasonFor(job, line, may_read);
  row->id = job.id.value();
  row->name = facts.name;
  row->state = job.state;
  row->owner = facts.owner;
  row->app = facts.app;
  row->entity = facts.entity;
  row->weight = facts.weight;
  row->scale_factor = job.scale_factor;
  row->scale_factor_asked = facts.scale_factor_asked;
  row->scale_factor_min = facts.scale_factor_min;
  row->scale_factor_max = facts.scale_factor_max;
  row->accelerators = job.held;
  row->steps_done = job.progress.steps_done;
  row->steps_total = facts.steps_total;
  row->steps_per_s = job.progress.steps_per_s;
  row->scalars = job.scalars;
  row->share_target = job.shares.target;
  row->share_got = job.shares.received;
  row->pauses = job.progress.pauses;
  row->moves = job.progress.moves;
  row->pausing_s = job.progress.pausing_s;
  row->epoch = job.epoch;
  row->incarnations = job.progress.incarnations;
  const Generation generation = job.progress.last_generation;
  row->last_generation.reset();
  if (generation != Generation{}) {
    row->last_generation = {generation.epoch, generation.step};
  }
  row->reason = TextOf(job, reason);
  row->memory = job.memory;
  row->submitted_at_s = job.submitted_wall_s;
  row->ended_at_s.reset();
  if (job.over) row->ended_at_s = job.ended_wall_s;
  row->age_s = (job.over ? job.ended_at : now) - job.submitted_at;
  row->received_s = job.received_s;
  row->failures_in_a_row = job.failures_in_a_row;
  row->checkpoint_directory = may_read ? facts.checkpoint_directory : "";
  row->exit = ExitOf(job);
}

std::vector<ThroughputRow> ThroughputsOf(const Job& job, const Engine& engine) {
  std::vector<ThroughputRow> list;
  if (IsOver(job)) return list;
  for (const std::string& type : engine.cluster().types()) {
    const Throughput known = engine.throughputs().Get(job.id, type);
    const auto given = job.spec.throughputs.find(type);
    ThroughputRow row;
    row.type = type;
    row.steps_per_s = known.steps_per_s;
    if (given != job.spec.throughputs.end()) row.given = given->second;
    row.source = engine.throughputs().IsExcluded(job.id, type)
                     ? "out of memory"
                     : SourceName(known.source);
    list.push_back(std::move(row));
  }
  return list;
}

WhyRow WhyRowOf(const JobView& job, const WaitingLine& line,
                const Identity& reader,
                std::vector<ThroughputRow> throughputs) {
  const Reason reason =
      ReasonFor(job, line, MayTouch(reader, job.facts->owner));
  WhyRow row;
  row.job = job.id.value();
  row.name = job.facts->name;
  row.state = job.state;
  row.reason = TextOf(job, reason);
  row.memory = job.memory;
  row.code = ReasonName(reason);
  row.throughputs = std::move(throughputs);
  row.share_target = job.shares.target;
  row.share_got = job.shares.received;
  if (const auto* in_line = std::get_if<reason::Priority>(&reason)) {
    row.place = in_line->place;
  }
  return row;
}

}  // namespace gavel
