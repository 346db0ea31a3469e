#include "tests/simulation/world/virtual_cluster.h"

#include <algorithm>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>
#include <variant>

#include "coordinator/engine/job.h"
#include "coordinator/workload/job_array.h"
#include "core/text.h"

namespace gavel {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// The event that the server makes of a message; nullopt if the engine takes no
// such message.
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
            return event::StepsReported{m.worker, m.epoch, m.progress,
                                        m.highest_seen};
          },
          [](const LeaseReleased& m) -> std::optional<Event> {
            return event::LeaseEnded{
                m.worker, m.epoch, WithoutSpeed(m.progress),
                false,    m.cause, m.highest_seen};
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
          [](const WorkerLaunched& m) -> std::optional<Event> {
            return event::ProcessBegan{m};
          },
          [](const WorkerExited& m) -> std::optional<Event> {
            return event::WorkerGone{m};
          },
          [](const BidderHello& m) -> std::optional<Event> {
            return event::BidderJoined{m.bidder};
          },
          [](const BidReply& m) -> std::optional<Event> {
            return event::BidReceived{m};
          },
          [](const DivideReply& m) -> std::optional<Event> {
            return event::ShareDivided{m};
          },
          [](const auto&) -> std::optional<Event> { return std::nullopt; }},
      message);
}

// The journal position that an event's sender has seen; (0, 0) if it shows
// none.
JournalPosition Shown(const Event& event) {
  return std::visit(
      Overloaded{
          [](const event::WorkerJoined& e) { return e.hello.highest_seen; },
          [](const event::LeaseRequested& e) { return e.request.highest_seen; },
          [](const event::ServerJoined& e) { return e.hello.highest_seen; },
          [](const event::AgentHeard& e) { return e.heartbeat.highest_seen; },
          [](const event::StepsReported& e) { return e.highest_seen; },
          [](const event::LeaseEnded& e) { return e.highest_seen; },
          [](const event::WorkerSaidFinished& e) {
            return e.message.highest_seen;
          },
          [](const event::WorkerGone& e) { return e.exit.highest_seen; },
          [](const auto&) { return JournalPosition{}; }},
      event);
}

}  // namespace

VirtualCluster::VirtualCluster(VirtualClusterOptions options)
    : options_(std::move(options)),
      world_(options_.seed),
      journal_(world_.queue, world_.random, world_.truth) {
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
                        [this, server, message = std::move(message)] {
                          if (auto event = ToEvent(message))
                            Step(HearsFrom(server), *event);
                        });
  };
  StartCoordinator();
}

VirtualCluster::~VirtualCluster() = default;

// ---- the coordinator

VirtualCluster::Coordinator* VirtualCluster::OfLife(uint64_t life) {
  for (Coordinator* coordinator : {&present_, &former_}) {
    if (coordinator->life == life && coordinator->engine != nullptr) {
      return coordinator;
    }
  }
  return nullptr;
}

VirtualCluster::Coordinator& VirtualCluster::HearsFrom(size_t server) {
  if (former_.engine == nullptr || peers_[server] == Peer::kPresent) {
    return present_;
  }
  if (peers_[server] == Peer::kFormer) return former_;
  return world_.random() % 2 == 0 ? present_ : former_;
}

bool VirtualCluster::Reaches(const Coordinator& coordinator,
                             size_t server) const {
  if (former_.engine == nullptr || peers_[server] == Peer::kBoth) return true;
  return (peers_[server] == Peer::kFormer) == (&coordinator == &former_);
}

void VirtualCluster::StallCoordinator() {
  present_.stalled = present_.engine != nullptr;
}

void VirtualCluster::ResumeCoordinator() {
  present_.stalled = false;
  for (const Event& event : std::exchange(present_.held, {})) {
    Step(present_, event);
  }
}

void VirtualCluster::Step(Coordinator& coordinator, const Event& event) {
  if (coordinator.engine == nullptr) return;
  if (coordinator.stalled) return coordinator.held.push_back(event);
  Engine& engine = *coordinator.engine;
  const bool is_present = &coordinator == &present_;
  const JournalPosition shown = Shown(event);
  const bool has_row = HasRow(coordinator, shown);
  const bool halted_before = engine.halted();
  const Time now = TimeOf(coordinator);
  Actions actions = engine.Step(now, event);
  if (!halted_before && has_row == engine.halted()) {
    world_.truth.Violation(
        world_.now(),
        StrCat("a coordinator that has rows up to ", engine.position().seq,
               " in term ", engine.position().term, " was shown term ",
               shown.term, " seq ", shown.seq,
               has_row ? ", which it has, and halts"
                       : ", which it has not, and goes on"));
  }
  for (const Action& action : actions) {
    const auto* row = std::get_if<action::Persist>(&action);
    if (row != nullptr) coordinator.seq_written[row->term] = row->seq;
  }
  if (is_present && forgetful_) return StepUnheard(coordinator, actions);
  if (const auto* persisted = std::get_if<event::Persisted>(&event)) {
    coordinator.invariants.Persisted(persisted->seq);
  }
  for (const std::string& what :
       coordinator.invariants.Check(now, engine, actions)) {
    world_.truth.Violation(world_.now(), what);
  }
  CheckTrials(coordinator, now, actions);
  if (!is_present) present_.invariants.NoteReleases(actions);
  if (is_present) {
    world_.auctions.Check(world_.now(), now, engine, actions,
                          std::holds_alternative<event::Persisted>(event));
  }
  bool changed = false;
  for (Action& action : actions) {
    changed |= std::holds_alternative<action::Persist>(action);
    if (observer_) observer_(world_.now(), action);
    std::visit([&](auto& a) { Do(coordinator, a); }, action);
    if (coordinator.engine == nullptr) return;
  }
  // Only the present coordinator's beliefs have to be true: those of the former
  // one are out of date.
  if (is_present && changed) CheckBeliefs();
  Arm(coordinator);
  if (is_present) MaybeSnapshot();
}

// Persists the rows of a forgetful coordinator without the journal, and sends
// none of its messages.
void VirtualCluster::StepUnheard(Coordinator& coordinator,
                                 const Actions& actions) {
  for (const Action& action : actions) {
    const auto* row = std::get_if<action::Persist>(&action);
    if (row == nullptr) continue;
    world_.queue.After(options_.commit_s,
                       [this, seq = row->seq, life = coordinator.life] {
                         if (Coordinator* alive = OfLife(life))
                           Step(*alive, event::Persisted{seq});
                       });
  }
  Arm(coordinator);
}

bool VirtualCluster::HasRow(const Coordinator& coordinator,
                            const JournalPosition& shown) const {
  if (shown.seq <= coordinator.seq_recovered) {
    return shown.term <= coordinator.engine->position().term;
  }
  // Peers have seen no row of a forgetful coordinator, because nothing that it
  // sends arrives.
  if (&coordinator == &present_ && forgetful_) return false;
  const auto written = coordinator.seq_written.find(shown.term);
  return written != coordinator.seq_written.end() &&
         shown.seq <= written->second;
}

// Checks that no accelerator in use can be given away: the coordinator takes
// the lease of each process that has one as running, or has put the accelerator
// into quarantine because of that process. A process that is training is not
// stuck or about to stop, so quarantine does not excuse it.
void VirtualCluster::CheckBeliefs() {
  ForEachProcess([&](const VirtualProcess& process) {
    if (!process.has_accelerator()) return;
    const WorkerKey& key = process.key();
    const auto job = present_.engine->jobs().find(key.job);
    if (job != present_.engine->jobs().end()) {
      const Worker& worker = job->second.workers[static_cast<size_t>(key.rank)];
      // An opaque process knows nothing of leases.
      const bool held = process.is_opaque()
                            ? worker.held_epoch != 0
                            : worker.held_epoch == process.running_epoch();
      if (worker.incarnation == key.incarnation && held) return;
    }
    const auto& quarantined = present_.engine->quarantined();
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

void VirtualCluster::CheckTrials(Coordinator& coordinator, Time now,
                                 const Actions& actions) {
  if (!coordinator.engine->options().introspection) return;
  for (const Action& action : actions) {
    const auto* row = std::get_if<action::Persist>(&action);
    if (row != nullptr) {
      coordinator.trials.Take(*row, coordinator.engine->options());
    }
  }
  for (const std::string& what : coordinator.trials.Check(
           now, coordinator.started_at, *coordinator.engine)) {
    world_.truth.Violation(world_.now(), what);
  }
}

void VirtualCluster::Arm(Coordinator& coordinator) {
  const Time next = coordinator.clock.When(coordinator.engine->NextDeadline());
  if (next == coordinator.armed) return;
  coordinator.armed = next;
  world_.queue.At(next, [this, next, life = coordinator.life] {
    Coordinator* alive = OfLife(life);
    if (alive == nullptr || alive->armed != next) return;
    alive->armed = kNever;
    Step(*alive, event::Tick{});
  });
}

void VirtualCluster::Do(Coordinator& coordinator, action::Persist& action) {
  const auto* ready =
      action.event == nullptr
          ? nullptr
          : std::get_if<event::AllocationReady>(action.event.get());
  if (ready != nullptr) {
    world_.auctions.Answered(world_.now(), coordinator.life, *ready);
  }
  journal_.Append(coordinator.writer, std::move(action));
}

void VirtualCluster::Do(Coordinator& coordinator, action::SolvePolicy& action) {
  absl::StatusOr<PolicyResult> result = policy_->Solve(*action.problem);
  if (!result.ok()) {
    return world_.truth.Violation(world_.now(),
                                  std::string(result.status().message()));
  }
  std::vector<std::string> apps(action.problem->apps.size());
  for (const PolicyJob& row : action.problem->jobs) {
    const Job* job = coordinator.engine->FindJob(row.id);
    if (row.app < 0 || job == nullptr) continue;
    apps[static_cast<size_t>(row.app)] = job->spec.app;
  }
  world_.auctions.Solved(world_.now(), coordinator.life, action, apps, *result);
  world_.queue.After(options_.solve_s,
                     [this, epoch = action.epoch, solved = *std::move(result),
                      life = coordinator.life] {
                       if (Coordinator* alive = OfLife(life))
                         Step(*alive, event::AllocationReady{epoch, solved});
                     });
}

// The real server checks before each grant that it still owns its lock, and
// exits if another one does. So the former coordinator never sends a grant.
void VirtualCluster::Do(Coordinator& coordinator,
                        action::SendToWorker& action) {
  const auto* grant = std::get_if<LeaseGrant>(&action.message);
  if (grant != nullptr && &coordinator == &former_) {
    return KillFormerCoordinator();
  }
  if (grant != nullptr) {
    const double world_s = grant->duration_s * (1 + options_.engine.drift) /
                           coordinator.clock.rate;
    world_.truth.Granted(grant->worker, grant->epoch, world_.now() + world_s);
  }
  for (VirtualServer* server : server_of_) {
    if (!server->processes().contains(action.worker)) continue;
    if (!Reaches(coordinator, server->index())) continue;
    world_.network.Send(
        server->index(), Direction::kToServer, [server, action] {
          server->ReceiveForWorker(action.worker, action.message);
        });
  }
}

void VirtualCluster::Do(Coordinator& coordinator, action::SendToAgent& action) {
  const auto found = servers_.find(action.server);
  if (found == servers_.end()) return;
  VirtualServer* server = found->second.get();
  if (!Reaches(coordinator, server->index())) return;
  world_.network.Send(server->index(), Direction::kToServer,
                      [server, message = std::move(action.message)] {
                        server->Receive(message);
                      });
}

void VirtualCluster::Do(Coordinator& coordinator,
                        action::SendToBidder& action) {
  world_.auctions.Told(world_.now(), coordinator.life, action.message);
  const auto found = bidders_.find(action.bidder);
  if (found == bidders_.end()) return;
  const size_t server = found->second->server();
  if (!Reaches(coordinator, server)) return;
  world_.network.Send(server, Direction::kToServer, [this, action] {
    const auto bidder = bidders_.find(action.bidder);
    if (bidder != bidders_.end()) bidder->second->Receive(action.message);
  });
}

void VirtualCluster::Do(Coordinator& coordinator, action::Halt& action) {
  world_.Tell([&] { return StrCat("a coordinator halts: ", action.reason); });
  if (&coordinator == &former_) return KillFormerCoordinator();
  KillCoordinator();
}

uint64_t VirtualCluster::Submit(const JobSpec& spec,
                                const VirtualTraining& training) {
  if (!coordinator_up()) return 0;
  world_.training[spec.name] = training;
  for (const int index : IndicesOf(spec)) {
    world_.training[ElementIdentity(spec, index).name] = training;
  }
  Step(present_, event::JobSubmitted{spec, ++submissions_});
  return submissions_;
}

uint64_t VirtualCluster::Command(JobId job, CommandKind kind) {
  if (!coordinator_up()) return 0;
  Step(present_, event::JobCommanded{job, kind, ++submissions_});
  return submissions_;
}

// ---- apps that bid themselves

void VirtualCluster::StartBidder(const std::string& app,
                                 const std::string& server, BidHabit habit) {
  const BidderKey key{"", app, ++bidders_started_};
  world_.Tell([&] {
    return StrCat("bidder ", key.incarnation, " of ", app, " starts on ",
                  server, ", habit ", static_cast<int>(habit));
  });
  bidders_[key] = std::make_unique<VirtualBidder>(
      key, habit, ServerOf(server).index(), world_);
}

void VirtualCluster::KillBidders(const std::string& app) {
  std::erase_if(bidders_,
                [&](const auto& entry) { return entry.first.app == app; });
}

void VirtualCluster::SetBidHabit(BidHabit habit) {
  for (const auto& [key, bidder] : bidders_) bidder->set_habit(habit);
}

void VirtualCluster::HealBidders() {
  std::set<std::string> apps;
  for (const auto& [key, bidder] : bidders_) apps.insert(key.app);
  SetBidHabit(BidHabit::kPrompt);
  world_.auctions.Healed(world_.now(), std::move(apps));
}

// ---- machines

void VirtualCluster::AddServer(const std::string& name,
                               const std::vector<AcceleratorInfo>& accelerators,
                               MachineClock clock) {
  auto& server = servers_[name];
  server = std::make_unique<VirtualServer>(name, accelerators, clock, world_);
  server_of_.push_back(server.get());
  peers_.push_back(Peer::kBoth);
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

// Returns false when no event is left before `limit`, or when there were too
// many events.
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
    if (present_.engine == nullptr) return false;
    return std::all_of(
        present_.engine->jobs().begin(), present_.engine->jobs().end(),
        [](const auto& entry) { return !entry.second.active(); });
  };
  while (!all_ended()) {
    if (!RunOne(limit)) return false;
  }
  return true;
}

// ---- views of its state

uint64_t VirtualCluster::StepsDone(JobId job) const {
  std::optional<uint64_t> steps;
  ForEachProcess([&](const VirtualProcess& process) {
    if (process.key().job == job && !steps) steps = process.StepsDone();
  });
  return steps.value_or(world_.truth.LatestOf(job).step);
}

uint64_t VirtualCluster::StepsToSave(JobId job) const {
  uint64_t steps = 0;
  ForEachProcess([&](const VirtualProcess& process) {
    if (process.key().job != job || !process.SavesOnPause()) return;
    steps = std::max(steps, process.StepsDone());
  });
  return steps;
}

std::string VirtualCluster::Leftovers() const {
  std::string left;
  ForEachProcess([&](const VirtualProcess& process) {
    StrAppend(&left, "a process of ", NameOf(process.key()), "; ");
  });
  if (world_.truth.any_in_use()) StrAppend(&left, "an accelerator in use; ");
  if (present_.engine != nullptr && !present_.engine->quarantined().empty()) {
    StrAppend(&left, "an accelerator in quarantine; ");
  }
  return left;
}

}  // namespace gavel
