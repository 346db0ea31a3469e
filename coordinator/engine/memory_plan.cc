#include "coordinator/engine/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/job.h"
#include "coordinator/engine/state.h"
#include "core/text.h"
#include "core/text_table.h"

namespace gavel::engine {

// Returns the time in seconds until the job is expected to run again.
static double ExpectedAbsence(const State& s, const Job& job,
                              const WaitingUnits& line);
static bool MayKeep(const State& s, const Job& job,
                    std::map<AcceleratorId, double>& kept);
static void MakeRoomOn(const State& s, AcceleratorId id,
                       std::set<WorkerKey>& evicted);
static std::string WhyEvicted(const State& s, AcceleratorId from);
static void MakeRoomOnHosts(const State& s, std::set<WorkerKey>& evicted);

double ExpectedAbsence(const State& s, const Job& job,
                       const WaitingUnits& line) {
  const RoundTable& units = line.units;
  const double share = job.target_share;
  if (!(share > 0)) return kNever;
  double rounds = std::max(1.0, (1 - share) / share);
  const size_t self = units.Find({job.id, JobId()});
  if (self == units.size()) return rounds * s.terms.round_duration_s();
  const auto& own = line.priorities[self];
  const auto type = static_cast<size_t>(
      std::max_element(own.begin(), own.end()) - own.begin());
  double place = 1;
  for (size_t row = 0; row < units.size(); ++row) {
    const Job& other = s.jobs.at(units.unit(row).job);
    if (other.id == job.id || !s.round.PlannedFor(other).empty()) continue;
    if (line.priorities[row][type] > own[type]) ++place;
  }
  const int capacity = s.cluster.Capacity()[type];
  if (capacity > 0) {
    rounds = std::max(rounds, std::ceil(place * job.scale_factor / capacity));
  }
  return rounds * s.terms.round_duration_s();
}

Tiers ChooseTiers(const State& s, Time now) {
  Tiers tiers;
  const bool keeps = s.agents.has_budgets() && s.options.keep_absence_s_max > 0;
  if (!keeps && s.options.park_absence_s_max == kNever) return tiers;
  WaitingUnits line{RoundUnits(s, now, /*with_trials=*/false), {}};
  line.priorities =
      Priorities(line.units, HeadStartSeconds(s.terms.round_duration_s()));
  std::map<AcceleratorId, double> kept;
  for (const auto& [id, job] : s.jobs.live()) {
    if (!job->active() || !job->HoldsAny() || s.round.GoesOn(*job)) {
      continue;
    }
    double absence_s = 0;
    if (job->planned.empty()) {
      absence_s = ExpectedAbsence(s, *job, line);
    } else if (job->planned != job->assigned) {
      continue;  // it moves
    }
    if (absence_s > s.options.park_absence_s_max) {
      tiers.emplace_back(id, PauseTier::kEvict);
    } else if (keeps && absence_s <= s.options.keep_absence_s_max &&
               MayKeep(s, *job, kept)) {
      tiers.emplace_back(id, PauseTier::kKeep);
    }
  }
  return tiers;
}

// Whether each accelerator of the job has room to keep it there, beside the
// jobs that run there next. `kept` has the bytes, by accelerator, of the jobs
// that were chosen to be kept before; if the result is true, this job's are
// added.
bool MayKeep(const State& s, const Job& job,
             std::map<AcceleratorId, double>& kept) {
  for (const Worker& worker : job.gang()) {
    if (worker.held_epoch == 0 || worker.need_bytes == 0) return false;
    const Accelerator& where = s.cluster.accelerator(worker.held);
    if (where.info.memory_bytes == 0 || where.info.exclusive) return false;
    std::set<WorkerKey> processes;
    for (const auto& [id, key] : s.leases.Contexts(where.id)) {
      processes.insert(key);
    }
    double bytes = kept[where.id] + static_cast<double>(worker.need_bytes);
    for (const WorkerKey& key : s.leases.ParkedOn(where.id)) {
      const Worker& parked = s.jobs.WorkerOf(key);
      const std::vector<AcceleratorId>& next =
          s.round.PlannedFor(s.jobs.at(key.job));
      if (parked.left_on != where.id ||
          std::find(next.begin(), next.end(), where.id) != next.end()) {
        continue;
      }
      bytes += static_cast<double>(parked.progress.device_bytes);
    }
    for (const auto& [id, other] : s.jobs.live()) {
      const std::vector<AcceleratorId>& planned = s.round.PlannedFor(*other);
      for (size_t rank = 0; rank < planned.size(); ++rank) {
        if (id == job.id || planned[rank] != where.id) continue;
        const Worker& next = other->workers[rank];
        if (next.need_bytes == 0) return false;  // its need is unknown
        bytes += static_cast<double>(next.need_bytes);
        processes.insert({id, static_cast<int>(rank), next.incarnation});
      }
    }
    bytes += static_cast<double>(processes.size()) *
             static_cast<double>(where.info.context_bytes);
    if (bytes > static_cast<double>(where.info.memory_bytes)) return false;
  }
  for (const Worker& worker : job.gang()) {
    kept[worker.held] += static_cast<double>(worker.need_bytes);
  }
  return true;
}

void MakeRoom(State& s, Time now) {
  s.agenda.EndMakeRoom();
  if (!s.agents.has_budgets()) return;
  std::set<WorkerKey> evicted;
  for (const Accelerator& accelerator : s.cluster.accelerators()) {
    if (CountsContexts(accelerator.info))
      MakeRoomOn(s, accelerator.id, evicted);
  }
  MakeRoomOnHosts(s, evicted);
  if (evicted.empty()) return;
  Record(s, now, event::WorkersEvicted{{evicted.begin(), evicted.end()}});
  s.agenda.EndMakeRoom();
}

void MakeRoomOn(const State& s, AcceleratorId id,
                std::set<WorkerKey>& evicted) {
  const AcceleratorInfo& info = s.cluster.accelerator(id).info;
  std::map<WorkerKey, uint64_t> processes;  // with the bytes of each
  std::vector<std::pair<Time, WorkerKey>> away;
  for (const auto& [there, key] : s.leases.Contexts(id)) {
    const Worker& worker = s.jobs.WorkerOf(key);
    if (worker.leaving || evicted.contains(key)) continue;
    // The next job starts only when a worker that pauses and is not kept has
    // left the accelerator. So the need of such a worker is not counted.
    const bool stays =
        worker.pause_sent_at == kNever || worker.pause_tier == PauseTier::kKeep;
    uint64_t& bytes = processes[key] = info.context_bytes;
    if (worker.held_epoch != 0 && worker.held == id && stays) {
      bytes += worker.need_bytes;
    }
    if (worker.left_on == id) bytes += worker.progress.device_bytes;
  }
  // A job that is assigned here may have an unknown need. Then it gets the
  // memory of all jobs that are kept here and do not come back.
  bool unknown = false;
  for (const JobId next : s.assigned.JobsOn(id)) {
    const Job& job = s.jobs.at(next);
    for (size_t rank = 0; rank < job.assigned.size(); ++rank) {
      if (job.assigned[rank] != id) continue;
      const Worker& worker = job.workers[rank];
      processes[{job.id, static_cast<int>(rank), worker.incarnation}] =
          info.context_bytes + worker.need_bytes;
      unknown |= worker.need_bytes == 0;
    }
  }
  uint64_t used = 0;
  for (const auto& [key, bytes] : processes) used += bytes;
  for (const WorkerKey& key : s.leases.ParkedOn(id)) {
    const Job& job = s.jobs.at(key.job);
    const bool comes_back = std::find(job.assigned.begin(), job.assigned.end(),
                                      id) != job.assigned.end();
    if (!comes_back && !evicted.contains(key)) {
      away.emplace_back(s.jobs.WorkerOf(key).parked_at, key);
    }
  }
  std::sort(away.begin(), away.end());
  for (const auto& [since, key] : away) {
    const bool gives_way =
        info.exclusive || (unknown && s.jobs.WorkerOf(key).kept_on == id);
    if (used <= info.memory_bytes && !gives_way) continue;
    used -= processes[key];
    evicted.insert(key);
  }
}

// Makes one pass over the jobs, however many servers have a budget.
void MakeRoomOnHosts(const State& s, std::set<WorkerKey>& evicted) {
  struct Host {
    uint64_t budget = 0;
    uint64_t used = 0;
    std::vector<std::pair<Time, WorkerKey>> away;
  };
  std::map<std::string, Host> hosts;
  for (const auto& [server, agent] : s.agents.all()) {
    if (agent.host_memory_bytes > 0) {
      hosts[server].budget = agent.host_memory_bytes;
    }
  }
  if (hosts.empty()) return;
  for (const auto& [id, job] : s.jobs.live()) {
    for (size_t rank = 0; rank < job->workers.size(); ++rank) {
      const Worker& worker = job->workers[rank];
      const WorkerKey key{id, static_cast<int>(rank), worker.incarnation};
      if (!worker.is_parked() || worker.leaving || evicted.contains(key)) {
        continue;
      }
      const auto host = hosts.find(worker.server);
      if (host == hosts.end()) continue;
      host->second.used += worker.progress.host_bytes;
      if (job->assigned.empty()) {
        host->second.away.emplace_back(worker.parked_at, key);
      }
    }
  }
  for (auto& [server, host] : hosts) {
    std::sort(host.away.begin(), host.away.end());
    for (const auto& [since, key] : host.away) {
      if (host.used <= host.budget) break;
      host.used -= s.jobs.WorkerOf(key).progress.host_bytes;
      evicted.insert(key);
    }
  }
}

void On(State& s, Time now, const event::WorkersEvicted& e) {
  for (const WorkerKey& key : e.workers) {
    const Worker* worker = s.jobs.Find(key);
    if (worker == nullptr || !worker->is_parked()) continue;
    Pause(s, now, *s.jobs.Find(key.job), key.rank, PauseTier::kEvict);
  }
}

// Why a job that left this accelerator could not stay in memory, for the end of
// a sentence; empty unless the accelerator is in exclusive-process mode.
std::string WhyEvicted(const State& s, AcceleratorId from) {
  if (!from.valid() || !s.cluster.accelerator(from).info.exclusive) return "";
  return StrCat(", since one process at a time may use ",
                s.cluster.accelerator(from).info.uuid,
                " (exclusive-process mode)");
}

std::string MemoryText(const State& s, const Job& job) {
  if (!job.active() || job.workers.empty()) return "";
  const Worker& first = job.workers.front();
  if (first.process == ProcessState::kNone) {
    return first.progress.last_generation == Generation{}
               ? ""
               : StrCat("evicted to disk", WhyEvicted(s, job.stays.last()));
  }
  if (first.held_epoch != 0 && first.leaving) {
    return StrCat("its process ends", WhyEvicted(s, first.held));
  }
  if (!first.is_parked()) return "";
  uint64_t bytes = 0;
  for (const Worker& worker : job.workers) {
    if (!worker.is_parked()) continue;
    bytes += worker.kept_on.valid() ? worker.progress.device_bytes
                                    : worker.progress.host_bytes;
  }
  const std::string where =
      first.kept_on.valid()
          ? StrCat("kept on ", s.cluster.accelerator(first.kept_on).info.uuid,
                   " of ", first.server)
          : StrCat("parked in host memory on ", first.server);
  return bytes == 0 ? where : StrCat(where, ", ", SizeText(bytes));
}

}  // namespace gavel::engine
