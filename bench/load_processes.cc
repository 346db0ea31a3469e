#include "bench/load_processes.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>
#include <variant>

#include "core/codec.h"
#include "core/text.h"
#include "runtime/transport/connection_guard.h"
#include "runtime/transport/socket_options.h"

namespace gavel::bench {
namespace {

constexpr uint32_t kRenewalsMax = 1 << 20;  // of one process
constexpr useconds_t kPoll_us = 5000;
constexpr JournalPosition kPeersPosition{1, 1};

// A string that one process writes once and others read.
struct SharedText {
  std::array<char, 64> text{};
  std::atomic<bool> there{false};

  void Set(const std::string& value) {
    value.copy(text.data(), text.size() - 1);
    there = true;
  }
  std::string Wait() const {
    while (!there) usleep(kPoll_us);
    return text.data();
  }
};

template <class T>
T* NewShared() {
  void* const memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("shared memory");
    std::exit(3);
  }
  return new (memory) T();
}

// The process that runs `body` and never returns; it dies with this one.
pid_t Fork(const std::function<void()>& body) {
  const pid_t parent = getpid();
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) {
    std::perror("fork");
    std::exit(3);
  }
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  body();
  _exit(0);
}

void Reap(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace

struct FleetProcesses::Shared {
  SharedText endpoint;
  std::atomic<int> workers{0};
  std::atomic<int> running{0};
  std::atomic<uint64_t> term{0};
  std::atomic<int> heard_of_term{0};
  std::atomic<uint64_t> pauses{0};
  std::atomic<uint64_t> leases_ended{0};
  std::atomic<uint64_t> shared_accelerators{0};
  std::atomic<uint32_t> renewals{0};
  std::array<float, kRenewalsMax> renewals_s{};

  void Publish(Fleet& fleet) {
    workers = fleet.workers();
    running = fleet.running();
    // In this order: never said of a term what holds of an earlier one.
    if (term != fleet.term()) heard_of_term = 0;
    term = fleet.term();
    heard_of_term = fleet.heard_of_term(fleet.term());
    pauses = fleet.pauses();
    leases_ended = fleet.leases_ended();
    shared_accelerators = fleet.shared_accelerators();
    uint32_t count = renewals;
    for (const double took_s : fleet.renewals_s()) {
      if (count < kRenewalsMax)
        renewals_s[count++] = static_cast<float>(took_s);
    }
    fleet.renewals_s().clear();
    renewals = count;
  }
};

FleetProcesses::FleetProcesses(int processes, const FleetOptions& options) {
  const int servers = (options.accelerators + kAcceleratorsPerServer - 1) /
                      kAcceleratorsPerServer;
  processes = std::clamp(processes, 1, servers);
  for (int i = 0; i < processes; ++i) {
    FleetOptions own = options;
    own.first_server = servers * i / processes;
    const int end =
        std::min(options.accelerators,
                 servers * (i + 1) / processes * kAcceleratorsPerServer);
    own.accelerators = end - own.first_server * kAcceleratorsPerServer;
    Part part;
    part.shared = NewShared<Shared>();
    part.pid = Fork([own, shared = part.shared]() mutable {
      own.endpoint = shared->endpoint.Wait();
      Fleet fleet(std::move(own));
      fleet.Run(std::numeric_limits<double>::max(), [&] {
        shared->Publish(fleet);
        return false;
      });
    });
    parts_.push_back(part);
  }
}

FleetProcesses::~FleetProcesses() {
  for (const Part& part : parts_) Reap(part.pid);
  for (const Part& part : parts_) munmap(part.shared, sizeof(Shared));
}

void FleetProcesses::Start(const std::string& endpoint) {
  for (Part& part : parts_) part.shared->endpoint.Set(endpoint);
}

bool FleetProcesses::Wait(double timeout_s, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration<double>(timeout_s);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    for (const Part& part : parts_) {
      int status = 0;
      if (waitpid(part.pid, &status, WNOHANG) == 0) continue;
      std::fprintf(
          stderr, "a process of the load generator ended (%s %d)\n",
          WIFSIGNALED(status) ? "signal" : "code",
          WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
      std::exit(3);
    }
    usleep(kPoll_us);
  }
  return true;
}

template <class T>
T FleetProcesses::Sum(std::atomic<T> Shared::*count) const {
  T sum = 0;
  for (const Part& part : parts_) sum += part.shared->*count;
  return sum;
}

int FleetProcesses::workers() const { return Sum(&Shared::workers); }
int FleetProcesses::running() const { return Sum(&Shared::running); }
uint64_t FleetProcesses::pauses() const { return Sum(&Shared::pauses); }
uint64_t FleetProcesses::leases_ended() const {
  return Sum(&Shared::leases_ended);
}
uint64_t FleetProcesses::shared_accelerators() const {
  return Sum(&Shared::shared_accelerators);
}
int FleetProcesses::heard_of_term(uint64_t term) const {
  int sum = 0;
  for (const Part& part : parts_) {
    if (part.shared->term == term) sum += part.shared->heard_of_term;
  }
  return sum;
}
uint64_t FleetProcesses::term() const {
  uint64_t term = 0;
  for (const Part& part : parts_) {
    term = std::max(term, part.shared->term.load());
  }
  return term;
}

void FleetProcesses::ClearRenewals() {
  for (Part& part : parts_) part.cleared = part.shared->renewals;
}

std::vector<double> FleetProcesses::renewals_s() const {
  std::vector<double> all;
  for (const Part& part : parts_) {
    const auto& times = part.shared->renewals_s;
    all.insert(all.end(), times.begin() + part.cleared,
               times.begin() + part.shared->renewals);
  }
  return all;
}

// ---- the bare peer

namespace {

class BareRouter {
 public:
  BareRouter(const std::optional<CurveKeyPair>& keys, double lease_s)
      : lease_s_(lease_s) {
    transport::RaiseDescriptorLimit();
    channel_.Open(zmq::socket_type::router, {"127.0.0.1", 0, true, false});
    if (keys) {
      channel_.socket.set(zmq::sockopt::curve_server, true);
      channel_.socket.set(zmq::sockopt::curve_secretkey, keys->secret_key);
    }
    channel_.socket.bind("tcp://127.0.0.1:*");
  }
  std::string endpoint() const {
    return channel_.socket.get(zmq::sockopt::last_endpoint);
  }
  void Serve() {
    while (true) {
      zmq::message_t frame;
      if (!channel_.socket.recv(peer_) || !channel_.socket.recv(frame))
        continue;
      const absl::StatusOr<Message> message =
          DecodeMessage(frame.to_string_view());
      if (!message.ok()) continue;
      if (const auto* hello = std::get_if<AgentHello>(&*message)) {
        Launch(*hello);
      } else if (const auto* request = std::get_if<LeaseRequest>(&*message)) {
        Grant(*request);
      }
    }
  }

 private:
  // One worker for each accelerator.
  void Launch(const AgentHello& hello) {
    Answer(AgentWelcome{hello.server, kPeersPosition, 1, hello.incarnation,
                        hello.state_id});
    const uint64_t number = std::strtoull(
        hello.server.c_str() + hello.server.find('-') + 1, nullptr, 10);
    for (size_t i = 0; i < hello.accelerators.size(); ++i) {
      LaunchWorker launch;
      launch.server = hello.server;
      launch.worker = {JobId(number * kAcceleratorsPerServer + i + 1), 0, 1};
      launch.position = kPeersPosition;
      launch.accelerator = hello.accelerators[i];
      Answer(launch);
    }
  }
  void Grant(const LeaseRequest& request) {
    LeaseGrant grant;
    grant.worker = request.worker;
    grant.position = kPeersPosition;
    // One that it gave up, because its lease ended, is not granted again.
    grant.epoch = request.holding
                      ? request.epoch
                      : std::max(request.epoch, request.released_epoch + 1);
    grant.nonce = request.nonce;
    grant.duration_s = lease_s_;
    grant.accelerator.type = "v100";
    grant.accelerator.uuid = StrCat("own-", request.worker.job.value());
    Answer(grant);
  }
  void Answer(const Message& message) {
    const std::string frame = *EncodeMessage(message);
    channel_.socket.send(zmq::buffer(peer_.data(), peer_.size()),
                         zmq::send_flags::sndmore);
    channel_.socket.send(zmq::buffer(frame), zmq::send_flags::none);
  }

  double lease_s_;
  transport::Channel channel_;
  zmq::message_t peer_;
};

}  // namespace

struct BarePeer::Shared {
  SharedText endpoint;
};

BarePeer::BarePeer(const std::optional<CurveKeyPair>& keys, double lease_s)
    : shared_(NewShared<Shared>()) {
  pid_ = Fork([&] {
    BareRouter router(keys, lease_s);
    shared_->endpoint.Set(router.endpoint());
    router.Serve();
  });
}

BarePeer::~BarePeer() {
  Reap(pid_);
  munmap(shared_, sizeof(Shared));
}

std::string BarePeer::endpoint() const { return shared_->endpoint.Wait(); }

}  // namespace gavel::bench
