#include "coordinator/server/query/query.h"

#include <algorithm>
#include <map>
#include <string>

#include "coordinator/policy/policy.h"
#include "coordinator/server/query/json_page.h"
#include "coordinator/server/query/row_json.h"
#include "core/text.h"

namespace gavel {

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

Named<uint64_t> CountStates(const std::map<JobId, Job>& jobs) {
  Named<uint64_t> counts;
  for (const char* letters : {"PD", "R", "S", "CG", "CD", "F", "CA"}) {
    counts.emplace_back(letters, 0);
  }
  for (const auto& [id, job] : jobs) {
    ++std::ranges::find(
          counts, StateLetters(job),
          [](const auto& count) -> std::string_view { return count.first; })
          ->second;
  }
  return counts;
}

namespace {

StatusRow StatusOf(const QueryView& view) {
  const Engine& engine = view.engine;
  const EngineOptions& options = engine.options();
  const PolicyResult& result = engine.allocation();
  const TrialCost profiling = engine.ProfilingAt(view.now);
  const FailureRate& failures = engine.failure_rate();
  const std::string& instead_of = engine.operated().policy.instead_of;
  StatusRow row;
  row.term = engine.position().term;
  row.seq = engine.position().seq;
  row.now_s = view.now;
  row.policy = view.policy;
  row.policy_option = instead_of.empty() ? row.policy : instead_of;
  row.user_shares = options.user_shares;
  for (const PolicyEntity& entity : options.entities) {
    row.entities.push_back({entity.name, entity.weight, entity.policy});
  }
  row.mechanism = MechanismName(options.mechanism);
  row.queue = QueueName(options.queue);
  row.memory_rounds = options.memory_rounds;
  row.reset_interval_s = options.reset_interval_s;
  row.placement_sensitive = options.placement_sensitive;
  row.rounds = engine.rounds();
  row.round_duration_s = options.round_duration_s;
  row.lease_duration_s = options.lease_duration_s;
  if (engine.round_ends_at() != kNever) {
    row.round_ends_in_s = std::max(0.0, engine.round_ends_at() - view.now);
  }
  if (!result.solver.empty()) {
    row.outcome = OutcomeName(result.outcome);
    row.objective = result.objective;
    row.bound = result.bound;
    row.gap = result.gap;
    row.solver = result.solver;
  }
  row.detail = result.detail;
  row.kept_out = view.wire;
  row.profiling = {options.profiling_percentage, profiling.accelerators,
                   profiling.accelerator_s};
  row.failures = {failures.losses(), failures.busy_s(), failures.Interval_s()};
  row.troubles = view.troubles;
  row.jobs = view.counts == nullptr ? CountStates(engine.jobs()) : *view.counts;
  return row;
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
      reply.json = DumpJson(ToJson(StatusOf(view)));
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
