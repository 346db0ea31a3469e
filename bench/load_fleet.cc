#include "bench/load_fleet.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <variant>

#include "core/codec.h"
#include "core/text.h"
#include "runtime/transport/connection_guard.h"

namespace gavel::bench {
namespace {

constexpr double kStepsPerSecond = 10;
constexpr size_t kMessagesPerTurnMax = 2048;
constexpr int kWait_ms_max = 20;
constexpr int kSignalOfKill = 9;

// A ROUTER keeps messages that it can't send yet; real workers drop them and
// ask again.
constexpr int kWorkersMessagesMax = 4;
// Agents report many launches at once.
constexpr int kAgentsMessagesMax = 1000;
// Receiving has no limit: libzmq 4.3.4 ends the process if a connection breaks
// while its queue is full, at its next heartbeat (socket_options.cc).
constexpr int kNoLimit = 0;

std::string AliasOf(uint32_t peer) {
  // Ids that begin with a zero byte are ZeroMQ's own.
  std::string alias(5, 'p');
  std::memcpy(alias.data() + 1, &peer, sizeof peer);
  return alias;
}

// As a program writes it, so that the dashboard has a log to show.
LogReply LogOf(const LogRequest& request) {
  constexpr int kLines = 200;
  LogReply reply;
  reply.request = request.request;
  for (int i = 0; request.offset == 0 && i < kLines; ++i) {
    StrAppend(&reply.data, "step ", i, "  loss 0.5\n");
  }
  reply.next_offset = request.offset + reply.data.size();
  return reply;
}

uint64_t TermOf(const Message& message) {
  return std::visit(
      []<class T>(const T& m) -> uint64_t {
        if constexpr (requires { m.position; }) {
          return m.position.term;
        } else {
          return 0;
        }
      },
      message);
}

}  // namespace

std::string FleetServerName(int index) { return StrCat("server-", index); }

Fleet::Fleet(FleetOptions options)
    : options_(std::move(options)),
      endpoint_(transport::ParseEndpoint(options_.endpoint).value()),
      random_(static_cast<uint64_t>(options_.first_server)) {
  transport::RaiseDescriptorLimit();
  Open(of_agents_, kAgentsMessagesMax);
  Open(of_workers_, kWorkersMessagesMax);
  int left = options_.accelerators;
  for (int index = options_.first_server; left > 0; ++index) {
    AgentOptions agent;
    agent.server = FleetServerName(index);
    agent.incarnation = 1;
    agent.state_id = agent.server;
    for (int i = 0; i < kAcceleratorsPerServer && left > 0; ++i, --left) {
      agent.accelerators.push_back({"v100", StrCat(agent.server, "-", i)});
    }
    std::optional<CurveKeyPair> keys;
    if (!options_.server_keys.empty())
      keys = options_.server_keys.at(static_cast<size_t>(index));
    const PeerId peer = ++last_peer_;
    servers_.emplace(peer, Server(std::move(agent)));
    Connect(peer, keys);
    StepAgent(peer, agent_event::Started{});
  }
}

Time Fleet::Now() const {
  const std::chrono::duration<double> elapsed =
      std::chrono::steady_clock::now() - started_;
  return elapsed.count();
}

// Each peer connects from its own address, as if it were another machine.
std::string Fleet::RouteOf(PeerId peer) const {
  return StrCat("tcp://127.", 1 + (peer >> 16), ".", (peer >> 8) & 0xff, ".",
                peer & 0xff, ":0;127.0.0.1:", endpoint_.port);
}

// Opens one socket for many peers: each of its connections is another peer.
void Fleet::Open(transport::Channel& channel, int queued_messages_max) const {
  channel.Open(zmq::socket_type::router, endpoint_);
  channel.socket.set(zmq::sockopt::router_mandatory, true);
  channel.socket.set(zmq::sockopt::immediate, false);
  channel.socket.set(zmq::sockopt::sndhwm, queued_messages_max);
  channel.socket.set(zmq::sockopt::rcvhwm, kNoLimit);
  transport::SetHeartbeats(channel.socket);
}

zmq::socket_t& Fleet::SocketOf(PeerId peer) {
  return servers_.contains(peer) ? of_agents_.socket : of_workers_.socket;
}

void Fleet::Connect(PeerId peer, const std::optional<CurveKeyPair>& keys) {
  zmq::socket_t& socket = SocketOf(peer);
  socket.set(zmq::sockopt::routing_id, StrCat("load-", getpid(), "-", peer));
  socket.set(zmq::sockopt::connect_routing_id, AliasOf(peer));
  if (keys) {
    transport::SetCurveClient(socket, {*keys, options_.coordinator_public_key});
  }
  socket.connect(RouteOf(peer));
}

void Fleet::Remove(PeerId peer) {
  const Worker& worker = workers_.at(peer);
  const bool connected = worker.connect_at == kNever;
  if (running_.erase(peer) > 0) holder_of_.erase(worker.uuid);
  peer_of_.erase(worker.key);
  workers_.erase(peer);
  if (connected) of_workers_.socket.disconnect(RouteOf(peer));
  ++ended_;
}

void Fleet::Send(PeerId peer, const Message& message) {
  const absl::StatusOr<std::string> frame = EncodeMessage(message);
  if (!frame.ok()) {
    std::fprintf(stderr, "%s\n", frame.status().ToString().c_str());
    std::exit(3);
  }
  // The message is lost if the connection is down or full, as with a DEALER.
  zmq::socket_t& socket = SocketOf(peer);
  try {
    if (socket.send(zmq::buffer(AliasOf(peer)),
                    zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
      socket.send(zmq::buffer(*frame), zmq::send_flags::dontwait);
    }
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH && error.num() != EAGAIN) throw;
  }
}

bool Fleet::ReceiveSome(zmq::socket_t& socket) {
  std::vector<std::pair<PeerId, Message>> received;
  while (received.size() < kMessagesPerTurnMax) {
    zmq::message_t alias;
    zmq::message_t frame;
    if (!socket.recv(alias, zmq::recv_flags::dontwait) ||
        !socket.recv(frame, zmq::recv_flags::dontwait)) {
      break;
    }
    PeerId peer = 0;
    if (alias.size() != 1 + sizeof peer) continue;
    std::memcpy(&peer, alias.data<char>() + 1, sizeof peer);
    absl::StatusOr<Message> message = DecodeMessage(frame.to_string_view());
    if (!message.ok()) {
      std::fprintf(stderr, "%s\n", message.status().ToString().c_str());
      std::exit(3);
    }
    term_ = std::max(term_, TermOf(*message));
    if (const auto worker = workers_.find(peer); worker != workers_.end()) {
      Heard(worker->second, *message);
    }
    received.emplace_back(peer, *std::move(message));
  }
  for (const auto& [peer, message] : received) Deliver(peer, message);
  return !received.empty();
}

void Fleet::Deliver(PeerId peer, const Message& message) {
  const auto server = servers_.find(peer);
  if (server == servers_.end()) {
    return StepWorker(peer, lease_event::MessageReceived{message});
  }
  if (const auto* welcome = std::get_if<AgentWelcome>(&message)) {
    server->second.welcome = welcome->incarnation != 0;
  }
  if (const auto* log = std::get_if<LogRequest>(&message)) {
    return Send(peer, LogOf(*log));
  }
  StepAgent(peer, agent_event::MessageReceived{message});
}

bool Fleet::Run(double timeout_s, const std::function<bool()>& done) {
  const Time end = Now() + timeout_s;
  Time asked = 0;
  while (Now() < end) {
    if (Now() - asked > 0.02) {
      if (done()) return true;
      asked = Now();
    }
    const bool agents_busy = ReceiveSome(of_agents_.socket);
    const bool workers_busy = ReceiveSome(of_workers_.socket);
    Tick();
    if (agents_busy || workers_busy) continue;
    std::array<zmq::pollitem_t, 2> items = {
        {{of_agents_.socket.handle(), 0, ZMQ_POLLIN, 0},
         {of_workers_.socket.handle(), 0, ZMQ_POLLIN, 0}}};
    zmq::poll(items.data(), items.size(),
              std::chrono::milliseconds(kWait_ms_max));
  }
  return done();
}

void Fleet::Tick() {
  const Time now = Now();
  while (!due_.empty() && due_.top().first <= now) {
    const auto [due, peer] = due_.top();
    due_.pop();
    if (const auto server = servers_.find(peer); server != servers_.end()) {
      if (server->second.due_at != due) continue;
      server->second.due_at = kNever;
      if (server->second.machine.NextDeadline() <= now) {
        StepAgent(peer, agent_event::Tick{});
      } else {
        Schedule(peer);
      }
      continue;
    }
    const auto found = workers_.find(peer);
    if (found == workers_.end()) continue;
    Worker& worker = found->second;
    if (worker.due_at != due) continue;
    worker.due_at = kNever;
    if (worker.connect_at <= now) {
      StartWorker(peer);
    } else if (worker.next_report <= now) {
      worker.next_report = now + options_.report_interval_s;
      StepWorker(peer, lease_event::Progressed{CountSteps(worker)});
    } else if (worker.machine.NextDeadline() <= now) {
      StepWorker(peer, lease_event::Tick{});
    } else {
      Schedule(peer);
    }
  }
}

void Fleet::Schedule(PeerId peer) {
  const auto at = [&](Time next, Time& due_at) {
    if (next >= due_at) return;
    due_at = next;
    due_.emplace(next, peer);
  };
  if (const auto server = servers_.find(peer); server != servers_.end()) {
    at(server->second.machine.NextDeadline(), server->second.due_at);
  } else if (const auto found = workers_.find(peer); found != workers_.end()) {
    Worker& worker = found->second;
    at(std::min({worker.machine.NextDeadline(), worker.next_report,
                 worker.connect_at}),
       worker.due_at);
  }
}

// ---- agents

void Fleet::StepAgent(PeerId peer, const AgentEvent& event) {
  for (AgentAction& action : servers_.at(peer).machine.Step(Now(), event)) {
    std::visit([&](auto& a) { Carry(peer, std::move(a)); }, action);
  }
  Schedule(peer);
}

void Fleet::Carry(PeerId peer, agent_action::Send&& action) {
  FillInKeys(&action.message);
  Send(peer, action.message);
}

std::string Fleet::KeyOf(const WorkerKey& worker) const {
  const auto found = peer_of_.find(worker);
  if (found == peer_of_.end()) return "";
  const auto& keys = workers_.at(found->second).keys;
  return keys ? keys->public_key : "";
}

void Fleet::FillInKeys(Message* message) const {
  if (auto* hello = std::get_if<AgentHello>(message)) {
    for (RunningWorker& one : hello->running) {
      one.public_key = KeyOf(one.worker);
    }
  } else if (auto* launched = std::get_if<WorkerLaunched>(message)) {
    launched->public_key = KeyOf(launched->worker);
  }
}

void Fleet::Carry(PeerId peer, agent_action::Spawn&& action) {
  const int server = static_cast<int>(peer) - 1;  // agents connected first
  const WorkerKey key = action.launch.worker;
  const PeerId worker = ++last_peer_;
  Worker& added = workers_.emplace(worker, Worker(key, server)).first->second;
  if (!options_.server_keys.empty()) added.keys = NewCurveKeyPair().value();
  added.connect_at = Now() + options_.start_s +
                     std::uniform_real_distribution(0.0, 1.0)(random_) *
                         options_.start_scatter_s;
  peer_of_[key] = worker;
  StepAgent(peer, agent_event::ProcessStarted{key, int64_t{worker}});
  Schedule(worker);
}

void Fleet::StartWorker(PeerId peer) {
  Worker& worker = workers_.at(peer);
  worker.connect_at = kNever;
  Connect(peer, worker.keys);
  StepWorker(peer, lease_event::Started{{}, int64_t{peer}});
}

void Fleet::Carry(PeerId peer, agent_action::SignalProcess&& action) {
  const auto found = peer_of_.find(action.worker);
  if (found == peer_of_.end()) return;
  Remove(found->second);
  StepAgent(peer, agent_event::ProcessExited{action.worker, 0, kSignalOfKill});
}

void Fleet::Carry(PeerId, agent_action::Quit&& action) {
  std::fprintf(stderr, "an agent was refused: %s\n", action.reason.c_str());
  std::exit(3);
}

int Fleet::agents_welcome() const {
  return static_cast<int>(std::ranges::count_if(
      servers_, [](const auto& server) { return server.second.welcome; }));
}

// ---- workers

void Fleet::StepWorker(PeerId peer, const LeaseEvent& event) {
  const auto found = workers_.find(peer);
  if (found == workers_.end()) return;
  for (LeaseAction& action : found->second.machine.Step(Now(), event)) {
    if (!workers_.contains(peer)) return;  // it ended meanwhile
    std::visit([&](auto& a) { Carry(peer, std::move(a)); }, action);
  }
  Schedule(peer);
}

const Progress& Fleet::CountSteps(Worker& worker) {
  if (worker.next_report != kNever) {
    const double ran_s = Now() - worker.running_since;
    worker.running_since = Now();
    worker.progress.steps_done +=
        static_cast<uint64_t>(ran_s * kStepsPerSecond);
    worker.progress.throughput_steps_per_s = kStepsPerSecond;
    worker.progress.window_s = ran_s;
    worker.progress.scalars = {{"loss", 0.5}};
  }
  return worker.progress;
}

void Fleet::Carry(PeerId peer, lease_action::Send&& action) {
  Worker& worker = workers_.at(peer);
  if (const auto* request = std::get_if<LeaseRequest>(&action.message);
      request != nullptr && request->holding) {
    // The worker may ask again; it has waited since the first time.
    if (worker.nonce == 0) worker.asked_at = Now();
    worker.nonce = request->nonce;
  }
  Send(peer, action.message);
}

void Fleet::Heard(Worker& worker, const Message& message) {
  if (options_.heard) options_.heard(message);
  worker.term = std::max(worker.term, TermOf(message));
  uint64_t nonce = 0;
  if (const auto* grant = std::get_if<LeaseGrant>(&message)) {
    ++grants_;
    nonce = grant->nonce;
  } else if (const auto* denied = std::get_if<LeaseDenied>(&message)) {
    nonce = denied->nonce;
  }
  if (nonce == 0 || nonce != worker.nonce) return;
  renewals_s_.push_back(Now() - worker.asked_at);
  worker.nonce = 0;
}

void Fleet::Carry(PeerId peer, lease_action::Resume&& action) {
  Worker& worker = workers_.at(peer);
  worker.uuid = action.accelerator.uuid;
  worker.epoch = action.epoch;
  const auto [holder, free] = holder_of_.emplace(worker.uuid, peer);
  if (!free) {
    ++shared_;
    holder->second = peer;
  }
  running_.insert(peer);
  worker.running_since = Now();
  worker.next_report = Now() + options_.report_interval_s;
  if (action.world_size > 1 && worker.key.rank == 0) {
    StepWorker(peer, lease_event::GangOpened{action.epoch, "127.0.0.1:1"});
  }
  StepWorker(peer, lease_event::Resumed{action.epoch});
}

void Fleet::Carry(PeerId peer, lease_action::Pause&& action) {
  Worker& worker = workers_.at(peer);
  if (action.why.find("lease ended") != std::string::npos) {
    ++leases_ended_;
    if (worker.nonce != 0) renewals_s_.push_back(Now() - worker.asked_at);
  }
  worker.nonce = 0;  // the answer no longer matters
  CountSteps(worker);
  worker.next_report = kNever;
  if (running_.erase(peer) > 0) {
    ++pauses_;
    const auto holder = holder_of_.find(worker.uuid);
    if (holder != holder_of_.end() && holder->second == peer) {
      holder_of_.erase(holder);
    }
    StepWorker(peer, lease_event::Parked{worker.epoch, worker.progress});
  }
  if (!StrongerThan(action.tier, PauseTier::kPark)) return;
  // Evicted: the process ends with a checkpoint.
  constexpr int kExitEvicted = 75;
  const PeerId agent = static_cast<PeerId>(worker.server) + 1;
  const WorkerKey key = worker.key;
  StepWorker(peer, lease_event::Finished{kExitEvicted, "", worker.progress});
  Remove(peer);
  StepAgent(agent, agent_event::ProcessExited{key, kExitEvicted, 0});
}

int Fleet::heard_of_term(uint64_t term) const {
  return static_cast<int>(std::ranges::count_if(
      workers_, [&](const auto& w) { return w.second.term >= term; }));
}

}  // namespace gavel::bench
