#include "coordinator/server/query.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/engine/operators.h"
#include "coordinator/engine/sweeper.h"
#include "coordinator/engine/type_names.h"
#include "coordinator/policy/policy.h"
#include "coordinator/server/rows.h"
#include "core/text.h"

namespace gavel {
namespace {

// Its agent has ended in order.
bool HasLeft(const Accelerator& accelerator, const Engine& engine) {
  const auto agent = engine.agents().find(accelerator.server);
  return agent != engine.agents().end() && agent->second.left;
}

std::string_view AcceleratorStateName(const Accelerator& accelerator,
                                      const Engine& engine, bool held,
                                      bool starting, bool stands_still) {
  if (accelerator.state == AcceleratorState::kLost) return "lost";
  if (accelerator.state == AcceleratorState::kUnreachable) {
    return HasLeft(accelerator, engine) ? "down" : "unreachable";
  }
  if (engine.quarantined().contains(accelerator.id)) return "quarantined";
  if (accelerator.drained || accelerator.leaving) {
    return held || starting ? "draining" : "drained";
  }
  if (!held) return starting ? "starting" : "idle";
  return stands_still ? "hung" : "allocated";
}

struct Nodes {
  Nodes(const Engine& of, Time at) : engine(of), now(at) {
    for (const auto& [id, job] : engine.jobs()) {
      if (!job.AnyLive()) continue;
      if (const auto still = engine.StandstillOf(job)) {
        hung.insert(job.workers[static_cast<size_t>(still->rank)].held);
      }
      for (const Worker& worker : job.workers) {
        if (worker.held_epoch != 0) holders.emplace(worker.held, id);
        AddStarting(job, static_cast<size_t>(&worker - job.workers.data()));
        if (!worker.is_parked()) continue;
        parked_bytes[worker.server] += worker.progress.host_bytes;
        if (worker.kept_on.valid()) kept.emplace(worker.kept_on, id);
      }
    }
  }

  bool InUse(AcceleratorId id) const {
    return holders.contains(id) || starting.contains(id);
  }
  // A process that holds no lease, and is not parked for a later one.
  // One that has lost its accelerator already counts for all of its server that
  // are to be free.
  void AddStarting(const Job& job, size_t rank) {
    const Worker& worker = job.workers[rank];
    if (!worker.is_live() || worker.held_epoch != 0) return;
    if (worker.is_parked() && !worker.leaving) return;
    if (worker.launched_on.valid()) {
      starting.emplace(worker.launched_on, job.id);
      return;
    }
    const Cluster& cluster = engine.cluster();
    if (!worker.leaving && rank < job.assigned.size() &&
        cluster.accelerator(job.assigned[rank]).server == worker.server) {
      starting.emplace(job.assigned[rank], job.id);
      return;
    }
    const auto server = cluster.servers().find(worker.server);
    if (server == cluster.servers().end()) return;
    for (const AcceleratorId id : server->second) {
      const Accelerator& place = cluster.accelerator(id);
      if (place.drained || place.leaving) starting.emplace(id, job.id);
    }
  }

  const Engine& engine;
  const Time now;
  std::multimap<AcceleratorId, JobId> holders;   // who run there now
  std::set<AcceleratorId> hung;                  // whose holder makes no steps
  std::multimap<AcceleratorId, JobId> kept;      // paused, still in its memory
  std::multimap<AcceleratorId, JobId> starting;  // processes without a lease
  std::map<std::string, uint64_t> parked_bytes;  // by server, in host memory
};

std::string WhyLost(const Accelerator& accelerator, const Engine& engine) {
  if (accelerator.state != AcceleratorState::kLost) return "";
  const JobId accuser = engine.AccuserOf(accelerator.id);
  const std::string who = accuser.valid()
                              ? StrCat("jobs could not use it, as `gavel logs ",
                                       accuser.value(), "` tells")
                              : "it failed";
  return StrCat(who, "; see to the device, then restart the agent of ",
                accelerator.server);
}

void AddHealth(const Accelerator& accelerator, const Engine& engine,
               AcceleratorRow* row) {
  const auto agent = engine.agents().find(accelerator.server);
  if (agent == engine.agents().end() || !agent->second.reachable) return;
  const auto found = agent->second.health.find(accelerator.info.uuid);
  if (found == agent->second.health.end()) return;
  const AcceleratorHealth& told = found->second;
  if (told.utilisation_percent >= 0) {
    row->utilisation_percent = told.utilisation_percent;
  }
  if (told.temperature_c >= 0) row->temperature_c = told.temperature_c;
  row->uncorrectable_errors = told.uncorrectable_errors;
  if (told.last_xid > 0) row->last_xid = told.last_xid;
}

AcceleratorRow AcceleratorRowOf(const Nodes& nodes, AcceleratorId id) {
  const Accelerator& accelerator = nodes.engine.cluster().accelerator(id);
  const auto jobs = [id](const std::multimap<AcceleratorId, JobId>& by_place) {
    std::vector<uint64_t> list;
    const auto [begin, end] = by_place.equal_range(id);
    for (auto it = begin; it != end; ++it) list.push_back(it->second.value());
    return list;
  };
  AcceleratorRow row;
  row.type = accelerator.info.type;
  row.uuid = accelerator.info.uuid;
  row.device = accelerator.info.device;
  row.slow_down_factor = accelerator.info.slow_down_factor;
  row.state = AcceleratorStateName(
      accelerator, nodes.engine, nodes.holders.contains(id),
      nodes.starting.contains(id), nodes.hung.contains(id));
  row.speed = nodes.engine.speeds().Of(id);
  row.jobs = jobs(nodes.holders);
  row.kept_jobs = jobs(nodes.kept);
  row.starting_jobs = jobs(nodes.starting);
  row.drained = accelerator.drained;
  const std::map<AcceleratorId, Time>& drains = nodes.engine.operated().drains;
  if (const auto until = drains.find(id); until != drains.end()) {
    row.drain_in_s = std::max(0.0, until->second - nodes.now);
  }
  row.memory_bytes = accelerator.info.memory_bytes;
  row.drained_for = accelerator.drained_for;
  row.lost_for = WhyLost(accelerator, nodes.engine);
  row.exclusive = accelerator.info.exclusive;
  row.visibility = accelerator.info.alone_visible ? "leased" : "all";
  AddHealth(accelerator, nodes.engine, &row);
  return row;
}

// As sinfo's, of all its accelerators.
std::string_view ServerState(const Nodes& nodes,
                             const std::vector<AcceleratorId>& accelerators) {
  size_t held = 0;
  size_t reachable = 0;
  size_t usable = 0;
  for (const AcceleratorId id : accelerators) {
    const Accelerator& accelerator = nodes.engine.cluster().accelerator(id);
    held += nodes.InUse(id) ? 1 : 0;
    reachable += accelerator.state == AcceleratorState::kUsable ? 1 : 0;
    usable += accelerator.may_start() ? 1 : 0;
  }
  if (reachable == 0) return "down";
  if (usable == 0) return held > 0 ? "draining" : "drained";
  if (held == 0) return "idle";
  return held < accelerators.size() ? "mixed" : "allocated";
}

NodeRow NodeRowOf(const Nodes& nodes, const std::string& server,
                  const std::vector<AcceleratorId>& accelerators, size_t from) {
  const size_t to =
      std::min(accelerators.size(), from + kAcceleratorsPerRowMax);
  NodeRow row;
  row.server = server;
  row.state = ServerState(nodes, accelerators);
  const auto parked = nodes.parked_bytes.find(server);
  if (parked != nodes.parked_bytes.end()) row.parked_bytes = parked->second;
  for (size_t i = from; i < to; ++i) {
    row.accelerators.push_back(AcceleratorRowOf(nodes, accelerators[i]));
  }
  return row;
}

// The steps of the slowest rank, with an estimate for the time since its last
// report.
double StepsDone(const Job& job, Time now) {
  double least = std::numeric_limits<double>::infinity();
  for (const Worker& worker : job.workers) {
    double steps = static_cast<double>(worker.progress.steps_done);
    if (worker.held_epoch != 0) {
      steps += worker.progress.throughput_steps_per_s *
               std::max(0.0, now - worker.progress_at);
    }
    least = std::min(least, steps);
  }
  return job.workers.empty() ? 0 : least;
}

// Seconds of its time_limit. The limit of an opaque job begins anew with each
// start (SweepOpaque in the engine).
std::optional<double> TimeLeft(const Job& job, double received_s, Time now) {
  if (!job.spec.time_limit_s) return std::nullopt;
  double used_s = received_s - job.limited_from_s;
  if (job.spec.opaque() && !job.workers.empty()) {
    const Worker& first = job.workers.front();
    used_s = first.held_epoch != 0 ? now - first.leased_at : 0;
  }
  return std::max(0.0, *job.spec.time_limit_s - used_s);
}

// An element that was never in the queue is not in the matrix yet.
Throughput ThroughputOf(const Job& job, const std::string& type,
                        const Engine& engine) {
  if (!job.unqueued) return engine.throughputs().Get(job.id, type);
  const std::vector<std::string>& wanted = job.spec.types;
  Throughput known = {1, ThroughputSource::kGuessed};
  bool barred = !wanted.empty();
  for (const std::string& name : NamesOfType(type, engine.cluster().types())) {
    barred = barred && std::ranges::find(wanted, name) == wanted.end();
    const auto given = job.spec.throughputs.find(name);
    if (given == job.spec.throughputs.end()) continue;
    if (known.source == ThroughputSource::kGiven) continue;
    known = {given->second, ThroughputSource::kGiven};
  }
  return barred ? Throughput{0, ThroughputSource::kGiven} : known;
}

ForecastRow ForecastRowOf(const Job& job, const QueryView& view) {
  const JobSpec& spec = job.spec;
  ForecastRow row;
  row.id = job.id.value();
  row.name = spec.name;
  row.app = spec.app;
  row.workload = spec.workload;
  row.entity = spec.entity;
  row.owner = spec.owner;
  row.weight = spec.weight;
  row.owner_weight = spec.owner_weight;
  row.deadline_s = spec.deadline_s;
  row.scale_factor = job.scale_factor;
  if (spec.steps_total > 0) {
    row.steps_left = std::max(
        1.0, static_cast<double>(spec.steps_total) - StepsDone(job, view.now));
  }
  row.age_s = view.now - job.submitted_at;
  row.guessed = true;
  for (const std::string& type : view.engine.cluster().types()) {
    const Throughput known = ThroughputOf(job, type, view.engine);
    if (known.steps_per_s > 0) {
      row.guessed &= known.source == ThroughputSource::kGuessed;
    }
    row.throughputs.emplace_back(type, known.steps_per_s);
    row.sources.emplace_back(type, SourceOf(job, type, view.engine));
  }
  event::Received received{job.received_s, {}};
  if (job.active()) received = view.engine.ReceivedOf(job.id, view.now);
  row.time_left_s = TimeLeft(job, received.total_s, view.now);
  row.received_s = received.total_s;
  for (const event::Received::OnType& on : received.types) {
    row.received.push_back({on.type, {on.since_reset_s, on.deficit_s}});
  }
  row.opaque = spec.opaque();
  row.waits = WaitsByItself(job);
  row.held = !job.active() && !row.waits;
  for (const Parent& parent : job.parents) {
    row.awaits.push_back(parent.job.value());
  }
  const double due_s =
      engine::NotBefore(job, view.engine.options().wall_offset_s) - view.now;
  // An element that waits only for its turn was released, or its not_before has
  // passed.
  const bool next = std::holds_alternative<reason::ArrayLimit>(job.reason);
  if (row.waits && !next && due_s > 0) row.not_before_s = due_s;
  row.array = job.array.value();
  row.array_at_once = job.array_at_once;
  row.placed = job.active() && !job.assigned.empty();
  row.servers = spec.servers;
  row.exclude_servers = spec.exclude_servers;
  return row;
}

}  // namespace

std::string_view SourceOf(const Job& job, const std::string& type,
                          const Engine& engine) {
  if (engine.throughputs().IsExcluded(job.id, type)) return "out of memory";
  return SourceName(ThroughputOf(job, type, engine).source);
}

std::string_view SourceName(ThroughputSource source) {
  switch (source) {
    case ThroughputSource::kGuessed:
      return "guessed";
    case ThroughputSource::kGiven:
      return "given";
    case ThroughputSource::kMeasured:
      return "measured";
  }
  return "unknown";
}

Named<uint64_t> NoCounts() {
  Named<uint64_t> counts;
  for (const char* letters : {"PD", "R", "S", "CG", "CD", "F", "CA"}) {
    counts.emplace_back(letters, 0);
  }
  return counts;
}

void CountState(const Job& job, Named<uint64_t>* counts) {
  ++std::ranges::find(
        *counts, StateLetters(job),
        [](const auto& count) -> std::string_view { return count.first; })
        ->second;
}

Named<uint64_t> CountStates(const std::map<JobId, Job>& jobs) {
  Named<uint64_t> counts = NoCounts();
  for (const auto& [id, job] : jobs) CountState(job, &counts);
  return counts;
}

namespace {

StatusRow StatusOf(const QueryView& view) {
  const Engine& engine = view.engine;
  const EngineOptions& options = engine.options();
  const PolicyResult& result = engine.allocation();
  const TrialCost profiling = engine.ProfilingAt(view.now);
  const FailureRate& failures = engine.failure_rate();
  const std::string& instead_of = engine.operated().policy.instead_of;
  StatusRow row;
  row.term = engine.position().term;
  row.seq = engine.position().seq;
  row.now_s = view.now;
  row.policy = view.policy;
  row.policy_option = instead_of.empty() ? row.policy : instead_of;
  row.user_shares = options.user_shares;
  row.app_shares = options.app_shares;
  for (const PolicyEntity& entity : options.entities) {
    row.entities.push_back({entity.name, entity.weight, entity.policy});
  }
  row.mechanism = MechanismName(options.mechanism);
  row.queue = QueueName(options.queue);
  row.memory_rounds = options.memory_rounds;
  row.reset_interval_s = options.reset_interval_s;
  row.placement_sensitive = options.placement_sensitive;
  row.introspection = options.introspection;
  row.rounds = engine.rounds();
  row.round_duration_s = options.round_duration_s;
  row.lease_duration_s = options.lease_duration_s;
  if (engine.round_ends_at() != kNever) {
    row.round_ends_in_s = std::max(0.0, engine.round_ends_at() - view.now);
  }
  if (!result.solver.empty()) {
    row.outcome = OutcomeName(result.outcome);
    row.objective = result.objective;
    row.bound = result.bound;
    row.gap = result.gap;
    row.solver = result.solver;
  }
  row.detail = result.detail;
  row.kept_out = view.wire;
  row.profiling = {options.profiling_percentage, profiling.accelerators,
                   profiling.accelerator_s};
  row.failures = {failures.losses(), failures.busy_s(), failures.Interval_s()};
  row.troubles = view.troubles;
  row.jobs = view.counts == nullptr ? CountStates(engine.jobs()) : *view.counts;
  row.solve_s = view.threads.solve_s;
  row.rows_unwritten = view.threads.rows_unwritten;
  if (view.stays != nullptr) row.stays = *view.stays;
  return row;
}

bool IsPausing(const Job& job) {
  return std::ranges::any_of(job.workers, [](const Worker& worker) {
    return worker.finished ||
           (worker.held_epoch != 0 &&
            (worker.leaving || worker.pause_sent_at != kNever));
  });
}

// Its processes wait with their tensors in host memory.
bool IsPaused(const Job& job) {
  return std::ranges::any_of(job.workers, [](const Worker& worker) {
    return worker.process == ProcessState::kJoined &&
           worker.progress.pauses > 0;
  });
}

}  // namespace

StayCosts::StayCosts() {
  HistogramRow empty;
  empty.limits_s.assign(std::begin(kLimits_s), std::end(kLimits_s));
  empty.counts.assign(std::size(kLimits_s) + 1, 0);
  for (const char* began : {"start", "return", "move"}) {
    row_.overhead.emplace_back(began, empty);
  }
}

void StayCosts::Note(const Event& event, const Engine& engine) {
  if (std::holds_alternative<event::CoordinatorStarted>(event)) {
    Restart(engine);
  } else if (const auto* started = std::get_if<event::LeaseStarted>(&event)) {
    if (started->worker.rank == 0) Begin(started->worker.job, engine);
  } else if (const auto* ended = std::get_if<event::LeaseEnded>(&event)) {
    if (ended->worker.rank == 0) End(*ended, engine);
  }
}

void StayCosts::Restart(const Engine& engine) {
  stays_.clear();
  for (const auto& [id, job] : engine.jobs()) {
    if (!HasName(job) || !job.stays.last().valid()) continue;
    stays_[id] = {kReturn, job.stays.moves(), job.stays.pausing_s()};
  }
}

void StayCosts::Begin(JobId id, const Engine& engine) {
  const Job* const job = engine.FindJob(id);
  if (job == nullptr) return;
  const uint64_t moves = job->stays.moves();
  const auto [known, is_new] = stays_.try_emplace(id);
  Stay& stay = known->second;
  if (!is_new) {
    stay.began = moves > stay.moves ? kMove : kReturn;
    if (stay.began == kMove) ++row_.moves;
  }
  stay.moves = moves;
  ForgetOne(engine);
}

void StayCosts::End(const event::LeaseEnded& e, const Engine& engine) {
  if (e.cause == ReleaseCause::kPaused && !e.finished) ++row_.pauses;
  const Job* const job = engine.FindJob(e.worker.job);
  const auto known = stays_.find(e.worker.job);
  if (job == nullptr || known == stays_.end()) return;
  Stay& stay = known->second;
  const double total_s = job->stays.pausing_s();
  const double lost_s = total_s - std::exchange(stay.pausing_s, total_s);
  row_.pausing_s += lost_s;
  HistogramRow& histogram = row_.overhead[stay.began].second;
  histogram.sum_s += lost_s;
  ++histogram.counts[static_cast<size_t>(
      std::ranges::lower_bound(kLimits_s, lost_s) - std::begin(kLimits_s))];
}

void StayCosts::ForgetOne(const Engine& engine) {
  auto next = stays_.upper_bound(looked_at_);
  if (next == stays_.end()) next = stays_.begin();
  looked_at_ = next->first;
  const Job* const job = engine.FindJob(next->first);
  if (job == nullptr || !HasName(*job)) stays_.erase(next);
}

std::string_view StateLetters(const Job& job) {
  switch (job.state) {
    case JobState::kFinished:
      return "CD";
    case JobState::kCancelled:
      return job.HoldsAny() ? "CG" : "CA";
    case JobState::kHeld:
      if (WaitsByItself(job)) return "PD";
      return job.HoldsAny() ? "CG" : "F";
    case JobState::kActive:
      break;
  }
  if (IsPausing(job)) return "CG";
  if (job.HoldsAny()) return "R";
  return IsPaused(job) ? "S" : "PD";
}

QueryReply AnswerQuery(const QueryRequest& request, const QueryView& view) {
  QueryReply reply;
  reply.request = request.request;
  switch (request.kind) {
    case QueryKind::kNodes:
      AnswerNodes(request, view, &reply);
      break;
    case QueryKind::kStatus:
      reply.json = DumpJson(ToJson(StatusOf(view)));
      break;
    case QueryKind::kForecast:
      AnswerForecast(request, view, &reply);
      break;
    case QueryKind::kQueue:  // see queue_view.h
    case QueryKind::kWhy:
    case QueryKind::kHistory:  // is in the journal, not in the engine
    case QueryKind::kDashboard:
    case QueryKind::kAdmission:
      reply.error = "is not to be had here";
      break;
  }
  return reply;
}

void AnswerNodes(const QueryRequest& request, const QueryView& view,
                 QueryReply* reply) {
  const Nodes nodes(view.engine, view.now);
  JsonPage page;
  uint64_t index = 0;
  for (const auto& [server, accelerators] : view.engine.cluster().servers()) {
    // A server without accelerators has a row, too.
    for (size_t from = 0; from == 0 || from < accelerators.size();
         from += kAcceleratorsPerRowMax) {
      if (index++ < request.cursor) continue;
      const NodeRow row = NodeRowOf(nodes, server, accelerators, from);
      if (page.Add(ToJson(row))) continue;
      reply->next_cursor = index - 1;
      reply->json = page.Take();
      return;
    }
  }
  reply->json = page.Take();
}

void AnswerForecast(const QueryRequest& request, const QueryView& view,
                    QueryReply* reply) {
  JsonPage page;
  uint64_t last = request.cursor;
  const bool with_waiting = request.filter == kWithWaiting;
  const std::map<JobId, Job>& jobs = view.engine.jobs();
  for (auto it = jobs.upper_bound(JobId(last)); it != jobs.end(); ++it) {
    const auto& [id, job] = *it;
    const bool shown = job.active() || (with_waiting && HasName(job));
    if (shown && !page.Add(ToJson(ForecastRowOf(job, view)))) {
      reply->next_cursor = last;
      break;
    }
    last = id.value();
  }
  reply->json = page.Take();
}

QueryThread::QueryThread(const Limits& limits, std::function<void()> notify)
    : limits_(limits),
      notify_(std::move(notify)),
      bytes_(limits.bytes_per_s),
      thread_(AtEnd::kDrop, [this](auto questions, const std::stop_token&) {
        return Work(std::move(questions));
      }) {}

bool QueryThread::Ask(std::string peer, std::string reader, Write write) {
  {
    const std::lock_guard lock(mutex_);
    if (untaken_ >= limits_.of_all_max) return false;
    size_t& own = untaken_of_[reader];
    if (own >= limits_.of_one_max) return false;
    ++own;
    ++untaken_;
  }
  thread_.Post({std::move(peer), std::move(reader), std::move(write)});
  return true;
}

std::optional<QueryThread::Answer> QueryThread::TakeAnswer() {
  const std::lock_guard lock(mutex_);
  if (answers_.empty()) return std::nullopt;
  Answer next = std::move(answers_.front());
  answers_.pop_front();
  --untaken_;
  const auto own = untaken_of_.find(next.reader);
  if (--own->second == 0) untaken_of_.erase(own);
  return next;
}

Time QueryThread::Work(std::vector<Question> questions) {
  std::ranges::move(questions, std::back_inserter(waiting_));
  const double now = clock_.elapsed_s();
  Time wait_s = kNever;
  auto next = waiting_.begin();
  for (; next != waiting_.end(); ++next) {
    const double own_s = bytes_.WaitFor(now, next->reader);
    if (own_s <= 0) break;
    wait_s = std::min(wait_s, own_s);
  }
  if (next == waiting_.end()) return wait_s;
  Question question = std::move(*next);
  waiting_.erase(next);
  QueryReply reply = question.write();
  bytes_.Spend(clock_.elapsed_s(), question.reader,
               static_cast<double>(reply.json.size()));
  {
    const std::lock_guard lock(mutex_);
    answers_.push_back({std::move(question.peer), std::move(question.reader),
                        std::move(reply)});
  }
  notify_();
  return 0;  // the next one, perhaps of those that came meanwhile
}

}  // namespace gavel
