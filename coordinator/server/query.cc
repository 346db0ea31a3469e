#include "coordinator/server/query.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/policy/outcome.h"
#include "coordinator/server/forecast_query.h"
#include "coordinator/server/json_page.h"
#include "coordinator/server/nodes_query.h"
#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel {
namespace {

using Json = nlohmann::ordered_json;

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
    case ReasonCode::kHeldHung:
      return "held_hung";
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

bool IsOver(const Job& job) {
  return job.state == JobState::kFinished || job.state == JobState::kCancelled;
}

// What the ranks of a gang report, as one: they step together, so counts of
// steps are those of the slowest, and counts of pauses those of any.
struct JobProgress {
  uint64_t steps_done = 0;
  double steps_per_s = 0;  // 0 unless running
  uint64_t pauses = 0;
  uint64_t moves = 0;
  double pausing_s = 0;
  uint64_t incarnations = 0;
  Generation last_generation;
};

JobProgress Summarise(const Job& job) {
  JobProgress sum;
  for (const Worker& worker : job.workers) {
    const Progress& progress = worker.progress;
    const bool first = &worker == &job.workers.front();
    const double steps_per_s =
        worker.held_epoch != 0 ? progress.throughput_steps_per_s : 0;
    sum.steps_done = first ? progress.steps_done
                           : std::min(sum.steps_done, progress.steps_done);
    sum.steps_per_s =
        first ? steps_per_s : std::min(sum.steps_per_s, steps_per_s);
    sum.pauses = std::max(sum.pauses, progress.pauses);
    sum.moves = std::max(sum.moves, progress.moves);
    sum.pausing_s = std::max(sum.pausing_s, progress.pausing_s);
    sum.incarnations = std::max(sum.incarnations, worker.incarnation);
    sum.last_generation =
        std::max(sum.last_generation, progress.last_generation);
  }
  return sum;
}

Json HeldAccelerators(const Job& job, const Cluster& cluster) {
  Json list = Json::array();
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch == 0) continue;
    if (list.size() == kAcceleratorsPerRowMax) break;
    const Accelerator& held = cluster.accelerator(worker.held);
    list.push_back({{"server", held.server},
                    {"type", held.info.type},
                    {"uuid", held.info.uuid}});
  }
  return list;
}

Json ScalarsOf(const Job& job) {
  Json scalars = Json::object();
  if (job.workers.empty()) return scalars;
  for (const auto& [name, value] : job.workers.front().progress.scalars) {
    scalars[name] = value;
  }
  return scalars;
}

Json GenerationJson(Generation generation) {
  if (generation == Generation{}) return nullptr;
  return {{"epoch", generation.epoch}, {"step", generation.step}};
}

// How its last process ended, when that is why it is held.
Json ExitJson(const Reason& reason) {
  if (reason.code != ReasonCode::kHeldFailures) return nullptr;
  const int end = static_cast<int>(reason.second);
  return {{"failures", static_cast<int>(reason.first)},
          {"exit_code", end >= 0 ? Json(end) : Json()},
          {"signal", end < 0 ? Json(-end) : Json()}};
}

// What is booked, and what its workers have run since.
double ReceivedSeconds(const Job& job, Time now) {
  double seconds = job.received_s;
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch == 0) continue;
    seconds += std::max(0.0, now - worker.accrued_at) / worker.world_size;
  }
  return seconds;
}

// Why it is where it is, and where its tensors are meanwhile.
std::string ReasonText(const Job& job, const Reason& reason,
                       const Engine& engine) {
  std::string text = RenderReason(reason);
  const std::string size = job.active() ? RenderResize(job) : "";
  const std::string notes = job.active() ? engine.ThroughputNotes(job) : "";
  const std::string failure =
      job.active() && job.failures_in_a_row > 0 && !job.last_error.empty()
          ? StrCat("failed before with \"", job.last_error, "\"")
          : "";
  for (const std::string& part :
       {failure, size, engine.MemoryText(job), notes}) {
    if (!part.empty()) StrAppend(&text, "; ", part);
  }
  return text;
}

Json QueueRow(const Job& job, const QueryView& view) {
  const JobShares shares = view.engine.SharesOf(job.id, view.now);
  const Reason reason = view.engine.Why(job.id, view.now);
  const JobProgress progress = Summarise(job);
  const bool over = IsOver(job);
  return {{"id", job.id.value()},
          {"name", job.spec.name},
          {"state", StateLetters(job)},
          {"app", job.spec.app},
          {"entity", job.spec.entity},
          {"weight", job.spec.weight},
          {"scale_factor", job.scale_factor},
          {"scale_factor_asked", job.spec.scale_factor},
          {"scale_factor_min", job.spec.LeastWorkers()},
          {"scale_factor_max", job.spec.MostWorkers()},
          {"accelerators", HeldAccelerators(job, view.engine.cluster())},
          {"steps_done", progress.steps_done},
          {"steps_total", job.spec.steps_total},
          {"steps_per_s", progress.steps_per_s},
          {"scalars", ScalarsOf(job)},
          {"share_target", shares.target},
          {"share_got", shares.received},
          {"pauses", progress.pauses},
          {"moves", progress.moves},
          {"pausing_s", progress.pausing_s},
          {"epoch", job.epoch},
          {"incarnations", progress.incarnations},
          {"last_generation", GenerationJson(progress.last_generation)},
          {"reason", ReasonText(job, reason, view.engine)},
          {"memory", view.engine.MemoryText(job)},
          {"submitted_at_s", job.submitted_at},
          {"ended_at_s", over ? Json(job.ended_at) : Json()},
          {"age_s", (over ? job.ended_at : view.now) - job.submitted_at},
          {"received_s", ReceivedSeconds(job, view.now)},
          {"failures_in_a_row", job.failures_in_a_row},
          {"checkpoint_directory", job.spec.checkpoint_directory},
          {"exit", ExitJson(reason)}};
}

std::string NoSuchJob(JobId job) {
  return StrCat("there is no job ", job.value(), "; `gavel queue` lists them");
}

void AnswerQueue(const QueryRequest& request, const QueryView& view,
                 QueryReply* reply) {
  const std::map<JobId, Job>& jobs = view.engine.jobs();
  JsonPage page;
  if (request.job.valid()) {
    const auto it = jobs.find(request.job);
    if (it == jobs.end()) {
      reply->error = NoSuchJob(request.job);
    } else {
      page.Add(QueueRow(it->second, view));
    }
    reply->json = page.Take();
    return;
  }
  reply->next_cursor = page.AddFrom(jobs, request.cursor, [&](const Job& job) {
    return QueueRow(job, view);
  });
  reply->json = page.Take();
}

Json ThroughputsOf(const Job& job, const Engine& engine) {
  Json list = Json::array();
  for (const std::string& type : engine.cluster().types()) {
    const Throughput known = engine.throughputs().Get(job.id, type);
    const auto given = job.spec.throughputs.find(type);
    list.push_back(
        {{"type", type},
         {"steps_per_s", known.steps_per_s},
         {"given",
          given == job.spec.throughputs.end() ? Json() : Json(given->second)},
         {"source", engine.throughputs().IsExcluded(job.id, type)
                        ? "out of memory"
                        : SourceName(known.source)}});
  }
  return list;
}

void AnswerWhy(const QueryRequest& request, const QueryView& view,
               QueryReply* reply) {
  const auto it = view.engine.jobs().find(request.job);
  if (it == view.engine.jobs().end()) {
    reply->error = NoSuchJob(request.job);
    return;
  }
  const Job& job = it->second;
  const Reason reason = view.engine.Why(job.id, view.now);
  const JobShares shares = view.engine.SharesOf(job.id, view.now);
  const bool in_line = reason.code == ReasonCode::kPriority;
  reply->json = DumpJson(
      {{"job", job.id.value()},
       {"name", job.spec.name},
       {"state", StateLetters(job)},
       {"reason", ReasonText(job, reason, view.engine)},
       {"memory", view.engine.MemoryText(job)},
       {"code", CodeName(reason.code)},
       {"throughputs",
        IsOver(job) ? Json::array() : ThroughputsOf(job, view.engine)},
       {"share_target", shares.target},
       {"share_got", shares.received},
       {"place", in_line ? Json(static_cast<int>(reason.first)) : Json()}});
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

void AnswerStatus(const QueryView& view, QueryReply* reply) {
  const Engine& engine = view.engine;
  const PolicyResult& result = engine.allocation();
  const bool solved = !result.solver.empty();
  const bool in_round = engine.round_ends_at() != kNever;
  const TrialCost profiling = engine.ProfilingAt(view.now);
  const FailureRate& failures = engine.failure_rate();
  reply->json = DumpJson(
      {{"term", engine.position().term},
       {"seq", engine.position().seq},
       {"now_s", view.now},
       {"policy", view.policy},
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
         {"connections_cut", view.wire.connections_cut}}},
       {"profiling",
        {{"percentage_max", engine.options().profiling_percentage},
         {"accelerators", profiling.accelerators},
         {"accelerator_s", profiling.accelerator_s}}},
       {"failures",
        {{"workers_lost", failures.losses()},
         {"busy_s", failures.busy_s()},
         {"interval_s", failures.Interval_s()}}},
       {"troubles", view.troubles},
       {"jobs", CountStates(engine.jobs())}});
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
    case QueryKind::kQueue:
      AnswerQueue(request, view, &reply);
      break;
    case QueryKind::kNodes:
      AnswerNodes(request, view, &reply);
      break;
    case QueryKind::kWhy:
      AnswerWhy(request, view, &reply);
      break;
    case QueryKind::kStatus:
      AnswerStatus(view, &reply);
      break;
    case QueryKind::kForecast:
      AnswerForecast(request, view, &reply);
      break;
    case QueryKind::kHistory:  // is in the journal, not in the engine
      reply.error = "the history is not to be had here";
      break;
  }
  return reply;
}

}  // namespace gavel
