#include "coordinator/server/engine_runner.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "coordinator/engine/operators.h"
#include "coordinator/engine/related_jobs.h"
#include "coordinator/policy/policy.h"
#include "coordinator/server/incoming.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"
#include "spdlog/spdlog.h"

namespace gavel {

// ---- Lines of the log

namespace {

using spdlog::level::err;
using spdlog::level::info;
using spdlog::level::warn;

std::string WorkerText(const WorkerKey& worker) {
  return StrCat("job ", worker.job.value(), " rank ", worker.rank);
}

std::string JobText(const Job& job) {
  return StrCat("job ", job.id.value(), " \"", job.spec.name, "\"");
}

// An element of an array that waits for its turn is not told of as held.
JobState StateOf(const Job& job) {
  return engine::WaitsForArray(job) ? JobState::kActive : job.state;
}

// Its owner ended or held it: that what started was ended is no failure.
bool IsTakenBack(const Engine& engine, JobId id) {
  const Job* job = engine.FindJob(id);
  return job != nullptr &&
         (job->state == JobState::kCancelled ||
          std::holds_alternative<reason::HeldByUser>(job->reason));
}

// Leaves out the program's output, which is for its owner and operators.
std::string HowItEnded(const event::WorkerGone& e) {
  const WorkerExited& exit = e.exit;
  if (!exit.launch_error.empty()) return exit.launch_error;
  if (exit.signal != 0) return StrCat("killed by signal ", exit.signal);
  return StrCat(
      "exit code ", exit.exit_code,
      EndedUnfinished(e)
          ? " without Finish(): it returned before, or a shell hid its "
            "exit code"
          : "");
}

const Worker* FindWorker(const Engine& engine, const WorkerKey& key) {
  const Job* job = engine.FindJob(key.job);
  const auto rank = static_cast<size_t>(key.rank);
  if (job == nullptr || key.rank < 0 || rank >= job->workers.size()) {
    return nullptr;
  }
  const Worker& worker = job->workers[rank];
  return worker.incarnation == key.incarnation ? &worker : nullptr;
}

// Null: nothing did.
const char* WhatWentWrong(ReleaseCause cause) {
  switch (cause) {
    case ReleaseCause::kOutOfMemory:
      return "ran out of the accelerator's memory";
    case ReleaseCause::kNoRoom:
      return "found the accelerator's memory taken by other processes";
    case ReleaseCause::kResumeFailed:
      return "could not start on its accelerator";
    case ReleaseCause::kPaused:
    case ReleaseCause::kDeviceFailed:
      break;
  }
  return nullptr;
}

}  // namespace

struct ClusterFacts::Observation {
  ClusterFacts& own;
  const Engine& engine;
  std::vector<Fact> facts = {};

  template <class... T>
  void Add(spdlog::level::level_enum level, const T&... parts) {
    facts.push_back({level, StrCat(parts...)});
  }

  void On(const event::CoordinatorStarted&) {
    own.jobs_.clear();
    for (const auto& [id, job] : engine.jobs()) {
      if (job.active() || job.state == JobState::kHeld)
        own.jobs_[id] = StateOf(job);
    }
    own.lost_.clear();
    for (const Accelerator& one : engine.cluster().accelerators()) {
      if (one.state == AcceleratorState::kLost) own.lost_.insert(one.id);
    }
  }

  void On(const event::JobSubmitted& e) {
    const std::vector<JobId> made = LastSubmitted(engine.jobs());
    if (made.empty()) return;
    for (const JobId id : made) own.jobs_[id] = StateOf(engine.jobs().at(id));
    const Job& job = engine.jobs().at(made.front());
    Add(info,
        job.array.valid() ? StrCat("array ", job.array.value(), " of ",
                                   made.size(), " jobs \"", e.spec.name, "\"")
                          : JobText(job),
        " submitted", e.spec.owner.empty() ? "" : StrCat(" by ", e.spec.owner),
        ", scale factor ", job.scale_factor);
  }

  // One line for all elements of an array.
  void On(const event::JobCommanded& e) {
    if (FirstElement(engine.jobs(), e.job) == nullptr) return LookAt(e.job);
    const std::vector<Fact> before = std::exchange(facts, {});
    for (const JobId id : NamedJobs(engine.jobs(), e)) LookAt(id);
    const size_t changed = facts.size();
    facts = before;
    if (changed == 0) return;
    Add(info, CommandName(e.kind), " of ", changed, " jobs of array ",
        e.job.value());
  }

  void On(const event::ParentsEnded& e) { LookAt(e.job); }

  // An operator need not see each change of the work left.
  void On(const event::AppGoalSet& e) {
    if (!e.goal.ended) return;
    Add(info, "app ", PrintableLine(e.goal.app, kNameBytesMax),
        e.owner.empty() ? "" : StrCat(" of ", e.owner), " has ended: ",
        e.given_up ? "it had no job, and its optimiser was silent"
                   : "its optimiser says so");
  }

  void On(const event::ServerJoined& e) {
    Add(info, "server ", e.hello.server,
        " joined: ", e.hello.accelerators.size(), " accelerators, ",
        e.hello.running.size(), " workers run");
    LookAtAll();
  }

  void On(const event::AcceleratorsDrained& e) {
    const std::string what = e.uuid.empty() ? StrCat("server ", e.server)
                                            : StrCat(e.server, "/", e.uuid);
    if (e.by_agent) {
      Add(info, what, ": its agent ends, and its jobs leave first");
    } else if (!e.drained) {
      Add(info, what, " is resumed");
    } else if (e.why.empty()) {
      Add(info, what, " is drained by an operator");
    } else {
      Add(warn, what, " is drained: ", e.why);
    }
    LookAtAll();
  }

  void On(const event::PolicyChanged& e) {
    const char* with = !e.introspection.has_value() ? ""
                       : *e.introspection           ? ", with introspection"
                                                    : ", without introspection";
    Add(info, "policy ", e.policy, " decides from now on", with);
  }

  void On(const event::ServerForgotten& e) {
    Add(info, "server ", e.server, " is forgotten");
  }

  void On(const event::ServerLost& e) {
    if (e.left) {
      Add(info, "server ", e.server, " is down: its agent has ended in order");
      return LookAtAll();
    }
    const auto accelerators = std::ranges::count_if(
        engine.cluster().accelerators(), [&](const Accelerator& other) {
          return other.server == e.server && !other.forgotten;
        });
    Add(warn, "server ", e.server, " is lost: its agent was silent for ",
        absl::StrFormat("%g", engine.options().agent_timeout_s), " s; its ",
        accelerators,
        " accelerators are unreachable, and what runs there trains "
        "on to the end of its leases. See that the agent runs and "
        "reaches this coordinator");
    LookAtAll();
  }

  void On(const event::AcceleratorLost& e) {
    const std::string what =
        StrCat("accelerator ", e.uuid, " of server ", e.server);
    const AcceleratorId id = engine.cluster().Find(e.server, e.uuid);
    if (e.job.valid()) {
      Add(warn, "job ", e.job.value(), " says that it could not use ", what,
          "; the job does not get it again; `gavel logs ", e.job.value(),
          "` tells more");
    }
    if (id.valid() &&
        engine.cluster().accelerator(id).state == AcceleratorState::kLost) {
      Add(err, what, " has failed",
          e.job.valid() ? ", as a second job says" : "",
          "; nobody gets it until the agent of ", e.server, " is started anew");
      own.lost_.insert(id);
    }
    LookAt(e.job);
  }

  void On(const event::WorkerJoined& e) { own.starting_.erase(e.hello.worker); }

  void On(const event::LeaseEnded& e) {
    if (const char* const what = WhatWentWrong(e.cause); what != nullptr) {
      Add(warn, WorkerText(e.worker), ": ", what, "; `gavel logs ",
          e.worker.job.value(), " --rank ", e.worker.rank, "` tells more");
    }
    LookAt(e.worker.job);
  }

  void On(const event::WorkerGone& e) {
    const WorkerExited& exit = e.exit;
    const std::string worker =
        StrCat(WorkerText(exit.worker), " on ", exit.server);
    const bool fine = exit.launch_error.empty() && exit.signal == 0 &&
                      (exit.exit_code == 0 || exit.exit_code == kExitEvicted) &&
                      e.end != event::ProcessEnd::kFailed;
    const bool unstarted = !exit.launch_error.empty() ||
                           (own.starting_.contains(exit.worker) && !fine);
    const bool taken_back =
        (exit.signal != 0 && IsTakenBack(engine, exit.worker.job)) ||
        (exit.stopped && e.end == event::ProcessEnd::kLeft);
    if (unstarted && !exit.no_failure && !taken_back) {
      Add(warn, worker, " failed to start: ", HowItEnded(e));
    } else {
      const bool expected =
          fine || exit.no_failure || exit.stopped || taken_back;
      Add(expected ? info : warn, worker, " ended: ", HowItEnded(e));
    }
    own.Forget(exit.worker);
    LookAt(exit.worker.job);
  }

  void On(const event::WorkerAbandoned& e) {
    const auto held = std::ranges::find_if(
        engine.quarantined(),
        [&](const auto& entry) { return entry.second == e.worker; });
    std::string text = StrCat(WorkerText(e.worker), ": ");
    if (held == engine.quarantined().end()) {
      text += "its server is lost; it is given up";
    } else {
      const Accelerator& accelerator =
          engine.cluster().accelerator(held->first);
      StrAppend(&text, "its lease on ", accelerator.info.uuid, " of server ",
                accelerator.server,
                " expired, and the agent there can't be asked; the accelerator "
                "stays quarantined until it can");
    }
    Add(warn, std::move(text));
    own.Forget(e.worker);
    LookAt(e.worker.job);
  }

  // Tells of a job that is held, released or over since it was last looked at.
  void LookAt(JobId id) {
    const auto known = own.jobs_.find(id);
    const Job* job = engine.FindJob(id);
    if (known == own.jobs_.end()) return;
    if (job == nullptr) {
      own.jobs_.erase(known);
      return;
    }
    const JobState state = StateOf(*job);
    if (state == known->second) return;
    known->second = state;
    switch (state) {
      case JobState::kActive:
        Add(info, JobText(*job), " is released");
        return;
      case JobState::kHeld:
        if (WaitsByItself(*job)) return;
        Add(warn, JobText(*job), " is ", RenderReason(ForOthers(job->reason)));
        return;
      case JobState::kFinished:
      case JobState::kCancelled:
        Add(info, JobText(*job), " is ", JobStateName(job->state));
        own.jobs_.erase(known);
    }
  }

  void LookAtAll() {
    std::vector<JobId> all;
    for (const auto& [id, state] : own.jobs_) all.push_back(id);
    for (const JobId id : all) LookAt(id);
  }

  // Tells of those that were lost and are not any more.
  void LookAtLost() {
    std::erase_if(own.lost_, [&](AcceleratorId id) {
      if (!id.valid()) return true;
      const Accelerator& accelerator = engine.cluster().accelerator(id);
      if (accelerator.state == AcceleratorState::kUsable) {
        Add(info, "accelerator ", accelerator.info.uuid, " of server ",
            accelerator.server, " counts as failed no longer: jobs may get it");
      }
      return accelerator.forgotten ||
             accelerator.state != AcceleratorState::kLost;
    });
  }

  template <class E>
  void On(const E&) {}
};

std::vector<Fact> ClusterFacts::Observe(const Event& event,
                                        const Engine& engine) {
  Observation seen{*this, engine};
  std::visit([&](const auto& e) { seen.On(e); }, event);
  seen.LookAtLost();
  return std::move(seen.facts);
}

std::optional<Fact> ClusterFacts::Of(const WorkerLaunched& launched,
                                     const Engine& engine) {
  if (FindWorker(engine, launched.worker) == nullptr ||
      !launched_.insert(launched.worker).second) {
    return std::nullopt;
  }
  // An opaque one runs from its launch on.
  if (!engine.FindJob(launched.worker.job)->spec.opaque()) {
    starting_.insert(launched.worker);
  }
  return Fact{info, StrCat(WorkerText(launched.worker), ": process ",
                           launched.pid, " on ", launched.server)};
}

std::optional<Fact> ClusterFacts::Of(Time now, const StopWorker& stop,
                                     const Engine& engine) {
  const Worker* worker = FindWorker(engine, stop.worker);
  if (worker == nullptr || stopping_.contains(stop.worker)) return std::nullopt;
  std::string why;
  if (worker->hung_s > 0) {
    why =
        absl::StrFormat("its loop has stood still for %.0f s", worker->hung_s);
  } else if (worker->held_epoch != 0 && now > worker->lease_expires &&
             worker->lease_expires > 0) {
    why = absl::StrFormat("its lease expired %.0f s ago, unrenewed",
                          now - worker->lease_expires);
  } else if (worker->process == ProcessState::kLaunching && !worker->leaving &&
             worker->launch_sent_at != kNever) {
    why = absl::StrFormat("it has not started within %.0f s",
                          now - worker->launch_sent_at);
  } else {
    return std::nullopt;
  }
  stopping_.insert(stop.worker);
  return Fact{warn, StrCat(WorkerText(stop.worker), " on ", stop.server, ": ",
                           why, "; its process is ended")};
}

Fact ClusterFacts::Of(const AgentRejected& rejected) {
  return {warn,
          StrCat("agent ", rejected.server, " is refused: ", rejected.reason)};
}

void ClusterFacts::Forget(const WorkerKey& worker) {
  launched_.erase(worker);
  starting_.erase(worker);
  stopping_.erase(worker);
}

// ---- The engine and its solver

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
