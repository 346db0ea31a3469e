#include "simulator/round_simulation.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "core/text.h"

namespace gavel {
namespace {

// A simulation in which nothing has run for so many rounds, and no job is to
// arrive, is stuck.
constexpr double kStuckRounds = 1000;
// Ended jobs that the engine keeps until they are read here.
constexpr size_t kEndedJobsKept = 32;

// Deadlines of real networks and processes, which are perfect here.
EngineOptions Perfect(EngineOptions options) {
  options.lease_duration_s = kNever;
  options.plan_lead_s = 0;
  // No lease runs out: a worker that is asked to pause does.
  options.drift = 1e9;
  options.report_interval_s = 0;
  options.pause_grace_s = kNever;
  options.agent_timeout_s = kNever;
  options.launch_timeout_s = kNever;
  // Nor does any loop stand still; looking for one is a walk over all jobs.
  options.hang_timeout_s = 0;
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
  told_.reserve(window_end_ - begin_);
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
  for (const ClusterPart& part : options_.cluster) {
    for (int first = 0, server = 0; first < part.count; ++server) {
      AgentHello hello;
      hello.server = StrCat(part.type, "-", server);
      hello.incarnation = 1;
      for (int i = 0; i < part.per_server && first < part.count; ++i) {
        AcceleratorInfo& info = hello.accelerators.emplace_back();
        info.type = part.type;
        info.uuid = StrCat(part.type, "-", first++);
        occupants_.push_back(0);
      }
      inbox_.Push(event::ServerJoined{std::move(hello)});
    }
  }
}

// All that come at this instant.
void RoundSimulation::Arrive() {
  TakeArrived(queue_.now(), [this](size_t index) {
    event::JobSubmitted submitted{work_.Spec(index), index + 1};
    if (index < options_.received.size()) {
      submitted.received = options_.received[index];
    }
    submitted.profile = work_.Profile(index);
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

// Lets everything happen that happens at this instant. The policy is asked
// last: jobs that come together are solved for together.
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
      absl::StatusOr<PolicyResult> result = policy_->Solve(*problem_->problem);
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
  const std::vector<int> capacity = engine_.cluster().Capacity();
  for (size_t type = 0; type < busy_.size(); ++type) {
    sample.busy.push_back(capacity[type] > 0 ? busy_[type] / capacity[type]
                                             : 0);
  }
  usage_.push_back(std::move(sample));
}

// Jobs wait, nothing runs and none will arrive: the policy gives them nothing.
bool RoundSimulation::Stuck() {
  const bool idle = !running_.empty() && next_ >= work_.size() &&
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
  for (const auto& [id, job] : running_) running.push_back(job.told);
  std::vector<double> busy_s = busy_s_;
  for (size_t type = 0; type < busy_s.size(); ++type) {
    busy_s[type] += busy_[type] * (queue_.now() - busy_at_);
  }
  SimulationResult result = Summary(std::move(running), queue_.now(),
                                    engine_.cluster().Capacity(), busy_s);
  result.total_cost = counters_.cost;
  result.preemptions = counters_.preemptions;
  result.moves = counters_.moves;
  result.rounds = engine_.rounds();
  result.solves = counters_.solves;
  result.lost_s = counters_.lost_s;
  result.profiling_s = counters_.profiling_s;
  result.failures = counters_.failures;
  result.usage = usage_;
  result.leases = leases_;
  return result;
}

}  // namespace gavel
