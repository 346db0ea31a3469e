#include "simulator/virtual_cluster.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/text.h"

namespace gavel {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// What the server turns a message into; nothing for what the engine does not
// take.
std::optional<Event> ToEvent(const Message& message) {
  return std::visit(
      Overloaded{
          [](const WorkerHello& m) -> std::optional<Event> {
            return event::WorkerJoined{m};
          },
          [](const LeaseRequest& m) -> std::optional<Event> {
            return event::LeaseRequested{m};
          },
          [](const StepReport& m) -> std::optional<Event> {
            return event::StepsReported{m.worker, m.epoch, m.progress};
          },
          [](const LeaseReleased& m) -> std::optional<Event> {
            return event::LeaseEnded{m.worker, m.epoch, m.progress, false,
                                     m.cause};
          },
          [](const WorkerFinished& m) -> std::optional<Event> {
            return event::WorkerSaidFinished{m};
          },
          [](const AgentHello& m) -> std::optional<Event> {
            return event::ServerJoined{m};
          },
          [](const AgentHeartbeat& m) -> std::optional<Event> {
            return event::AgentHeard{m};
          },
          [](const WorkerExited& m) -> std::optional<Event> {
            return event::WorkerGone{m};
          },
          [](const auto&) -> std::optional<Event> { return std::nullopt; }},
      message);
}

// The journal position that an event's sender shows; (0, 0): none.
JournalPosition Shown(const Event& event) {
  return std::visit(
      Overloaded{
          [](const event::WorkerJoined& e) { return e.hello.highest_seen; },
          [](const event::LeaseRequested& e) { return e.request.highest_seen; },
          [](const event::ServerJoined& e) { return e.hello.highest_seen; },
          [](const event::AgentHeard& e) { return e.heartbeat.highest_seen; },
          [](const auto&) { return JournalPosition{}; }},
      event);
}

}  // namespace

VirtualCluster::VirtualCluster(VirtualClusterOptions options)
    : options_(std::move(options)),
      world_(options_.seed),
      journal_(world_.queue, world_.random) {
  absl::StatusOr<std::unique_ptr<Policy>> policy = MakePolicy(options_.policy);
  if (!policy.ok()) {
    world_.truth.Violation(0, std::string(policy.status().message()));
    return;
  }
  policy_ = *std::move(policy);
  options_.engine.packing = policy_->packs();
  options_.engine.progress = policy_->reads_progress();
  world_.network.set_faults(options_.network);
  world_.checkpoint_faults = options_.checkpoints;
  journal_.set_commit_s(options_.commit_s);
  world_.to_coordinator = [this](size_t server, Message message) {
    world_.network.Send(server, Direction::kFromServer,
                        [this, message = std::move(message)] {
                          if (auto event = ToEvent(message)) StepEngine(*event);
                        });
  };
  StartCoordinator();
}

VirtualCluster::~VirtualCluster() = default;

// ---- the coordinator

// As the server does: without the journal nothing may be promised any more.
void VirtualCluster::CommitFailed() {
  world_.Tell([] { return "the journal failed, the coordinator ends"; });
  durable_.clear();
  engine_.reset();
}

void VirtualCluster::StallCoordinator() { stalled_ = engine_ != nullptr; }

void VirtualCluster::ResumeCoordinator() {
  stalled_ = false;
  for (const Event& event : std::exchange(held_, {})) StepEngine(event);
}

void VirtualCluster::StepEngine(const Event& event) {
  if (engine_ == nullptr) return;
  if (stalled_) return held_.push_back(event);
  const JournalPosition before = engine_->position();
  Actions actions = engine_->Step(engine_now(), event);
  CheckFence(before, event);
  if (forgetful_) {
    // Nobody hears it.
    for (const Action& action : actions) {
      const auto* row = std::get_if<action::Persist>(&action);
      if (row == nullptr) continue;
      world_.queue.After(options_.commit_s,
                         [this, seq = row->seq, life = engine_life_] {
                           if (life == engine_life_)
                             StepEngine(event::Persisted{seq});
                         });
    }
    return ArmEngine();
  }
  if (const auto* persisted = std::get_if<event::Persisted>(&event)) {
    invariants_.Persisted(persisted->seq);
  }
  for (const std::string& what :
       invariants_.Check(engine_now(), *engine_, actions)) {
    world_.truth.Violation(world_.now(), what);
  }
  bool changed = false;
  for (Action& action : actions) {
    changed |= std::holds_alternative<action::Persist>(action);
    if (observer_) observer_(world_.now(), action);
    Do(action);
  }
  if (changed) CheckBeliefs();
  ArmEngine();
  MaybeSnapshot();
}

void VirtualCluster::CheckFence(const JournalPosition& before,
                                const Event& event) {
  const JournalPosition shown = Shown(event);
  if (shown <= before || engine_->halted()) return;
  world_.truth.Violation(
      world_.now(), StrCat("a coordinator at term ", before.term, " seq ",
                           before.seq, " was shown term ", shown.term, " seq ",
                           shown.seq, " and goes on"));
}

// Whoever has an accelerator, has it under a lease that the coordinator takes
// as running, or is why it is in quarantine: nothing in use is given away.
// Quarantine is for those that are stuck or about to stop.
void VirtualCluster::CheckBeliefs() {
  ForEachProcess([&](const VirtualProcess& process) {
    if (!process.has_accelerator()) return;
    const WorkerKey& key = process.key();
    const auto job = engine_->jobs().find(key.job);
    if (job != engine_->jobs().end()) {
      const Worker& worker = job->second.workers[static_cast<size_t>(key.rank)];
      if (worker.incarnation == key.incarnation &&
          worker.held_epoch == process.running_epoch()) {
        return;
      }
    }
    const auto& quarantined = engine_->quarantined();
    const bool barred =
        std::any_of(quarantined.begin(), quarantined.end(),
                    [&](const auto& entry) { return entry.second == key; });
    if (barred && !process.training_now()) return;
    world_.truth.Violation(
        world_.now(), StrCat(NameOf(key), " has an accelerator under epoch ",
                             process.running_epoch(),
                             ", and the coordinator takes that as over"));
  });
}

void VirtualCluster::ArmEngine() {
  const Time next = clock_.When(engine_->NextDeadline());
  if (next == armed_engine_) return;
  armed_engine_ = next;
  world_.queue.At(next, [this, next, life = engine_life_] {
    if (life != engine_life_ || armed_engine_ != next) return;
    armed_engine_ = kNever;
    StepEngine(event::Tick{});
  });
}

void VirtualCluster::Do(Action& action) {
  std::visit([this](auto& a) { Do(a); }, action);
}

void VirtualCluster::Do(action::Persist& action) {
  journal_.Append(std::move(action));
}

void VirtualCluster::Do(action::SolvePolicy& action) {
  absl::StatusOr<PolicyResult> result = policy_->Solve(action.problem);
  if (!result.ok()) {
    return world_.truth.Violation(world_.now(),
                                  std::string(result.status().message()));
  }
  world_.queue.After(options_.solve_s,
                     [this, epoch = action.epoch, solved = *std::move(result),
                      life = engine_life_] {
                       if (life != engine_life_) return;
                       StepEngine(event::AllocationReady{epoch, solved});
                     });
}

void VirtualCluster::Do(action::SendToWorker& action) {
  if (const auto* grant = std::get_if<LeaseGrant>(&action.message)) {
    const double world_s =
        grant->duration_s * (1 + options_.engine.drift) / clock_.rate;
    world_.truth.Granted(grant->worker, grant->epoch, world_.now() + world_s);
  }
  for (VirtualServer* server : server_of_) {
    if (!server->processes().contains(action.worker)) continue;
    world_.network.Send(
        server->index(), Direction::kToServer, [server, action] {
          server->ReceiveForWorker(action.worker, action.message);
        });
  }
}

void VirtualCluster::Do(action::SendToAgent& action) {
  const auto found = servers_.find(action.server);
  if (found == servers_.end()) return;
  VirtualServer* server = found->second.get();
  world_.network.Send(server->index(), Direction::kToServer,
                      [server, message = std::move(action.message)] {
                        server->Receive(message);
                      });
}

void VirtualCluster::Do(action::Halt& action) { halted_ = action.reason; }

uint64_t VirtualCluster::Submit(const JobSpec& spec,
                                const VirtualTraining& training) {
  if (!coordinator_up()) return 0;
  world_.training[spec.name] = training;
  StepEngine(event::JobSubmitted{spec, ++submissions_});
  return submissions_;
}

uint64_t VirtualCluster::Command(JobId job, CommandKind kind) {
  if (!coordinator_up()) return 0;
  StepEngine(event::JobCommanded{job, kind, ++submissions_});
  return submissions_;
}

// ---- machines

void VirtualCluster::AddServer(const std::string& name,
                               const std::vector<AcceleratorInfo>& accelerators,
                               MachineClock clock) {
  auto& server = servers_[name];
  server = std::make_unique<VirtualServer>(name, accelerators, clock, world_);
  server_of_.push_back(server.get());
  server->StartAgent();
}

void VirtualCluster::StartAgent(const std::string& server) {
  ServerOf(server).StartAgent();
}

void VirtualCluster::KillAgent(const std::string& server,
                               bool processes_survive) {
  ServerOf(server).KillAgent(processes_survive);
}

void VirtualCluster::KillAgentAndState(const std::string& server) {
  ServerOf(server).KillAgentAndState();
}

void VirtualCluster::StallAgent(const std::string& server) {
  ServerOf(server).StallAgent();
}

void VirtualCluster::ResumeAgent(const std::string& server) {
  ServerOf(server).ResumeAgent();
}

void VirtualCluster::SetPartitioned(const std::string& server,
                                    bool partitioned) {
  SetCut(server, Direction::kToServer, partitioned);
  SetCut(server, Direction::kFromServer, partitioned);
}

void VirtualCluster::SetCut(const std::string& server, Direction direction,
                            bool cut) {
  world_.network.SetCut(ServerOf(server).index(), direction, cut);
}

void VirtualCluster::SetNetworkFaults(const NetworkFaults& faults) {
  world_.network.set_faults(faults);
}

void VirtualCluster::SetCheckpointFaults(const CheckpointFaults& faults) {
  world_.checkpoint_faults.fail = faults.fail;
  world_.checkpoint_faults.late = faults.late;
  world_.checkpoint_faults.late_s_max = faults.late_s_max;
}

void VirtualCluster::DamageCheckpoint(JobId job) {
  VirtualCheckpoints& checkpoints = world_.checkpoints[job];
  checkpoints.DamageLatest();
  world_.truth.Damaged(job, checkpoints.Latest());
}

template <class F>
void VirtualCluster::ForEachProcess(F f) const {
  for (const VirtualServer* server : server_of_) {
    for (const auto& [key, process] : server->processes()) {
      if (process->alive()) f(*process);
    }
  }
}

VirtualProcess* VirtualCluster::Find(const WorkerId& worker) {
  VirtualProcess* found = nullptr;
  ForEachProcess([&](VirtualProcess& process) {
    if (process.key().worker() == worker) found = &process;
  });
  return found;
}

void VirtualCluster::KillWorker(const WorkerId& worker) {
  if (VirtualProcess* process = Find(worker)) process->Kill();
}

void VirtualCluster::StallWorker(const WorkerId& worker) {
  if (VirtualProcess* process = Find(worker)) process->Stall();
}

void VirtualCluster::HangWorker(const WorkerId& worker) {
  if (VirtualProcess* process = Find(worker)) process->Hang();
}

void VirtualCluster::ResumeWorkers() {
  ForEachProcess([](VirtualProcess& process) { process.Resume(); });
}

void VirtualCluster::KillStuckWorkers() {
  ForEachProcess([](VirtualProcess& process) {
    if (process.is_stuck()) process.Kill();
  });
}

// ---- time

// False: nothing more by `limit`, or no end of it.
bool VirtualCluster::RunOne(Time limit) {
  if (++events_ <= kEventsMax) return world_.queue.RunOne(limit);
  if (events_ == kEventsMax + 1) {
    world_.truth.Violation(now(), StrCat("more than ", kEventsMax, " events"));
  }
  return false;
}

void VirtualCluster::RunUntil(Time time) {
  while (RunOne(time)) {
  }
}

bool VirtualCluster::RunUntilAllEnded(Time limit) {
  const auto all_ended = [this] {
    if (engine_ == nullptr) return false;
    return std::all_of(
        engine_->jobs().begin(), engine_->jobs().end(),
        [](const auto& entry) { return !entry.second.active(); });
  };
  while (!all_ended()) {
    if (!RunOne(limit)) return false;
  }
  return true;
}

// ---- what it looks like

uint64_t VirtualCluster::StepsDone(JobId job) const {
  std::optional<uint64_t> steps;
  ForEachProcess([&](const VirtualProcess& process) {
    if (process.key().job == job && !steps) steps = process.StepsDone();
  });
  return steps.value_or(world_.truth.LatestOf(job).step);
}

std::string VirtualCluster::Leftovers() const {
  std::string left;
  ForEachProcess([&](const VirtualProcess& process) {
    StrAppend(&left, "a process of ", NameOf(process.key()), "; ");
  });
  if (world_.truth.any_in_use()) StrAppend(&left, "an accelerator in use; ");
  if (engine_ != nullptr && !engine_->quarantined().empty()) {
    StrAppend(&left, "an accelerator in quarantine; ");
  }
  return left;
}

}  // namespace gavel
