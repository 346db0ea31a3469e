#include "simulator/virtual_cluster.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "coordinator/engine/event_codec.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr int kSigkill = 9;

// Of an accelerator: an unpacked worker takes both, a packed one takes one.
constexpr int kSlots = 2;

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

}  // namespace

// An agent and the processes of its machine.
struct VirtualCluster::Server {
  std::string name;
  std::vector<AcceleratorInfo> accelerators;
  uint64_t incarnation = 0;
  std::unique_ptr<AgentMachine> agent;  // null: not running
  Time armed = kNever;
  std::vector<RunningWorker> recorded;
  std::map<WorkerKey, std::unique_ptr<VirtualProcess>> processes;
};

VirtualCluster::VirtualCluster(VirtualClusterOptions options)
    : options_(std::move(options)), random_(options_.seed) {
  absl::StatusOr<std::unique_ptr<Policy>> policy = MakePolicy(options_.policy);
  if (!policy.ok()) {
    Violation(std::string(policy.status().message()));
    return;
  }
  policy_ = *std::move(policy);
  options_.engine.packing = policy_->packs();
  StartCoordinator();
}

VirtualCluster::~VirtualCluster() = default;

void VirtualCluster::Violation(std::string what) {
  violations_.push_back(StrCat("at ", queue_.now(), " s: ", what));
}

// ---- the coordinator

void VirtualCluster::StartCoordinator() {
  if (engine_ != nullptr) return;
  engine_ = std::make_unique<Engine>(options_.engine);
  ++engine_life_;
  armed_engine_ = kNever;
  invariants_.Restarted();
  uint64_t term = 0;
  for (const Row& row : journal_) {
    absl::StatusOr<Event> event = DecodeEvent(row.bytes);
    if (!event.ok()) {
      return Violation(std::string(event.status().message()));
    }
    engine_->Replay(row.seq, row.term, row.time, *event);
    term = row.term;
  }
  StepEngine(event::CoordinatorStarted{term + 1});
}

void VirtualCluster::KillCoordinator() { engine_.reset(); }

void VirtualCluster::StepEngine(const Event& event) {
  if (engine_ == nullptr) return;
  const Actions actions = engine_->Step(queue_.now(), event);
  for (std::string& what : invariants_.Check(queue_.now(), *engine_, actions)) {
    Violation(std::move(what));
  }
  for (const Action& action : actions) {
    if (observer_) observer_(queue_.now(), action);
    Do(action);
  }
  ArmEngine();
}

void VirtualCluster::ArmEngine() {
  const Time next = engine_->NextDeadline();
  if (next == armed_engine_) return;
  armed_engine_ = next;
  queue_.At(next, [this, next, life = engine_life_] {
    if (life != engine_life_ || armed_engine_ != next) return;
    armed_engine_ = kNever;
    StepEngine(event::Tick{});
  });
}

void VirtualCluster::Do(const Action& action) {
  std::visit(
      Overloaded{
          [&](const action::Persist& a) {
            const Row row{a.seq, a.term, a.time, a.row};
            queue_.After(options_.commit_s, [this, row, life = engine_life_] {
              // A commit that the coordinator's death cut off never happened.
              if (life != engine_life_ || engine_ == nullptr) return;
              journal_.push_back(row);
              invariants_.Persisted(row.seq);
              StepEngine(event::Persisted{row.seq});
            });
          },
          [&](const action::SolvePolicy& a) {
            absl::StatusOr<PolicyResult> result = policy_->Solve(a.problem);
            if (!result.ok()) {
              return Violation(std::string(result.status().message()));
            }
            queue_.After(options_.solve_s,
                         [this, epoch = a.epoch, solved = *std::move(result),
                          life = engine_life_] {
                           if (life != engine_life_) return;
                           StepEngine(event::AllocationReady{epoch, solved});
                         });
          },
          [&](const action::SendToWorker& a) { ToWorker(a.worker, a.message); },
          [&](const action::SendToAgent& a) {
            const auto it = servers_.find(a.server);
            if (it == servers_.end()) return;
            Server* server = it->second.get();
            Deliver(a.server, [this, server, message = a.message] {
              StepAgent(*server, agent_event::MessageReceived{message});
            });
          },
          [&](const action::Reply& a) {
            replies_.emplace_back(a.job, a.error);
          },
          [&](const action::Halt& a) { halted_ = a.reason; }},
      action);
}

void VirtualCluster::Submit(const JobSpec& spec,
                            const VirtualTraining& training) {
  training_[spec.name] = training;
  StepEngine(event::JobSubmitted{spec, ++submissions_});
}

void VirtualCluster::Command(JobId job, CommandKind kind) {
  StepEngine(event::JobCommanded{job, kind, ++submissions_});
}

// ---- the network

void VirtualCluster::Deliver(const std::string& server,
                             std::function<void()> arrive) {
  const NetworkFaults& faults = options_.network;
  std::uniform_real_distribution<double> unit(0, 1);
  const int copies = unit(random_) < faults.duplicate ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    if (unit(random_) < faults.drop) continue;
    const double delay =
        faults.delay_s_min +
        unit(random_) * (faults.delay_s_max - faults.delay_s_min);
    queue_.After(delay, [this, server, arrive] {
      if (!partitioned_.contains(server)) arrive();
    });
  }
}

void VirtualCluster::FromAgent(const std::string& server,
                               const Message& message) {
  Deliver(server, [this, message] {
    if (const auto event = ToEvent(message)) StepEngine(*event);
  });
}

void VirtualCluster::ToWorker(const WorkerKey& key, const Message& message) {
  for (auto& [name, server] : servers_) {
    if (!server->processes.contains(key)) continue;
    Server* home = server.get();
    Deliver(name, [home, key, message] {
      const auto it = home->processes.find(key);
      if (it != home->processes.end()) it->second->Receive(message);
    });
  }
}

void VirtualCluster::SetPartitioned(const std::string& server,
                                    bool partitioned) {
  if (partitioned) {
    partitioned_.insert(server);
  } else {
    partitioned_.erase(server);
  }
}

// ---- agents

void VirtualCluster::AddServer(
    const std::string& name, const std::vector<AcceleratorInfo>& accelerators) {
  auto server = std::make_unique<Server>();
  server->name = name;
  server->accelerators = accelerators;
  servers_[name] = std::move(server);
  StartAgent(name);
}

void VirtualCluster::StartAgent(const std::string& name) {
  Server& server = *servers_.at(name);
  if (server.agent != nullptr) return;
  AgentOptions options;
  options.server = name;
  options.incarnation = ++server.incarnation;
  options.accelerators = server.accelerators;
  server.agent = std::make_unique<AgentMachine>(options);
  server.armed = kNever;
  StepAgent(server, agent_event::Started{server.recorded});
}

void VirtualCluster::KillAgent(const std::string& name) {
  Server& server = *servers_.at(name);
  server.agent.reset();
  // PR_SET_PDEATHSIG: the kernel ends its workers too.
  std::vector<VirtualProcess*> processes;
  for (auto& [key, process] : server.processes) {
    processes.push_back(process.get());
  }
  for (VirtualProcess* process : processes) process->Kill();
}

void VirtualCluster::StepAgent(Server& server, const AgentEvent& event) {
  if (server.agent == nullptr) return;
  for (const AgentAction& action : server.agent->Step(queue_.now(), event)) {
    DoAgent(server, action);
    if (server.agent == nullptr) return;
  }
  ArmAgent(server);
}

void VirtualCluster::ArmAgent(Server& server) {
  const Time next = server.agent->NextDeadline();
  if (next == server.armed) return;
  server.armed = next;
  queue_.At(next, [this, &server, next, life = server.incarnation] {
    if (server.incarnation != life || server.armed != next) return;
    server.armed = kNever;
    StepAgent(server, agent_event::Tick{});
  });
}

void VirtualCluster::DoAgent(Server& server, const AgentAction& action) {
  std::visit(
      Overloaded{
          [&](const agent_action::Send& a) {
            FromAgent(server.name, a.message);
          },
          [&](const agent_action::Spawn& a) { Spawn(server, a.launch); },
          [&](const agent_action::SignalProcess& a) {
            const auto it = server.processes.find(a.worker);
            if (it == server.processes.end()) return;
            a.signal == kSigkill ? it->second->Kill() : it->second->Terminate();
          },
          [&](const agent_action::RecordRunning& a) {
            server.recorded = a.running;
          },
          [&](const agent_action::Quit& a) {
            Violation(StrCat("agent ", server.name, " quit: ", a.reason));
          }},
      action);
}

void VirtualCluster::Spawn(Server& server, const LaunchWorker& launch) {
  const WorkerKey key = launch.worker;
  VirtualProcess::World world;
  world.queue = &queue_;
  world.send = [this, name = server.name](Message message) {
    Deliver(name, [this, message = std::move(message)] {
      if (const auto event = ToEvent(message)) StepEngine(*event);
    });
  };
  world.take = [this, key](const std::string& uuid, int slots) {
    std::map<WorkerKey, int>& users = in_use_[uuid];
    int taken = slots;
    for (const auto& [user, count] : users) taken += count;
    if (taken <= kSlots) {
      users[key] = slots;
      return true;
    }
    Violation(StrCat("accelerator ", uuid, " is wanted by job ",
                     key.job.value(), " while job ",
                     users.begin()->first.job.value(), " uses it"));
    return false;
  };
  world.free = [this, key](const std::string& uuid) {
    in_use_[uuid].erase(key);
  };
  world.hold = [this, key](const std::string& uuid, uint64_t bytes) {
    Hold(key, uuid, bytes);
  };
  world.gang = &gangs_[key.job];
  world.violation = [this](std::string what) { Violation(std::move(what)); };
  world.commit = [this, key](Generation generation) {
    Generation& latest = generations_[key.job];
    latest = std::max(latest, generation);
  };
  Server* home = &server;
  world.exited = [this, home, key](int code, int signal) {
    // Not within the process's own call.
    queue_.After(0, [this, home, key, code, signal] {
      home->processes.erase(key);
      StepAgent(*home, agent_event::ProcessExited{key, code, signal});
    });
  };
  auto process = std::make_unique<VirtualProcess>(
      key, training_[launch.job_name], generations_[key.job], std::move(world));
  VirtualProcess* started = process.get();
  server.processes[key] = std::move(process);
  started->Start();
  queue_.After(0, [this, home, key] {
    StepAgent(*home, agent_event::ProcessStarted{
                         key, static_cast<int64_t>(key.incarnation)});
  });
}

// What the accelerators of the cluster are too small for is a violation, where
// their memory was told.
void VirtualCluster::Hold(const WorkerKey& key, const std::string& uuid,
                          uint64_t bytes) {
  memory_[uuid].erase(key);
  if (bytes > 0) memory_[uuid][key] = bytes;
  uint64_t used = 0;
  for (const auto& [worker, held] : memory_[uuid]) used += held;
  for (const auto& [name, server] : servers_) {
    for (const AcceleratorInfo& info : server->accelerators) {
      if (info.uuid == uuid && info.memory_bytes > 0 &&
          used > info.memory_bytes) {
        Violation(StrCat("accelerator ", uuid, " has ", info.memory_bytes,
                         " bytes of memory, and ", used, " are in use"));
      }
    }
  }
}

void VirtualCluster::KillWorker(const WorkerId& worker) {
  for (auto& [name, server] : servers_) {
    for (auto& [key, process] : server->processes) {
      if (key.worker() == worker && process->alive()) {
        return process->Kill();
      }
    }
  }
}

// ---- time

void VirtualCluster::RunUntil(Time time) {
  while (queue_.RunOne(time)) {
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
    if (!queue_.RunOne(limit)) return false;
  }
  return true;
}

uint64_t VirtualCluster::StepsDone(JobId job) const {
  for (const auto& [name, server] : servers_) {
    for (const auto& [key, process] : server->processes) {
      if (key.job == job && process->alive()) return process->StepsDone();
    }
  }
  const auto it = generations_.find(job);
  return it == generations_.end() ? 0 : it->second.step;
}

}  // namespace gavel
