#include "coordinator/server/engine_runner.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <variant>

#include "coordinator/policy/policy.h"
#include "core/status.h"
#include "core/text.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

// `policy` becomes the one that the task names.
PolicyResult ResultOf(const action::SolvePolicy& task,
                      std::unique_ptr<Policy>& policy) {
  if (!task.policy.empty() && task.policy != policy->name()) {
    absl::StatusOr<std::unique_ptr<Policy>> named = MakePolicy(task.policy);
    if (!named.ok()) {
      PolicyResult failed;
      failed.outcome = SolveOutcome::kFailed;
      failed.detail = std::string(named.status().message());
      return failed;
    }
    policy = *std::move(named);
  }
  return policy::GuardedSolve(*policy, *task.problem);
}

}  // namespace

SolverThread::SolverThread(std::unique_ptr<Policy> policy,
                           std::function<void()> notify)
    : shared_(std::make_shared<Shared>()),
      thread_(AtEnd::kDrop,
              [shared = shared_](auto problems, const std::stop_token&) {
                Answer(problems.back(), *shared);
                return kNever;
              }) {
  shared_->policy = std::move(policy);
  shared_->notify = std::move(notify);
}

void SolverThread::Answer(const action::SolvePolicy& problem, Shared& shared) {
  const Stopwatch solve;
  event::AllocationReady answer{problem.epoch,
                                ResultOf(problem, shared.policy)};
  const std::lock_guard lock(shared.mutex);
  shared.answer = std::move(answer);
  shared.solve_s = solve.elapsed_s();
  if (shared.notify) shared.notify();
}

bool SolverThread::Stop() {
  {
    // After a stop, the receiver of the notification may be gone.
    const std::lock_guard lock(shared_->mutex);
    shared_->notify = nullptr;
  }
  return thread_.Stop(kFarewell_s);
}

std::optional<event::AllocationReady> SolverThread::TakeAnswer() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->answer, std::nullopt);
}

std::optional<double> SolverThread::solve_s() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->solve_s;
}

absl::StatusOr<JournalWriter::Recovered> EngineRunner::Recover(
    std::unique_ptr<Journal> journal, const EngineOptions& options,
    std::unique_ptr<Policy> policy, uint64_t term_min) {
  const std::string path = journal->path();
  const Stopwatch recovery;
  const auto note = [&](const std::string& what) {
    parts_.log.warn("journal {}: {}", path, what);
  };
  GAVEL_ASSIGN_OR_RETURN(
      const JournalWriter::Recovered recovered,
      journal_writer_.Start(std::move(journal), options, &parts_.engine, note,
                            parts_.wake, term_min));
  parts_.log.info("journal {}: row {}, term {}; {} rows replayed in {:.3f} s",
                  path, recovered.position.seq, recovered.position.term,
                  recovered.rows_replayed, recovery.elapsed_s());
  recovered_at_ = recovered.time;
  since_recovery_ = Stopwatch();
  persisted_seq_ = recovered.position.seq;
  solver_ = std::make_unique<SolverThread>(std::move(policy), parts_.wake);
  return recovered;
}

void EngineRunner::CarryOut(Actions actions) {
  const bool many = actions.size() > SendQueue::kSentAtOnceMax;
  for (Action& action : actions) {
    for (Action& now : send_queue_.Take(std::move(action), many)) {
      std::visit([this](auto& a) { Carry(std::move(a)); }, now);
    }
  }
}

void EngineRunner::SendSome() {
  const size_t due = send_queue_.DueNow();
  for (size_t count = 0; count < due && halted_.ok(); ++count) {
    std::optional<Action> next = send_queue_.Next();
    if (!next) return;
    std::visit([this](auto& a) { Carry(std::move(a)); }, *next);
  }
}

void EngineRunner::TakeDeadline() {
  if (Now() >= parts_.engine.NextDeadline()) CarryOut(Step(event::Tick{}));
}

void EngineRunner::TakeCompletions() {
  if (!TakeCommits()) return;
  journal_writer_.MaybeSnapshot(parts_.engine);
  TakeTroubles();
  parts_.clients.SendAnswers(Now());
  TakeSolution();
}

bool EngineRunner::TakeCommits() {
  const CommitThread::State state = journal_writer_.state();
  if (state.persisted_seq > persisted_seq_) {
    persisted_seq_ = state.persisted_seq;
    CarryOut(Step(event::Persisted{persisted_seq_}));
  }
  if (state.status.ok()) return true;
  Halt(absl::IsAborted(state.status)
           ? state.status
           : absl::Status(
                 state.status.code(),
                 ToAbsl(StrCat(
                     state.status.message(),
                     ": a commit failed, and without the journal nothing may "
                     "be granted; make room or replace the disk, then start "
                     "the coordinator again. Jobs run on to the end of their "
                     "leases"))));
  return false;
}

void EngineRunner::TakeTroubles() {
  std::vector<std::string> now = journal_writer_.Troubles();
  std::ranges::move(parts_.more_troubles(), std::back_inserter(now));
  if (now == troubles_) return;
  troubles_ = std::move(now);
  for (const std::string& trouble : troubles_) parts_.log.warn("{}", trouble);
}

void EngineRunner::TakeSolution() {
  std::optional<event::AllocationReady> answer = solver_->TakeAnswer();
  if (!answer) return;
  if (answer->result.outcome == SolveOutcome::kFailed) {
    parts_.log.error("policy {}: {}", parts_.engine.operated().policy.name,
                     answer->result.detail);
  }
  CarryOut(Step(*std::move(answer)));
}

bool EngineRunner::IsOwner() {
  const absl::Status owner = journal_writer_.CheckLock();
  if (!owner.ok()) Halt(owner);
  return owner.ok();
}

void EngineRunner::NoteLaunch(const WorkerLaunched& launched) {
  Log(facts_.Of(launched, parts_.engine));
}

void EngineRunner::Carry(action::Persist&& action) {
  parts_.clients.Note(*action.event);
  for (const Fact& fact : facts_.Observe(*action.event, parts_.engine)) {
    Log(fact);
  }
  journal_writer_.Append(std::move(action), parts_.engine);
}

void EngineRunner::Carry(action::SolvePolicy&& action) {
  solver_->Solve(std::move(action));
}

// A renewal writes no row, so a commit can't show that a successor has taken
// the journal. This process may have been suspended since the worker asked, and
// the successor may count the lease as over: so the lock is checked. A
// successor that starts after the check waits as long as this grant, which
// counts from the request.
void EngineRunner::Carry(action::SendToWorker&& action) {
  if (std::holds_alternative<LeaseGrant>(action.message) && !IsOwner()) return;
  parts_.peers.SendToWorker(action.worker, std::move(action.message));
}

void EngineRunner::Carry(action::SendToAgent&& action) {
  if (const auto* rejected = std::get_if<AgentRejected>(&action.message)) {
    Log(ClusterFacts::Of(*rejected));
  } else if (const auto* stop = std::get_if<StopWorker>(&action.message)) {
    Log(facts_.Of(Now(), *stop, parts_.engine));
  }
  if (auto* welcome = std::get_if<AgentWelcome>(&action.message)) {
    welcome->cluster_id = cluster_id_;
  }
  parts_.peers.SendToAgent(action.server, std::move(action.message));
}

void EngineRunner::Carry(action::SendToBidder&& action) {
  parts_.peers.SendToBidder(action.bidder, std::move(action.message));
}

void EngineRunner::Carry(action::Reply&& action) {
  parts_.clients.Answer(action);
}

void EngineRunner::Carry(action::Halt&& action) {
  Halt(absl::AbortedError(action.reason));
}

void EngineRunner::Halt(absl::Status why) {
  if (!halted_.ok()) return;
  halted_ = std::move(why);
}

void EngineRunner::Log(const std::optional<Fact>& fact) {
  if (fact.has_value()) parts_.log.log(fact->level, "{}", fact->text);
}

}  // namespace gavel
