// A coordinator on a thread of its own, and peers that talk to it over real
// sockets: a client, an agent that launches nothing, a worker that trains
// nothing. Each fake belongs to the test's thread.
#ifndef GAVEL_TESTS_SERVER_FAKE_PEERS_H_
#define GAVEL_TESTS_SERVER_FAKE_PEERS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/server/coordinator_server.h"
#include "core/messages.h"
#include "nlohmann/json.hpp"
#include "runtime/transport/dealer_router.h"
#include "tests/support/eventually.h"

namespace gavel::testing {

// Options with rounds that outlast a test, so that nothing happens by the
// clock.
CoordinatorServerOptions QuietOptions(const std::string& state_directory);

class RunningCoordinator {
 public:
  explicit RunningCoordinator(CoordinatorServerOptions options);
  ~RunningCoordinator() { Stop().IgnoreError(); }

  // The status of Create; all other functions require that it is OK.
  const absl::Status& created() const { return created_; }
  const std::string& endpoint() const { return server_->endpoint(); }
  LocalRequests& local() const { return server_->local(); }
  // Ends it in order, and returns the status of Run.
  absl::Status Stop();
  // Waits until it has ended by itself, and returns the status of Run.
  absl::Status Wait();

 private:
  absl::Status created_;
  absl::Status ended_;
  std::unique_ptr<CoordinatorServer> server_;
  std::thread thread_;
};

// A DEALER that sends until it gets through, and waits for answers of a kind.
class FakePeer {
 public:
  explicit FakePeer(const std::string& endpoint,
                    const std::optional<CurveClient>& keys = {});
  virtual ~FakePeer() = default;
  // Whether the coordinator lets it in.
  bool Connects(double timeout_s) {
    return dealer_->WaitUntilConnected(timeout_s);
  }
  // False if the message could not be sent.
  bool Send(const Message& message);

  // The next message of type T within `timeout_s`; others are skipped.
  template <class T>
  std::optional<T> Receive(double timeout_s = kPatience_s) {
    const double end = Seconds() + timeout_s;
    while (true) {
      const double left_s = end - Seconds();
      if (left_s <= 0) return std::nullopt;
      auto message = dealer_->Receive(left_s);
      if (!message.ok() || !message->has_value()) continue;
      if (auto* wanted = std::get_if<T>(&**message)) return *std::move(wanted);
    }
  }

 private:
  std::unique_ptr<Dealer> dealer_;
};

class FakeClient : public FakePeer {
 public:
  using FakePeer::FakePeer;
  SubmitReply Submit(const std::string& toml);
  // Submits a plain job.
  SubmitReply SubmitNamed(const std::string& name);
  // The error that Submit would get.
  std::string WhyNotAdmitted(const std::string& toml);
  CommandReply Command(CommandKind kind, JobId job = JobId());
  nlohmann::json Query(QueryKind kind, JobId job = JobId());
  // The row of `job` in the queue once `done` accepts it; null if it never
  // does.
  nlohmann::json WaitForRow(
      JobId job, const std::function<bool(const nlohmann::json&)>& done);

 private:
  uint64_t request_ = 0;
};

class FakeAgent : public FakePeer {
 public:
  FakeAgent(const std::string& endpoint, std::string server,
            uint64_t incarnation = 1,
            const std::optional<CurveClient>& keys = {});
  // Says hello with `accelerators` of type v100, until it is welcome.
  std::optional<AgentWelcome> Join(int accelerators,
                                   std::vector<RunningWorker> running = {});
  void Exited(const WorkerKey& worker, int exit_code, int signal = 0);

 private:
  std::string server_;
  uint64_t incarnation_;
};

class FakeWorker : public FakePeer {
 public:
  FakeWorker(const std::string& endpoint, const WorkerKey& key,
             const std::optional<CurveClient>& keys = {})
      : FakePeer(endpoint, keys), key_(key) {}
  // Repeats its hello until a LeaseNotice (true) or a rejection (false) comes.
  bool Hello();
  // Asks until a lease is granted; nothing if that never happens.
  std::optional<LeaseGrant> AskForLease(bool holding = false,
                                        uint64_t epoch = 0);
  void Report(uint64_t epoch, uint64_t steps_done, double steps_per_s);
  void Release(uint64_t epoch, uint64_t steps_done);
  void set_highest_seen(JournalPosition seen) { highest_seen_ = seen; }
  const JournalPosition& highest_seen() const { return highest_seen_; }
  void set_nonce(uint64_t nonce) { nonce_ = nonce; }

 private:
  WorkerKey key_;
  JournalPosition highest_seen_;
  uint64_t nonce_ = 0;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SERVER_FAKE_PEERS_H_
