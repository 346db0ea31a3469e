// Simulates thousands of workers, and the agents of their servers, in one
// process. Each has its own connection to a real coordinator, and runs the real
// machine of its side (lease machine, agent machine). Nothing is trained; steps
// are counted by the clock. Used only by the programs of this folder. Not
// thread-safe.
#ifndef GAVEL_BENCH_LOAD_FLEET_H_
#define GAVEL_BENCH_LOAD_FLEET_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/agent/agent_machine.h"
#include "core/messages.h"
#include "runtime/lease/lease_machine.h"
#include "runtime/transport/curve.h"
#include "runtime/transport/socket_options.h"

namespace gavel::bench {

inline constexpr int kAcceleratorsPerServer = 200;

struct FleetOptions {
  std::string endpoint;  // of a coordinator on this machine
  int accelerators = 0;  // in servers of kAcceleratorsPerServer
  int first_server = 0;  // the number of its first one
  double report_interval_s = 1;
  // The time from a worker's launch until it connects, as a process with
  // LibTorch takes.
  double start_s = 0;
  // Each worker takes a random time of at most this much longer, because those
  // of real machines do not all start in the same millisecond.
  double start_scatter_s = 0;
  // With keys: the coordinator's public key, and one pair for each server,
  // which its agent uses. A worker gets its own pair at its launch.
  std::string coordinator_public_key;
  std::vector<CurveKeyPair> server_keys;
  // Called with every message to a worker, as it is taken from the socket.
  std::function<void(const Message& message)> heard = nullptr;
};

// "server-3".
std::string FleetServerName(int index);

class Fleet {
 public:
  explicit Fleet(FleetOptions options);

  // Serves all peers until `done`, which is asked now and then, returns true,
  // or for `timeout_s`. Returns whether it was done.
  bool Run(double timeout_s, const std::function<bool()>& done);

  int agents_welcome() const;
  int workers() const { return static_cast<int>(workers_.size()); }
  int running() const { return static_cast<int>(running_.size()); }
  // The number of workers that have heard of the coordinator of `term`.
  int heard_of_term(uint64_t term) const;
  uint64_t term() const { return term_; }

  // Seconds from a renewal's first sending to its answer, or to the lease's end
  // where no answer came, since the list was last cleared.
  std::vector<double>& renewals_s() { return renewals_s_; }
  uint64_t grants() const { return grants_; }
  uint64_t pauses() const { return pauses_; }
  uint64_t ended() const { return ended_; }                // worker processes
  uint64_t leases_ended() const { return leases_ended_; }  // by the clock
  // How often two workers were on one accelerator at a time, which no
  // coordinator may allow.
  uint64_t shared_accelerators() const { return shared_; }

 private:
  struct Worker {
    Worker(const WorkerKey& worker, int on_server)
        : key(worker), server(on_server), machine(LeaseOptions{worker}) {}
    WorkerKey key;
    int server;
    LeaseMachine machine;
    std::optional<CurveKeyPair> keys = {};
    Time connect_at = kNever;  // its process is still starting
    Progress progress = {};
    uint64_t term = 0;  // highest that it heard of
    std::string uuid = "";
    uint64_t epoch = 0;
    uint64_t nonce = 0;  // of the renewal that waits for an answer; 0: none
    Time asked_at = 0;
    Time next_report = kNever;
    Time running_since = 0;
    Time due_at = kNever;  // when due_ has it
  };
  struct Server {
    explicit Server(AgentOptions agent) : machine(std::move(agent)) {}
    AgentMachine machine;
    bool welcome = false;
    Time due_at = kNever;  // when due_ has it
  };
  // A peer has a connection: it is the agent of a server, or a worker.
  using PeerId = uint32_t;

  Time Now() const;
  std::string RouteOf(PeerId peer) const;
  void Open(transport::Channel& channel, int queued_messages_max) const;
  zmq::socket_t& SocketOf(PeerId peer);
  void Connect(PeerId peer, const std::optional<CurveKeyPair>& keys);
  void Remove(PeerId peer);  // a worker that has ended
  void Send(PeerId peer, const Message& message);
  // Takes the messages that have arrived, without waiting, then delivers each
  // to its peer.
  bool ReceiveSome(zmq::socket_t& socket);
  void Deliver(PeerId peer, const Message& message);
  void Tick();
  void Schedule(PeerId peer);

  void StepAgent(PeerId peer, const AgentEvent& event);
  void Carry(PeerId peer, agent_action::Send&& action);
  // Fills in the workers' public keys, which the coordinator needs, as a real
  // agent does.
  void FillInKeys(Message* message) const;
  std::string KeyOf(const WorkerKey& worker) const;
  void Carry(PeerId peer, agent_action::Spawn&& action);
  void Carry(PeerId peer, agent_action::SignalProcess&& action);
  void Carry(PeerId, agent_action::RecordRunning&&) {}
  // Every server finds the checkpoints, so nothing has to be moved.
  void Carry(PeerId, agent_action::FetchCheckpoint&&) {}
  void Carry(PeerId, agent_action::CancelFetch&&) {}
  void Carry(PeerId, agent_action::OfferCheckpoint&&) {}
  void Carry(PeerId, agent_action::Quit&& action);

  void StepWorker(PeerId peer, const LeaseEvent& event);
  void Carry(PeerId peer, lease_action::Send&& action);
  void Carry(PeerId peer, lease_action::Resume&& action);
  void Carry(PeerId, lease_action::Extend&&) {}
  void Carry(PeerId, lease_action::Checkpoint&&) {}
  void Carry(PeerId peer, lease_action::Pause&& action);
  void Heard(Worker& worker, const Message& message);
  const Progress& CountSteps(Worker& worker);
  void StartWorker(PeerId peer);

  const std::chrono::steady_clock::time_point started_ =
      std::chrono::steady_clock::now();
  FleetOptions options_;
  transport::Channel of_agents_;
  transport::Channel of_workers_;
  transport::Endpoint endpoint_;
  std::mt19937_64 random_;
  PeerId last_peer_ = 0;
  std::map<PeerId, Server> servers_;
  std::map<PeerId, Worker> workers_;
  std::map<WorkerKey, PeerId> peer_of_;
  // The times at which peers are due, ordered by time. A peer may have several
  // entries, and only that of its due_at counts. A peer whose machine has
  // nothing to do yet is scheduled again when it is due.
  using Due = std::pair<Time, PeerId>;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;

  std::set<PeerId> running_;
  std::map<std::string, PeerId> holder_of_;  // by uuid
  std::vector<double> renewals_s_;
  uint64_t grants_ = 0;
  uint64_t pauses_ = 0;
  uint64_t leases_ended_ = 0;
  uint64_t shared_ = 0;
  uint64_t ended_ = 0;
  uint64_t term_ = 0;
};

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_LOAD_FLEET_H_
