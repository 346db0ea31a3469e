#include "simulator/round_simulation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "core/packer.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// A simulation in which nothing has run for so many rounds, and no job is to
// arrive, is stuck.
constexpr double kStuckRounds = 1000;
// Ended jobs that the engine keeps until they are read here.
constexpr size_t kEndedJobsKept = 32;

// Disables the deadlines for faulty networks and processes: here both are
// perfect.
EngineOptions Perfect(EngineOptions options) {
  options.lease_duration_s = kNever;
  options.plan_lead_s = 0;
  // No lease expires, since each worker pauses when asked to.
  options.drift = 1e9;
  options.report_interval_s = 0;
  options.pause_grace_s = kNever;
  options.agent_timeout_s = kNever;
  options.launch_timeout_s = kNever;
  // No training loop hangs, and the check for one walks over all jobs.
  options.hang_timeout_s = 0;
  // Interactive jobs of a trace have no owner, so no quota applies.
  options.interactive_max = std::numeric_limits<int>::max();
  options.ended_jobs_kept = kEndedJobsKept;
  options.journal = false;
  options.renewals = false;
  return options;
}

}  // namespace

RoundSimulation::RoundSimulation(SimulationOptions options, SimulatedWork work,
                                 std::unique_ptr<Policy> policy)
    : WorkSimulation(std::move(options), std::move(work), std::move(policy)),
      engine_(Perfect(options_.engine)),
      random_(options_.seed),
      busy_(work_.types().size(), 0.0) {
  inbox_.Push(event::CoordinatorStarted{1});
  AddServers();
  ChangePrices();
  for (size_t i = 0; i < occupants_.size(); ++i) {
    PlanFailure(AcceleratorId(i + 1));
  }
  for (size_t i = 0; i < std::min(work_.size(), options_.waits.size()); ++i) {
    last_due_ = std::max(
        last_due_, work_.job(i).arrival_s + options_.waits[i].not_before_s);
  }
  busy_at_ = work_.job(0).arrival_s;
  queue_.At(busy_at_, {Kind::kArrive, 0, 0});
}

bool RoundSimulation::Run(uint64_t events) {
  // A problem that waits for others of its instant is not in a checkpoint.
  for (uint64_t i = 0; (i < events || problem_.has_value()) && !over_; ++i) {
    const std::optional<Task> task = queue_.Take(options_.time_limit_s);
    if (!task.has_value()) {
      EndAtTimeLimit();
      if (queue_.next() == kNever) stopped_ = "nothing is left to happen";
      break;
    }
    Do(*task);
    Drain();
    over_ |= WindowEnded() || Stuck();
  }
  return over_;
}

void RoundSimulation::Do(const Task& task) {
  switch (task.kind) {
    case Kind::kArrive:
      return Arrive();
    case Kind::kPrices:
      return ChangePrices();
    case Kind::kFail:
      return Fail(AcceleratorId(task.id));
    case Kind::kGiveUp:
      return GiveUp(JobId(task.id), static_cast<int>(task.number));
    case Kind::kFinish:
      return Finish(JobId(task.id), task.number);
    case Kind::kReport:
      return Report(JobId(task.id), task.number);
    case Kind::kTick:
      // An earlier one was armed meanwhile, or a later one.
      if (armed_ != queue_.now()) return;
      armed_ = kNever;
      inbox_.Push(event::Tick{});
      return Sample();
  }
}

// ---- the world

void RoundSimulation::AddServers() {
  struct Named {
    int accelerators = 0;
    int servers = 0;
  };
  std::map<std::string, Named> named;  // by type
  for (const ClusterPart& part : options_.cluster) {
    Named& of_type = named[part.type];
    for (int first = 0; first < part.count; ++of_type.servers) {
      AgentHello hello;
      hello.server = StrCat(part.type, "-", of_type.servers);
      hello.incarnation = 1;
      if (part.per_rack > 0) {
        hello.rack =
            StrCat(part.type, "-", part.per_server, "-", first / part.per_rack);
      }
      for (int i = 0; i < part.per_server && first < part.count; ++i) {
        AcceleratorInfo& info = hello.accelerators.emplace_back();
        info.type = part.type;
        info.uuid = StrCat(part.type, "-", of_type.accelerators++);
        ++first;
        if (part.per_group > 0) info.group = StrCat("g", i / part.per_group);
        occupants_.push_back(0);
      }
      inbox_.Push(event::ServerJoined{std::move(hello)});
    }
  }
}

// Submits all jobs that arrive at this instant.
void RoundSimulation::Arrive() {
  TakeArrived(queue_.now(), [this](size_t index) {
    event::JobSubmitted submitted{work_.Spec(index), index + 1};
    if (index < options_.received.size()) {
      submitted.received = options_.received[index];
    }
    submitted.profile = work_.Profile(index);
    if (const SimulatedWaits* const waits = work_.WaitsOf(index);
        waits != nullptr && waits->array != 0) {
      submitted.element = {.index = static_cast<int>(index),
                           .at_once = waits->at_once,
                           .queued = waits->queued};
    }
    inbox_.Push(std::move(submitted));
  });
  if (next_ < work_.size()) {
    queue_.At(work_.job(next_).arrival_s, {Kind::kArrive, 0, 0});
  }
}

void RoundSimulation::ChangePrices() {
  if (options_.prices.empty()) return;
  for (auto& [id, job] : running_) Count(job);
  event::PricesChanged event;
  for (const std::string& type : work_.types()) {
    event.prices.emplace_back(type, options_.prices.At(type, queue_.now()));
  }
  inbox_.Push(std::move(event));
  queue_.At(options_.prices.NextChange(queue_.now()), {Kind::kPrices, 0, 0});
}

// Failures of one accelerator are a Poisson process.
void RoundSimulation::PlanFailure(AcceleratorId accelerator) {
  if (options_.failures_per_hour <= 0) return;
  std::exponential_distribution<double> wait(options_.failures_per_hour /
                                             kHour_s);
  queue_.After(wait(random_), {Kind::kFail, accelerator.value(), 0});
}

// A worker that trains there dies, and has lost its steps since its last
// generation.
void RoundSimulation::Fail(AcceleratorId accelerator) {
  PlanFailure(accelerator);
  for (auto& [id, job] : running_) {
    if (job.trains_from == kNever) continue;
    for (size_t rank = 0; rank < job.workers.size(); ++rank) {
      const Worker& worker = job.workers[rank];
      if (worker.epoch == 0 || worker.held != accelerator) continue;
      ++counters_.failures;
      Count(job);
      const double trained = std::max(0.0, queue_.now() - job.trains_from);
      const double lost =
          job.steps_per_s *
          std::fmod(trained, std::max(1.0, options_.checkpoint_interval_s));
      job.steps = std::max(0.0, job.steps - lost);
      return Exit(job, static_cast<int>(rank), 0, 9, /*no_failure=*/true);
    }
  }
}

// ---- the engine's door

// Handles all events of this instant. The policy solves last, so that jobs that
// arrive together are solved for together.
void RoundSimulation::Drain() {
  for (;;) {
    if (!inbox_.empty()) {
      Actions actions = engine_.Step(queue_.now(), inbox_.Pop());
      Handle(actions);
      journaled_ = engine_.position().seq;
      engine_.Reuse(std::move(actions));
      TakeAllEnded();
    } else if (persisted_ < journaled_) {
      persisted_ = journaled_;
      inbox_.Push(event::Persisted{persisted_});
    } else if (problem_.has_value() && queue_.next() > queue_.now()) {
      ++counters_.solves;
      absl::StatusOr<PolicyResult> result = Solve(*problem_->problem);
      event::AllocationReady ready{problem_->epoch, {}};
      problem_.reset();
      if (result.ok()) {
        ready.result = *std::move(result);
      } else {
        ready.result.detail = std::string(result.status().message());
      }
      if (ready.result.outcome == SolveOutcome::kFailed) {
        stopped_ = StrCat("the policy failed: ", ready.result.detail);
        over_ = true;
      }
      inbox_.Push(std::move(ready));
    } else {
      return Arm();
    }
  }
}

absl::StatusOr<PolicyResult> RoundSimulation::Solve(
    const PolicyProblem& problem) const {
  if (!(options_.lies.part > 0)) return policy_->Solve(problem);
  PolicyProblem told = problem;
  std::vector<bool> lie(told.apps.size(), false);
  for (PolicyJob& job : told.jobs) {
    const auto running = by_id_.find(job.id);  // not there: it has just ended
    if (running == by_id_.end() || !work_.Lies(running->second->second.index)) {
      continue;
    }
    job.rho_factor = options_.lies.factor;
    if (job.app >= 0) lie[static_cast<size_t>(job.app)] = true;
  }
  for (size_t app = 0; app < lie.size(); ++app) {
    if (lie[app]) told.apps[app].rho_factor = options_.lies.factor;
  }
  return policy_->Solve(told);
}

void RoundSimulation::Handle(Actions& actions) {
  for (Action& action : actions) {
    std::visit([this](auto& a) { Do(a); }, action);
  }
}

void RoundSimulation::Do(const action::SendToWorker& action) {
  Running* job = Find(action.worker);
  if (job == nullptr) return;
  const int rank = action.worker.rank;
  if (std::holds_alternative<LeaseNotice>(action.message)) {
    // A worker keeps its lease until asked to pause: none runs out.
    if (job->workers[static_cast<size_t>(rank)].epoch == 0) Ask(*job, rank);
  } else if (const auto* grant = std::get_if<LeaseGrant>(&action.message)) {
    Granted(*job, rank, grant->epoch);
  } else if (const auto* pause = std::get_if<PauseRequest>(&action.message)) {
    Asked(*job, rank, pause->tier);
  }
}

void RoundSimulation::Do(const action::SendToAgent& action) {
  if (const auto* launch = std::get_if<LaunchWorker>(&action.message)) {
    Launch(launch->worker);
  } else if (const auto* stop = std::get_if<StopWorker>(&action.message)) {
    if (Running* job = Find(stop->worker)) {
      if (IsOpaque(*job) && job->trains_from != kNever) {
        ++job->told.preemptions;
        ++counters_.preemptions;
      }
      Exit(*job, stop->worker.rank, kExitEvicted, 0, /*no_failure=*/true);
    }
  }
}

void RoundSimulation::Do(const action::Reply& action) {
  if (action.reply_to == 0) return;
  const size_t i = action.reply_to - 1;
  if (!action.error.empty()) return LeaveOut(i, action.error);
  CountPresent(queue_.now(), running_.size());
  const auto entry = running_.try_emplace(running_.end(), action.job);
  by_id_[action.job] = entry;
  Running& job = entry->second;
  job.index = i;
  job.id = action.job;
  job.workers.resize(static_cast<size_t>(work_.job(i).MostWorkers()));
  job.told = work_.Describe(i);
  job.told.present_s = present_s_;
  job.profiling_s =
      options_.profiling.cell_s *
      static_cast<double>(engine_.FindJob(action.job)->profile.size());
}

void RoundSimulation::Do(const action::Halt& action) {
  stopped_ = action.reason;
  over_ = true;
}

void RoundSimulation::Arm() {
  const Time next = engine_.NextDeadline();
  if (next >= armed_ && armed_ > queue_.now()) return;
  armed_ = std::max(next, queue_.now());
  queue_.At(armed_, {Kind::kTick, 0, 0});
}

// ---- accounts

void RoundSimulation::CountBusy() {
  for (size_t type = 0; type < busy_.size(); ++type) {
    busy_s_[type] += busy_[type] * (queue_.now() - busy_at_);
  }
  busy_at_ = queue_.now();
}

void RoundSimulation::Occupy(Worker& worker) {
  worker.from = queue_.now();
  idle_since_ = kNever;
  if (occupants_[worker.held.value() - 1]++ > 0) return;
  CountBusy();
  busy_[static_cast<size_t>(engine_.cluster().TypeOf(worker.held))] += 1;
}

void RoundSimulation::Leave(Running& job, Worker& worker) {
  if (worker.epoch == 0) return;
  Charge(job);
  job.shared = 1;
  worker.epoch = 0;
  worker.pausing = false;
  if (options_.record_rounds) {
    leases_.push_back(
        {job.index, worker.held.value(), worker.from, queue_.now()});
  }
  if (--occupants_[worker.held.value() - 1] > 0) return;
  CountBusy();
  busy_[static_cast<size_t>(engine_.cluster().TypeOf(worker.held))] -= 1;
}

void RoundSimulation::Sample() {
  if (!options_.record_rounds) return;
  UsageSample sample;
  sample.time_s = queue_.now();
  double running = 0;
  for (const auto& [id, job] : running_) {
    if (job.trains_from != kNever) running += 1;
  }
  sample.waiting_jobs = static_cast<double>(running_.size()) - running;
  // The engine's capacity leaves out the accelerators of opaque jobs.
  const std::vector<int>& capacity = work_.capacity();
  for (size_t type = 0; type < busy_.size(); ++type) {
    sample.busy.push_back(capacity[type] > 0 ? busy_[type] / capacity[type]
                                             : 0);
  }
  usage_.push_back(std::move(sample));
}

// Jobs wait, nothing runs and none will arrive: the policy gives them nothing.
bool RoundSimulation::Stuck() {
  const bool idle = !running_.empty() && next_ >= work_.size() &&
                    queue_.now() > last_due_ &&
                    std::all_of(busy_.begin(), busy_.end(),
                                [](double count) { return count == 0; });
  if (!idle) {
    idle_since_ = kNever;
    return false;
  }
  if (idle_since_ == kNever) idle_since_ = queue_.now();
  if (queue_.now() - idle_since_ <
      kStuckRounds * options_.engine.round_duration_s) {
    return false;
  }
  stopped_ =
      StrCat(running_.size(), " jobs wait and the policy runs none of them");
  return true;
}

SimulationResult RoundSimulation::Result() const {
  std::vector<SimulatedJob> running;
  for (const auto& [id, job] : running_) {
    SimulatedJob& told = running.emplace_back(job.told);
    const Time from = std::max(job.counted_at, job.trains_from);
    told.steps =
        job.steps + job.steps_per_s * std::max(0.0, queue_.now() - from);
  }
  std::vector<double> busy_s = busy_s_;
  for (size_t type = 0; type < busy_s.size(); ++type) {
    busy_s[type] += busy_[type] * (queue_.now() - busy_at_);
  }
  SimulationResult result =
      Summary(std::move(running), queue_.now(), work_.capacity(), busy_s);
  result.total_cost = counters_.cost;
  result.preemptions = counters_.preemptions;
  result.moves = counters_.moves;
  result.rounds = engine_.rounds();
  result.solves = counters_.solves;
  result.lost_s = counters_.lost_s;
  result.profiling_s = counters_.profiling_s;
  result.failures = counters_.failures;
  result.placement_score = counters_.placed_s / counters_.gangs_s;
  result.usage = usage_;
  result.leases = leases_;
  return result;
}

// ---- workers, which obey the engine at once

namespace {

// The length of the window of a reported speed. The engine weighs a report by
// its window.
constexpr double kReportWindow_s = 60;
// The same of jobs on trial, which are judged within a minute.
constexpr double kTrialWindow_s = 30;

}  // namespace

int RoundSimulation::SizeOf(const Running& job) const {
  return engine_.FindJob(job.id)->world_size;
}

RoundSimulation::Running* RoundSimulation::Find(JobId id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second->second;
}

// Finds the job only by its present incarnation: a message to an earlier one is
// late.
RoundSimulation::Running* RoundSimulation::Find(const WorkerKey& key) {
  Running* job = Find(key.job);
  if (job == nullptr) return nullptr;
  const Worker& worker = job->workers[static_cast<size_t>(key.rank)];
  return worker.incarnation == key.incarnation ? job : nullptr;
}

RoundSimulation::Running* RoundSimulation::PartnerOf(const Running& job) {
  if (!options_.engine.packing && !options_.engine.introspection) {
    return nullptr;
  }
  const Job* known = engine_.FindJob(job.id);
  if (known == nullptr) return nullptr;
  Running* partner = Find(known->partner);
  if (partner == nullptr || partner->trains_from == kNever) return nullptr;
  return partner->workers.front().held == job.workers.front().held ? partner
                                                                   : nullptr;
}

void RoundSimulation::Launch(const WorkerKey& key) {
  Running* job = Find(key.job);
  if (job == nullptr) return;
  Worker& worker = job->workers[static_cast<size_t>(key.rank)];
  if (worker.incarnation >= key.incarnation) return;
  worker = Worker();
  worker.incarnation = key.incarnation;
  WorkerHello hello;
  hello.worker = key;
  hello.progress = ProgressOf(*job);
  if (!IsOpaque(*job)) {
    inbox_.Push(event::WorkerJoined{std::move(hello)});
    return;
  }
  // Its lease began with the launch, and it asks for none. An early hello says
  // that it is there, so that the launch is not repeated.
  hello.ready = false;
  inbox_.Push(event::WorkerJoined{std::move(hello)});
  const auto rank = static_cast<size_t>(key.rank);
  const uint64_t epoch = engine_.FindJob(key.job)->workers[rank].held_epoch;
  if (epoch != 0) Granted(*job, key.rank, epoch);
}

void RoundSimulation::Exit(Running& job, int rank, int code, int signal,
                           bool no_failure) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  if (worker.epoch != 0) {
    Stop(job);
    Leave(job, worker);
  }
  WorkerExited exit;
  exit.server =
      engine_.FindJob(job.id)->workers[static_cast<size_t>(rank)].server;
  exit.worker = {job.id, rank, worker.incarnation};
  exit.exit_code = code;
  exit.signal = signal;
  exit.no_failure = no_failure;
  // The engine takes an exit with 0 of a process that said hello for a good end
  // only if its session came to its end, too.
  if (code == 0 && signal == 0) exit.finished_code = 0;
  inbox_.Push(event::WorkerGone{std::move(exit)});
}

void RoundSimulation::Ask(Running& job, int rank) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  if (worker.pausing) return;
  LeaseRequest request;
  request.worker = {job.id, rank, worker.incarnation};
  request.epoch = worker.epoch;
  request.nonce = ++worker.nonce;
  request.holding = worker.epoch != 0;
  if (rank == 0 && request.holding) request.gang_address = "rank-0";
  inbox_.Push(event::LeaseRequested{request});
}

void RoundSimulation::Granted(Running& job, int rank, uint64_t epoch) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  if (worker.epoch != 0) return;  // continues
  worker.epoch = epoch;
  worker.held =
      engine_.FindJob(job.id)->workers[static_cast<size_t>(rank)].held;
  Occupy(worker);
  // The other ranks are granted when rank 0's store is open: at once.
  const int size = SizeOf(job);
  if (rank == 0 && size > 1 && !IsOpaque(job)) Ask(job, rank);
  const bool all = std::all_of(
      job.workers.begin(), job.workers.begin() + size,
      [&](const Worker& w) { return w.epoch == epoch && !w.pausing; });
  if (all) Begin(job);
}

void RoundSimulation::Asked(Running& job, int rank, PauseTier tier) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  const bool leaves = StrongerThan(tier, PauseTier::kPark);
  if (worker.epoch == 0) {
    if (leaves) Exit(job, rank, kExitEvicted, 0, /*no_failure=*/false);
    return;
  }
  worker.leaves |= leaves;
  if (worker.pausing) return;
  worker.pausing = true;
  const double pause_s = work_.OverheadOf(job.index).pause_s;
  if (job.trains_from != kNever) {
    Stop(job);
    ++job.told.preemptions;
    ++job.pauses;
    job.pausing_s += pause_s;
    job.told.lost_s += pause_s;
    counters_.lost_s += pause_s * static_cast<double>(job.last.size());
    ++counters_.preemptions;
  }
  if (pause_s == 0) return GiveUp(job.id, rank);
  queue_.After(pause_s,
               {Kind::kGiveUp, job.id.value(), static_cast<uint64_t>(rank)});
}

void RoundSimulation::GiveUp(JobId id, int rank) {
  Running* job = Find(id);
  if (job == nullptr) return;
  Worker& worker = job->workers[static_cast<size_t>(rank)];
  if (worker.epoch == 0) return;
  const uint64_t epoch = worker.epoch;
  Leave(*job, worker);
  inbox_.Push(event::LeaseEnded{
      {id, rank, worker.incarnation}, epoch, ProgressOf(*job), false});
  if (worker.leaves) Exit(*job, rank, kExitEvicted, 0, /*no_failure=*/false);
}

// All of its workers hold their leases: it resumes, then trains.
void RoundSimulation::Begin(Running& job) {
  std::vector<AcceleratorId> held;
  for (int rank = 0; rank < SizeOf(job); ++rank) {
    held.push_back(job.workers[static_cast<size_t>(rank)].held);
  }
  const Cluster& cluster = engine_.cluster();
  job.type = static_cast<size_t>(cluster.TypeOf(held.front()));
  job.level = cluster.LevelOf(held);
  job.told.started_s = std::min(job.told.started_s, queue_.now());
  const Overhead overhead = work_.OverheadOf(job.index);
  double wait = overhead.start_s;
  if (!job.last.empty()) {
    // A gang that shrinks stays where its first ranks are; one that grows
    // starts again.
    const bool moved = held.size() > job.last.size() ||
                       !std::equal(held.begin(), held.end(), job.last.begin());
    wait = moved ? overhead.move_s : overhead.resume_s;
    job.told.moves += moved ? 1 : 0;
    counters_.moves += moved ? 1 : 0;
    job.pausing_s += wait;
  }
  job.told.lost_s += wait;
  counters_.lost_s += wait * static_cast<double>(held.size());
  if (job.profiling_s > 0) {
    const double taken = job.profiling_s * static_cast<double>(held.size());
    wait += job.profiling_s;
    job.told.lost_s += job.profiling_s;
    counters_.lost_s += taken;
    counters_.profiling_s += taken;
    job.profiling_s = 0;
  }
  job.last = std::move(held);
  if (IsOutOfMemory(job)) return GiveUpPair(job);
  job.trains_from = queue_.now() + wait;
  job.counted_at = queue_.now();
  Train(job);
  if (static_cast<int>(job.last.size()) != job.told.scale_factor) {
    TellSpeed(job);
  }
  if (Running* partner = PartnerOf(job)) Train(*partner);
}

// An estimate may pair two jobs that can't share an accelerator.
bool RoundSimulation::IsOutOfMemory(const Running& job) {
  if (options_.engine.reference_models == 0) return false;
  const Running* partner = PartnerOf(job);
  return partner != nullptr &&
         !(work_.Together(job.index, partner->index, job.type,
                          Locality::kServer) > 0);
}

// The second job of the pair gives its lease back, and the engine does not pair
// the two on that type again.
void RoundSimulation::GiveUpPair(Running& job) {
  for (int rank = 0; rank < SizeOf(job); ++rank) {
    Worker& worker = job.workers[static_cast<size_t>(rank)];
    const uint64_t epoch = worker.epoch;
    Leave(job, worker);
    inbox_.Push(event::LeaseEnded{{job.id, rank, worker.incarnation},
                                  epoch,
                                  ProgressOf(job),
                                  false,
                                  ReleaseCause::kOutOfMemory});
  }
}

// Reports the speed of a job that runs beside another one, which the engine
// only estimates, or that is on trial. Once a round it reports the loss, if the
// policy reads losses.
void RoundSimulation::Report(JobId id, uint64_t plan) {
  Running* job = Find(id);
  if (job == nullptr || job->plan != plan) return;
  const bool losses = policy_->reads_losses();
  if (PartnerOf(*job) == nullptr && !options_.engine.introspection && !losses) {
    return;
  }
  Count(*job);
  TellSpeed(*job);
  if (!losses) return;
  queue_.After(options_.engine.round_duration_s,
               {Kind::kReport, id.value(), plan});
}

// Reports the speed of a job in a pair, or with another number of workers than
// it asked for: the engine resizes jobs by the speeds that it knows.
void RoundSimulation::TellSpeed(const Running& job) {
  event::StepsReported report;
  report.worker = {job.id, 0, job.workers.front().incarnation};
  report.epoch = job.workers.front().epoch;
  report.progress = ProgressOf(job);
  report.progress.throughput_steps_per_s = job.steps_per_s;
  report.progress.window_s =
      options_.engine.introspection ? kTrialWindow_s : kReportWindow_s;
  inbox_.Push(std::move(report));
}

// Counts the steps done at the old speed, and plans the end by the new one.
void RoundSimulation::Train(Running& job) {
  Count(job);
  ++job.plan;
  const Running* partner = PartnerOf(job);
  job.shared = partner != nullptr ? 0.5 : 1;
  // The true speed, which the policy may only estimate.
  job.steps_per_s =
      partner != nullptr
          ? work_.Together(job.index, partner->index, job.type, job.level)
          : work_.AtSize(job.index, job.type, static_cast<int>(job.last.size()),
                         job.level);
  job.placed = 0;
  if (partner == nullptr && job.last.size() > 1) {
    const Locality best = work_.LevelIn(
        job.index, job.type, work_.FitsOnServer(job.index, job.type));
    const double most = work_.AtSize(job.index, job.type,
                                     static_cast<int>(job.last.size()), best);
    if (most > 0) job.placed = job.steps_per_s / most;
  }
  if (!(job.steps_per_s > 0)) return;
  const double left =
      std::max(0.0, work_.job(job.index).steps_total - job.steps);
  const Time end =
      std::max(queue_.now(), job.trains_from) + left / job.steps_per_s;
  queue_.At(end, {Kind::kFinish, job.id.value(), job.plan});
  if (IsOpaque(job)) return;  // it reports nothing
  const bool on_trial = options_.engine.introspection &&
                        (partner != nullptr || job.last.size() > 1);
  const bool estimated =
      partner != nullptr && options_.engine.reference_models > 0;
  const bool told = on_trial || estimated;
  if (!told && !policy_->reads_losses()) return;
  Time both = std::max(queue_.now(), job.trains_from);
  if (partner != nullptr) both = std::max(both, partner->trains_from);
  const double after_s = on_trial ? kTrialWindow_s
                         : told   ? kReportWindow_s
                                  : options_.engine.round_duration_s;
  queue_.At(both + after_s, {Kind::kReport, job.id.value(), job.plan});
}

void RoundSimulation::Count(Running& job) {
  Charge(job);
  if (job.trains_from == kNever) return;
  const Time now = queue_.now();
  const double trained_s =
      std::max(0.0, now - std::max(job.counted_at, job.trains_from));
  job.steps += job.steps_per_s * trained_s;
  job.counted_at = now;
  if (!(job.placed > 0)) return;
  const double gang_s = trained_s * static_cast<double>(job.last.size());
  counters_.gangs_s += gang_s;
  counters_.placed_s += gang_s * job.placed;
}

// A worker pays for its accelerator from its lease to its release, also while
// it pauses, resumes or waits for the rest of its gang.
void RoundSimulation::Charge(Running& job) {
  const Time now = queue_.now();
  Time held_from = now;
  for (const Worker& worker : job.workers) {
    if (worker.epoch == 0) continue;
    const Time from = std::max(worker.from, job.charged_at);
    held_from = std::min(held_from, from);
    const auto type =
        static_cast<size_t>(engine_.cluster().TypeOf(worker.held));
    const double cost = options_.prices.At(work_.types()[type], from) *
                        (now - from) * job.shared / kHour_s;
    job.told.cost += cost;
    counters_.cost += cost;
  }
  job.told.run_s += now - held_from;
  job.charged_at = now;
}

void RoundSimulation::Stop(Running& job) {
  if (job.trains_from == kNever) return;
  Count(job);
  Running* partner = PartnerOf(job);
  job.trains_from = kNever;
  ++job.plan;
  if (partner != nullptr) Train(*partner);
}

void RoundSimulation::Finish(JobId id, uint64_t plan) {
  Running* job = Find(id);
  if (job == nullptr || job->plan != plan) return;
  Stop(*job);
  job->steps = work_.job(job->index).steps_total;
  job->told.completion_s = queue_.now();
  for (int rank = 0, size = SizeOf(*job); rank < size; ++rank) {
    Worker& worker = job->workers[static_cast<size_t>(rank)];
    WorkerFinished finished;
    finished.worker = {id, rank, worker.incarnation};
    finished.epoch = worker.epoch;
    finished.progress = ProgressOf(*job);
    Leave(*job, worker);
    // The lease of an opaque job ends with its process.
    if (!IsOpaque(*job)) {
      inbox_.Push(event::WorkerSaidFinished{std::move(finished)});
    }
    Exit(*job, rank, 0, 0, /*no_failure=*/false);
  }
  finished_.push_back(id);
}

// Reads the last figures of the jobs whose end the engine has recorded.
void RoundSimulation::TakeAllEnded() {
  while (!finished_.empty()) {
    const JobId id = finished_.front();
    const Job* ended = engine_.FindJob(id);
    if (ended != nullptr && ended->active()) return;
    finished_.pop_front();
    Running& job = *Find(id);
    SimulatedJob& told = job.told;
    told.jct_s = told.completion_s - told.arrival_s;
    told.steps = job.steps;
    if (ended != nullptr) {
      const double isolated =
          ended->isolated_s +
          work_.IsolatedSeconds(job.index, job.steps - ended->isolated_steps,
                                static_cast<double>(running_.size()));
      told.rho = isolated > 0 ? told.jct_s / isolated : 0;
      const JobShares shares = engine_.SharesOf(id, queue_.now());
      told.share_target = shares.target;
      told.share_received = shares.received;
    }
    CountPresent(queue_.now(), running_.size());
    TakeEnded(std::move(told));
    const auto entry = by_id_.find(id);
    running_.erase(entry->second);
    by_id_.erase(entry);
  }
}

Progress RoundSimulation::ProgressOf(const Running& job) const {
  Progress progress;
  progress.steps_done = static_cast<uint64_t>(job.steps);
  progress.pauses = job.pauses;
  progress.moves = job.told.moves;
  progress.pausing_s = job.pausing_s;
  if (policy_->reads_losses()) {
    const TraceJob& of = work_.job(job.index);
    progress.scalars = {{"loss", of.loss.At(job.steps / of.steps_total)}};
  }
  return progress;
}

// ---- checkpoints: a simulation as bytes, and back

constexpr Locality LastOf(Locality) { return Locality::kCluster; }
constexpr RoundSimulation::Kind LastOf(RoundSimulation::Kind) {
  return RoundSimulation::Kind::kReport;
}

auto Fields(As<SimulatedJob> auto& j) {
  return std::tie(j.job, j.type, j.scale_factor, j.weight, j.arrival_s,
                  j.completion_s, j.jct_s, j.rho, j.cost, j.run_s, j.lost_s,
                  j.preemptions, j.moves, j.deadline_s, j.share_target,
                  j.share_received, j.rho_static, j.rho_mean, j.present_s,
                  j.steps, j.interactive, j.started_s);
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
  return std::tie(r.index, r.id, r.workers, r.last, r.type, r.level,
                  r.trains_from, r.steps, r.counted_at, r.steps_per_s, r.shared,
                  r.plan, r.pauses, r.pausing_s, r.told, r.profiling_s,
                  r.charged_at, r.placed);
}
auto Fields(As<RoundSimulation::Counters> auto& c) {
  return std::tie(c.preemptions, c.moves, c.solves, c.failures, c.lost_s,
                  c.cost, c.profiling_s, c.gangs_s, c.placed_s);
}
auto Fields(As<TimedQueue<RoundSimulation::Task>> auto& q) {
  return TimedQueue<RoundSimulation::Task>::State(q);
}

// All fields except the arguments of the constructor and the engine.
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
