#include "coordinator/server/query/query.h"

#include <algorithm>
#include <map>
#include <string>

#include "coordinator/policy/share/outcome.h"
#include "coordinator/server/query/forecast_query.h"
#include "coordinator/server/query/json_page.h"
#include "coordinator/server/query/nodes_query.h"
#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string_view CodeName(ReasonCode code) {
  switch (code) {
    case ReasonCode::kNone:
      return "none";
    case ReasonCode::kRunning:
      return "running";
    case ReasonCode::kSubmitted:
      return "submitted";
    case ReasonCode::kNoServer:
      return "no_server";
    case ReasonCode::kPriority:
      return "priority";
    case ReasonCode::kNotInAllocation:
      return "not_in_allocation";
    case ReasonCode::kStarting:
      return "starting";
    case ReasonCode::kPausing:
      return "pausing";
    case ReasonCode::kEnding:
      return "ending";
    case ReasonCode::kWaitsForRelease:
      return "waits_for_release";
    case ReasonCode::kUnusable:
      return "unusable";
    case ReasonCode::kHeldFailures:
      return "held_failures";
    case ReasonCode::kHeldLaunch:
      return "held_launch";
    case ReasonCode::kCancelled:
      return "cancelled";
    case ReasonCode::kFinished:
      return "finished";
    case ReasonCode::kGangStarting:
      return "gang_starting";
    case ReasonCode::kHeldFetch:
      return "held_fetch";
    case ReasonCode::kHeldGang:
      return "held_gang";
    case ReasonCode::kRunningPacked:
      return "running_packed";
    case ReasonCode::kOutOfMemory:
      return "out_of_memory";
    case ReasonCode::kGrown:
      return "grown";
    case ReasonCode::kShrunkForJob:
      return "shrunk_for_job";
    case ReasonCode::kShrunkSlow:
      return "shrunk_slow";
    case ReasonCode::kShrunkToFit:
      return "shrunk_to_fit";
    case ReasonCode::kShrunkFailed:
      return "shrunk_failed";
    case ReasonCode::kMoving:
      return "moving";
    case ReasonCode::kStranded:
      return "stranded";
    case ReasonCode::kTooWide:
      return "too_wide";
    case ReasonCode::kStandsStill:
      return "stands_still";
    case ReasonCode::kHeldDevice:
      return "held_device";
    case ReasonCode::kTooExtreme:
      return "too_extreme";
    case ReasonCode::kHeldHungLaunch:
      return "held_hung_launch";
    case ReasonCode::kHeldSilent:
      return "held_silent";
    case ReasonCode::kHeldUnready:
      return "held_unready";
    case ReasonCode::kHeldHung:
      return "held_hung";
    case ReasonCode::kDrained:
      return "drained";
    case ReasonCode::kHeldByUser:
      return "held_by_user";
  }
  return "unknown";
}

std::string_view SourceName(ThroughputSource source) {
  switch (source) {
    case ThroughputSource::kGuessed:
      return "guessed";
    case ThroughputSource::kGiven:
      return "given";
    case ThroughputSource::kMeasured:
      return "measured";
  }
  return "unknown";
}

Json CountStates(const std::map<JobId, Job>& jobs) {
  Json counts = Json::object();
  for (const char* letters : {"PD", "R", "S", "CG", "CD", "F", "CA"}) {
    counts[letters] = 0;
  }
  for (const auto& [id, job] : jobs) {
    Json& count = counts[std::string(StateLetters(job))];
    count = count.get<int>() + 1;
  }
  return counts;
}

namespace {

void AnswerStatus(const QueryView& view, QueryReply* reply) {
  const Engine& engine = view.engine;
  const PolicyResult& result = engine.allocation();
  const bool solved = !result.solver.empty();
  const bool in_round = engine.round_ends_at() != kNever;
  const TrialCost profiling = engine.ProfilingAt(view.now);
  const FailureRate& failures = engine.failure_rate();
  Json entities = Json::array();
  for (const PolicyEntity& entity : engine.options().entities) {
    entities.push_back({{"name", entity.name},
                        {"weight", entity.weight},
                        {"policy", entity.policy}});
  }
  reply->json = DumpJson(
      {{"term", engine.position().term},
       {"seq", engine.position().seq},
       {"now_s", view.now},
       {"policy", view.policy},
       {"policy_option", engine.operated().policy.instead_of.empty()
                             ? Json(view.policy)
                             : Json(engine.operated().policy.instead_of)},
       {"user_shares", engine.options().user_shares},
       {"entities", std::move(entities)},
       {"mechanism", MechanismName(engine.options().mechanism)},
       {"queue", QueueName(engine.options().queue)},
       {"memory_rounds", engine.options().memory_rounds},
       {"reset_interval_s", engine.options().reset_interval_s},
       {"placement_sensitive", engine.options().placement_sensitive},
       {"rounds", engine.rounds()},
       {"round_duration_s", engine.options().round_duration_s},
       {"lease_duration_s", engine.options().lease_duration_s},
       {"round_ends_in_s",
        in_round ? Json(std::max(0.0, engine.round_ends_at() - view.now))
                 : Json()},
       {"outcome", solved ? Json(OutcomeName(result.outcome)) : Json()},
       {"objective", solved ? Json(result.objective) : Json()},
       {"bound", solved ? Json(result.bound) : Json()},
       {"gap", solved ? Json(result.gap) : Json()},
       {"solver", solved ? Json(result.solver) : Json()},
       {"detail", result.detail},
       {"kept_out",
        {{"frames_dropped", view.wire.frames_dropped},
         {"messages_refused", view.wire.messages_refused},
         {"connections_refused", view.wire.connections_refused},
         {"connections_cut", view.wire.connections_cut},
         {"handshakes_failed", view.wire.handshakes_failed}}},
       {"profiling",
        {{"percentage_max", engine.options().profiling_percentage},
         {"accelerators", profiling.accelerators},
         {"accelerator_s", profiling.accelerator_s}}},
       {"failures",
        {{"workers_lost", failures.losses()},
         {"busy_s", failures.busy_s()},
         {"interval_s", failures.Interval_s()}}},
       {"troubles", view.troubles},
       {"jobs",
        view.counts == nullptr ? CountStates(engine.jobs()) : *view.counts}});
}

bool IsPausing(const Job& job) {
  return std::ranges::any_of(job.workers, [](const Worker& worker) {
    return worker.finished ||
           (worker.held_epoch != 0 &&
            (worker.leaving || worker.pause_sent_at != kNever));
  });
}

// Its processes wait with their tensors in host memory.
bool IsPaused(const Job& job) {
  return std::ranges::any_of(job.workers, [](const Worker& worker) {
    return worker.process == ProcessState::kJoined &&
           worker.progress.pauses > 0;
  });
}

}  // namespace

std::string_view StateLetters(const Job& job) {
  switch (job.state) {
    case JobState::kFinished:
      return "CD";
    case JobState::kCancelled:
      return job.HoldsAny() ? "CG" : "CA";
    case JobState::kHeld:
      return job.HoldsAny() ? "CG" : "F";
    case JobState::kActive:
      break;
  }
  if (IsPausing(job)) return "CG";
  if (job.HoldsAny()) return "R";
  return IsPaused(job) ? "S" : "PD";
}

QueryReply AnswerQuery(const QueryRequest& request, const QueryView& view) {
  QueryReply reply;
  reply.request = request.request;
  switch (request.kind) {
    case QueryKind::kNodes:
      AnswerNodes(request, view, &reply);
      break;
    case QueryKind::kStatus:
      AnswerStatus(view, &reply);
      break;
    case QueryKind::kForecast:
      AnswerForecast(request, view, &reply);
      break;
    case QueryKind::kQueue:  // see queue_view.h
    case QueryKind::kWhy:
    case QueryKind::kHistory:  // is in the journal, not in the engine
      reply.error = "is not to be had here";
      break;
  }
  return reply;
}

}  // namespace gavel
