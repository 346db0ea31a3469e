// The workers of a simulation of rounds: they do at once what they are told.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "simulator/round_simulation.h"

namespace gavel {
namespace {

// Over which a speed is told to the engine, which weighs it by that.
constexpr double kReportWindow_s = 60;

}  // namespace

int RoundSimulation::SizeOf(const Running& job) const {
  return engine_.FindJob(job.id)->world_size;
}

RoundSimulation::Running* RoundSimulation::Find(JobId id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second->second;
}

// By the present incarnation only: to any other one the message is late.
RoundSimulation::Running* RoundSimulation::Find(const WorkerKey& key) {
  Running* job = Find(key.job);
  if (job == nullptr) return nullptr;
  const Worker& worker = job->workers[static_cast<size_t>(key.rank)];
  return worker.incarnation == key.incarnation ? job : nullptr;
}

RoundSimulation::Running* RoundSimulation::PartnerOf(const Running& job) {
  if (!options_.engine.packing) return nullptr;
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
  inbox_.Push(event::WorkerJoined{std::move(hello)});
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
  if (rank == 0 && size > 1) Ask(job, rank);
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
  job.consolidated =
      std::all_of(held.begin(), held.end(), [&](AcceleratorId id) {
        return cluster.accelerator(id).server ==
               cluster.accelerator(held.front()).server;
      });
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

// Estimates may put two together that can't share.
bool RoundSimulation::IsOutOfMemory(const Running& job) {
  if (options_.engine.reference_models == 0) return false;
  const Running* partner = PartnerOf(job);
  return partner != nullptr &&
         !(work_.Together(job.index, partner->index, job.type, true) > 0);
}

// The one that comes second gives its lease back; its engine won't put the two
// together on that type again.
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

// Where the engine has only an estimate of it.
void RoundSimulation::Report(JobId id, uint64_t plan) {
  Running* job = Find(id);
  if (job == nullptr || job->plan != plan || PartnerOf(*job) == nullptr) return;
  Count(*job);
  TellSpeed(*job);
}

// Of a size that it was not asked to have: the engine resizes by what it knows.
void RoundSimulation::TellSpeed(const Running& job) {
  event::StepsReported report;
  report.worker = {job.id, 0, job.workers.front().incarnation};
  report.epoch = job.workers.front().epoch;
  report.progress = ProgressOf(job);
  report.progress.throughput_steps_per_s = job.steps_per_s;
  report.progress.window_s = kReportWindow_s;
  inbox_.Push(std::move(report));
}

// Counts what it has done at its old speed, and plans its end by the new one.
void RoundSimulation::Train(Running& job) {
  Count(job);
  ++job.plan;
  const Running* partner = PartnerOf(job);
  job.shared = partner != nullptr ? 0.5 : 1;
  // As the hardware is, whatever the policy knows of it.
  job.steps_per_s =
      partner != nullptr
          ? work_.Together(job.index, partner->index, job.type,
                           job.consolidated)
          : work_.AtSize(job.index, job.type, static_cast<int>(job.last.size()),
                         job.consolidated);
  if (!(job.steps_per_s > 0)) return;
  const double left =
      std::max(0.0, work_.job(job.index).steps_total - job.steps);
  const Time end =
      std::max(queue_.now(), job.trains_from) + left / job.steps_per_s;
  queue_.At(end, {Kind::kFinish, job.id.value(), job.plan});
  if (partner == nullptr || options_.engine.reference_models == 0) return;
  const Time both = std::max(job.trains_from, partner->trains_from);
  queue_.At(std::max(queue_.now(), both) + kReportWindow_s,
            {Kind::kReport, job.id.value(), job.plan});
}

void RoundSimulation::Count(Running& job) {
  Charge(job);
  if (job.trains_from == kNever) return;
  const Time now = queue_.now();
  job.steps += job.steps_per_s *
               std::max(0.0, now - std::max(job.counted_at, job.trains_from));
  job.counted_at = now;
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
    inbox_.Push(event::WorkerSaidFinished{std::move(finished)});
    Exit(*job, rank, 0, 0, /*no_failure=*/false);
  }
  finished_.push_back(id);
}

// The engine has taken note of a job's end: its last figures can be read.
void RoundSimulation::TakeAllEnded() {
  while (!finished_.empty()) {
    const JobId id = finished_.front();
    const Job* ended = engine_.FindJob(id);
    if (ended != nullptr && ended->active()) return;
    finished_.pop_front();
    Running& job = *Find(id);
    SimulatedJob& told = job.told;
    told.jct_s = told.completion_s - told.arrival_s;
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
  return progress;
}

}  // namespace gavel
