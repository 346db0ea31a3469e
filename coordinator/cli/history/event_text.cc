#include "coordinator/cli/history/event_text.h"

#include <variant>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/engine/event_codec.h"
#include "coordinator/policy/policy.h"
#include "core/codec.h"
#include "core/command_name.h"
#include "core/text.h"

namespace gavel {
namespace {

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

std::string Places(const event::UnitPlaces& places, const Engine& engine) {
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

// Of a lease that ends: what else its process goes for.
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
  return StrCat("\"", e.spec.name, "\", scale factor ", e.spec.scale_factor,
                ", weight ", e.spec.weight);
}
std::string Body(const event::JobCommanded& e, const Engine&) {
  return StrCat(CommandName(e.kind), " job ", e.job.value(),
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
  return e.policy;
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
  return Places(e.places, engine);
}
std::string Body(const event::UnitsAssigned& e, const Engine& engine) {
  return Places(e.places, engine);
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

}  // namespace

std::string EventText(const Event& event, const Engine& engine) {
  const std::string body =
      std::visit([&](const auto& e) { return Body(e, engine); }, event);
  return StrCat(EventName(event), body.empty() ? "" : ": ", body);
}

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

}  // namespace gavel
