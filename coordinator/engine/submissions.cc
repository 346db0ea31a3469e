#include "coordinator/engine/submissions.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "coordinator/engine/state.h"
#include "core/text.h"

namespace gavel::engine {
namespace {

std::string Capacities(const Cluster& cluster) {
  std::vector<std::string> parts;
  const std::vector<int>& capacity = cluster.Capacity();
  for (size_t type = 0; type < capacity.size(); ++type) {
    if (!cluster.HasType(type)) continue;
    parts.push_back(StrCat(capacity[type], " ", cluster.types()[type]));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

void Admit(State& s, Time now, event::JobSubmitted e) {
  const auto refuse = [&](std::string why) {
    // It may tell of a job whose row is not yet on disk.
    s.outbox.Emit(action::Reply{e.reply_to, JobId(), std::move(why)});
    s.outbox.Flush();
  };
  if (const JobId taken = s.jobs.Named(e.spec); taken.valid()) {
    return refuse(StrCat(
        "job \"", e.spec.name, "\": the name is taken by job ", taken.value(),
        ", which has not ended; choose another name or cancel that one"));
  }
  const std::vector<PolicyEntity>& entities = s.options.entities;
  if (!e.spec.entity.empty() && !entities.empty() &&
      std::ranges::find(entities, e.spec.entity, &PolicyEntity::name) ==
          entities.end()) {
    std::vector<std::string> names;
    for (const PolicyEntity& one : entities) names.push_back(one.name);
    return refuse(StrCat("job \"", e.spec.name, "\": there is no entity \"",
                         e.spec.entity, "\" in the cluster's file, which has ",
                         absl::StrJoin(names, ", ")));
  }
  // Each would resume from what the other saved.
  if (const JobId other = s.jobs.SavingIn(e.spec); other.valid()) {
    return refuse(StrCat(
        "job \"", e.spec.name, "\": its checkpoint_directory ",
        e.spec.checkpoint_directory, " is that of job ", other.value(), " (\"",
        s.jobs.at(other).spec.name,
        "\"), which has not ended; give it one of its own or cancel that one"));
  }
  const std::vector<int>& capacity = s.cluster.Capacity();
  const int largest = capacity.empty()
                          ? 0
                          : *std::max_element(capacity.begin(), capacity.end());
  // Before any server has joined nothing is known, so the job may wait.
  const int needed = e.spec.LeastWorkers();
  // Accelerators that opaque jobs hold become free again.
  const auto reserved = [&] {
    return static_cast<int>(std::ranges::count_if(s.cluster.accelerators(),
                                                  &Accelerator::reserved));
  };
  if (largest > 0 && needed > largest && needed > largest + reserved()) {
    return refuse(StrCat("job \"", e.spec.name, "\": scale factor ", needed,
                         " fits on no accelerator type of the cluster (",
                         Capacities(s.cluster),
                         "); lower it or add accelerators"));
  }
  FillThroughputs(s, e.spec);
  Record(s, now, std::move(e));
}

void On(State& s, Time now, const event::JobSubmitted& e) {
  s.isolated.CountChanged(now);
  Job& job = s.jobs.Add(now, e.spec);
  const JobId id = job.id;
  job.submitted_wall_s = now + s.options.wall_offset_s;
  s.throughputs.AddJob(id, e.spec.throughputs, e.spec.scale_factor);
  BarTypes(s, job);
  job.profile = e.profile;
  FindTableRow(s, job);
  s.outbox.Emit(action::Reply{e.reply_to, id, ""});
  if (s.options.reset_interval_s > 0) s.agenda.FillSoon();
  s.changes.Touch(job);
  s.agenda.SolveSoon();
  s.ledger.TakeReceived(id, e.received);
}

}  // namespace gavel::engine
