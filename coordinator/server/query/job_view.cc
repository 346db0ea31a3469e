#include "coordinator/server/query/job_view.h"

#include <algorithm>
#include <optional>

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

std::vector<AcceleratorName> HeldBy(const Job& job, const Cluster& cluster) {
  std::vector<AcceleratorName> held;
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch == 0) continue;
    if (held.size() == kAcceleratorsPerRowMax) break;
    const Accelerator& accelerator = cluster.accelerator(worker.held);
    held.push_back(
        {accelerator.server, accelerator.info.type, accelerator.info.uuid});
  }
  return held;
}

std::string TextOf(const JobView& job, const Reason& reason) {
  return StrCat(RenderReason(reason), job.notes);
}

void WriteHeld(const JobView& job, JsonText* json) {
  json->Key("accelerators");
  json->Begin('[');
  for (const AcceleratorName& name : job.held) {
    json->Begin('{');
    json->Field("server", name.server);
    json->Field("type", name.type);
    json->Field("uuid", name.uuid);
    json->End('}');
  }
  json->End(']');
}

void WriteGeneration(Generation generation, JsonText* json) {
  if (generation == Generation{}) return json->NullField("last_generation");
  json->Key("last_generation");
  json->Begin('{');
  json->Field("epoch", generation.epoch);
  json->Field("step", generation.step);
  json->End('}');
}

// How its last process ended, when that is why it is held.
void WriteExit(const Reason& reason, JsonText* json) {
  if (reason.code != ReasonCode::kHeldFailures) return json->NullField("exit");
  const int end = static_cast<int>(reason.second);
  json->Key("exit");
  json->Begin('{');
  json->Field("failures", static_cast<int>(reason.first));
  end >= 0 ? json->Field("exit_code", end) : json->NullField("exit_code");
  end < 0 ? json->Field("signal", -end) : json->NullField("signal");
  json->End('}');
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
  view.over = IsOver(job);
  view.epoch = job.epoch;
  view.failures_in_a_row = job.failures_in_a_row;
  return view;
}

void WriteQueueRow(const JobView& job, const WaitingLine& line, Time now,
                   JsonText* json) {
  Reason reason = job.reason;
  line.Tell(job.id, &reason);
  json->Begin('{');
  json->Field("id", job.id.value());
  json->Field("name", job.facts->name);
  json->Field("state", job.state);
  json->Field("owner", job.facts->owner);
  json->Field("app", job.facts->app);
  json->Field("entity", job.facts->entity);
  json->Field("weight", job.facts->weight);
  json->Field("scale_factor", job.scale_factor);
  json->Field("scale_factor_asked", job.facts->scale_factor_asked);
  json->Field("scale_factor_min", job.facts->scale_factor_min);
  json->Field("scale_factor_max", job.facts->scale_factor_max);
  WriteHeld(job, json);
  json->Field("steps_done", job.progress.steps_done);
  json->Field("steps_total", job.facts->steps_total);
  json->Field("steps_per_s", job.progress.steps_per_s);
  json->Key("scalars");
  json->Begin('{');
  for (const auto& [name, value] : job.scalars) json->TextField(name, value);
  json->End('}');
  json->Field("share_target", job.shares.target);
  json->Field("share_got", job.shares.received);
  json->Field("pauses", job.progress.pauses);
  json->Field("moves", job.progress.moves);
  json->Field("pausing_s", job.progress.pausing_s);
  json->Field("epoch", job.epoch);
  json->Field("incarnations", job.progress.incarnations);
  WriteGeneration(job.progress.last_generation, json);
  json->Field("reason", TextOf(job, reason));
  json->Field("memory", job.memory);
  json->Field("submitted_at_s", job.submitted_at);
  job.over ? json->Field("ended_at_s", job.ended_at)
           : json->NullField("ended_at_s");
  json->Field("age_s", (job.over ? job.ended_at : now) - job.submitted_at);
  json->Field("received_s", job.received_s);
  json->Field("failures_in_a_row", job.failures_in_a_row);
  json->Field("checkpoint_directory", job.facts->checkpoint_directory);
  WriteExit(reason, json);
  json->End('}');
}

std::vector<ThroughputView> ThroughputsOf(const Job& job,
                                          const Engine& engine) {
  std::vector<ThroughputView> list;
  if (IsOver(job)) return list;
  for (const std::string& type : engine.cluster().types()) {
    const Throughput known = engine.throughputs().Get(job.id, type);
    const auto given = job.spec.throughputs.find(type);
    ThroughputView view{type, known.steps_per_s, std::nullopt,
                        engine.throughputs().IsExcluded(job.id, type)
                            ? "out of memory"
                            : SourceName(known.source)};
    if (given != job.spec.throughputs.end()) view.given = given->second;
    list.push_back(std::move(view));
  }
  return list;
}

std::string WhyJson(const JobView& job, const WaitingLine& line,
                    const std::vector<ThroughputView>& throughputs) {
  Reason reason = job.reason;
  line.Tell(job.id, &reason);
  JsonText json;
  json.Begin('{');
  json.Field("job", job.id.value());
  json.Field("name", job.facts->name);
  json.Field("state", job.state);
  json.Field("reason", TextOf(job, reason));
  json.Field("memory", job.memory);
  json.Field("code", CodeName(reason.code));
  json.Key("throughputs");
  json.Begin('[');
  for (const ThroughputView& one : throughputs) {
    json.Begin('{');
    json.Field("type", one.type);
    json.Field("steps_per_s", one.steps_per_s);
    one.given ? json.Field("given", *one.given) : json.NullField("given");
    json.Field("source", one.source);
    json.End('}');
  }
  json.End(']');
  json.Field("share_target", job.shares.target);
  json.Field("share_got", job.shares.received);
  reason.code == ReasonCode::kPriority
      ? json.Field("place", static_cast<int>(reason.first))
      : json.NullField("place");
  json.End('}');
  return json.Take();
}

}  // namespace gavel
