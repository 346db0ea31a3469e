#include "tests/simulation/world/virtual_server.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/text.h"

namespace gavel {
VirtualServer::VirtualServer(std::string name,
                             std::vector<AcceleratorInfo> accelerators,
                             MachineClock clock, VirtualWorld& world)
    : name_(std::move(name)),
      accelerators_(std::move(accelerators)),
      clock_(clock),
      world_(world),
      index_(world.network.AddServer()) {
  for (const AcceleratorInfo& info : accelerators_) {
    world_.truth.AddAccelerator(info.uuid, info.memory_bytes);
  }
}

void VirtualServer::StartAgent() {
  if (agent_ != nullptr) return;
  for (const auto& [key, process] : processes_) {
    if (!process->is_orphan()) process->Kill();
  }
  AgentOptions options;
  options.server = name_;
  options.incarnation = ++incarnation_ - first_incarnation_;
  options.state_id = state_ == 0 ? "" : StrCat("state-", state_);
  options.accelerators = accelerators_;
  agent_ = std::make_unique<AgentMachine>(options);
  armed_ = kNever;
  heard_term_ = 0;
  Step(agent_event::Started{recorded_});
}

void VirtualServer::KillAgent(bool processes_survive) {
  agent_.reset();
  stalled_ = false;
  held_.clear();
  if (!processes_survive) KillProcesses();
}

void VirtualServer::KillAgentAndState() {
  KillAgent(/*processes_survive=*/true);
  for (const auto& [key, process] : processes_) process->Orphan();
  recorded_.clear();
  first_incarnation_ = incarnation_;
  ++state_;
}

void VirtualServer::KillProcesses() {
  for (const auto& [key, process] : processes_) process->Kill();
}

void VirtualServer::StallAgent() { stalled_ = agent_ != nullptr; }

void VirtualServer::ResumeAgent() {
  stalled_ = false;
  for (const AgentEvent& event : std::exchange(held_, {})) Step(event);
}

void VirtualServer::Receive(const Message& message) {
  Step(agent_event::MessageReceived{message});
}

void VirtualServer::ReceiveForWorker(const WorkerKey& worker,
                                     const Message& message) {
  const auto found = processes_.lower_bound(worker);
  if (found == processes_.end()) return;
  const auto& [key, process] = *found;
  if (key == worker) return process->Receive(message);
  if (key.worker() == worker.worker()) process->ReceiveOfAnother(message);
}

void VirtualServer::Step(const AgentEvent& event) {
  if (agent_ == nullptr) return;
  if (stalled_) return held_.push_back(event);
  const auto* heard = std::get_if<agent_event::MessageReceived>(&event);
  const uint64_t term = heard == nullptr ? 0 : TermOf(heard->message);
  const bool replaced = term != 0 && term < heard_term_;
  heard_term_ = std::max(heard_term_, term);
  if (replaced) Step(agent_event::Tick{});  // what is due without it
  const AgentActions actions = agent_->Step(clock_.Shows(world_.now()), event);
  for (const AgentAction& action : actions) {
    if (replaced && !std::holds_alternative<agent_action::Send>(action)) {
      world_.truth.Violation(world_.now(),
                             StrCat("the agent of ", name_, " has heard term ",
                                    heard_term_, " and obeys term ", term));
    }
    std::visit([this](const auto& a) { Do(a); }, action);
  }
  Arm();
}

void VirtualServer::Arm() {
  const Time next = clock_.When(agent_->NextDeadline());
  if (next == armed_) return;
  armed_ = next;
  world_.queue.At(next, [this, next, life = incarnation_] {
    if (incarnation_ != life || armed_ != next) return;
    armed_ = kNever;
    Step(agent_event::Tick{});
  });
}

void VirtualServer::Do(const agent_action::Send& action) {
  world_.to_coordinator(index_, action.message);
}

void VirtualServer::Do(const agent_action::SignalProcess& action) {
  const auto it = processes_.find(action.worker);
  if (it == processes_.end()) return;
  action.signal == VirtualProcess::kSigkill ? it->second->Kill()
                                            : it->second->Terminate();
}

void VirtualServer::Do(const agent_action::RecordRunning& action) {
  recorded_ = action.running;
}

void VirtualServer::Do(const agent_action::Quit& action) {
  // The coordinator may still count the agent with the lost directory as at
  // work, and then refuses this one. An operator starts this one again.
  if (state_ > 0 &&
      action.reason.find("state directory") != std::string::npos) {
    constexpr double kTryAgain_s = 3;
    world_.queue.After(0, [this, life = incarnation_] {
      if (life == incarnation_) KillAgent(/*processes_survive=*/true);
    });
    return world_.queue.After(kTryAgain_s, [this, life = incarnation_] {
      if (life == incarnation_) StartAgent();
    });
  }
  world_.truth.Violation(world_.now(),
                         StrCat("agent ", name_, " quit: ", action.reason));
}

void VirtualServer::Do(const agent_action::Spawn& action) {
  const WorkerKey key = action.launch.worker;
  world_.truth.Spawned(world_.now(), name_, incarnation_, key);
  VirtualProcess::Home home;
  home.server = index_;
  home.clock = clock_;
  home.accelerator = action.launch.accelerator;
  home.exited = [this, key](int code, int signal, std::optional<int> finished) {
    world_.Tell([&] {
      return StrCat(NameOf(key), " exits, code ", code, ", signal ", signal);
    });
    // This is deferred, since it is called from within the process.
    world_.queue.After(0, [this, key, code, signal, finished] {
      processes_.erase(key);
      Step(agent_event::ProcessExited{key, code, signal, "", finished});
    });
  };
  world_.Tell([&] { return StrCat(NameOf(key), " is started on ", name_); });
  for (const auto& [other, process] : processes_) {
    // An orphan without a lease does not belong to this agent, and does no
    // harm.
    if (!process->alive() || other.worker() != key.worker() ||
        process->is_orphan()) {
      continue;
    }
    world_.truth.Violation(
        world_.now(), StrCat(NameOf(key), " is started on ", name_, " beside ",
                             NameOf(other)));
  }
  auto& process = processes_[key];
  if (process != nullptr) return;
  process = std::make_unique<VirtualProcess>(
      key, world_.training[action.launch.job_name], std::move(home), world_);
  process->Start();
  world_.queue.After(0, [this, key] {
    Step(agent_event::ProcessStarted{key,
                                     static_cast<int64_t>(key.incarnation)});
  });
}

}  // namespace gavel
