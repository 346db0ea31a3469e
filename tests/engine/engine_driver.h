// Drives an engine by hand: one server, "here", has accelerators of one type,
// and workers say whatever the test wants. Rows are on disk at once unless a
// test holds them back. Invariants are checked after every step.
#ifndef GAVEL_TESTS_ENGINE_ENGINE_DRIVER_H_
#define GAVEL_TESTS_ENGINE_ENGINE_DRIVER_H_

#include <variant>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"
#include "coordinator/policy/policy.h"
#include "core/text.h"
#include "tests/engine/invariants.h"
#include "tests/support/test.h"

namespace gavel {

// A job whose throughput on a "v100" is declared.
inline JobSpec KnownJob(double steps_per_s = 1) {
  JobSpec spec;
  spec.throughputs["v100"] = steps_per_s;
  return spec;
}

class EngineDriver {
 public:
  static constexpr double kAgentTimeout_s = 1000;
  static constexpr uint64_t kTermAfterLoss = 1'700'000'000;

  explicit EngineDriver(int accelerators = 1, std::string policy = "fifo",
                        const std::function<void(EngineOptions&)>& adjust = {})
      : accelerators_(accelerators), policy_(*MakePolicy(policy)) {
    options_.round_duration_s = 100;
    options_.lease_duration_s = 10;
    options_.plan_lead_s = 5;
    options_.pause_grace_s = 30;
    options_.agent_timeout_s = kAgentTimeout_s;
    options_.report_interval_s = 0;
    if (adjust) adjust(options_);
    engine_ = std::make_unique<Engine>(options_);
    Step(event::CoordinatorStarted{1});
    JoinServer("here", 1);
  }

  // Steps the engine, persists rows and solves until nothing more follows at
  // this time.
  void Step(const Event& event) {
    const Actions next = engine_->Step(now, event);
    for (const std::string& broken : invariants_.Check(now, *engine_, next)) {
      ADD_FAILURE() << broken;
    }
    for (const Action& action : next) Take(action);
  }

  void Take(const Action& action) {
    actions.push_back(action);
    if (const auto* row = std::get_if<action::Persist>(&action)) {
      rows.push_back(*row);
      if (!hold_disk) Persist();
    } else if (const auto* solve = std::get_if<action::SolvePolicy>(&action)) {
      ++solves;
      problem = *solve->problem;
      if (hold_solver) return;
      Step(event::AllocationReady{
          solve->epoch, answer ? answer(problem) : *policy_->Solve(problem)});
    }
  }

  void Persist() {
    const uint64_t seq = rows.back().seq;
    invariants_.Persisted(seq);
    Step(event::Persisted{seq});
  }

  void At(Time time) {
    while (engine_->NextDeadline() <= time) {
      now = std::max(now, engine_->NextDeadline());
      Step(event::Tick{});
    }
    now = time;
  }

  void JoinServer(const std::string& name, uint64_t incarnation,
                  std::vector<RunningWorker> running = {}) {
    AgentHello hello;
    hello.server = name;
    hello.incarnation = incarnation;
    for (int i = 0; i < accelerators_; ++i) {
      AcceleratorInfo info;
      info.type = "v100";
      info.uuid = StrCat(name, "-", i);
      info.threads = threads;
      info.memory_bytes = memory_bytes;
      info.context_bytes = context_bytes;
      if (declare) declare(info);
      hello.accelerators.push_back(info);
    }
    hello.running = std::move(running);
    hello.rack = rack;
    hello.host_memory_bytes = host_memory_bytes;
    Step(event::ServerJoined{hello});
  }

  // The hello of a server with one accelerator, of any type.
  static AgentHello HelloOf(const std::string& server, const std::string& type,
                            uint64_t incarnation = 1) {
    AgentHello hello;
    hello.server = server;
    hello.incarnation = incarnation;
    hello.accelerators.resize(1);
    hello.accelerators[0].type = type;
    hello.accelerators[0].uuid = server + "-0";
    return hello;
  }

  JobId Submit(const std::string& name, int scale_factor = 1,
               JobSpec spec = {}) {
    spec.name = name;
    spec.argv = {"./train"};
    spec.scale_factor = scale_factor;
    Step(event::JobSubmitted{spec, 1});
    return engine_->jobs().empty() ? JobId() : engine_->jobs().rbegin()->first;
  }

  WorkerKey Key(JobId job, int rank = 0) const {
    return {job, rank,
            engine_->jobs()
                .at(job)
                .workers.at(static_cast<size_t>(rank))
                .incarnation};
  }

  void Hello(const WorkerKey& key) {
    WorkerHello hello;
    hello.worker = key;
    Step(event::WorkerJoined{hello});
  }

  void Request(const WorkerKey& key, bool holding = false,
               uint64_t released_epoch = 0, std::string gang_address = "") {
    LeaseRequest request;
    request.worker = key;
    request.nonce = ++nonce;
    request.holding = holding;
    request.released_epoch = released_epoch;
    request.gang_address = std::move(gang_address);
    const auto job = engine_->jobs().find(key.job);
    if (job != engine_->jobs().end()) request.epoch = job->second.epoch;
    Step(event::LeaseRequested{request});
  }

  // The job's worker says hello and asks for a lease.
  WorkerKey Run(JobId job) {
    const WorkerKey key = Key(job);
    Hello(key);
    Request(key);
    return key;
  }

  // The accelerator of a one-worker job fails, and the job starts on another
  // one.
  void MoveByLoss(JobId id) {
    const Accelerator lost = engine_->cluster().accelerator(worker(id).held);
    Step(event::AcceleratorLost{lost.server, lost.info.uuid});
    GiveBack(id);
    At(now + 1);
    if (worker(id).process != ProcessState::kJoined) Hello(Key(id));
    Request(Key(id));
    ASSERT_NE(worker(id).held_epoch, 0u);
  }

  void ReportSpeed(JobId id, double steps_per_s, double window_s = 30) {
    Progress progress;
    progress.throughput_steps_per_s = steps_per_s;
    progress.window_s = window_s;
    Step(event::StepsReported{Key(id), worker(id).held_epoch, progress});
  }

  // Ends the lease that the worker holds.
  void GiveBack(const WorkerKey& key, const Progress& progress = {},
                ReleaseCause cause = ReleaseCause::kPaused,
                bool finished = false) {
    const Worker& worker =
        job(key.job).workers.at(static_cast<size_t>(key.rank));
    Step(event::LeaseEnded{key, worker.held_epoch, progress, finished, cause});
  }
  void GiveBack(JobId id, const Progress& progress = {}) {
    GiveBack(Key(id), progress);
  }

  // The pair that has an accelerator in this round; invalid if there is none.
  ShareUnit PackedPair() const {
    for (const auto& [id, job] : engine_->jobs()) {
      if (!job.assigned.empty() && job.partner.valid()) {
        return PairOf(id, job.partner);
      }
    }
    return {};
  }
  // Advances to the next round; workers that were asked to pause do so.
  void EndRound() {
    At(engine_->round_ends_at());
    for (const auto& [id, job] : engine_->jobs()) {
      const Worker& worker = job.workers.front();
      if (worker.held_epoch == 0 || worker.pause_sent_at == kNever) continue;
      GiveBack(id, worker.progress);
    }
  }

  // The exit of the current process of that rank.
  WorkerExited ExitOf(JobId id, int rank = 0) const {
    WorkerExited exit;
    exit.worker = Key(id, rank);
    exit.server = job(id).workers.at(static_cast<size_t>(rank)).server;
    return exit;
  }

  void Gone(const WorkerKey& key, int code, int signal = 0) {
    WorkerExited exit;
    exit.server = "here";
    exit.worker = key;
    exit.exit_code = code;
    exit.signal = signal;
    // The agent reports that the session has finished.
    if (code == 0 && signal == 0) exit.finished_code = 0;
    Step(event::WorkerGone{exit});
  }

  // Null if the action sends no message of type M.
  template <class M>
  static const M* MessageIn(const Action& action) {
    if (const auto* send = std::get_if<action::SendToWorker>(&action)) {
      return std::get_if<M>(&send->message);
    }
    if (const auto* send = std::get_if<action::SendToAgent>(&action)) {
      return std::get_if<M>(&send->message);
    }
    if (const auto* send = std::get_if<action::SendToBidder>(&action)) {
      return std::get_if<M>(&send->message);
    }
    return nullptr;
  }

  // The last message of type M that was sent; Count is the number of them.
  template <class M>
  std::optional<M> Last() const {
    std::optional<M> last;
    for (const Action& action : actions) {
      if (const M* message = MessageIn<M>(action)) last = *message;
    }
    return last;
  }
  template <class M>
  int Count() const {
    int count = 0;
    for (const Action& action : actions)
      count += MessageIn<M>(action) != nullptr;
    return count;
  }
  std::string LastReply() const {
    std::string error = "no reply";
    for (const Action& action : actions) {
      if (const auto* reply = std::get_if<action::Reply>(&action)) {
        error = reply->error;
      }
    }
    return error;
  }
  std::string Halted() const {
    for (const Action& action : actions) {
      if (const auto* halt = std::get_if<action::Halt>(&action)) {
        return halt->reason;
      }
    }
    return "";
  }

  // Restarts the coordinator from the rows on disk.
  void Restart(const std::function<void(EngineOptions&)>& adjust = {}) {
    if (adjust) adjust(options_);
    const uint64_t term = Replay();
    Step(event::CoordinatorStarted{term + 1});
  }

  // Restarts from a copy with the first `count` rows; later rows are given up.
  void RestartAfterLoss(size_t count) {
    rows.resize(count);
    Replay();
    event::CoordinatorStarted started{kTermAfterLoss};
    started.after_loss = true;
    Step(started);
  }

  uint64_t Replay() {
    engine_ = std::make_unique<Engine>(Replayed(options_));
    invariants_.Restarted();
    return rows.empty() ? 0 : rows.back().term;
  }
  // An engine with these options that has replayed the rows.
  Engine Replayed(const EngineOptions& options) const {
    Engine replayed(options);
    for (const action::Persist& row : rows) {
      replayed.Replay(row.seq, row.term, row.time, *DecodeEvent(row.row));
    }
    return replayed;
  }
  // An engine with these options, restored from a snapshot of this one.
  Engine Restored(const EngineOptions& options) const {
    const absl::StatusOr<std::string> bytes = engine_->Snapshot();
    EXPECT_OK(bytes);
    Engine restored(options);
    EXPECT_OK(restored.Restore(*bytes));
    return restored;
  }
  Engine Restored() const { return Restored(engine_->options()); }

  const Engine& engine() const { return *engine_; }
  std::string Why(JobId id) const {
    return RenderReason(engine_->Why(id, now));
  }
  const Job& job(JobId id) const { return engine_->jobs().at(id); }
  const Worker& worker(JobId id) const { return job(id).workers.front(); }

  Time now = 0;
  // These settings apply to servers that join from now on.
  int threads = 1;
  uint64_t memory_bytes = 0;
  uint64_t context_bytes = 0;
  uint64_t host_memory_bytes = 0;
  std::string rack;  // of servers that join
  std::function<void(AcceleratorInfo&)> declare;
  bool hold_disk = false;
  bool hold_solver = false;
  int solves = 0;
  PolicyProblem problem;  // the last one
  // Answers instead of the policy, if set.
  std::function<PolicyResult(const PolicyProblem&)> answer;
  uint64_t nonce = 0;
  Actions actions;
  std::vector<action::Persist> rows;

 private:
  int accelerators_;
  EngineOptions options_;
  std::unique_ptr<Policy> policy_;
  std::unique_ptr<Engine> engine_;
  Invariants invariants_;
};

}  // namespace gavel

#endif  // GAVEL_TESTS_ENGINE_ENGINE_DRIVER_H_
