#include "coordinator/cli/what_if.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <ranges>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/history_table.h"
#include "coordinator/cli/job_commands.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/engine/engine.h"
#include "coordinator/workload/job_array.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "runtime/files/stopwatch.h"

namespace gavel {
namespace {

std::string TypeName(const PredictedJob& job) { return StrCat("job-", job.id); }

// Gavel's throughput file, in which each job has a type of its own.
std::string ThroughputJson(const std::vector<PredictedJob>& jobs,
                           const std::vector<ClusterPart>& cluster) {
  Json json = Json::object();
  for (const ClusterPart& part : cluster) {
    Json& rows = json[part.type] = Json::object();
    for (const PredictedJob& job : jobs) {
      const auto found = job.steps_per_s.find(part.type);
      rows[StrCat("('", TypeName(job), "', ", job.scale_factor, ")")] = {
          {"null", found == job.steps_per_s.end() ? 0.0 : found->second}};
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

size_t EntityOf(const PredictedJob& job, Trace* trace) {
  if (job.entity.empty()) return TraceJob::kNoEntity;
  for (size_t i = 0; i < trace->entities.size(); ++i) {
    if (trace->entities[i].name == job.entity) return i;
  }
  trace->entities.push_back({job.entity, 1, "fairness"});
  return trace->entities.size() - 1;
}

std::vector<SimulatedWaits> WaitsOf(const std::vector<PredictedJob>& jobs) {
  std::map<uint64_t, size_t> number_of;
  std::set<uint64_t> arrays;
  for (size_t i = 0; i < jobs.size(); ++i) {
    number_of[jobs[i].id] = i;
    if (jobs[i].array != 0) arrays.insert(jobs[i].array);
  }
  std::vector<SimulatedWaits> all;
  for (const PredictedJob& job : jobs) {
    SimulatedWaits& waits = all.emplace_back();
    waits.not_before_s = job.not_before_s;
    waits.array = job.array;
    waits.at_once = job.at_once;
    waits.queued = job.queued;
    for (const uint64_t id : job.after) {
      const auto parent = number_of.find(id);
      if (parent != number_of.end()) waits.after.push_back(parent->second);
      if (arrays.contains(id)) waits.after_arrays.push_back(id);
    }
  }
  return all;
}

}  // namespace

absl::StatusOr<study::SimulationInputs> MakeInputs(
    SimulationOptions options, std::vector<PredictedJob>* jobs) {
  if (jobs->empty()) {
    return absl::InvalidArgumentError("there are no jobs to simulate");
  }
  std::ranges::stable_sort(*jobs, {}, &PredictedJob::arrival_s);
  options.waits = WaitsOf(*jobs);
  Trace trace;
  for (const PolicyEntity& entity : options.engine.entities) {
    trace.entities.push_back({entity.name, entity.weight, entity.policy});
  }
  options.engine.entities.clear();  // those of the trace are added to them
  const bool in_groups =
      options.engine.user_shares || options.engine.app_shares;
  std::map<std::string, size_t> apps;
  for (const PredictedJob& job : *jobs) {
    TraceJob row;
    row.job_template = trace.templates.size();
    row.scale_factor = job.scale_factor;
    row.weight = job.weight;
    row.steps_total = job.steps;
    row.arrival_s = job.arrival_s;
    row.entity = EntityOf(job, &trace);
    row.opaque = job.opaque;
    if (!job.app.empty()) {
      const auto [app, added] = apps.try_emplace(job.app, trace.apps.size());
      if (added) trace.apps.push_back(job.app);
      row.app = app->second;
    }
    if (in_groups) options.owners.push_back(job.owner);
    JobTemplate job_template;
    job_template.type = TypeName(job);
    trace.templates.push_back(std::move(job_template));
    trace.jobs.push_back(row);
    options.received.push_back(job.received);
    options.servers.push_back(job.servers);
    if (job.pause_s > 0 || job.idle_s > 0) {
      options.overheads.by_type[TypeName(job)] = {.resume_s = job.pause_s,
                                                  .move_s = job.pause_s,
                                                  .start_s = job.idle_s};
    }
  }
  study::SimulationInputs inputs;
  GAVEL_ASSIGN_OR_RETURN(
      ThroughputTable table,
      ThroughputTable::Parse(ThroughputJson(*jobs, options.cluster),
                             "measured throughputs"));
  inputs.throughputs =
      std::make_shared<const ThroughputTable>(std::move(table));
  inputs.trace = std::make_shared<const Trace>(std::move(trace));
  inputs.options = std::move(options);
  return inputs;
}

// Parts with the common size of the servers, or else with the size that divides
// all of them.
std::vector<ClusterPart> PartsOf(
    const std::map<std::pair<std::string, std::string>, int>& counts) {
  std::map<std::string, ClusterPart> by_type;
  for (const auto& [place, count] : counts) {
    ClusterPart& part = by_type[place.second];
    part.type = place.second;
    part.per_server =
        part.count == 0 ? count : std::gcd(part.per_server, count);
    part.count += count;
  }
  std::vector<ClusterPart> parts;
  for (auto& [type, part] : by_type) parts.push_back(std::move(part));
  return parts;
}

std::map<std::string, double> RatesIn(const Json& row, const char* key) {
  std::map<std::string, double> rates;
  const Json map = row.value(key, Json::object());
  for (const auto& [type, rate] : map.items()) {
    if (rate.is_number()) rates[type] = rate.get<double>();
  }
  return rates;
}

// ---- the prediction

namespace {

// The steps of a job without an end: more than any simulation reaches.
constexpr double kEndlessSteps = 1e15;
constexpr uint64_t kEventsAtOnce = 64;
constexpr double kRoundsBehind = 2;  // simulated after the last known end
constexpr size_t kOthersShown = 20;
// Jobs that have accelerators arrive when the present round begins, at 0, so
// that they keep them until its end. The other jobs arrive so much after the
// present time, and the new one after these.
constexpr double kMoment_s = 1e-3;
// The part of a round that is left at the least when the other jobs arrive.
constexpr double kPartLeftMin = 0.01;

std::string WorkloadOf(const ForecastRow& row) {
  JobSpec spec;
  spec.name = row.name;
  spec.app = row.app;
  spec.workload = row.workload;
  return spec.Workload();
}

// Steps/s by type, of each workload and number of workers of which somebody has
// given or measured one.
using KnownSpeeds =
    std::map<std::pair<std::string, int>, std::map<std::string, double>>;

KnownSpeeds KnownSpeedsOf(const std::vector<ForecastRow>& jobs) {
  KnownSpeeds known;
  // Jobs behind the queue have only what their files give, so those in it come
  // last, which may be measured.
  for (const bool in_queue : {false, true}) {
    for (const ForecastRow& row : jobs) {
      if (row.guessed || (row.waits || row.held) == in_queue) continue;
      known[{WorkloadOf(row), row.scale_factor}] = {row.throughputs.begin(),
                                                    row.throughputs.end()};
    }
  }
  return known;
}

// A job whose time_limit comes before its last step ends with it. An opaque job
// without known steps counts seconds of its time_limit, the same on all types.
void LimitTo(std::optional<double> time_s, PredictedJob* job) {
  if (!time_s || job->steps_per_s.empty()) return;
  if (job->opaque && job->steps >= kEndlessSteps) {
    for (auto& [type, steps_per_s] : job->steps_per_s) {
      steps_per_s = steps_per_s > 0 ? 1 : 0;
    }
    job->steps = std::max(1.0, *time_s);
    job->at_most = true;
    return;
  }
  const double fastest =
      std::ranges::max(job->steps_per_s | std::views::values);
  if (fastest > 0 && *time_s * fastest < job->steps) {
    job->steps = std::max(1.0, *time_s * fastest);
    job->limited = true;
  }
}

// Accelerators by server and type.
using Places = std::map<std::pair<std::string, std::string>, int>;

// The accelerators that a job may use in the simulation.
struct Room {
  int CountOf(const std::string& type) const {
    const auto found = counts.find(type);
    return found == counts.end() ? 0 : found->second;
  }
  std::map<std::string, int> counts;  // by type
  std::vector<std::string> servers;   // PredictedJob::servers
};
// The keys servers and exclude_servers of a job file.
using ServerKeys =
    std::pair<std::vector<std::string>, std::vector<std::string>>;

// Facts that the row of a job does not have.
struct Known {
  KnownSpeeds speeds;
  std::map<uint64_t, std::string> running;               // the type, by job
  std::map<uint64_t, std::set<std::string>> running_on;  // its servers
  double elapsed_s = 0;                                  // of the present round
  // The jobs that keep their accelerators for an unknown time. A simulation
  // leaves out these jobs and their accelerators; it would not end before its
  // time limit otherwise.
  std::set<uint64_t> immovable;
  Places places;  // that are simulated
  // Their names by real server, which may be several in the simulation.
  std::map<std::string, std::vector<std::string>> simulated_servers;
  std::map<ServerKeys, Room> rooms;  // of each job, and without such keys
};

// 0 where nothing has accelerators, or the coordinator does not tell it.
double ElapsedOf(const LiveState& live) {
  const double round_s = live.status.round_duration_s.value_or(0);
  const bool any = std::ranges::any_of(live.jobs, &ForecastRow::placed);
  if (!any || !(round_s > 0) || !live.status.round_ends_in_s) return 0;
  return round_s - std::clamp(*live.status.round_ends_in_s,
                              kPartLeftMin * round_s, round_s);
}

// Whether the job keeps the accelerators that it has until its end.
bool IsSeated(const ForecastRow& row, const Known& known) {
  return row.opaque && known.running.contains(row.id);
}

// The time that the job had received when the present round began: the
// simulation counts the time since then itself.
event::Received ReceivedBefore(const ForecastRow& row, const Known& known) {
  const double again_s = row.placed ? known.elapsed_s : 0;
  const auto held = known.running.find(row.id);
  event::Received received;
  received.total_s = std::max(0.0, row.received_s - again_s);
  for (const auto& [type, on] : row.received) {
    const bool there = held != known.running.end() && held->second == type;
    const double since_reset_s = on.since_reset_s - (there ? again_s : 0);
    received.types.push_back(
        {type, std::max(0.0, since_reset_s), on.deficit_s});
  }
  return received;
}

bool IsAnyOf(const std::string& name, const std::vector<std::string>& names) {
  return std::ranges::find(names, name) != names.end();
}

bool MayUseServer(const ServerKeys& keys, const std::string& server) {
  const auto& [servers, excluded] = keys;
  return (servers.empty() || IsAnyOf(server, servers)) &&
         !IsAnyOf(server, excluded);
}

Room RoomOf(const ServerKeys& keys, const Known& known) {
  Room room;
  for (const auto& [place, count] : known.places) {
    const auto& [server, type] = place;
    if (MayUseServer(keys, server)) room.counts[type] += count;
  }
  if (keys.first.empty() && keys.second.empty()) return room;
  for (const auto& [server, names] : known.simulated_servers) {
    if (!MayUseServer(keys, server)) continue;
    room.servers.insert(room.servers.end(), names.begin(), names.end());
  }
  return room;
}

// Leaves the job the types of which its servers have enough accelerators. It
// has no place in the simulation if none is left.
void KeepTo(const Room& room, PredictedJob* job) {
  job->servers = room.servers;
  std::erase_if(job->steps_per_s, [&](const auto& entry) {
    return !(entry.second > 0) || room.CountOf(entry.first) < job->scale_factor;
  });
}

// Keeps a job that nothing pauses off the servers where it does not run, which
// may be the only ones of another job. Some of its accelerators may be drained,
// so it moves where too few are left in the simulation.
void KeepInPlace(const Known& known, PredictedJob* job) {
  const bool all_alike = known.rooms.size() <= 1;
  if (all_alike) return;
  const ServerKeys keys = {{known.running_on.at(job->id).begin(),
                            known.running_on.at(job->id).end()},
                           {}};
  const Room room = RoomOf(keys, known);
  if (room.CountOf(known.running.at(job->id)) >= job->scale_factor) {
    job->servers = room.servers;
  }
}

// A job of a speed that nobody knows has no known end. `factor`: of the steps
// that are expected.
PredictedJob JobOf(const ForecastRow& row, const Known& known, double factor) {
  PredictedJob job;
  job.arrival_s = known.elapsed_s + kMoment_s;
  job.opaque = row.opaque;
  job.id = row.id;
  job.name = row.name;
  job.entity = row.entity;
  job.owner = {row.owner, row.owner_weight};
  job.app = row.app;
  job.weight = row.weight;
  job.scale_factor = row.scale_factor;
  job.steps = std::max(1.0, row.steps_left.value_or(kEndlessSteps));
  job.steps_per_s = {row.throughputs.begin(), row.throughputs.end()};
  if (row.guessed) {
    const auto speeds = known.speeds.find({WorkloadOf(row), row.scale_factor});
    if (speeds == known.speeds.end()) {
      job.steps = kEndlessSteps;
    } else {
      job.steps_per_s = speeds->second;
      // It stays off the types that its own file bars.
      for (const auto& [type, steps_per_s] : row.throughputs) {
        if (!(steps_per_s > 0)) job.steps_per_s.erase(type);
      }
    }
  }
  if (row.placed || IsSeated(row, known)) {
    // It has not ended when the others arrive, which may wait for it.
    job.idle_s = std::exchange(job.arrival_s, 0);
  }
  if (IsSeated(row, known)) {
    const std::string& type = known.running.at(row.id);
    std::erase_if(job.steps_per_s,
                  [&](const auto& entry) { return entry.first != type; });
    KeepInPlace(known, &job);
  } else {
    KeepTo(known.rooms.at({row.servers, row.exclude_servers}), &job);
  }
  if (job.steps < kEndlessSteps) job.steps *= factor;
  LimitTo(row.time_left_s, &job);
  job.received = ReceivedBefore(row, known);
  job.after = row.awaits;
  job.not_before_s = row.not_before_s.value_or(0);
  job.array = row.array;
  job.at_once = row.array_at_once;
  job.queued = !row.waits;
  return job;
}

bool IsEndless(const PredictedJob& job) { return job.steps >= kEndlessSteps; }

std::set<uint64_t> ImmovableOf(const LiveState& live, const Known& known) {
  std::set<uint64_t> immovable;
  for (const ForecastRow& row : live.jobs) {
    if (!IsSeated(row, known)) continue;
    if (IsEndless(JobOf(row, known, 1))) immovable.insert(row.id);
  }
  return immovable;
}

// Accelerators that may be used, and are not held by one of `immovable`.
Places PlacesOf(const std::vector<NodeRow>& nodes,
                const std::set<uint64_t>& immovable) {
  const auto holds = [&](const std::vector<uint64_t>& jobs) {
    return std::ranges::any_of(
        jobs, [&](uint64_t job) { return immovable.contains(job); });
  };
  Places places;
  for (const NodeRow& node : nodes) {
    for (const AcceleratorRow& one : node.accelerators) {
      const bool usable = one.state == "idle" || one.state == "starting" ||
                          one.state == "allocated";
      if (!usable || holds(one.jobs) || holds(one.starting_jobs)) continue;
      ++places[{node.server, one.type}];
    }
  }
  return places;
}

// The simulation names the servers of a type TYPE-0, TYPE-1 and so on, all of
// the same size.
std::map<std::string, std::vector<std::string>> SimulatedServersOf(
    const Places& places) {
  std::map<std::string, int> size_of;  // by type
  for (const ClusterPart& part : PartsOf(places)) {
    size_of[part.type] = part.per_server;
  }
  std::map<std::string, int> named;  // by type
  std::map<std::string, std::vector<std::string>> names;
  for (const auto& [place, count] : places) {
    const auto& [server, type] = place;
    for (int i = 0; i < count / size_of[type]; ++i) {
      names[server].push_back(StrCat(type, "-", named[type]++));
    }
  }
  return names;
}

Known KnownOf(const LiveState& live) {
  Known known;
  known.speeds = KnownSpeedsOf(live.jobs);
  known.elapsed_s = ElapsedOf(live);
  for (const NodeRow& node : live.nodes) {
    for (const AcceleratorRow& one : node.accelerators) {
      for (const auto* jobs : {&one.jobs, &one.starting_jobs}) {
        for (const uint64_t job : *jobs) {
          known.running[job] = one.type;
          known.running_on[job].insert(node.server);
        }
      }
    }
  }
  known.immovable = ImmovableOf(live, known);
  known.places = PlacesOf(live.nodes, known.immovable);
  known.simulated_servers = SimulatedServersOf(known.places);
  known.rooms[{}] = RoomOf({}, known);
  for (const ForecastRow& row : live.jobs) {
    const auto [room, is_new] =
        known.rooms.try_emplace({row.servers, row.exclude_servers});
    if (is_new) room->second = RoomOf(room->first, known);
  }
  return known;
}

// Whether the simulated cluster has enough accelerators of a type on which the
// job runs. A job without such a type would be refused by the simulation.
bool HasPlace(const PredictedJob& job, const Known& known) {
  const Room& all = known.rooms.at({});
  return std::ranges::any_of(job.steps_per_s, [&](const auto& entry) {
    return entry.second > 0 && all.CountOf(entry.first) >= job.scale_factor;
  });
}

// Puts the elements of an array that are in the queue ahead of its others. The
// engine lets an element in as soon as it sees room for it, and counts only
// those that it knows already.
void QueuedFirst(std::vector<PredictedJob>& jobs) {
  for (auto begin = jobs.begin(); begin != jobs.end();) {
    const auto end = std::ranges::find_if(
        begin, jobs.end(), [array = begin->array](const PredictedJob& job) {
          return job.array != array;
        });
    if (begin->array != 0) {
      std::ranges::stable_partition(begin, end, &PredictedJob::queued);
    }
    begin = end;
  }
}

// The jobs, each behind those that it waits for, else in their order.
std::vector<PredictedJob> ParentsFirst(std::vector<PredictedJob> jobs) {
  std::map<uint64_t, std::vector<size_t>> named;  // by id of the job or array
  for (size_t i = 0; i < jobs.size(); ++i) {
    named[jobs[i].id].push_back(i);
    if (jobs[i].array != 0) named[jobs[i].array].push_back(i);
  }
  std::vector<PredictedJob> ordered;
  std::set<uint64_t> parents;
  std::set<size_t> placed;
  const std::function<void(size_t)> place = [&](size_t i) {
    if (!placed.insert(i).second) return;
    for (const uint64_t parent : jobs[i].after) {
      if (!parents.insert(parent).second || !named.contains(parent)) continue;
      for (const size_t one : named.at(parent)) place(one);
    }
    ordered.push_back(std::move(jobs[i]));
  };
  for (size_t i = 0; i < jobs.size(); ++i) place(i);
  return ordered;
}

// The present jobs that a simulation has, unless they wait for one without an
// end. `factor_of_next`: of the steps that are expected.
std::vector<PredictedJob> SimulatedJobs(
    const LiveState& live, const Known& known,
    const std::function<double()>& factor_of_next) {
  std::vector<PredictedJob> jobs;
  for (const ForecastRow& row : live.jobs) {
    if (row.held || known.immovable.contains(row.id)) continue;
    PredictedJob job = JobOf(row, known, factor_of_next());
    if (HasPlace(job, known)) jobs.push_back(std::move(job));
  }
  return jobs;
}

// Leaves out the jobs that wait for one without a known end (what_if.h).
// `jobs`: those of `live` that are simulated, and the new one.
std::vector<PredictedJob> LeaveOutEndless(const LiveState& live,
                                          std::vector<PredictedJob> jobs) {
  std::set<uint64_t> simulated;
  std::set<uint64_t> present;  // jobs and arrays
  std::set<uint64_t> endless;  // jobs, and arrays that have one of them
  std::set<uint64_t> full;     // arrays in which one of them keeps its turn
  const auto add = [](const auto& job, std::set<uint64_t>* ids) {
    ids->insert(job.id);
    if (job.array != 0) ids->insert(job.array);
  };
  for (const PredictedJob& job : jobs) {
    simulated.insert(job.id);
    add(job, &present);
    if (IsEndless(job)) add(job, &full);
  }
  for (const ForecastRow& row : live.jobs) {
    if (simulated.contains(row.id)) continue;
    add(row, &endless);
    if (!row.held && !row.waits) add(row, &full);
  }
  std::vector<PredictedJob> kept;
  QueuedFirst(jobs);
  for (PredictedJob& job : ParentsFirst(std::move(jobs))) {
    const bool waits =
        (!job.queued && full.contains(job.array)) ||
        std::ranges::any_of(job.after, [&](uint64_t parent) {
          return endless.contains(parent) || !present.contains(parent);
        });
    if (waits || IsEndless(job) || job.limited) add(job, &endless);
    if (!waits) kept.push_back(std::move(job));
  }
  return kept;
}

// Whether the job's file lets it run there, whatever the state of the
// accelerator.
bool MayUse(const JobSpec& spec, const std::string& server,
            const std::string& type) {
  const auto given = spec.throughputs.find(type);
  return (spec.types.empty() || IsAnyOf(type, spec.types)) &&
         MayUseServer({spec.servers, spec.exclude_servers}, server) &&
         (given == spec.throughputs.end() || given->second > 0);
}

// The coordinator's options; defaults for those that it does not report. The
// cluster is empty where immovable jobs hold all of it.
absl::StatusOr<SimulationOptions> SimulationOptionsOf(const LiveState& live,
                                                      const Known& known) {
  const StatusRow& status = live.status;
  SimulationOptions options;
  if (!status.policy.empty()) options.policy = status.policy;
  options.cluster = PartsOf(known.places);
  if (options.cluster.empty() && known.immovable.empty()) {
    return absl::FailedPreconditionError(
        "the cluster has no accelerators at present; start an agent");
  }
  EngineOptions& engine = options.engine;
  engine.round_duration_s =
      status.round_duration_s.value_or(engine.round_duration_s);
  engine.mechanism = FindMechanism(status.mechanism).value_or(engine.mechanism);
  engine.queue = FindQueue(status.queue).value_or(engine.queue);
  engine.memory_rounds = status.memory_rounds.value_or(engine.memory_rounds);
  engine.reset_interval_s =
      status.reset_interval_s.value_or(engine.reset_interval_s);
  engine.placement_sensitive =
      status.placement_sensitive.value_or(engine.placement_sensitive);
  engine.introspection = status.introspection;
  engine.user_shares = status.user_shares;
  engine.app_shares = status.app_shares;
  for (const EntityRow& row : status.entities) {
    engine.entities.push_back({row.name, row.weight, row.policy});
  }
  return options;
}

// Types without a given throughput get that of jobs of the same workload.
absl::StatusOr<PredictedJob> NewJob(const JobSpec& spec, const LiveState& live,
                                    const Known& known) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<FitRow> fits,
                         FitOf(spec, live.nodes));
  PredictedJob job;
  job.name = spec.name;
  job.entity = spec.entity;
  job.owner.name = live.user;
  for (const ForecastRow& row : live.jobs) {
    if (row.owner == live.user) job.owner.weight = row.owner_weight;
  }
  job.app = spec.app;
  for (const auto* names : {&spec.after_success, &spec.after_any}) {
    for (const std::string& name : *names) {
      uint64_t id = 0;  // stands for none
      std::ignore = absl::SimpleAtoi(name, &id);
      job.after.push_back(id);
    }
  }
  // A parent is there when its child arrives.
  job.arrival_s =
      known.elapsed_s + (job.after.empty() ? 2 * kMoment_s : kMoment_s);
  job.not_before_s = spec.not_before_s.value_or(0);
  job.opaque = spec.opaque();
  job.weight = spec.weight;
  job.scale_factor = spec.scale_factor;
  job.steps = spec.steps_total > 0 ? static_cast<double>(spec.steps_total)
                                   : kEndlessSteps;
  job.pause_s = spec.resume_s.value_or(0) + spec.pause_s.value_or(0);
  const auto like = known.speeds.find({spec.Workload(), spec.scale_factor});
  if (like != known.speeds.end()) job.steps_per_s = like->second;
  for (const auto& [type, rate] : spec.throughputs) {
    job.steps_per_s[type] = rate;
  }
  std::erase_if(job.steps_per_s, [&](const auto& entry) {
    return std::ranges::count(fits, entry.first, &FitRow::type) == 0;
  });
  if (spec.steps_total == 0 && !spec.time_limit_s) {
    return absl::InvalidArgumentError(
        "the job names no steps_total and no time_limit; without one nobody "
        "knows when it is done");
  }
  const bool has_known_steps = spec.steps_total > 0 && !job.steps_per_s.empty();
  if (job.opaque && spec.time_limit_s && !has_known_steps) {
    job.steps = kEndlessSteps;
    for (const FitRow& fit : fits) job.steps_per_s[fit.type] = 1;
  }
  if (job.steps_per_s.empty()) {
    return absl::InvalidArgumentError(
        "nobody knows how fast the job is; give it [throughputs] by "
        "accelerator type, or the app of a job that runs");
  }
  KeepTo(RoomOf({spec.servers, spec.exclude_servers}, known), &job);
  LimitTo(spec.time_limit_s, &job);
  job.id = 1;
  for (const ForecastRow& row : live.jobs) {
    job.id = std::max({job.id, row.id + 1, row.array + 1});
  }
  for (const uint64_t parent : job.after) job.id = std::max(job.id, parent + 1);
  return job;
}

struct Ends {
  std::map<uint64_t, std::pair<Time, Time>> by_id;  // start, finish
  bool cut_short = false;
  double simulated_s = 0;
};

// Simulates until all jobs with an end have ended, and then long enough for the
// others to start on accelerators that are free. `elapsed_s`: the time of the
// simulation that is the present one.
absl::StatusOr<Ends> Simulate(const SimulationOptions& options,
                              std::vector<PredictedJob> jobs, double elapsed_s,
                              double wall_limit_s) {
  if (jobs.empty() || options.cluster.empty()) return Ends();
  GAVEL_ASSIGN_OR_RETURN(const auto inputs, MakeInputs(options, &jobs));
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<TraceSimulation> simulation,
                         TraceSimulation::Create(inputs.options, *inputs.trace,
                                                 *inputs.throughputs));
  const auto finite = static_cast<uint64_t>(std::ranges::count_if(
      jobs, [](const PredictedJob& job) { return !IsEndless(job); }));
  const Stopwatch clock;
  Ends ends;
  Time until = kNever;
  for (;;) {
    if (until == kNever && simulation->jobs_ended() >= finite) {
      until =
          simulation->now() + kRoundsBehind * options.engine.round_duration_s;
    }
    if (simulation->now() >= until || simulation->Run(kEventsAtOnce)) break;
    if (clock.elapsed_s() < wall_limit_s) continue;
    ends.cut_short = true;
    break;
  }
  const auto from_now = [&](Time at) { return std::max(0.0, at - elapsed_s); };
  ends.simulated_s = from_now(simulation->now());
  for (const SimulatedJob& job : simulation->Result().jobs) {
    const PredictedJob& one = jobs[job.job];
    const bool placed = one.idle_s > 0;
    ends.by_id[one.id] = {placed ? 0.0 : from_now(job.started_s),
                          from_now(job.completion_s)};
  }
  return ends;
}

// Start and finish; kNever: not within the simulation.
std::pair<Time, Time> EndsOf(const Ends& ends, uint64_t id) {
  const auto found = ends.by_id.find(id);
  return found == ends.by_id.end() ? std::pair(kNever, kNever) : found->second;
}

// The first end of these jobs, each of which may end sooner. All jobs that
// start from then on are taken to start sooner in that case.
Time FirstOpenEnd(const Ends& ends, const std::set<uint64_t>& at_most) {
  Time first = kNever;
  for (const uint64_t id : at_most) {
    first = std::min(first, EndsOf(ends, id).second);
  }
  return first;
}

// The job of that name or id, or all known elements of the array.
absl::StatusOr<std::vector<QueueRow>> ParentRows(Client& client,
                                                 const std::string& name) {
  GAVEL_ASSIGN_OR_RETURN(const JobId id, client.Resolve(name));
  const std::string of_array = StrCat("{\"array\": ", id.value(), "}");
  GAVEL_ASSIGN_OR_RETURN(const Json json,
                         client.Query(QueryKind::kQueue, JobId(), of_array));
  std::vector<QueueRow> rows = ParseQueue(json);
  if (!rows.empty()) return rows;
  GAVEL_ASSIGN_OR_RETURN(QueueRow row, JobOf(client, id));
  return std::vector{std::move(row)};
}

std::string In(Time seconds) {
  return seconds < kNever ? FormatElapsed(seconds) : "-";
}

std::string LatestIn(Time seconds, bool at_most) {
  return StrCat(at_most && seconds < kNever ? "at most " : "", In(seconds));
}

std::string Difference(const WhatIfJob& job) {
  if (!(job.finish_s < kNever) || !(job.finish_without_s < kNever)) return "-";
  const double later_s = job.finish_s - job.finish_without_s;
  if (std::abs(later_s) < 1) return "same";
  return StrCat(later_s > 0 ? "+" : "-", FormatElapsed(std::abs(later_s)));
}

Json JobJson(const WhatIfJob& job) {
  // kNever becomes null.
  Json json = {{"id", job.id == 0 ? Json() : Json(job.id)},
               {"name", job.name},
               {"start_in_s", job.start_s},
               {"finish_in_s", job.finish_s}};
  if (job.id != 0) json["finish_without_in_s"] = job.finish_without_s;
  json["at_most"] = job.at_most;
  json["start_at_most"] = job.start_at_most;
  return json;
}

}  // namespace

absl::StatusOr<LiveState> QueryLiveState(Client& client,
                                         std::string_view filter) {
  GAVEL_ASSIGN_OR_RETURN(const Json status, client.Query(QueryKind::kStatus));
  GAVEL_ASSIGN_OR_RETURN(const Json nodes, client.Query(QueryKind::kNodes));
  GAVEL_ASSIGN_OR_RETURN(
      const Json jobs,
      client.Query(QueryKind::kForecast, JobId(), std::string(filter)));
  return LiveState{ParseStatus(status), ParseNodes(nodes), ParseForecast(jobs)};
}

absl::Status NoteUser(Client& client, LiveState* live) {
  if (!live->status.user_shares && !live->status.app_shares) {
    return absl::OkStatus();
  }
  GAVEL_ASSIGN_OR_RETURN(
      const Json json,
      client.Query(QueryKind::kQueue, JobId(),
                   R"({"own": true, "ended_max": 0, "one_of_array": true})"));
  const std::vector<QueueRow> rows = ParseQueue(json);
  if (!rows.empty()) live->user = rows.front().owner;
  return absl::OkStatus();
}

absl::StatusOr<JobSpec> WithParentsLeft(Client& client, JobSpec spec) {
  std::vector<std::string> success;
  std::vector<std::string> any;
  std::string cancelled;
  const auto add = [&](const QueueRow& parent, bool must_finish) {
    if (!parent.Over()) {
      (must_finish ? success : any).push_back(StrCat(parent.id));
    } else if (parent.state == "CA" && must_finish && cancelled.empty()) {
      cancelled = StrCat(parent.id, " ", parent.name);
    }
  };
  for (const std::string& name : spec.after_success) {
    GAVEL_ASSIGN_OR_RETURN(const std::vector<QueueRow> parents,
                           ParentRows(client, name));
    for (const QueueRow& one : parents) add(one, /*must_finish=*/true);
  }
  for (const std::string& name : spec.after_any) {
    GAVEL_ASSIGN_OR_RETURN(const std::vector<QueueRow> parents,
                           ParentRows(client, name));
    for (const QueueRow& one : parents) add(one, /*must_finish=*/false);
  }
  if (!cancelled.empty()) {
    return absl::CancelledError(
        StrCat("the job would be cancelled at once: its parent ", cancelled,
               " was cancelled"));
  }
  spec.after_success = std::move(success);
  spec.after_any = std::move(any);
  spec.after_by_index.clear();
  return spec;
}

absl::StatusOr<WhatIf> Predict(const LiveState& live, const JobSpec& spec,
                               double wall_limit_s) {
  const Known known = KnownOf(live);
  GAVEL_ASSIGN_OR_RETURN(PredictedJob added, NewJob(spec, live, known));
  GAVEL_ASSIGN_OR_RETURN(const SimulationOptions options,
                         SimulationOptionsOf(live, known));
  WhatIf answer;
  answer.policy = options.policy;
  std::vector<PredictedJob> all = SimulatedJobs(live, known, [] { return 1; });
  const bool has_place = HasPlace(added, known);
  if (has_place) all.push_back(added);
  all = LeaveOutEndless(live, std::move(all));
  std::vector<PredictedJob> jobs = all;
  const bool is_simulated = std::erase_if(jobs, [&](const PredictedJob& job) {
                              return job.id == added.id;
                            }) > 0;
  answer.after_parents = has_place && !is_simulated;
  answer.endless = known.immovable.size() +
                   static_cast<size_t>(std::ranges::count_if(jobs, IsEndless));
  GAVEL_ASSIGN_OR_RETURN(
      const Ends without,
      Simulate(options, jobs, known.elapsed_s, wall_limit_s / 2));
  Ends with = without;
  if (is_simulated) {
    GAVEL_ASSIGN_OR_RETURN(with, Simulate(options, std::move(all),
                                          known.elapsed_s, wall_limit_s / 2));
  }
  answer.cut_short = with.cut_short || without.cut_short;
  answer.simulated_s = with.simulated_s;
  std::set<uint64_t> at_most;
  for (const PredictedJob& job : jobs) {
    if (job.at_most) at_most.insert(job.id);
  }
  if (added.at_most) at_most.insert(added.id);
  const Time open_s = FirstOpenEnd(with, at_most);
  const auto forecast_of = [&](const PredictedJob& job) {
    const auto [from_s, to_s] = EndsOf(with, job.id);
    const bool start_at_most = from_s >= open_s && from_s < kNever;
    return WhatIfJob{job.id,
                     job.name,
                     from_s,
                     to_s,
                     EndsOf(without, job.id).second,
                     job.at_most || start_at_most,
                     start_at_most};
  };
  answer.job = forecast_of(added);
  answer.job.id = 0;
  answer.limited = added.limited;
  for (const PredictedJob& job : jobs) {
    if (!IsEndless(job)) answer.others.push_back(forecast_of(job));
  }
  std::ranges::sort(answer.others, {}, &WhatIfJob::id);
  return answer;
}

std::string NoForecastOf(const JobSpec& spec) {
  if (!HasElements(spec)) return "";
  const size_t count = IndicesOf(spec).size();
  return StrCat("none is made of an array of ", count,
                count == 1 ? " job" : " jobs",
                "; once it is submitted, `gavel queue --start` has one");
}

absl::StatusOr<std::vector<FitRow>> FitOf(const JobSpec& spec,
                                          const std::vector<NodeRow>& nodes) {
  std::map<std::string, FitRow> by_type;
  std::map<std::string, int> all;  // by type, also where it may not run
  for (const NodeRow& node : nodes) {
    for (const AcceleratorRow& one : node.accelerators) {
      ++all[one.type];
      if (!MayUse(spec, node.server, one.type)) continue;
      FitRow& row = by_type[one.type];
      row.type = one.type;
      ++row.accelerators;
      row.idle += one.state == "idle" ? 1 : 0;
      if (!IsAnyOf(node.server, row.servers)) {
        row.servers.push_back(node.server);
      }
    }
  }
  if (all.empty()) {
    return absl::FailedPreconditionError(
        "the cluster has no accelerators at present; start an agent");
  }
  std::vector<FitRow> fits;
  std::vector<std::string> has;
  for (const auto& [type, count] : all) {
    const auto row = by_type.find(type);
    const int may = row == by_type.end() ? 0 : row->second.accelerators;
    has.push_back(may == count ? StrCat(count, " ", type)
                               : StrCat(count, " ", type,
                                        ", of which its file lets it "
                                        "have ",
                                        may));
    if (may > 0 && may >= spec.LeastWorkers()) fits.push_back(row->second);
  }
  if (!fits.empty()) return fits;
  return absl::FailedPreconditionError(StrCat(
      "job \"", spec.name, "\" can never run: it needs ", spec.LeastWorkers(),
      " accelerators of one type, and the cluster "
      "has ",
      absl::StrJoin(has, "; "),
      "; change its scale_factor, types, servers or throughputs, or add "
      "accelerators"));
}

std::string RenderFit(const std::vector<FitRow>& rows) {
  std::string text;
  for (const FitRow& row : rows) {
    StrAppend(&text, text.empty() ? "  fits      " : "            ",
              row.accelerators, " ", row.type, " of ",
              absl::StrJoin(row.servers, ", "), ", ", row.idle, " idle now\n");
  }
  return text;
}

Json FitJson(const std::vector<FitRow>& rows) {
  Json json = Json::array();
  for (const FitRow& row : rows) {
    json.push_back({{"type", row.type},
                    {"accelerators", row.accelerators},
                    {"idle", row.idle},
                    {"servers", row.servers}});
  }
  return json;
}

// ---- the prediction of a queue

namespace {

Spread SpreadOf(std::vector<Time> times) {
  std::ranges::sort(times);
  return {times.front(), times[times.size() / 2], times.back()};
}

bool Waits(const QueueRow& row) {
  return row.state == "PD" || row.state == "S";
}

const JobForecast* FindForecast(const QueueForecast& forecast, uint64_t id) {
  const auto found =
      std::ranges::lower_bound(forecast.jobs, id, {}, &JobForecast::id);
  return found == forecast.jobs.end() || found->id != id ? nullptr : &*found;
}

// When the first job of the line starts and the last one ends. An end that is
// not known of one is not known of all.
JobForecast ForecastOf(const QueueForecast& forecast, const QueueLine& line) {
  JobForecast all;
  all.finish = {0, 0, 0};
  const auto take_later = [](Time one, Time* latest) {
    *latest = std::max(*latest, one);
  };
  for (const QueueRow* const row : line.jobs) {
    const JobForecast* const job = FindForecast(forecast, row->id);
    const JobForecast one = job == nullptr ? JobForecast() : *job;
    if (one.start.median_s < all.start.median_s) {
      all.start_at_most = one.start_at_most;
    }
    all.start.earliest_s = std::min(all.start.earliest_s, one.start.earliest_s);
    all.start.median_s = std::min(all.start.median_s, one.start.median_s);
    all.start.latest_s = std::min(all.start.latest_s, one.start.latest_s);
    take_later(one.finish.earliest_s, &all.finish.earliest_s);
    take_later(one.finish.median_s, &all.finish.median_s);
    take_later(one.finish.latest_s, &all.finish.latest_s);
    all.at_most |= one.at_most;
  }
  return all;
}

// "5m", "2m to 9m".
std::string SpreadText(const Spread& spread) {
  const std::string earliest = In(spread.earliest_s);
  const std::string latest = In(spread.latest_s);
  return earliest == latest ? earliest : StrCat(earliest, " to ", latest);
}

// It waits for others, of which the end is not known.
bool IsAfterParents(const QueueRow& row, const Spread& start) {
  return !row.awaits.empty() && !(start.median_s < kNever);
}

// "5m", "5m (2m to 9m)".
std::string MedianText(const Spread& spread, bool at_most) {
  std::string text = LatestIn(spread.median_s, at_most);
  if (In(spread.earliest_s) != In(spread.latest_s)) {
    StrAppend(&text, " (", SpreadText(spread), ")");
  }
  return text;
}

Json SpreadJson(const Spread& spread) {
  // kNever becomes null.
  return {{"earliest_in_s", spread.earliest_s},
          {"median_in_s", spread.median_s},
          {"latest_in_s", spread.latest_s}};
}

// kForecastKeys.
Json ForecastKeysOf(const QueueForecast& forecast, const QueueRow& row) {
  const JobForecast* const found = FindForecast(forecast, row.id);
  const JobForecast job = found == nullptr ? JobForecast() : *found;
  return {{"after_parents", IsAfterParents(row, job.start)},
          {"start", SpreadJson(job.start)},
          {"finish", SpreadJson(job.finish)},
          {"at_most", job.at_most},
          {"start_at_most", job.start_at_most}};
}

}  // namespace

absl::StatusOr<QueueForecast> PredictQueue(const LiveState& live,
                                           double wall_limit_s) {
  const Known known = KnownOf(live);
  GAVEL_ASSIGN_OR_RETURN(const SimulationOptions options,
                         SimulationOptionsOf(live, known));
  QueueForecast forecast;
  if (live.jobs.empty()) return forecast;
  std::mt19937_64 random;  // the same draws each time
  std::uniform_real_distribution<double> exponent(-1, 1);
  std::map<uint64_t, std::pair<std::vector<Time>, std::vector<Time>>> times;
  std::set<uint64_t> at_most;
  std::set<uint64_t> start_at_most;  // in some run
  const Stopwatch clock;
  double longest_s = 0;  // that a run has taken
  for (int run = 0; run < kForecastRuns; ++run) {
    const double began_s = clock.elapsed_s();
    if (run > 0 && began_s + longest_s > wall_limit_s) break;
    // The first run is with the speeds that are expected.
    std::vector<PredictedJob> jobs = SimulatedJobs(live, known, [&] {
      return run == 0 ? 1 : std::pow(kSpeedSpread, exponent(random));
    });
    std::set<uint64_t> endless;
    for (const PredictedJob& job : jobs) {
      if (IsEndless(job)) endless.insert(job.id);
      if (job.at_most) at_most.insert(job.id);
    }
    GAVEL_ASSIGN_OR_RETURN(
        const Ends ends,
        Simulate(options, LeaveOutEndless(live, std::move(jobs)),
                 known.elapsed_s, wall_limit_s - began_s));
    // A part of a run would add jobs without an end.
    if (run > 0 && ends.cut_short) break;
    forecast.cut_short = ends.cut_short;
    forecast.simulations = run + 1;
    longest_s = std::max(longest_s, clock.elapsed_s() - began_s);
    const Time open_s = FirstOpenEnd(ends, at_most);
    for (const ForecastRow& row : live.jobs) {
      const auto [start_s, finish_s] = EndsOf(ends, row.id);
      if (start_s >= open_s && start_s < kNever) start_at_most.insert(row.id);
      times[row.id].first.push_back(start_s);
      times[row.id].second.push_back(endless.contains(row.id) ? kNever
                                                              : finish_s);
    }
  }
  for (auto& [id, of_job] : times) {
    const bool is_open = start_at_most.contains(id);
    forecast.jobs.push_back({id, SpreadOf(std::move(of_job.first)),
                             SpreadOf(std::move(of_job.second)),
                             at_most.contains(id) || is_open, is_open});
  }
  return forecast;
}

std::string RenderForecast(const QueueForecast& forecast,
                           const std::vector<QueueRow>& rows, size_t width,
                           bool are_chosen) {
  TableRows cells;
  for (const QueueLine& line : LinesOf(rows)) {
    const QueueRow& row = *line.jobs.front();
    if (!Waits(row)) continue;
    const auto [id, start, finish, at_most, start_at_most] =
        ForecastOf(forecast, line);
    cells.push_back({line.id, line.name, row.state,
                     IsAfterParents(row, start)
                         ? "after its parents"
                         : LatestIn(start.median_s, start_at_most),
                     SpreadText(start), LatestIn(finish.median_s, at_most),
                     SpreadText(finish), ReasonOf(line)});
  }
  if (cells.empty()) {
    return are_chosen ? "none of the jobs that were asked for waits\n"
                      : "no job waits\n";
  }
  const std::string text = RenderTable(
      {Right("JOBID", 7), Left("NAME", 14), Left("ST", 2), Right("STARTS IN"),
       Right("SPREAD"), Right("ENDS IN"), Right("SPREAD"), Left("REASON")},
      cells, width);
  return text + ForecastNote(forecast);
}

std::string ForecastNote(const QueueForecast& forecast) {
  if (forecast.cut_short) {
    return "the simulation took too long and was cut short; \"-\" is what it "
           "did not come to\n";
  }
  if (forecast.simulations == kForecastRuns) return "";
  return StrCat("the spread is that of ", forecast.simulations,
                " simulations instead of ", kForecastRuns,
                ", which would take too long\n");
}

void AddForecast(const QueueForecast& forecast, Json* rows) {
  Json waiting = Json::array();
  for (Json& row : *rows) {
    const auto job = ReadJson<QueueRow>(row);
    if (!Waits(job)) continue;
    row.update(ForecastKeysOf(forecast, job));
    waiting.push_back(std::move(row));
  }
  *rows = std::move(waiting);
}

void FormatForecast(const QueueForecast& forecast, Json* rows) {
  for (Json& row : *rows) {
    const auto job = ReadJson<QueueRow>(row);
    const JobForecast* const found = FindForecast(forecast, job.id);
    const JobForecast known = found == nullptr ? JobForecast() : *found;
    row["start"] = IsAfterParents(job, known.start)
                       ? "after its parents"
                       : MedianText(known.start, known.start_at_most);
    row["finish"] = MedianText(known.finish, known.at_most);
  }
}

Json ForecastJson(const QueueForecast& forecast,
                  const std::vector<QueueRow>& rows) {
  Json jobs = Json::array();
  for (const QueueRow& row : rows) {
    if (!Waits(row)) continue;
    Json& job = jobs.emplace_back();
    job = {{"id", row.id},
           {"array", row.array},
           {"array_index", row.array_index ? Json(*row.array_index) : Json()},
           {"name", row.name},
           {"state", row.state},
           {"reason", row.reason},
           {"awaits", row.awaits}};
    job.update(ForecastKeysOf(forecast, row));
  }
  return {{"jobs", std::move(jobs)},
          {"cut_short", forecast.cut_short},
          {"simulations", forecast.simulations}};
}

std::string RenderWhatIf(const WhatIf& answer, double wall_now_s) {
  const auto at = [&](Time seconds, bool at_most = false) {
    return seconds < kNever ? StrCat("in ", LatestIn(seconds, at_most),
                                     at_most ? ", by " : ", at ",
                                     FormatWallTime(wall_now_s + seconds))
                            : std::string("not within what was simulated");
  };
  std::string text = StrCat("job \"", answer.job.name, "\", if submitted now (",
                            answer.policy, "):\n");
  if (answer.after_parents) {
    text += "  starts    after its parents, whose end is not known\n";
  } else {
    StrAppend(&text, "  starts    ",
              at(answer.job.start_s, answer.job.start_at_most),
              answer.limited ? "\n  is held   " : "\n  finishes  ",
              at(answer.job.finish_s, answer.job.at_most),
              answer.limited ? ", by its time_limit, before its last step" : "",
              "\n");
  }
  std::vector<const WhatIfJob*> changed;
  for (const WhatIfJob& other : answer.others) {
    if (Difference(other) != "same") changed.push_back(&other);
  }
  StrAppend(&text, answer.others.size(), " other jobs, ", changed.size(),
            " of them end at another time");
  if (answer.endless > 0) {
    StrAppend(&text, "; ", answer.endless,
              " more have no known end and are taken to run on");
  }
  text += "\n";
  std::ranges::stable_sort(changed, [](const auto* a, const auto* b) {
    return a->finish_s - a->finish_without_s >
           b->finish_s - b->finish_without_s;
  });
  TableRows rows;
  for (const WhatIfJob* other : changed) {
    if (rows.size() == kOthersShown) break;
    rows.push_back({StrCat(other->id), other->name,
                    LatestIn(other->finish_without_s, other->at_most),
                    LatestIn(other->finish_s, other->at_most),
                    Difference(*other)});
  }
  if (!rows.empty()) {
    text += RenderTable({Right("JOBID"), Left("NAME", 24), Right("ENDS IN"),
                         Right("WITH IT"), Right("LATER")},
                        rows);
  }
  if (rows.size() < changed.size()) {
    StrAppend(&text, "... and ", changed.size() - rows.size(), " more\n");
  }
  if (answer.cut_short) {
    text +=
        "the simulation took too long and was cut short; \"-\" is what it "
        "did not come to\n";
  }
  return text;
}

Json WhatIfJson(const WhatIf& answer) {
  Json others = Json::array();
  for (const WhatIfJob& other : answer.others) others.push_back(JobJson(other));
  return {{"policy", answer.policy},
          {"job", JobJson(answer.job)},
          {"limited", answer.limited},
          {"others", std::move(others)},
          {"endless_jobs", answer.endless},
          {"cut_short", answer.cut_short},
          {"simulated_s", answer.simulated_s},
          {"after_parents", answer.after_parents}};
}

// ---- the command

namespace {

struct WhatIfOptions : ClientOptions {
  std::string job;
  double wall_limit_s = 20;
};

absl::Status RunWhatIfCommand(const WhatIfOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto files, ReadJobFiles({options.job}));
  const std::string why_none = NoForecastOf(files.front().spec);
  if (!why_none.empty()) {
    return absl::InvalidArgumentError(
        StrCat(options.job, ": no forecast: ", why_none));
  }
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  GAVEL_ASSIGN_OR_RETURN(LiveState live, QueryLiveState(*client, kWithWaiting));
  GAVEL_RETURN_IF_ERROR(NoteUser(*client, &live));
  absl::StatusOr<JobSpec> spec = WithParentsLeft(*client, files.front().spec);
  GAVEL_RETURN_IF_ERROR(Annotate(spec.status(), options.job));
  absl::StatusOr<WhatIf> answer = Predict(live, *spec, options.wall_limit_s);
  GAVEL_RETURN_IF_ERROR(Annotate(answer.status(), options.job));
  const std::string text = options.json ? WhatIfJson(*answer).dump(2) + "\n"
                                        : RenderWhatIf(*answer, WallClockNow());
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddWhatIfCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<WhatIfOptions>(
      app, exit_code, "what-if",
      "Predicts when a job would start and finish, and what it does to the "
      "others; submits nothing",
      RunWhatIfCommand);
  AddClientOptions(command, &options);
  AddOption(command, "job", options.job, "JOB.toml", "as for `gavel submit`")
      ->required();
  AddOption(command, "--time-limit", options.wall_limit_s, "SECONDS",
            "for the simulation, on this machine")
      ->check(CLI::Range(0.1, 3600.0));
}

}  // namespace gavel
