// Runs the engine (EngineRunner), solves its policies on a thread
// (SolverThread), and tells in the log what happened (ClusterFacts).
#ifndef GAVEL_COORDINATOR_SERVER_ENGINE_RUNNER_H_
#define GAVEL_COORDINATOR_SERVER_ENGINE_RUNNER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"
#include "coordinator/policy/policy.h"
#include "coordinator/server/client_requests.h"
#include "coordinator/server/journal_writer.h"
#include "coordinator/server/peer_links.h"
#include "coordinator/server/query.h"
#include "core/messages.h"
#include "core/units.h"
#include "runtime/files/stopwatch.h"
#include "runtime/files/worker_thread.h"
#include "spdlog/common.h"
#include "spdlog/logger.h"

namespace gavel {

struct Fact {
  spdlog::level::level_enum level = spdlog::level::info;
  std::string text;
};

// Lines of the coordinator's log about servers, workers and jobs: one line for
// each fact, from the same durable events that make the history (history.h).
// The event loop writes them; a replay of the journal does not write them
// again. Not thread-safe.
class ClusterFacts {
 public:
  // The facts of a durable event, which `engine` has already taken.
  std::vector<Fact> Observe(const Event& event, const Engine& engine);

  // A launch that its agent reports, however often.
  std::optional<Fact> Of(const WorkerLaunched& launched, const Engine& engine);
  // The fact of a message to an agent: the reason why a worker is ended that
  // did not end itself, told once, or the refusal of an agent.
  std::optional<Fact> Of(Time now, const StopWorker& stop,
                         const Engine& engine);
  static Fact Of(const AgentRejected& rejected);

 private:
  struct Observation;  // of one event
  void Forget(const WorkerKey& worker);

  std::map<JobId, JobState> jobs_;  // active or held
  std::set<AcceleratorId> lost_;    // told of
  std::set<WorkerKey> launched_;    // that their agents told of
  std::set<WorkerKey> starting_;    // of those, that have not said hello
  std::set<WorkerKey> stopping_;    // told of
};

// Solves policies on a thread of its own, so that the event loop never waits
// for a solver. Only the newest of the waiting problems is kept, since the
// engine would drop the results of older epochs. The coordinator's event loop
// owns one.
//
// Thread-safe except for Stop. `notify` is called on the solver thread when an
// answer is there; it must not block, nor call back.
class SolverThread {
 public:
  // The end waits for the problem being solved, unless stopped before.
  SolverThread(std::unique_ptr<Policy> policy, std::function<void()> notify);

  // How long Stop waits for the problem that is being solved.
  static constexpr double kFarewell_s = 0.2;
  // Solves nothing more; to be called once. False: a problem is still being
  // solved, which may take minutes, and its thread is detached. It uses only
  // its own data from then on, but the process must end by std::_Exit.
  bool Stop();

  // Takes the place of a problem that still waits. Where it names another
  // policy, that one solves from then on.
  void Solve(action::SolvePolicy problem) {
    thread_.Replace(std::move(problem));
  }

  // The newest answer, once. An error of the policy, or an exception of its
  // solver, is an answer too: outcome kFailed with the detail.
  std::optional<event::AllocationReady> TakeAnswer();
  // How long the last solve took; nothing: none has ended.
  std::optional<double> solve_s() const;

 private:
  // The thread keeps it alive when it outlives this object.
  struct Shared {
    std::unique_ptr<Policy> policy;  // the thread's
    // As in WorkerThread, of the standard library.
    std::mutex mutex;              // guards all below
    std::function<void()> notify;  // null: stopped
    std::optional<event::AllocationReady> answer;
    std::optional<double> solve_s;
  };
  static void Answer(const action::SolvePolicy& problem, Shared& shared);

  const std::shared_ptr<Shared> shared_;
  WorkerThread<action::SolvePolicy> thread_;
};

// Runs the engine: gives it events and the time, and carries out the actions
// that it returns: rows to the journal, problems to the solver, messages to
// their peers, answers to clients. Also brings the engine what the journal's
// and the solver's threads have finished.
//
// The coordinator's event loop owns one. Not thread-safe; borrows the engine,
// the options, the links to peers, the client requests and the log.
class EngineRunner {
 public:
  struct Parts {
    Engine& engine;
    PeerLinks& peers;
    ClientRequests& clients;
    spdlog::logger& log;
    std::function<void()> wake;  // the event loop; any thread
    // Troubles of other parts, which an operator sees.
    std::function<std::vector<std::string>()> more_troubles;
  };
  EngineRunner(Parts parts, std::string cluster_id, SnapshotOptions snapshots)
      : parts_(std::move(parts)),
        cluster_id_(std::move(cluster_id)),
        journal_writer_(snapshots) {}

  // First. Brings the engine to the state of the journal and begins a term.
  // `term_min`: see Journal::BeginTerm.
  absl::StatusOr<JournalWriter::Recovered> Recover(
      std::unique_ptr<Journal> journal, const EngineOptions& options,
      std::unique_ptr<Policy> policy, uint64_t term_min);

  // One event, and the actions that it asks for, in order.
  Actions Step(const Event& event) { return parts_.engine.Step(Now(), event); }
  void CarryOut(Actions actions);

  // Events which no message brings.
  void TakeCompletions();
  void TakeDeadline();
  // Messages to many go out in parts; the next part.
  void SendSome();
  bool has_unsent() const { return !send_queue_.empty(); }

  // False: another coordinator has the journal, and this one has halted.
  bool IsOwner();
  // Tells the log of a launch that an agent reports.
  void NoteLaunch(const WorkerLaunched& launched);
  // False: the solver's thread was left alone (see SolverThread::Stop).
  bool StopSolving() { return solver_->Stop(); }

  // Continues where the journal ended: the time without a coordinator does not
  // count.
  Time Now() const { return recovered_at_ + since_recovery_.elapsed_s(); }
  // The newest durable position. Messages show nothing newer: a peer that saw a
  // row which is lost later would halt the next coordinator.
  JournalPosition PersistedPosition() const {
    return {parts_.engine.position().term, persisted_seq_};
  }
  // Problems for an operator.
  const std::vector<std::string>& troubles() const { return troubles_; }
  // For the status, once it has recovered.
  ThreadFigures threads() const {
    return {solver_->solve_s(), parts_.engine.position().seq - persisted_seq_};
  }
  // Why it has halted; OK while it runs.
  const absl::Status& halted() const { return halted_; }

 private:
  void Carry(action::Persist&& action);
  void Carry(action::SolvePolicy&& action);
  void Carry(action::SendToWorker&& action);
  void Carry(action::SendToAgent&& action);
  void Carry(action::SendToBidder&& action);
  void Carry(action::Reply&& action);
  void Carry(action::Halt&& action);

  // False: it has halted.
  bool TakeCommits();
  void TakeTroubles();
  void TakeSolution();
  void Halt(absl::Status why);
  void Log(const std::optional<Fact>& fact);

  const Parts parts_;
  const std::string cluster_id_;  // Journal::cluster_id
  Time recovered_at_ = 0;
  Stopwatch since_recovery_;
  ClusterFacts facts_;
  SendQueue send_queue_;
  uint64_t persisted_seq_ = 0;         // the last that the engine was told
  std::vector<std::string> troubles_;  // the last that were logged
  absl::Status halted_;
  // Last: their threads wake the event loop, and end first.
  std::unique_ptr<SolverThread> solver_;
  JournalWriter journal_writer_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ENGINE_RUNNER_H_
