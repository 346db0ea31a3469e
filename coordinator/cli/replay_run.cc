#include "coordinator/cli/replay_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/related_jobs.h"
#include "coordinator/policy/own_bids.h"
#include "coordinator/policy/policy.h"
#include "coordinator/server/coordinator_server.h"
#include "coordinator/server/journal.h"
#include "coordinator/server/journal_writer.h"
#include "coordinator/workload/job_array.h"
#include "core/codec.h"
#include "core/messages.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// ---- Events and actions in words, one line each ----

std::string WorkerText(const WorkerKey& key) {
  return StrCat("job ", key.job.value(), " rank ", key.rank, " #",
                key.incarnation);
}

std::string AcceleratorText(AcceleratorId id, const Engine& engine) {
  if (id.value() == 0 || id.value() > engine.cluster().accelerators().size()) {
    return StrCat("accelerator ", id.value());
  }
  const AcceleratorInfo& info = engine.cluster().accelerator(id).info;
  return StrCat(info.uuid, " (", info.type, ")");
}

std::string PlacesText(const event::UnitPlaces& places, const Engine& engine) {
  std::string text;
  for (const auto& [unit, where] : places) {
    StrAppend(&text, text.empty() ? "" : "; ", "job ", unit.job.value());
    if (unit.packed()) StrAppend(&text, "+", unit.partner.value());
    for (const AcceleratorId id : where) {
      StrAppend(&text, id == where.front() ? " on " : ", ",
                AcceleratorText(id, engine));
    }
  }
  return text.empty() ? "nobody" : text;
}

std::string Steps(const Progress& progress) {
  return StrCat("at step ", progress.steps_done);
}

// The reason why a process leaves when its lease ends; empty if it stays.
std::string LeavesText(const WorkerKey& key, const Engine& engine) {
  const auto job = engine.jobs().find(key.job);
  if (job == engine.jobs().end()) return "";
  const auto rank = static_cast<size_t>(key.rank);
  if (rank >= job->second.workers.size()) return "";
  const Worker& worker = job->second.workers[rank];
  if (!worker.leaving || !worker.held.valid()) return "";
  const AcceleratorInfo& info = engine.cluster().accelerator(worker.held).info;
  if (!info.exclusive) return "";
  return StrCat(", and leaves: one process at a time may use ", info.uuid);
}

std::string Body(const event::CoordinatorStarted& e, const Engine&) {
  return StrCat("term ", e.term, ", rounds of ", e.round_duration_s,
                " s, leases of ", e.lease_duration_s, " s",
                e.policy.empty() ? "" : StrCat(", ", e.policy));
}
std::string Body(const event::JobSubmitted& e, const Engine&) {
  const size_t elements = IndicesOf(e.spec).size();
  return StrCat("\"", e.spec.name, "\", scale factor ", e.spec.scale_factor,
                ", weight ", e.spec.weight,
                elements > 0 ? StrCat(", array of ", elements, " jobs") : "");
}
std::string Body(const event::JobCommanded& e, const Engine&) {
  return StrCat(CommandName(e.kind), " job ", e.job.value(),
                e.elements.empty() ? "" : StrCat("_[", e.elements, "]"),
                e.by.empty() ? "" : StrCat(" by operator ", e.by));
}
std::string Body(const event::AcceleratorsDrained& e, const Engine&) {
  return StrCat(e.drained ? "drain " : "resume ", e.server,
                e.uuid.empty() ? "" : "/", e.uuid,
                e.by_agent ? ", whose agent ends" : "",
                e.why.empty() ? "" : ": ", e.why);
}
std::string Body(const event::JobUpdated& e, const Engine&) {
  return StrCat("job ", e.job.value());
}
std::string Body(const event::PolicyChanged& e, const Engine&) {
  if (!e.introspection.has_value()) return e.policy;
  return StrCat(e.policy, ", introspection ", *e.introspection ? "on" : "off");
}
std::string Body(const event::ServerForgotten& e, const Engine&) {
  return e.server;
}
std::string Body(const event::ServerJoined& e, const Engine&) {
  return StrCat(e.hello.server, " with ", e.hello.accelerators.size(),
                " accelerators, ", e.hello.running.size(), " workers run");
}
std::string Body(const event::ServerLost& e, const Engine&) {
  return StrCat(e.server, e.left ? ", whose agent has ended" : "");
}
std::string Body(const event::AcceleratorLost& e, const Engine&) {
  return StrCat(e.uuid, " on ", e.server,
                e.job.valid() ? StrCat(", job ", e.job.value(),
                                       " could not use it; its log tells why")
                              : "");
}
std::string Body(const event::WorkerJoined& e, const Engine&) {
  return StrCat(WorkerText(e.hello.worker), ", ", Steps(e.hello.progress));
}
std::string Body(const event::LeaseStarted& e, const Engine& engine) {
  return StrCat(WorkerText(e.worker), " epoch ", e.epoch, " on ",
                AcceleratorText(e.accelerator, engine));
}
std::string Body(const event::LeaseEnded& e, const Engine& engine) {
  return StrCat(WorkerText(e.worker), " epoch ", e.epoch, ", ",
                Steps(e.progress), e.finished ? ", finished" : "",
                LeavesText(e.worker, engine));
}
std::string Body(const event::StepsReported& e, const Engine&) {
  return StrCat(
      WorkerText(e.worker), ", ", Steps(e.progress),
      absl::StrFormat(", %.4g steps/s", e.progress.throughput_steps_per_s));
}
std::string Body(const event::WorkerGone& e, const Engine&) {
  return StrCat(
      WorkerText(e.exit.worker), ", exit ", e.exit.exit_code, " signal ",
      e.exit.signal, e.exit.launch_error.empty() ? "" : ", ",
      e.exit.launch_error, e.exit.error_line.empty() ? "" : ", ",
      e.exit.error_line, event::EndedUnfinished(e) ? ", without Finish()" : "",
      e.hung_s > 0 ? absl::StrFormat(", hung for %.0f s", e.hung_s) : "");
}
std::string Body(const event::WorkerAbandoned& e, const Engine&) {
  return WorkerText(e.worker);
}
std::string Body(const event::AllocationReady& e, const Engine&) {
  return StrCat(OutcomeName(e.result.outcome), " by ", e.result.solver,
                absl::StrFormat(", objective %.6g", e.result.objective), ", ",
                e.result.is_assignment ? e.result.assignment.size()
                                       : e.result.allocation.units().size(),
                " units");
}
std::string Body(const event::RoundPlanned& e, const Engine& engine) {
  return PlacesText(e.places, engine);
}
std::string Body(const event::UnitsAssigned& e, const Engine& engine) {
  return PlacesText(e.places, engine);
}
std::string Body(const event::RoundStarted& e, const Engine& engine) {
  return StrCat("round ", engine.rounds() + 1, ", ", e.tiers.size(),
                " pauses that are not to host memory");
}
std::string Body(const event::PricesChanged& e, const Engine&) {
  return StrCat(e.prices.size(), " types");
}
std::string Body(const event::WorkersEvicted& e, const Engine&) {
  return absl::StrJoin(e.workers, ", ", [](std::string* out, const auto& one) {
    *out += WorkerText(one);
  });
}
std::string Body(const event::JobsResized& e, const Engine&) {
  return absl::StrJoin(e.resizes, ", ", [](std::string* out, const auto& one) {
    StrAppend(out, "job ", one.job.value(), " to ", one.scale_factor);
  });
}
std::string Body(const event::TimeReached& e, const Engine& engine) {
  const Job* const job = engine.FindJob(e.job);
  if (e.idle) return StrCat("job ", e.job.value(), " was idle for too long");
  // The event is yet to be applied.
  const bool runs = job != nullptr && job->active();
  return StrCat("job ", e.job.value(),
                runs ? " has run for its time_limit" : " may start now");
}
std::string Body(const event::ParentsEnded& e, const Engine& engine) {
  const Job* const job = engine.FindJob(e.job);
  // The event is yet to be applied.
  const bool cancelled =
      job != nullptr && std::ranges::any_of(job->parents, &Parent::failed);
  return StrCat("job ", e.job.value(),
                cancelled ? " is cancelled, as a parent failed"
                          : " need not wait for other jobs any more");
}
std::string Body(const event::AppGoalSet& e, const Engine&) {
  std::string text = StrCat("app ", e.goal.app);
  if (!e.owner.empty()) StrAppend(&text, " of ", e.owner);
  if (e.goal.ended) {
    return StrCat(text, " has ended, as its optimiser ",
                  e.given_up ? "is silent" : "says");
  }
  StrAppend(&text,
            absl::StrFormat(", %.6g steps to come", e.goal.steps_to_come));
  if (e.goal.stop_at == 0) return text;
  return StrCat(text, absl::StrFormat(", jobs stop at %.6g", e.goal.stop_at));
}
std::string Body(const event::TrialsNoted& e, const Engine&) {
  constexpr const char* kKinds[] = {"beside", "to vacated accelerators",
                                    "to one server", "away from", "for"};
  constexpr const char* kStages[] = {"tried", "kept", "undone", "over"};
  return absl::StrJoin(e.trials, ", ", [&](std::string* out, const auto& one) {
    StrAppend(out, "job ", one.job.value(), " ",
              kKinds[static_cast<size_t>(one.kind)],
              one.other.valid() ? StrCat(" job ", one.other.value()) : "", " ",
              kStages[static_cast<size_t>(one.stage)]);
  });
}
template <class E>
std::string Body(const E&, const Engine&) {
  return "";
}

void Add(std::set<JobId>& jobs, const event::UnitPlaces& places) {
  for (const auto& [unit, where] : places) {
    jobs.insert(unit.job);
    if (unit.packed()) jobs.insert(unit.partner);
  }
}

// "LeaseStarted: job 1 rank 0 epoch 2 on here-0 (v100)". `engine` knows the
// accelerators.
std::string EventText(const Event& event, const Engine& engine) {
  const std::string body =
      std::visit([&](const auto& e) { return Body(e, engine); }, event);
  return StrCat(EventName(event), body.empty() ? "" : ": ", body);
}

// "LeaseGrant to job 1 rank 0"; empty for an action that only keeps the books.
std::string ActionText(const Action& action) {
  if (const auto* worker = std::get_if<action::SendToWorker>(&action)) {
    return StrCat(MessageName(worker->message), " to ",
                  WorkerText(worker->worker));
  }
  if (const auto* agent = std::get_if<action::SendToAgent>(&action)) {
    return StrCat(MessageName(agent->message), " to agent ", agent->server);
  }
  if (const auto* solve = std::get_if<action::SolvePolicy>(&action)) {
    return StrCat("solve for ", solve->problem->jobs.size(), " jobs");
  }
  if (const auto* halt = std::get_if<action::Halt>(&action)) {
    return StrCat("halt: ", halt->reason);
  }
  return "";
}

// The jobs that the event names.
std::set<JobId> JobsOf(const Event& event) {
  std::set<JobId> jobs;
  std::visit(
      [&]<class E>(const E& e) {
        if constexpr (requires { e.worker.job; }) {
          jobs.insert(e.worker.job);
        } else if constexpr (requires { e.hello.worker.job; }) {
          jobs.insert(e.hello.worker.job);
        } else if constexpr (requires { e.exit.worker.job; }) {
          jobs.insert(e.exit.worker.job);
        } else if constexpr (requires { e.job; }) {
          jobs.insert(e.job);
        } else if constexpr (requires { e.places; }) {
          Add(jobs, e.places);
        } else if constexpr (requires { e.resizes; }) {
          for (const Resize& resize : e.resizes) jobs.insert(resize.job);
        } else if constexpr (requires { e.workers; }) {
          for (const WorkerKey& worker : e.workers) jobs.insert(worker.job);
        }
      },
      event);
  return jobs;
}

// The first of these jobs: a step gives reasons for so many.
std::set<JobId> FirstOf(const std::vector<JobId>& jobs) {
  constexpr size_t kTold = 16;
  return {jobs.begin(),
          jobs.begin() + static_cast<ptrdiff_t>(std::min(jobs.size(), kTold))};
}

// ---- The replay ----

// Shares that differ by less are the solver's dust.
constexpr double kShareTolerance = 1e-6;
constexpr size_t kDifferencesMax = 8;

// The part of the file that is read: the state that it begins with, and the
// rows from there.
struct Incident {
  std::optional<JournalSnapshot> start;
  std::vector<JournalRow> rows;
  uint64_t last_row = 0;  // of the journal
};

// The name of the policy that decides from this event on; empty: as before.
std::string PolicyFrom(const Event& event) {
  return std::visit(
      [](const auto& e) -> std::string {
        if constexpr (requires { e.policy; }) return e.policy;
        return "";
      },
      event);
}

// Time passes only as far as rows say so: nobody is given up in between.
EngineOptions Patient(EngineOptions options) {
  options.drift = 1e9;
  options.pause_grace_s = kNever;
  options.agent_timeout_s = kNever;
  options.launch_timeout_s = kNever;
  options.gang_timeout_s = kNever;
  options.app_timeout_s = kNever;
  options.report_interval_s = 0;  // only those that were journaled come
  return options;
}

// One consistent view of a file that may be written meanwhile.
absl::StatusOr<Incident> ReadIncident(const ReplayOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(SqliteDatabase database,
                         SqliteDatabase::OpenReadOnly(options.path));
  GAVEL_RETURN_IF_ERROR(database.Execute("BEGIN"));
  GAVEL_RETURN_IF_ERROR(CheckJournalFormat(database, Journal::kFormatVersion));
  GAVEL_ASSIGN_OR_RETURN(const ChainEnd base, ReadChainBase(database));
  GAVEL_ASSIGN_OR_RETURN(const auto snapshots, ListSnapshots(database));
  // Where rows were pruned there is nothing to begin from but a snapshot.
  uint64_t before = options.from;
  if (base.position.seq > 0 && !snapshots.empty()) {
    before = std::max(before, snapshots.back() + 1);
  }
  Incident incident;
  RecoverInto into;
  into.before = before;
  into.begin = [&](const JournalSnapshot* snapshot) {
    if (snapshot != nullptr) incident.start = *snapshot;
    return absl::OkStatus();
  };
  into.take = [&](const JournalRow& row) {
    incident.rows.push_back(row);
    return absl::OkStatus();
  };
  GAVEL_ASSIGN_OR_RETURN(const ChainEnd end, RecoverChain(database, into));
  incident.last_row = end.position.seq;
  if (options.from > 1 && options.from > incident.last_row) {
    return absl::OutOfRangeError(
        StrCat("--from ", options.from, " is behind the last row, ",
               incident.last_row, "; give a row of the journal"));
  }
  return incident;
}

std::string Instead(std::span<const Event> decided, const Engine& engine) {
  if (decided.empty()) return "nothing";
  return absl::StrJoin(decided, "; ", [&](std::string* out, const Event& one) {
    *out += EventText(one, engine);
  });
}

// A deadline or a message that is not journaled: the engine decides it.
bool IsDecision(const Event& event, Time at) {
  const auto* drained = std::get_if<event::AcceleratorsDrained>(&event);
  if (drained != nullptr) return drained->until > 0 && at >= drained->until;
  return std::holds_alternative<event::LeaseStarted>(event) ||
         std::holds_alternative<event::RoundPlanned>(event) ||
         std::holds_alternative<event::RoundStarted>(event) ||
         std::holds_alternative<event::UnitsAssigned>(event) ||
         std::holds_alternative<event::WorkersEvicted>(event) ||
         std::holds_alternative<event::JobsResized>(event);
}

class Replay {
 public:
  Replay(const ReplayOptions& options, EngineOptions engine_options,
         std::unique_ptr<Policy> policy)
      : options_(options),
        engine_options_(Patient(std::move(engine_options))),
        policy_(std::move(policy)),
        then_(engine_options_),
        now_(engine_options_) {}

  absl::Status Begin(const Incident& incident) {
    for (const JournalRow& row : incident.rows) {
      const absl::StatusOr<Event> event = DecodeEvent(row.row);
      const auto* ready =
          event.ok() ? std::get_if<event::AllocationReady>(&*event) : nullptr;
      if (ready != nullptr) states_[ready->problem_seq];
    }
    if (!incident.start) return absl::OkStatus();
    return UnpackSnapshot(incident.start->bytes, engine_options_, &then_,
                          &projector_);
  }

  // The rows of one step.
  absl::StatusOr<ReplayStep> Take(std::span<const JournalRow> rows) {
    std::vector<Event> events;
    for (const JournalRow& row : rows) {
      absl::StatusOr<Event> event = DecodeEvent(row.row);
      GAVEL_RETURN_IF_ERROR(Annotate(event.status(), StrCat("row ", row.seq)));
      GAVEL_RETURN_IF_ERROR(TakePolicy(*event));
      events.push_back(*std::move(event));
    }
    ReplayStep step{rows.front().seq,
                    rows.back().seq,
                    rows.front().term,
                    rows.front().time,
                    0,
                    {},
                    {},
                    {},
                    {},
                    {},
                    {}};
    const bool within = step.last_row >= options_.from;
    if (within) Decide(step.time, events, &step);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (within) step.events.push_back(EventText(events[i], then_));
      then_.Replay(rows[i].seq, rows[i].term, rows[i].time, events[i]);
      if (const auto state = states_.find(rows[i].seq);
          state != states_.end() && options_.solve) {
        if (auto bytes = then_.Snapshot(); bytes.ok()) {
          state->second = *std::move(bytes);
        }
      }
      step.jobs.merge(JobsOf(events[i]));
      // Their ids are the engine's to give: the next ones.
      if (std::holds_alternative<event::JobSubmitted>(events[i])) {
        step.jobs.merge(FirstOf(LastSubmitted(then_.jobs())));
      } else if (const auto* commanded =
                     std::get_if<event::JobCommanded>(&events[i])) {
        step.jobs.merge(FirstOf(NamedJobs(then_.jobs(), *commanded)));
      }
      projector_.Observe(rows[i].seq, rows[i].time, events[i], then_);
    }
    if (projector_.WallTime(0) > 0) {
      step.wall_s = projector_.WallTime(step.time);
    }
    if (within) AddReasons(&step);
    Count(step);
    return step;
  }

  ReplaySummary summary;

 private:
  // A coordinator that starts names its policy, and a person may set another.
  // Where one is asked for, that one decides all along, in its own way.
  absl::Status TakePolicy(Event& event) {
    const std::string name = PolicyFrom(event);
    if (!options_.policy.empty()) {
      if (auto* changed = std::get_if<event::PolicyChanged>(&event)) {
        changed->packing = policy_->packs();
        changed->progress = policy_->reads_progress();
      }
      auto* started = std::get_if<event::CoordinatorStarted>(&event);
      if (started == nullptr) return absl::OkStatus();
      EngineOptions set_up = engine_options_;
      SetUpFor(*policy_, &set_up);
      started->settings.packing = set_up.packing;
      started->settings.pair_trials = set_up.pair_trials;
      started->settings.progress = set_up.progress;
      return absl::OkStatus();
    }
    if (name.empty() || name == policy_->name()) return absl::OkStatus();
    GAVEL_ASSIGN_OR_RETURN(policy_, MakePolicy(name));
    return absl::OkStatus();
  }

  // The decision of the engine of this build for the same first event.
  struct Decision {
    std::vector<Event> events;
    Actions actions;
  };

  void Decide(Time at, const std::vector<Event>& events, ReplayStep* step) {
    if (std::holds_alternative<event::CoordinatorStarted>(events.front())) {
      in_step_ = false;  // it would journal this build's options
      return;
    }
    if (!in_step_) Follow();
    std::optional<Decision> decision = Again(at, events, step);
    if (!decision || decision->events.size() != events.size() ||
        !Same(events, decision->events) || !step->differences.empty()) {
      // It may only have gone astray before; and what the policy was asked
      // then may be of this state, or of an earlier one.
      Follow();
      step->differences.clear();
      decision = Again(at, events, step);
    }
    in_step_ = decision && Same(events, decision->events);
    const bool decided = events.size() > 1 || IsDecision(events.front(), at) ||
                         (decision && decision->events.size() > 1);
    if (decision) {
      for (const Action& action : decision->actions) {
        if (std::string text = ActionText(action); !text.empty()) {
          step->actions.push_back(std::move(text));
        }
      }
    }
    if (!step->differences.empty()) {
      step->verdict = ReplayVerdict::kOther;
    } else if (in_step_) {
      if (decided) step->verdict = ReplayVerdict::kSame;
    } else if (!decision || decision->events.empty()) {
      step->verdict = ReplayVerdict::kNotTold;
    } else {
      step->verdict = ReplayVerdict::kOther;
      step->differences.push_back(Instead(decision->events, then_));
    }
  }

  // This build's engine as the journal has it.
  void Follow() {
    problem_.reset();
    now_ = Engine(engine_options_);
    if (const auto bytes = then_.Snapshot(); bytes.ok()) {
      in_step_ = now_.Restore(*bytes).ok();
    }
  }

  std::optional<Decision> Again(Time at, const std::vector<Event>& events,
                                ReplayStep* step) {
    Event first = events.front();
    if (auto* ready = std::get_if<event::AllocationReady>(&first)) {
      if (!problem_) Step(at, event::Tick{});
      if (!problem_) return std::nullopt;
      if (options_.solve) CompareSolve(*ready, *ProblemOf(*ready), step);
      ready->epoch = problem_->epoch;
      problem_.reset();
    } else if (const auto* lease = std::get_if<event::LeaseStarted>(&first)) {
      LeaseRequest request;
      request.worker = lease->worker;
      request.epoch = lease->epoch;
      request.nonce = ++nonce_;
      first = event::LeaseRequested{request};
    } else if (IsDecision(first, at)) {
      first = event::Tick{};
    }
    return Step(at, first);
  }

  Decision Step(Time at, const Event& event) {
    Decision decision;
    Collect(now_.Step(at, event), &decision);
    Collect(now_.Step(at, event::Persisted{now_.position().seq}), &decision);
    return decision;
  }

  void Collect(Actions actions, Decision* decision) {
    for (Action& action : actions) {
      if (const auto* row = std::get_if<action::Persist>(&action)) {
        if (auto event = DecodeEvent(row->row); event.ok()) {
          decision->events.push_back(*std::move(event));
        }
      } else {
        if (auto* solve = std::get_if<action::SolvePolicy>(&action)) {
          problem_ = *solve;
        }
        decision->actions.push_back(std::move(action));
      }
    }
  }

  // Ignores the epochs of solves, which restart with the process, and the time
  // at which a problem was made, which depends on the disk.
  static bool Same(const std::vector<Event>& then,
                   const std::vector<Event>& now) {
    return std::ranges::equal(then, now, [](Event a, Event b) {
      for (Event* event : {&a, &b}) {
        if (auto* ready = std::get_if<event::AllocationReady>(event)) {
          ready->epoch = 0;
          ready->problem_at = 0;
          ready->problem_seq = 0;
        }
      }
      return EncodeEvent(a) == EncodeEvent(b);
    });
  }

  // The problem that was solved then, built from the state and the time that
  // the answer names. If the state is missing, as for older builds, it is the
  // problem of the latest state.
  std::shared_ptr<const PolicyProblem> ProblemOf(
      const event::AllocationReady& then) const {
    const auto state = states_.find(then.problem_seq);
    if (state == states_.end() || state->second.empty()) {
      return problem_->problem;
    }
    Engine engine(engine_options_);
    if (!engine.Restore(state->second).ok()) return problem_->problem;
    for (const Action& action :
         engine.Step(then.problem_at, event::Persisted{then.problem_seq})) {
      if (const auto* solve = std::get_if<action::SolvePolicy>(&action)) {
        return solve->problem;
      }
    }
    return problem_->problem;
  }

  // The row, not the state, has the bids and divisions of apps that bid
  // themselves.
  void CompareSolve(const event::AllocationReady& then, PolicyProblem problem,
                    ReplayStep* step) {
    ++summary.solves;
    const auto is_of_problem = [&](const OwnAnswer& own) {
      return own.app >= 0 && std::cmp_less(own.app, problem.apps.size());
    };
    for (const OwnAnswer& own : then.own) {
      if (!is_of_problem(own)) continue;
      problem.apps[static_cast<size_t>(own.app)].bid = own.bid;
    }
    PolicyResult now = policy::GuardedSolve(*policy_, problem);
    std::map<int, std::vector<JobPlace>> places;
    for (const OwnAnswer& own : then.own) {
      if (own.places.empty() || !is_of_problem(own)) continue;
      places[own.app] = own.places;
    }
    // A division that is not possible shows as another assignment.
    policy::Divide(problem, places, now.assignment);
    if (now.outcome != then.result.outcome ||
        now.is_assignment != then.result.is_assignment) {
      step->differences.push_back(StrCat("another outcome of the policy ",
                                         policy_->name(), " ", now.detail));
      return;
    }
    if (now.is_assignment) {
      // The engine keeps them by unit.
      const auto by_unit = [](std::vector<TypeAssignment> assignment) {
        std::ranges::sort(assignment, {}, &TypeAssignment::unit);
        return assignment;
      };
      if (by_unit(now.assignment) != by_unit(then.result.assignment)) {
        step->differences.push_back(
            StrCat("another assignment, of ", now.assignment.size(), " units"));
      }
      return;
    }
    CompareShares(then.result.allocation, now.allocation, problem.types, step);
  }

  void CompareShares(const Allocation& then, const Allocation& now,
                     const std::vector<std::string>& types,
                     ReplayStep* step) const {
    std::set<ShareUnit> units(then.units().begin(), then.units().end());
    units.insert(now.units().begin(), now.units().end());
    for (const ShareUnit& unit : units) {
      const std::vector<double> a = then.Row(unit);
      const std::vector<double> b = now.Row(unit);
      for (size_t c = 0; c < std::min(a.size(), b.size()); ++c) {
        if (std::abs(a[c] - b[c]) <= kShareTolerance) continue;
        if (step->differences.size() == kDifferencesMax) return;
        step->differences.push_back(absl::StrFormat(
            "allocation: job %d on %s %.6f, was %.6f", unit.job.value(),
            c < types.size() ? types[c] : "?", b[c], a[c]));
      }
    }
  }

  void AddReasons(ReplayStep* step) const {
    for (const JobId id : step->jobs) {
      if (options_.job.valid() && id != options_.job) continue;
      if (!then_.jobs().contains(id)) continue;
      step->reasons.push_back(StrCat("job ", id.value(), " ",
                                     RenderReason(then_.Why(id, step->time))));
    }
  }

  void Count(const ReplayStep& step) {
    ++summary.steps;
    summary.rows += step.last_row - step.first_row + 1;
    summary.decided += step.verdict != ReplayVerdict::kNothing;
    summary.same += step.verdict == ReplayVerdict::kSame;
    summary.other += step.verdict == ReplayVerdict::kOther;
    summary.not_told += step.verdict == ReplayVerdict::kNotTold;
  }

  const ReplayOptions& options_;
  const EngineOptions engine_options_;
  std::unique_ptr<Policy> policy_;
  // By the last row before a problem was made: a snapshot of the engine after
  // that row; empty until the replay has reached it.
  std::map<uint64_t, std::string> states_;
  Engine then_;  // as the journal says
  Engine now_;   // decides again
  HistoryProjector projector_;
  bool in_step_ = false;  // now_ is where then_ is
  std::optional<action::SolvePolicy> problem_;
  uint64_t nonce_ = uint64_t{1} << 62;
};

// The setup of the coordinator at the first row that is read. Later changes are
// followed.
event::CoordinatorStarted SetUpAt(const ReplayOptions& options,
                                  const Incident& incident) {
  event::CoordinatorStarted found;
  if (incident.start) {
    Engine engine{EngineOptions()};
    HistoryProjector projector;
    if (UnpackSnapshot(incident.start->bytes, {}, &engine, &projector).ok()) {
      found.policy = projector.policy();
      found.round_duration_s = projector.round_duration_s();
    }
  }
  for (const JournalRow& row : incident.rows) {
    if (incident.start) break;
    const absl::StatusOr<Event> event = DecodeEvent(row.row);
    const auto* started =
        event.ok() ? std::get_if<event::CoordinatorStarted>(&*event) : nullptr;
    if (started == nullptr) continue;
    found = *started;
    break;
  }
  if (!options.policy.empty()) found.policy = options.policy;
  if (found.policy.empty()) found.policy = "max_min_fairness_perf";
  return found;
}

}  // namespace

absl::StatusOr<ReplaySummary> ReplayJournal(
    const ReplayOptions& options,
    const std::function<bool(const ReplayStep&)>& show) {
  absl::StatusOr<Incident> incident = ReadIncident(options);
  GAVEL_RETURN_IF_ERROR(Annotate(incident.status(), options.path));
  const event::CoordinatorStarted set_up = SetUpAt(options, *incident);
  GAVEL_ASSIGN_OR_RETURN(auto policy, MakePolicy(set_up.policy));
  EngineOptions engine_options;
  if (set_up.round_duration_s > 0) {
    engine_options.round_duration_s = set_up.round_duration_s;
  }
  SetUpFor(*policy, &engine_options);
  Replay replay(options, engine_options, std::move(policy));
  GAVEL_RETURN_IF_ERROR(replay.Begin(*incident));
  const std::vector<JournalRow>& rows = incident->rows;
  bool named = !options.job.valid();
  for (size_t begin = 0; begin < rows.size();) {
    if (rows[begin].seq > options.to) break;
    size_t end = begin + 1;
    while (end < rows.size() && rows[end].time == rows[begin].time &&
           rows[end].term == rows[begin].term) {
      ++end;
    }
    GAVEL_ASSIGN_OR_RETURN(
        const ReplayStep step,
        replay.Take(std::span(rows).subspan(begin, end - begin)));
    const bool shown =
        step.last_row >= options.from &&
        (!options.job.valid() || step.jobs.contains(options.job));
    named |= shown;
    if (shown && !show(step)) break;
    begin = end;
  }
  if (!named) {
    return absl::NotFoundError(StrCat(options.path,
                                      ": none of the rows asked for names job ",
                                      options.job.value()));
  }
  return replay.summary;
}

}  // namespace gavel
